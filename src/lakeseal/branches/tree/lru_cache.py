"""`LruCache`: what was used last, in memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """The values that were used last, up to a total size."""

    def __init__(self, limit: int, size: Callable[[V], int]) -> None:
        self._limit = limit
        self._size = size
        self._values: OrderedDict[K, V] = OrderedDict()
        self._total = 0
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def put(self, key: K, value: V) -> None:
        with self._lock:
            if key in self._values:
                return
            self._values[key] = value
            self._total += self._size(value)
            while self._total > self._limit and len(self._values) > 1:
                _, dropped = self._values.popitem(last=False)
                self._total -= self._size(dropped)

    def replace(self, key: K, value: V) -> None:
        with self._lock:
            if key in self._values:
                self._total -= self._size(self._values.pop(key))
        self.put(key, value)

    def clear(self) -> None:
        with self._lock:
            self._values.clear()
            self._total = 0
