"""What steps run with: stores, ledger and owners as the user configured them, and the turn of whoever runs them.

Records hold URIs and names, never credentials: those come from here. `StepSettings` is the same as JSON, for tasks and
other processes; it carries secrets, so send it to tasks and never to a log. Its `repr` hides them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import msgspec
from msgspec import Struct

from lakeseal import ledger as ledgers
from lakeseal import typed_json
from lakeseal.errors import InvalidArgument
from lakeseal.ledger import Ledger
from lakeseal.owner.connect import OwnerConfig, Owners
from lakeseal.owner.endpoint import OwnerEndpoint
from lakeseal.storage import Store, StoreSpec


class Turn(Struct, frozen=True, kw_only=True):
    """Whose turn it is: the name of a lease and the epoch under which it was got.

    Everything that its holder writes names the epoch. It is refused (`Fenced`) once a later epoch has been seen there,
    however the holder came to be late; so safety never rests on a lease's time."""

    name: str
    epoch: int


class StepContext:
    """May be shared by threads."""

    def __init__(
        self,
        *,
        ledger: Ledger | None = None,
        storage_options: Mapping[str, str] | None = None,
        owners: Mapping[str, OwnerEndpoint] | None = None,
        turn: Turn | None = None,
        open_store: Callable[[str], Store] | None = None,
        threads: int = 8,
    ) -> None:
        """`open_store` replaces the opening of stores by `storage_options`. `threads` is how many files a step may
        work on side by side."""
        self._ledger = ledger
        self.storage_options = dict(storage_options or {})
        self._open_store = open_store
        self._stores: dict[str, Store] = {}
        self._lock = threading.Lock()
        self.owners: Mapping[str, OwnerEndpoint] = Owners() if owners is None else owners
        self.turn = turn
        self.threads = threads

    @property
    def ledger(self) -> Ledger:
        if self._ledger is None:
            raise InvalidArgument("This step needs a ledger", hint="Give the ledger's URL")
        return self._ledger

    @property
    def has_ledger(self) -> bool:
        return self._ledger is not None

    def store(self, uri: str) -> Store:
        """The store rooted at `uri`; opened once."""
        with self._lock:
            found = self._stores.get(uri)
            if found is None:
                found = self._stores[uri] = self._opened(uri)
            return found

    def _opened(self, uri: str) -> Store:
        if self._open_store is not None:
            return self._open_store(uri)
        spec = StoreSpec(uri=uri)
        # Options are for object stores; a disk refuses them, and a sequence may name both.
        local = spec.uri.startswith(("file:", "memory:"))
        return spec.open() if local else StoreSpec(uri=uri, storage_options=self.storage_options).open()


class StepSettings(Struct, frozen=True, kw_only=True):
    """A `StepContext` that can travel."""

    ledger: str | None = None
    """The ledger's URL."""
    steps: str | None = None
    """The URI of the directory that sequences and task states are recorded in; None records them in the ledger."""
    storage_options: dict[str, str] = {}
    owners: tuple[OwnerConfig, ...] = ()
    turn: Turn | None = None
    threads: int = 8

    @contextmanager
    def open(self) -> Iterator[StepContext]:
        """With a connection to the ledger of its own, which is closed at the end."""
        ledger = None if self.ledger is None else ledgers.open(self.ledger, create=False)
        try:
            yield StepContext(
                ledger=ledger,
                storage_options=self.storage_options,
                owners=Owners(*self.owners),
                turn=self.turn,
                threads=self.threads,
            )
        finally:
            if ledger is not None:
                ledger.close()

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> StepSettings:
        try:
            return typed_json.decode(text, cls)
        except msgspec.MsgspecError as error:
            raise InvalidArgument(
                f"The settings of steps are malformed: {error}",
                hint="Driver and tasks must run the same version of Lakeseal",
            ) from None

    def __repr__(self) -> str:
        url = None if self.ledger is None else ledgers.parse(self.ledger).public
        return f"StepSettings(ledger={url!r}, storage_options=<{', '.join(sorted(self.storage_options))}>)"
