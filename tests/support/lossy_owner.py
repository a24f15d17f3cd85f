"""An owner that is hard to reach: replies are lost after the fact, requests before it, at random and repeatably."""

from __future__ import annotations

import random
from typing import Any

from lakeseal.errors import StorageUnavailable, UnknownOutcome
from lakeseal.owner.endpoint import OwnerEndpoint

STEPS = frozenset(
    {
        "ratify",
        "backfill",
        "begin_takeover",
        "confirm_takeover",
        "withdraw_takeover",
        "begin_release",
        "finish_release",
    }
)
"""What may change something."""


class LossyOwner:
    """An `OwnerEndpoint`. Questions go through, since clients of a remote owner repeat those by themselves."""

    def __init__(self, owner: OwnerEndpoint, *, lost: float = 0.1, seed: int = 0) -> None:
        self._owner = owner
        self._lost = lost
        self._dice = random.Random(seed)
        self.losses = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._owner, name)
        if name not in STEPS:
            return found

        def ask(*arguments: Any, **named: Any) -> Any:
            draw = self._dice.random()
            if draw < self._lost / 2:
                self.losses += 1
                raise StorageUnavailable("the request was lost")
            answer = found(*arguments, **named)
            if draw < self._lost:
                self.losses += 1
                raise UnknownOutcome("the reply was lost")
            return answer

        return ask
