"""Walking through the ownership protocol to its end: every interleaving of its steps, with lost replies and with
processes that stop at any point.

A process that stops is one that is never scheduled again, so every prefix of a run is a crash. `explore` visits every
state that can be reached and raises `Violation`, with the steps that led there, where an invariant breaks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from lakeseal.owner.ownership import State
from models.ownership_model import START, VERSIONS, Content, Process, World, merged, steps


class Violation(AssertionError):
    pass


def explore(
    processes: Sequence[Process],
    *,
    deviation: str = "",
    most_states: int = 5_000_000,
    is_catalogs: bool = False,
    is_doubled: bool = False,
) -> int:
    """The number of states. `is_doubled`: messages may come once more."""
    walk = _Walk(deviation)
    start = START._replace(is_catalogs=is_catalogs, letters=frozenset() if is_doubled else None)
    first = (walk.number(start), *(walk.number(process) for process in processes))
    came_from: dict[tuple[int, ...], tuple[tuple[int, ...], str] | None] = {first: None}
    waiting = deque([first])
    while waiting:
        state = waiting.popleft()
        world = state[0]
        for place in range(1, len(state)):
            for label, after, moved, wrong in walk.steps(world, state[place]):
                reached = (after, *state[1:place], moved, *state[place + 1 :])
                if reached in came_from:
                    continue
                came_from[reached] = (state, label)
                if wrong:
                    raise Violation("\n".join([wrong, *_trace(came_from, reached)]))
                if len(came_from) > most_states:
                    raise MemoryError(f"more than {most_states} states")
                waiting.append(reached)
    return len(came_from)


class _Walk:
    """Worlds and processes by number, and each step of a process in a world worked out once: most states differ only
    in what the other processes are at."""

    def __init__(self, deviation: str) -> None:
        self._deviation = deviation
        self._numbers: dict[World | Process, int] = {}
        self._values: list[World | Process] = []
        self._steps: dict[tuple[int, int], list[tuple[str, int, int, str]]] = {}

    def number(self, value: World | Process) -> int:
        found = self._numbers.get(value)
        if found is None:
            found = self._numbers[value] = len(self._values)
            self._values.append(value)
        return found

    def steps(self, world: int, process: int) -> list[tuple[str, int, int, str]]:
        found = self._steps.get((world, process))
        if found is None:
            before, mover = self._values[world], self._values[process]
            assert isinstance(before, World)
            assert isinstance(mover, Process)
            found = [
                (f"{mover.name}: {label}", self.number(after), self.number(moved), broken(before, after, moved))
                for label, after, moved in steps(before, mover, self._deviation)
            ]
            self._steps[world, process] = found
        return found


def broken(before: World, after: World, moved: Process) -> str:
    """The invariant that does not hold; empty if all do."""
    for version, content in enumerate(before.log):
        if content is not None and after.log[version] != content:
            return f"F1: version {version} was {content} and became {after.log[version]}"
    there = [content is not None for content in after.log]
    if there != sorted(there, reverse=True):
        return f"B1, F3: the log has a gap: {after.log}"
    commits = merged(after.log, after.rows)
    promises = after.table.promises
    for row in after.rows:
        content = after.log[row.version]
        if content is not None and content != Content("owned", row.txn):
            return f"B2, O1: version {row.version} is ratified as {row.txn} and is {content} in the log"
        if content is None and not row.bytes and (row.version, row.txn) not in after.staged:
            return f"M3: version {row.version} is ratified and its bytes are nowhere"
    for txn, version in after.acknowledged:
        if commits.get(version) is None or commits[version].txn != txn:
            return f"F2, B5: {txn} was acknowledged as version {version}, which is {commits.get(version)}"
    names = [content.txn for content in commits.values()]
    if len(set(names)) != len(names):
        return f"F2: a transaction is there twice: {names}"
    owner: str | None = None
    for version in sorted(commits):
        content = commits[version]
        if content.kind in ("file", "take") and owner is not None:
            return f"O1: version {version} was written past the owner"
        if content.kind in ("owned", "free") and owner is None:
            return f"O1: version {version} was ratified for a table that has no owner"
        owner = content.txn if content.kind == "take" else None if content.kind == "free" else owner
    if owner is not None and not (
        after.table.is_owned or (after.table.state is State.PENDING and owner in after.table.promises)
    ):
        return f"O3: the table is owned by the log's word, and the owner says {after.table.state}"
    if owner is None and after.table.is_owned and not _release_landed(after):
        return f"O1, O4: the owner believes itself {after.table.state} of a table that it does not have"
    if after.table.state is State.RELEASING:
        over = [v for v, one in enumerate(after.log) if one is not None and one.kind == "free" and one.txn in promises]
        if over and over[0] != after.table.change_version:
            return f"O4: the release of version {over[0]} is over, and has begun again"
    if moved.kind == "reader" and moved.at == "done" and moved.seen is not None:
        missed = [one for one in moved.expected if one[1] > moved.seen.latest]
        if missed:
            return f"B5: the reader saw version {moved.seen.latest} and missed {missed}"
    return ""


def _release_landed(world: World) -> bool:
    """Between the release's commit and the owner's knowing of it."""
    version = world.table.change_version
    content = None if version is None or version >= VERSIONS else world.log[version]
    return world.table.state is State.RELEASING and content is not None and content.kind == "free"


def _trace(came_from: dict[tuple[int, ...], tuple[tuple[int, ...], str] | None], state: tuple[int, ...]) -> list[str]:
    labels: list[str] = []
    while (origin := came_from[state]) is not None:
        state, label = origin
        labels.append(label)
    return labels[::-1]
