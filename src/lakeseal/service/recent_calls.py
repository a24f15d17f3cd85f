"""What a service remembers for its pages: the last calls that decided something or were refused, and how far the
backfill was behind. Bounded; the log and `/metrics` have all of it.

Workers share the folder of their numbers (`metrics`): each has files of its own in it, and reads those of all, so that
a page says the same whoever answers. A worker without others keeps it in memory.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from lakeseal.clock import now_ms
from lakeseal.service.metrics import FOLDER_VARIABLE

_CALLS, _LAGS = 2_000, 720
Lag = tuple[int, int]
"""When, and how many milliseconds."""
T = TypeVar("T")


class RecentCall(Struct, frozen=True, kw_only=True):
    at_ms: int
    call: str
    who: str
    """The name of the token."""
    tables: tuple[str, ...]
    versions: tuple[int, ...] = ()
    """Of these tables, if they were ratified."""
    conflicts: int = 0
    """Of these tables, how many had gone on."""
    refused: str | None = None
    """The kind of the error."""


class RecentCalls:
    """Used by the event loop and by threads."""

    def __init__(self) -> None:
        shared = os.environ.get(FOLDER_VARIABLE)
        self._calls: _Last[RecentCall] = _Last("calls", RecentCall, _CALLS, lambda one: one.at_ms, shared)
        self._lags: _Last[Lag] = _Last("lags", Lag, _LAGS, lambda one: one[0], shared)

    def note(self, call: RecentCall) -> None:
        self._calls.add(call)

    def behind(self, lag_ms: int) -> None:
        self._lags.add((now_ms(), lag_ms))

    def calls(self) -> tuple[RecentCall, ...]:
        """Oldest first."""
        return self._calls.all()

    def lags(self) -> tuple[Lag, ...]:
        return self._lags.all()


class _Last(Generic[T]):
    """The last values, of all workers if they share a folder. Each writes two files of lines, one after the other, and
    begins the older one anew when the newer one is full."""

    def __init__(self, name: str, kind: Any, most: int, at: Callable[[T], int], folder: str | None) -> None:
        self._name, self._most, self._at = name, most, at
        self._folder = None if folder is None else Path(folder)
        self._own: deque[T] = deque(maxlen=most)
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind)
        self._written = 0

    def add(self, one: T) -> None:
        if self._folder is None:
            self._own.append(one)
            return
        half = self._most // 2
        path = self._folder / f"{self._name}-{os.getpid()}-{self._written // half % 2}"
        how = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (os.O_TRUNC if self._written % half == 0 else 0)
        self._written += 1
        with suppress(OSError):  # a disk that is full must not fail a commit
            file = os.open(path, how, 0o600)
            try:
                os.write(file, msgspec.json.encode(one) + b"\n")
            finally:
                os.close(file)

    def all(self) -> tuple[T, ...]:
        if self._folder is None:
            return tuple(self._own)
        found: list[T] = []
        for path in self._folder.glob(f"{self._name}-*"):
            for line in path.read_bytes().splitlines():
                with suppress(msgspec.DecodeError):  # one that is being written
                    found.append(self._decoder.decode(line))
        return tuple(sorted(found, key=self._at)[-self._most :])
