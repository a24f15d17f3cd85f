"""The seam between the ledger and a database: what differs from one to another, and nothing else.

A `Backend` hands out connections inside a transaction that has begun, says what an error of its driver means, and
survives `fork`. It knows no table.

Fork: a connection must not be used, nor even closed, by a process that did not open it (libpq would say goodbye on
the parent's socket; SQLite keeps its file locks in process memory, and a child that inherits that memory believes in
locks it does not hold). So before a fork idle connections are closed where that matters, and the child starts anew.
"""

from __future__ import annotations

import enum
import os
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import sqlalchemy as sa
from msgspec import Struct

from lakeseal.errors import LakesealError
from lakeseal.ledger.url import LedgerUrl


class TransactionKind(enum.Enum):
    READ = enum.auto()
    """Sees one moment of the database, whatever is committed meanwhile; writes nothing."""
    LOOK = enum.auto()
    """One statement that writes nothing. It sees one moment anyway, so no transaction is needed around it."""
    WRITE = enum.auto()
    MIGRATE = enum.auto()
    """Alone: a second one, from any process, waits."""


class DatabaseFault(Struct, frozen=True, kw_only=True):
    """What an error of the driver means."""

    error: LakesealError
    retry: bool = False
    """Nothing happened, and the same may succeed when tried again. Does not hold for COMMIT where `ambiguous`."""
    ambiguous: bool = False
    """If this was the answer to COMMIT, it may have happened or not."""


class Backend(Protocol):
    @property
    def url(self) -> LedgerUrl: ...

    @property
    def locks_rows(self) -> bool:
        """Whether writers run side by side, so that a row that was read must be locked to stay as it is."""

    @property
    def reads_rows(self) -> bool:
        """Whether one statement takes many rows as one text, and values as an array: see `statements`."""

    def transaction(self, kind: TransactionKind) -> AbstractContextManager[sa.Connection]:
        """A connection inside a transaction, which is rolled back at the end unless it was committed."""

    def fault(self, error: Exception) -> DatabaseFault: ...

    @property
    def insert(self) -> Callable[[sa.Table], Any]:
        """Makes an INSERT that knows ON CONFLICT."""

    def now(self, connection: sa.Connection) -> int:
        """Milliseconds since the epoch, by a clock that all users of this database share."""

    def make_room(self, connection: sa.Connection) -> None:
        """Called in a database that holds no ledger, before the first migration; refuses one that is in other use."""

    def close(self) -> None: ...

    def before_fork(self) -> None: ...

    def after_fork_in_parent(self) -> None: ...

    def after_fork_in_child(self) -> None: ...


_open: weakref.WeakSet[Backend] = weakref.WeakSet()


def survive_forks(backend: Backend) -> None:
    _open.add(backend)


def _before() -> None:
    for backend in list(_open):
        backend.before_fork()


def _after_in_parent() -> None:
    for backend in list(_open):
        backend.after_fork_in_parent()


def _after_in_child() -> None:
    for backend in list(_open):
        backend.after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
