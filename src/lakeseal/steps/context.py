"""What steps run with: stores, ledger and owners as the user configured them, and the turn of whoever runs them.

Records hold URIs and names, never credentials: those come from here. `StepSettings` is the same as JSON, for tasks and
other processes; it carries secrets, so send it to tasks and never to a log. Its `repr` hides them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from lakeseal import ledger as ledgers
from lakeseal import typed_json
from lakeseal.errors import InvalidArgument
from lakeseal.ledger import Ledger
from lakeseal.owner.config import OwnerConfig
from lakeseal.owner.connect import Owners, connect, is_service
from lakeseal.owner.endpoint import OwnerEndpoint
from lakeseal.steps.books import Books, LedgerBooks, books_of
from lakeseal.steps.places import StepPlaces
from lakeseal.steps.turn import Turn
from lakeseal.storage import Store, StoreSpec

if TYPE_CHECKING:
    from lakeseal.steps.sequence import CommitSequence


class StepContext:
    """May be shared by threads."""

    def __init__(
        self,
        *,
        ledger: Ledger | None = None,
        books: Books | None = None,
        storage_options: Mapping[str, str] | None = None,
        owners: Mapping[str, OwnerEndpoint] | None = None,
        turn: Turn | None = None,
        open_store: Callable[[str], Store] | None = None,
        spec_of: Callable[[str], StoreSpec] | None = None,
        places: StepPlaces | None = None,
        threads: int = 8,
    ) -> None:
        """`books` are those of a ledger elsewhere, if there is no `ledger`. `spec_of` says where stores are and how to
        open them, instead of `storage_options`; `open_store` replaces the opening itself. `places` are those that
        sequences may reach; without them a record is believed, which is for those who have just made it. `threads` is
        how many files a step may work on side by side."""
        self._ledger = ledger
        self._books = LedgerBooks(ledger) if ledger is not None else books
        self.storage_options = dict(storage_options or {})
        self._open_store, self._spec_of = open_store, spec_of
        self._stores: dict[str, Store] = {}
        self._lock = threading.Lock()
        self.owners: Mapping[str, OwnerEndpoint] = Owners() if owners is None else owners
        self.turn = turn
        self.places = places
        self.threads = threads

    def check_places(self, sequence: CommitSequence) -> None:
        """`NotAllowed` for a sequence that reaches for what is not its pipeline's."""
        if self.places is not None:
            self.places.check(sequence)

    @property
    def ledger(self) -> Ledger:
        if self._ledger is None:
            raise InvalidArgument("This step needs a ledger of this process", hint="Give the ledger's own URL")
        return self._ledger

    @property
    def books(self) -> Books:
        if self._books is None:
            raise InvalidArgument("This step needs a ledger", hint="Give the ledger's URL, or the service's")
        return self._books

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

    def spec(self, uri: str) -> StoreSpec:
        """The store at `uri`, for whoever opens it elsewhere."""
        if self._spec_of is not None:
            return self._spec_of(uri)
        spec = StoreSpec(uri=uri)
        # Options are for object stores; a disk refuses them, and a sequence may name both.
        local = spec.uri.startswith(("file:", "memory:"))
        return spec if local else StoreSpec(uri=uri, storage_options=self.storage_options)

    def _opened(self, uri: str) -> Store:
        return self.spec(uri).open() if self._open_store is None else self._open_store(uri)


class StepSettings(Struct, frozen=True, kw_only=True):
    """A `StepContext` that can travel."""

    ledger: str | None = None
    """The ledger's URL, or the address of a service that has one."""
    token: str | None = None
    """Of the service."""
    steps: str | None = None
    """The URI of the directory that sequences and task states are recorded in; None records them in the ledger."""
    storage_options: dict[str, str] = {}
    owners: tuple[OwnerConfig, ...] = ()
    turn: Turn | None = None
    places: StepPlaces | None = None
    threads: int = 8

    @contextmanager
    def open(self) -> Iterator[StepContext]:
        """With a connection to the ledger of its own, which is closed at the end."""
        ledger, books = None, None
        if self.ledger is not None and is_service(self.ledger):
            books = books_of(connect(self.ledger, token=self.token))
        elif self.ledger is not None:
            ledger = ledgers.open(self.ledger, create=False)
        try:
            yield StepContext(
                ledger=ledger,
                books=books,
                storage_options=self.storage_options,
                owners=Owners(*self.owners),
                turn=self.turn,
                places=self.places,
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
        url = self.ledger
        if url is not None and not is_service(url):
            url = ledgers.parse(url).public
        return f"StepSettings(ledger={url!r}, storage_options=<{', '.join(sorted(self.storage_options))}>)"
