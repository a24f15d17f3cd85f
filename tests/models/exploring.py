"""Walking through a model to its end: every state that can be reached, and an invariant that is looked at in each.

A process of a model that stops is one that is never scheduled again, so every prefix of a run is a crash."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

S = TypeVar("S", bound=Hashable)


class Violation(AssertionError):
    """Says what is broken, and by which steps that came about."""


def explore(
    first: S,
    steps: Callable[[S], Iterable[tuple[str, S]]],
    broken: Callable[[S], str],
    *,
    most_states: int = 2_000_000,
) -> int:
    """The number of states. `broken` says what does not hold in a state; empty if all does."""
    came_from: dict[S, tuple[S, str] | None] = {first: None}
    waiting = deque([first])
    while waiting:
        state = waiting.popleft()
        for label, after in steps(state):
            if after in came_from:
                continue
            came_from[after] = (state, label)
            if wrong := broken(after):
                raise Violation("\n".join([wrong, *_trace(came_from, after)]))
            if len(came_from) > most_states:
                raise MemoryError(f"more than {most_states} states")
            waiting.append(after)
    return len(came_from)


def _trace(came_from: dict[S, tuple[S, str] | None], state: S) -> list[str]:
    labels: list[str] = []
    while (origin := came_from[state]) is not None:
        state, label = origin
        labels.append(label)
    return labels[::-1]
