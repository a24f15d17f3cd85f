"""The one clock: what time it is, for whatever is written down or compared with what others wrote.

How long something takes, and until when to wait, is told by clocks that nobody sets: `time.monotonic`, and `backoff`.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Milliseconds since 1970. What takes one as an argument can be tested at any time."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def now() -> dt.datetime:
    """In UTC, and saying so."""
    return dt.datetime.now(dt.UTC)
