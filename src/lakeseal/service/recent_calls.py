"""What a worker remembers of itself for its pages: the last calls that decided something or were refused, and how far
the backfill was behind. In memory, bounded, and of this worker alone: the log and `/metrics` have all of it."""

from __future__ import annotations

from collections import deque

from msgspec import Struct

from lakeseal.clock import now_ms

_CALLS, _LAGS = 2_000, 720


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
    """Used by the event loop and by threads: a deque takes care of itself."""

    def __init__(self) -> None:
        self.calls: deque[RecentCall] = deque(maxlen=_CALLS)
        self.lags: deque[tuple[int, int]] = deque(maxlen=_LAGS)

    def behind(self, lag_ms: int) -> None:
        self.lags.append((now_ms(), lag_ms))
