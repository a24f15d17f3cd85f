"""What goes wrong in a run, and how often: of each kind that the run has, a share of the occasions."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection

KINDS = (
    "store does not answer",
    "put lands late",
    "reply of a put is lost",
    "request is lost",
    "request comes late",
    "request comes twice",
    "reply is lost",
    "ledger is busy",
    "answer to a ledger's commit is lost",
)


class Faults:
    def __init__(
        self, dice: random.Random, kinds: Collection[str], share: float, can_strike: Callable[[], bool]
    ) -> None:
        self._dice, self._kinds, self._share, self._can_strike = dice, frozenset(kinds), share, can_strike
        self.struck: dict[str, int] = {}
        self.is_over = False
        """From then on nothing goes wrong any more."""

    def strikes(self, kind: str) -> bool:
        if self.is_over or kind not in self._kinds or not self._can_strike():
            return False
        if self._dice.random() >= self._share:
            return False
        self.struck[kind] = self.struck.get(kind, 0) + 1
        return True

    def pause_s(self) -> float:
        """How late something comes: mostly soon, and now and then after whoever waited has given up."""
        return self._dice.choice((0.005, 0.05, 0.5, 5.0, 50.0)) * self._dice.random()
