"""Power cuts: everything that was not synced is dropped, also partly and out of order, and who comes after.

Each scenario is recorded call by call. For each moment of it, the states that a power cut may leave are laid out
(`recording` says what a disk may lose): one with nothing that was not synced, and some with parts of that, by dice.
In each, what was acknowledged is there, nothing else is seen than before or after, no file has its name and not its
content, upkeep changes nothing that is seen, and what was begun can be done.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from children import in_child, side_by_side
from recording import Disk, Left, Recording, states
from report import Report
from scenarios import NOBODY, SCENARIOS, SQLITE, history
from strikes import Act, Case, Stage, come_after, rehearse

HISTORIES = tuple(history(seed, 20) for seed in range(18))
CASES = tuple(
    Case(scenario, ledger)
    for scenario in (*HISTORIES, *SCENARIOS)
    for ledger in scenario.ledgers
    if ledger in (NOBODY, SQLITE)
)
SEEDS = 3
"""How many states by dice at each moment, beside the one with nothing."""
LEAST = 2000
_TOGETHER = 20
"""States that one process looks at, one after the other."""


class Cut(NamedTuple):
    states: int
    events: int
    violations: list[str]


def main(report: Report) -> None:
    wanted = [case for case in CASES if report.only in case.name]
    total = 0
    for number, answer in side_by_side(range(len(wanted)), lambda number: cut(wanted[number])):
        found = Cut(*answer)
        name = wanted[number].name
        report.say(f"{name}: {found.events} calls, {found.states} states, {len(found.violations)} violations")
        report.count(f"{name}: states", found.states)
        for one in found.violations:
            report.violation(one)
        total += found.states
        report.count("calls recorded", found.events)
        report.count("states", found.states)
    if total < LEAST and not report.only:
        report.violation(f"there were only {total} states")


def cut(case: Case, *, seeds: int = SEEDS, every: int = 1) -> Cut:
    root = Path(tempfile.mkdtemp(prefix="lakeseal-cuts-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    stage = Stage(case, root, None)
    try:
        stage.set()
        acts, _ = rehearse(stage)
        stage.reset(0)
        kept = root / "states"
        recorded = in_child(lambda: _record(stage, kept, seeds))
        if recorded.code != 0:
            raise RuntimeError(f"{case.name} could not be recorded:\n{recorded.said or recorded.code}")
        left = [msgspec.convert(one, Left) for one in msgspec.msgpack.decode(kept.read_bytes())][::every]
        violations = list(recorded.said["violations"])
        together = 1 if case.scenario.keeps else _TOGETHER
        for start in range(0, len(left), together):
            some = left[start : start + together]
            ended = in_child(lambda: _all_of(stage, acts, some), seconds=600)  # noqa: B023
            if ended.code != 0:
                violations.append(f"{case.name}: {ended.said or ended.code}")
            else:
                violations += [f"{case.name}, state {start + one[0]}: {one[1]}" for one in ended.said]
        return Cut(len(left), recorded.said["events"], violations)
    finally:
        stage.strike()
        shutil.rmtree(root, ignore_errors=True)


def _record(stage: Stage, kept: Path, seeds: int) -> dict[str, Any]:
    """In a child: the whole scenario, and what may be left of it."""
    recording = Recording(str(stage.home))
    recording.install()
    lake = stage.lake()
    for step in stage.case.scenario.steps:
        step(lake)
        recording.done()
        lake.settle()
    events = list(recording.events)
    violations = []
    left = list(states(recording.disk, events, seeds, stage.case.name))
    if there := _difference(recording.disk, stage.home):
        violations.append(f"{stage.case.name}: the recording is not complete: {there}")
    kept.write_bytes(msgspec.msgpack.encode(left))
    return {"events": len(events), "violations": violations}


def _difference(disk: Disk, home: Path) -> list[str]:
    """Where the disk is, after everything that was recorded, not what is there."""
    told = disk.left(None, everything=True).contents
    found = {
        path.relative_to(home).as_posix(): path.read_bytes()
        for path in home.rglob("*")
        if path.is_file() and not path.name.endswith((".db", ".db-wal", ".db-shm"))
    }
    return sorted(name for name in {*told, *found} if told.get(name) != found.get(name))


def _all_of(stage: Stage, acts: Sequence[Act], some: Sequence[Left]) -> list[tuple[int, str]]:
    """In a child: what is wrong with each."""
    import traceback

    found = []
    for number, left in enumerate(some):
        shutil.rmtree(stage.home)
        stage.home.mkdir()
        left.lay_out(stage.home)
        if left.torn:
            found.append((number, f"after {left.done} steps these have their names and not their content: {left.torn}"))
        try:
            at = min(left.done, len(acts) - 1)
            come_after(stage, at, acts[at], done=left.done == len(acts))
        except Exception:
            found.append((number, f"after {left.done} steps: {traceback.format_exc()[-2500:]}"))
    return found
