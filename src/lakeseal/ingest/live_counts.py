"""How far tasks are while they read, for whoever watches: a small object for each order, which its task puts anew every
so often, in the staging area below the target.

Tasks run anywhere, and what all of them reach is the target. Nothing depends on these objects: what can't be put or
read is not shown, a run that nobody watches has none, and what is left goes with the staging area.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

import msgspec
from msgspec import Struct

from lakeseal.errors import LakesealError
from lakeseal.storage import Store, StoreSpec


class Counts(Struct, frozen=True, kw_only=True):
    rows: int = 0
    """That were read, and records that are no rows."""
    bytes: int = 0
    size: int = 0
    """How much of what was planned, by the sizes of its units."""

    def __add__(self, other: Counts) -> Counts:
        return Counts(rows=self.rows + other.rows, bytes=self.bytes + other.bytes, size=self.size + other.size)


class CountsPlace(Struct, frozen=True, kw_only=True):
    """Of a dataset in one attempt."""

    store: StoreSpec
    every_s: float

    def read(self) -> Counts | None:
        """Of all orders that have told anything."""
        with suppress(LakesealError, msgspec.MsgspecError):
            store = self.store.open()
            told = store.get_many(store.list_keys())
            return sum((msgspec.json.decode(one, type=Counts) for one in told), Counts()) if told else None
        return None


class OrderCounts:
    """What a task has read of one order."""

    def __init__(self, place: CountsPlace | None, order: int) -> None:
        self._place, self._key = place, str(order)
        self._store: Store | None = None
        self._done, self._unit = Counts(), Counts()
        self._told = time.monotonic()

    def read(self, rows: int, size: int, of: int) -> None:
        """Some of a unit whose size was planned as `of`."""
        if self._place is None:
            return
        unit = self._unit
        self._unit = Counts(rows=unit.rows + rows, bytes=unit.bytes + size, size=min(of, unit.bytes + size))
        if time.monotonic() - self._told >= self._place.every_s:
            self._tell(self._place)

    def ended(self, of: int) -> None:
        """The unit has."""
        self._done += msgspec.structs.replace(self._unit, size=of)
        self._unit = Counts()

    def _tell(self, place: CountsPlace) -> None:
        with suppress(LakesealError):
            self._store = self._store or place.store.open()
            self._store.put(self._key, msgspec.json.encode(self._done + self._unit))
        self._told = time.monotonic()


@contextmanager
def watched(places: Mapping[str, CountsPlace], tell: Callable[[str, Counts], None]) -> Iterator[None]:
    """Tells meanwhile, from a thread, what tasks have read of each dataset; nothing more when it is left."""
    if not places:
        yield
        return
    is_over = threading.Event()
    every_s = min(place.every_s for place in places.values())

    def look() -> None:
        while not is_over.wait(every_s):
            for name, place in places.items():
                found = place.read()
                if is_over.is_set():
                    return
                if found is not None:
                    tell(name, found)

    thread = threading.Thread(target=look, name="lakeseal-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
