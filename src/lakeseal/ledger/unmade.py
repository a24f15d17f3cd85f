"""A ledger that may not be there yet. Whoever reads it finds nothing in it; whoever writes to it makes it.

To look at a table must not leave a database behind, least of all an empty one in a folder where nobody expects it.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from lakeseal.errors import NotFound
from lakeseal.ledger import ledger
from lakeseal.ledger.ledger import PATIENCE, Ledger
from lakeseal.ledger.tx import Tx
from lakeseal.ledger.url import LedgerUrl, parse

if TYPE_CHECKING:
    pass

T = TypeVar("T")
_log = logging.getLogger(__name__)


def open_unmade(text: str, *, patience: float = PATIENCE) -> Ledger:
    """The ledger at a URL, which is made by its first write if it is not there."""
    url = parse(text)
    if url.kind == "memory":
        return ledger.open(text, patience=patience)
    try:
        return ledger.open(text, create=False, patience=patience)
    except NotFound:
        return UnmadeLedger(url, patience=patience)


class UnmadeLedger(Ledger):
    """See the module. Made by `open_unmade`."""

    def __init__(self, url: LedgerUrl, *, patience: float) -> None:
        self._url = url
        self._patience = patience
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
                    self._made = ledger.open(self._url.connect, create=False, patience=self._patience)
                except NotFound:
                    return None
            return self._made

    def _make(self) -> Ledger:
        found = self._found()
        if found is not None:
            return found
        with self._lock:
            if self._made is None:
                self._made = ledger.open(self._url.connect, patience=self._patience)
                _log.info("a new ledger was made: %s", self._url)
            return self._made

    def _nothing(self) -> Ledger:
        with self._lock:
            if self._empty is None:
                self._empty = ledger.open("sqlite://", patience=self._patience)
            return self._empty
