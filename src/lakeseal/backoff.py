"""The one way of trying again: how long to pause after each try, and until when to go on.

    for _ in Backoff(first_s=0.005, longest_s=0.5).tries(within_s=30):
        …                                        # return what was asked for, or go on to the next try
    raise …

Pauses double from the first to the longest, and are cut at random, so that those who collided once do not again. A
deadline is met, not passed: the last pause is what is left, and one more try follows it.
"""

from __future__ import annotations

import datetime as dt
import random
import time
from collections.abc import Callable, Iterator

from msgspec import Struct

from lakeseal import clock

# The system's: processes that were forked pause differently, and nobody else's random numbers are touched.
_chance = random.SystemRandom()


class Deadline:
    """A moment until which to wait. Setting the machine's clock does not move it."""

    def __init__(self, within_s: float) -> None:
        self._at = time.monotonic() + within_s

    @property
    def left_s(self) -> float:
        """Not below 0."""
        return max(0.0, self._at - time.monotonic())

    @property
    def is_over(self) -> bool:
        return not self.left_s

    def wait(self, seconds: float, sleep: Callable[[float], None] | None = None) -> bool:
        """So long, or as long as there is time left; False, at once, if there is none."""
        left = self.left_s
        if left:
            (sleep or time.sleep)(min(left, seconds))
        return left > 0

    def __str__(self) -> str:
        """The time of day, for people."""
        return (clock.now() + dt.timedelta(seconds=self.left_s)).astimezone().strftime("%H:%M:%S")


class Backoff(Struct, frozen=True, kw_only=True):
    first_s: float
    longest_s: float = float("inf")
    least: float = 0.5
    """The share of a pause that is always waited; how much of the rest, chance decides."""

    def pause_s(self, tries: int) -> float:
        """After so many tries, 1 or more."""
        whole = min(self.longest_s, self.first_s * 2.0 ** min(tries - 1, 60))
        return whole * _chance.uniform(self.least, 1.0)

    def tries(
        self,
        *,
        within_s: float = float("inf"),
        most: int | None = None,
        sleep: Callable[[float], None] | None = None,
    ) -> Iterator[int]:
        """1, 2, 3 …, with a pause before each but the first, until there is no time left or there were so many."""
        deadline, tried = Deadline(within_s), 0
        while most is None or tried < most:
            if tried and not deadline.wait(self.pause_s(tried), sleep):
                return
            tried += 1
            yield tried
