"""A store of the simulation: a dictionary behind a way that is not reliable, with time as the simulation tells it."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

import pyarrow as pa

from lakeseal.errors import ObjectNotFound, StorageUnavailable
from lakeseal.storage.base import ObjectMeta
from lakeseal.storage.keys import check_key, check_prefix
from lakeseal.storage.streams import WriteStream
from simulated.faults import Faults
from simulated.scheduler import Scheduler

T = TypeVar("T")


class Watcher(Protocol):
    def has_put(self, store: SimulatedStore, key: str, before: bytes | None, data: bytes) -> None: ...

    def has_deleted(self, store: SimulatedStore, key: str) -> None: ...


class SimulatedStore:
    """A `Store`. A put whose reply is lost may have happened, may not, and may happen later."""

    def __init__(
        self, uri: str, scheduler: Scheduler, faults: Faults, watcher: Watcher, clock: Callable[[], int]
    ) -> None:
        self._uri, self._scheduler, self._faults, self._watcher, self._clock = uri, scheduler, faults, watcher, clock
        self.objects: dict[str, tuple[bytes, int]] = {}

    @property
    def uri(self) -> str:
        return self._uri

    def __repr__(self) -> str:
        return f"SimulatedStore({self._uri!r})"

    def get(self, key: str) -> bytes:
        return self._read(f"get {key}", lambda: self._there(key)[0])

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self._read(f"get_range {key}", lambda: self._there(key)[0][start : start + length])

    def get_ranges(self, key: str, spans: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        return [self.get_range(key, *span) for span in spans]

    def get_many(self, keys: Sequence[str]) -> builtins.list[bytes]:
        return [self.get(key) for key in keys]

    def head(self, key: str) -> ObjectMeta:
        return self._read(f"head {key}", lambda: self._meta(key))

    def list(self, prefix: str = "", *, after: str | None = None, recursive: bool = False) -> Iterator[ObjectMeta]:
        names = self._read(f"list {prefix}", lambda: self._names(prefix, after, recursive))
        return iter([self._meta(name) for name in names])

    def list_keys(self, prefix: str = "", *, after: str | None = None) -> builtins.list[str]:
        return self._read(f"list_keys {prefix}", lambda: self._names(prefix, after, False))

    def put(self, key: str, data: bytes) -> None:
        self._write(f"put {key}", lambda: self._set(check_key(key), data))

    def put_if_absent(self, key: str, data: bytes) -> bool:
        check_key(key)
        return self._write(
            f"put_if_absent {key}", lambda: key not in self.objects and self._set(key, data), may_be_late=True
        )

    def delete(self, keys: Iterable[str]) -> None:
        named = [check_key(key) for key in keys]
        self._write(f"delete {', '.join(named)}", lambda: self._delete(named))

    def set_time(self, key: str, modified_ms: int) -> None:
        self._write(f"set_time {key}", lambda: self.objects.update({key: (self._there(key)[0], modified_ms)}))

    def open_read(self, key: str) -> pa.NativeFile:
        return pa.BufferReader(self.get(key))

    def open_write(self, key: str) -> WriteStream:
        raise NotImplementedError("nothing large is written here")

    def _read(self, label: str, effect: Callable[[], T]) -> T:
        self._scheduler.step(label)
        if self._faults.strikes("store does not answer"):
            raise StorageUnavailable(f"{label}: no answer")
        return effect()

    def _write(self, label: str, effect: Callable[[], T], *, may_be_late: bool = False) -> T:
        self._scheduler.step(label)
        if self._faults.strikes("store does not answer"):
            raise StorageUnavailable(f"{label}: no answer")
        if may_be_late and self._faults.strikes("put lands late"):
            self._scheduler.spawn(f"late {label}", "network", effect, after_s=self._faults.pause_s())
            raise StorageUnavailable(f"{label}: no answer yet")
        result = effect()
        if self._faults.strikes("reply of a put is lost"):
            raise StorageUnavailable(f"{label}: the answer was lost")
        return result

    def _names(self, prefix: str, after: str | None, recursive: bool) -> builtins.list[str]:
        start = len(check_prefix(prefix))
        found = (key for key in self.objects if key.startswith(prefix) and (recursive or "/" not in key[start:]))
        return sorted(key for key in found if after is None or key > after)

    def _there(self, key: str) -> tuple[bytes, int]:
        found = self.objects.get(check_key(key))
        if found is None:
            raise ObjectNotFound(f"there is no {key}", file=key)
        return found

    def _meta(self, key: str) -> ObjectMeta:
        data, modified = self._there(key)
        return ObjectMeta(key=key, size=len(data), modified_ms=modified)

    def _set(self, key: str, data: bytes) -> bool:
        before = self.objects.get(key)
        self.objects[key] = (data, self._clock())
        self._watcher.has_put(self, key, None if before is None else before[0], data)
        return True

    def _delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            if self.objects.pop(key, None) is not None:
                self._watcher.has_deleted(self, key)
