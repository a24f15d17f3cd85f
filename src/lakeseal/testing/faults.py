"""A store that fails where it is told to: lost replies, outages, delays, crashes.

    FaultyStore(store, [Fault("put_if_absent", "_delta_log/*", how=How.LOSE_REPLY)])

Each fault strikes at certain calls with certain keys, counted from 1 among the calls that it matches. What is not
struck goes through to the store. `calls` is the record of everything that was asked, in order.
"""

from __future__ import annotations

import builtins
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from fnmatch import fnmatchcase
from typing import TypeVar

import pyarrow as pa
from msgspec import Struct

from lakeseal.errors import LakesealError, StorageUnavailable
from lakeseal.storage.base import MovesObjects, ObjectMeta, Store, SyncsObjects
from lakeseal.storage.streams import WriteStream

T = TypeVar("T")

CRASHED = 137


class How(Enum):
    FAIL = "raise, and nothing happened"
    LOSE_REPLY = "it happened, and then raise"
    LAND_LATE = "raise, and it happens when `later` further calls have been made"
    DELAY = "wait `seconds`, then go on"
    CRASH_BEFORE = "end the process, and nothing happened"
    CRASH_AFTER = "it happened, and then end the process"


class Fault(Struct, frozen=True):
    call: str = "*"
    """The method of the store, or `close` for a stream of `open_write`; `*` is any."""
    key: str = "*"
    """A pattern as of a shell; `*` also goes across slashes. For calls with several keys, any of them counts."""
    how: How = How.FAIL
    nth: int = 1
    """The first matching call that is struck."""
    times: int = 1
    """How many in a row are struck."""
    error: Callable[[str], LakesealError] = StorageUnavailable
    later: int = 1
    seconds: float = 0.0

    def matches(self, call: str, keys: Sequence[str]) -> bool:
        return fnmatchcase(call, self.call) and any(fnmatchcase(key, self.key) for key in keys)


class StoreCall(Struct, frozen=True):
    name: str
    keys: tuple[str, ...]
    struck: How | None = None


class FaultyStore:
    """May be shared by threads, as every store."""

    def __init__(self, store: Store, faults: Iterable[Fault] = ()) -> None:
        self._store = store
        self._faults = tuple(faults)
        self._seen = [0] * len(self._faults)
        self._late: list[tuple[int, Callable[[], object]]] = []
        self._lock = threading.RLock()
        self.calls: list[StoreCall] = []

    @property
    def uri(self) -> str:
        return self._store.uri

    def __repr__(self) -> str:
        return f"FaultyStore({self._store!r})"

    def get(self, key: str) -> bytes:
        return self._through("get", (key,), lambda: self._store.get(key))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self._through("get_range", (key,), lambda: self._store.get_range(key, start, length))

    def get_ranges(self, key: str, spans: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        """In `calls` the key is there once for each span."""
        return self._through("get_ranges", (key,) * len(spans), lambda: self._store.get_ranges(key, spans))

    def get_many(self, keys: Sequence[str]) -> builtins.list[bytes]:
        return self._through("get_many", tuple(keys), lambda: self._store.get_many(keys))

    def head(self, key: str) -> ObjectMeta:
        return self._through("head", (key,), lambda: self._store.head(key))

    def list(self, prefix: str = "", *, after: str | None = None, recursive: bool = False) -> Iterator[ObjectMeta]:
        return self._through("list", (prefix,), lambda: self._store.list(prefix, after=after, recursive=recursive))

    def list_keys(self, prefix: str = "", *, after: str | None = None) -> builtins.list[str]:
        return self._through("list_keys", (prefix,), lambda: self._store.list_keys(prefix, after=after))

    def put(self, key: str, data: bytes) -> None:
        return self._through("put", (key,), lambda: self._store.put(key, data))

    def put_if_absent(self, key: str, data: bytes) -> bool:
        return self._through("put_if_absent", (key,), lambda: self._store.put_if_absent(key, data))

    def sync(self, key: str) -> None:
        store = self._store
        if isinstance(store, SyncsObjects):
            self._through("sync", (key,), lambda: store.sync(key))

    def delete(self, keys: Iterable[str]) -> None:
        named = tuple(keys)
        return self._through("delete", named, lambda: self._store.delete(named))

    def move(self, pairs: Sequence[tuple[str, str]], to: Store) -> builtins.list[tuple[str, str]]:
        store, there = self._store, to._store if isinstance(to, FaultyStore) else to
        if not isinstance(store, MovesObjects):
            return builtins.list(pairs)
        return self._through("move", tuple(source for source, _ in pairs), lambda: store.move(pairs, there))

    def open_read(self, key: str) -> pa.NativeFile:
        return self._through("open_read", (key,), lambda: self._store.open_read(key))

    def open_write(self, key: str) -> WriteStream:
        stream = self._through("open_write", (key,), lambda: self._store.open_write(key))
        return _FaultyStream(stream, lambda close: self._through("close", (key,), close))

    def settle(self) -> None:
        """Everything that was to land late lands now."""
        with self._lock:
            late, self._late = self._late, []
        for _, effect in late:
            effect()

    def _through(self, name: str, keys: tuple[str, ...], effect: Callable[[], T]) -> T:
        fault = self._strike(name, keys, effect)
        match None if fault is None else fault.how:
            case How.FAIL | How.LAND_LATE:
                raise self._error(fault, name, keys)
            case How.CRASH_BEFORE:
                os._exit(CRASHED)
            case How.DELAY if fault is not None:
                time.sleep(fault.seconds)
        result = effect()
        match None if fault is None else fault.how:
            case How.LOSE_REPLY:
                raise self._error(fault, name, keys)
            case How.CRASH_AFTER:
                os._exit(CRASHED)
        return result

    def _strike(self, name: str, keys: tuple[str, ...], effect: Callable[[], object]) -> Fault | None:
        with self._lock:
            due = [late for left, late in self._late if left <= 1]
            self._late = [(left - 1, late) for left, late in self._late if left > 1]
            found = None
            for index, fault in enumerate(self._faults):
                if fault.matches(name, keys):
                    self._seen[index] += 1
                    if found is None and fault.nth <= self._seen[index] < fault.nth + fault.times:
                        found = fault
            if found is not None and found.how is How.LAND_LATE:
                self._late.append((found.later, effect))
            self.calls.append(StoreCall(name, keys, None if found is None else found.how))
            for late in due:
                late()
        return found

    @staticmethod
    def _error(fault: Fault | None, name: str, keys: tuple[str, ...]) -> LakesealError:
        assert fault is not None
        return fault.error(f"A fault was injected into {name} of {', '.join(keys)}")


class _FaultyStream(WriteStream):
    def __init__(self, stream: WriteStream, closing: Callable[[Callable[[], None]], None]) -> None:
        super().__init__(stream.key)
        self._stream = stream
        self._closing = closing

    def _append(self, data: memoryview) -> None:
        self._stream.write(data)

    def _publish(self) -> None:
        self._closing(self._stream.close)

    def _discard(self) -> None:
        self._stream.abort()
