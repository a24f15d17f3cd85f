"""The database of ratified facts: transactions over the tables of `schema`, on SQLite or PostgreSQL.

What a caller may rely on, on every database:

- A write happens whole or not at all. When `write` returns, it is durable: it survives the death of the process, and of
  the machine as far as its disk keeps what it said it kept.
- Two writes that touch the same rows behave as if one ran after the other (`Tx` says exactly what is locked).
- A read sees one moment: all of any write or nothing of it.
- A write that can't get its turn, or whose connection is lost before it was asked to commit, is run again, until the
  ledger's patience is over: then `StorageUnavailable`, and nothing happened.
- When the connection is lost *while* it was asked to commit, nobody knows: `UnknownOutcome`. It is not run again,
  unless the caller says that running it twice is the same as once.

So functions given to `write` and `read` may run more than once, and must do nothing but use their `Tx`. No decision is
made by the database's clock; callers pass the times that they store.

A `Ledger` may be shared by threads and lives through `fork`; pickled, it is its URL (with the password, as whoever
unpickles it must connect) and is opened again on the other side.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from lakeseal.backoff import Backoff
from lakeseal.errors import BrokenLedger, InvalidArgument, NotFound, UnknownOutcome
from lakeseal.ledger.backend import Backend, TransactionKind
from lakeseal.ledger.migrate import migrate
from lakeseal.ledger.postgres.backend import PostgresBackend
from lakeseal.ledger.schema import IDENTITY, facts
from lakeseal.ledger.sqlite.backend import SqliteBackend
from lakeseal.ledger.tx import Again, Tx
from lakeseal.ledger.url import LedgerUrl, parse

PATIENCE = 30.0

T = TypeVar("T")

_log = logging.getLogger(__name__)

_BACKOFF = Backoff(first_s=0.005, longest_s=0.5)


def open(url: str, *, create: bool = True, patience: float = PATIENCE) -> Ledger:
    """Opens the ledger at `url` and brings its schema up to date; makes it where it is absent and `create` is set.
    `patience` is how many seconds a transaction waits for others, or for a server that is away, before it gives up."""
    where = parse(url)
    backend: Backend
    if where.kind == "postgresql":
        backend = PostgresBackend(where, patience=patience)
    else:
        backend = SqliteBackend(where, create=create, patience=patience)
    try:
        migrate(backend, create=create or where.kind == "memory")
    except SQLAlchemyError as error:
        backend.close()
        raise backend.fault(error).error from error
    except BaseException:
        backend.close()
        raise
    return Ledger(backend, patience=patience)


def open_unmade(text: str) -> Ledger:
    """The ledger at a URL, which is made by its first write if it is not there."""
    url = parse(text)
    if url.kind == "memory":
        return open(text)
    try:
        return open(text, create=False)
    except NotFound:
        return UnmadeLedger(url)


class Ledger:
    """See the module. Made by `open`."""

    def __init__(self, backend: Backend, *, patience: float) -> None:
        self._backend = backend
        self._patience = patience
        self._closed = False
        self._thread = threading.local()

    @property
    def url(self) -> LedgerUrl:
        return self._backend.url

    @property
    def is_made(self) -> bool:
        """Whether it is there; see `UnmadeLedger`."""
        return True

    def identity(self) -> str:
        """What tells this ledger from all others. Made once, with the ledger; a copy of the ledger has the same."""
        found = self.read(lambda tx: tx.get(facts, name=IDENTITY))
        if found is None or not isinstance(found.value, str):
            raise BrokenLedger(f"the ledger {self.url} does not know its identity", hint="Restore it from a backup")
        return found.value

    def write(self, do: Callable[[Tx], T], *, idempotent: bool = False) -> T:
        """Runs `do` in one transaction and commits it; an exception from `do` rolls everything back.

        `idempotent` says that `do` finds out by an id of its own whether it was done before, and then answers as it
        did then: after a lost answer it is run again instead of raising `UnknownOutcome`. Asking again is the only sure
        way to learn the outcome: it waits for the first attempt where that is still on its way, while a read would
        just not see it yet."""
        return self._patiently(lambda: self._once(do, TransactionKind.WRITE), again_if_unknown=idempotent)

    def read(self, do: Callable[[Tx], T]) -> T:
        """Runs `do` on one snapshot of the ledger."""
        return self._patiently(lambda: self._once(do, TransactionKind.READ), again_if_unknown=True)

    def look(self, do: Callable[[Tx], T]) -> T:
        """As `read`, for a function that asks one question: cheaper where each message to a database costs. A second
        question is refused."""
        return self._patiently(lambda: self._once(do, TransactionKind.LOOK), again_if_unknown=True)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Ledger({self.url.public!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        if self.url.kind == "memory":
            raise InvalidArgument("a ledger in memory can't leave its process", hint="Use a file or PostgreSQL")
        return (_open_again, (self.url.connect, self._patience))

    def _patiently(self, attempt: Callable[[], T], *, again_if_unknown: bool) -> T:
        for _ in _BACKOFF.tries(within_s=self._patience):
            try:
                return attempt()
            except Again as again:
                error, cause = again.error, again.__cause__
            except UnknownOutcome as unknown:
                if not again_if_unknown:
                    raise
                error, cause = unknown, unknown.__cause__
        raise error from cause

    def _meaning(self, error: SQLAlchemyError, *, committing: bool) -> Exception:
        fault = self._backend.fault(error)
        if committing and fault.ambiguous:
            return UnknownOutcome(f"no answer to a commit: {fault.error.message}")
        return Again(fault.error) if fault.retry else fault.error

    def _once(self, do: Callable[[Tx], T], kind: TransactionKind) -> T:
        if self._closed:
            raise InvalidArgument(f"the ledger {self.url} is closed")
        if getattr(self._thread, "inside", False):
            hint = "Use the tx that the outer one was given"
            raise InvalidArgument("a transaction of this ledger was begun inside another", hint=hint)
        self._thread.inside = True
        committing = False
        try:
            with self._backend.transaction(kind) as connection:
                tx = Tx(connection, self._backend, kind)
                result = _run(do, tx)
                committing = True
                connection.commit()
                committing = False
                return result
        except SQLAlchemyError as error:
            raise self._meaning(error, committing=committing and kind is TransactionKind.WRITE) from error
        finally:
            self._thread.inside = False


class UnmadeLedger(Ledger):
    """A ledger that may not be there yet: whoever reads it finds nothing in it, whoever writes to it makes it.

    To look at a table must not leave a database behind, least of all an empty one in a folder where nobody expects it.
    Made by `open_unmade`."""

    def __init__(self, url: LedgerUrl) -> None:
        self._url = url
        self._patience = PATIENCE
        self._lock = threading.Lock()
        self._made: Ledger | None = None
        self._empty: Ledger | None = None

    @property
    def url(self) -> LedgerUrl:
        return self._url

    @property
    def is_made(self) -> bool:
        return self._found() is not None

    def read(self, do: Callable[[Tx], T]) -> T:
        return (self._found() or self._nothing()).read(do)

    def look(self, do: Callable[[Tx], T]) -> T:
        return (self._found() or self._nothing()).look(do)

    def write(self, do: Callable[[Tx], T], *, idempotent: bool = False) -> T:
        return self._make().write(do, idempotent=idempotent)

    def identity(self) -> str:
        return self._make().identity()

    def close(self) -> None:
        with self._lock:
            for opened in (self._made, self._empty):
                if opened is not None:
                    opened.close()

    def _found(self) -> Ledger | None:
        """It, if somebody has made it meanwhile."""
        with self._lock:
            if self._made is None and (self._url.kind != "sqlite" or os.path.exists(self._url.path)):
                try:
                    self._made = open(self._url.connect, create=False)
                except NotFound:
                    return None
            return self._made

    def _make(self) -> Ledger:
        found = self._found()
        if found is not None:
            return found
        with self._lock:
            if self._made is None:
                self._made = open(self._url.connect)
                _log.info("a new ledger was made: %s", self._url)
            return self._made

    def _nothing(self) -> Ledger:
        with self._lock:
            if self._empty is None:
                self._empty = open("sqlite://")
            return self._empty


def _run(do: Callable[[Tx], T], tx: Tx) -> T:
    try:
        result = do(tx)
    except Exception:
        # Whatever `do` made of a statement that failed by a collision, it deserves its second chance.
        if isinstance(tx.failure, Again):
            raise tx.failure from tx.failure.__cause__
        raise
    finally:
        tx.end()
    if tx.failure is not None:
        # `do` caught the error and went on; the database has dropped the transaction, so committing would be a lie.
        raise tx.failure
    return result


def _open_again(url: str, patience: float) -> Ledger:
    return open(url, create=False, patience=patience)
