"""How often somebody may ask, in this process."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

_MOST_KEYS = 10_000


class Buckets:
    """A token bucket per key: `rate` a second, and `burst` at once after a pause. Not for several threads."""

    def __init__(self, rate: float, burst: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        """A rate of 0 is no limit."""
        self._rate = rate
        self._burst = max(burst, 1.0)
        self._clock = clock
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str) -> float:
        """0 if there was one to take; otherwise the seconds until there will be."""
        level = self._level(key)
        if not self._rate or level >= 1:
            self._set(key, level - 1)
            return 0.0
        return (1 - level) / self._rate

    def wait(self, key: str) -> float:
        """As `take`, and takes none."""
        level = self._level(key)
        return 0.0 if not self._rate or level >= 1 else (1 - level) / self._rate

    def _level(self, key: str) -> float:
        level, then = self._levels.get(key, (self._burst, 0.0))
        return min(self._burst, level + (self._clock() - then) * self._rate)

    def _set(self, key: str, level: float) -> None:
        self._levels[key] = (level, self._clock())
        self._levels.move_to_end(key)
        if len(self._levels) > _MOST_KEYS:
            # Whoever was silent longest has a full bucket again anyway.
            self._levels.popitem(last=False)
