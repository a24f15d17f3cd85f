"""A process is killed before, inside and after each of its effects, and what is left is recovered."""

from __future__ import annotations

import multiprocessing
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from lakeseal import ledger
from support.crashes import When
from support.published_rows import URN, Place, World, publish_until, publisher, recover_until, report_until

ROWS = 30
KILLED = -9

# Children are forked from a process without threads that has everything loaded.
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["support.published_rows"])


LEDGER: dict[str, bool] = {}
FILES, COPIES = {"files": True}, {"copies": True}
# Only a ledger's transaction has an inside.
CASES = [
    *((kind, when) for kind in (LEDGER, FILES, COPIES) for when in (When.BEFORE, When.AFTER)),
    (LEDGER, When.INSIDE),
]
KINDS = pytest.mark.parametrize("kind", [LEDGER, FILES, COPIES], ids=["ledger", "files", "copies"])


def new_place(root: Path, kind: dict[str, bool], number: int) -> Place:
    """With an empty ledger, which is copied: making one takes longer than all the rest."""
    template = root / "empty.db"
    if not template.exists():
        ledger.open(f"sqlite:///{template}").close()
    folder = root / str(number)
    folder.mkdir()
    shutil.copyfile(template, folder / "ledger.db")
    return Place(root=str(folder), ledger=f"sqlite:///{folder}/ledger.db", **kind)


def run(do: Callable[..., int], *args: Any) -> bool:
    """Whether it came to its end."""
    process = SERVER.Process(target=do, args=args)
    process.start()
    process.join(60)
    assert process.exitcode in (0, KILLED), process.exitcode
    return process.exitcode == 0


def state(place: Place) -> tuple[list[str], list[int], int, bool]:
    with ledger.open(place.ledger) as opened:
        world = World(place, ledger=opened)
        return world.all_files(), world.published(), world.watermark(), world.steps.exists("clicks", URN)


@pytest.mark.field_bug(33, 34, 36)
@pytest.mark.parametrize(
    ("kind", "when"), CASES, ids=lambda value: value.name.lower() if isinstance(value, When) else "-".join(value)
)
def test_w1_to_w6_after_a_crash_at_any_effect_recovery_ends_as_if_there_had_been_none(
    tmp_path: Path, kind: dict[str, bool], when: When
) -> None:
    straight = new_place(tmp_path, kind, 0)
    publish_until(straight, 0, ROWS, "run-1", None, when)
    wanted = state(straight)
    assert wanted[1:] == (list(range(ROWS)), ROWS, False)
    for at in count(1):
        place = new_place(tmp_path, kind, at)
        if run(publish_until, place, 0, ROWS, "run-1", at, when):
            break
        with ledger.open(place.ledger) as opened:
            world = World(place, ledger=opened)
            was_recorded = world.steps.exists("clicks", URN)
            was_done = world.watermark() == ROWS
            if not was_recorded and not was_done:
                # W1: before the sequence is recorded, whole, none of its steps has run.
                assert world.published() == []
            if not was_recorded and was_done:
                # W6: the record goes last, when nothing else is left to do.
                assert state(place) == wanted
            world.recover()
            assert not world.steps.exists("clicks", URN)
            if was_recorded:
                assert state(place) == wanted
            # W3, and a later run goes on from there.
            world.check(world.watermark())
            first = world.watermark()
            world.stage(first, 10, run="run-2").commit(world.steps, world.context())
            world.check(first + 10)
    assert at > 6


@KINDS
def test_w2_recovery_may_be_killed_at_any_of_its_effects_too(tmp_path: Path, kind: dict[str, bool]) -> None:
    straight = new_place(tmp_path, kind, 0)
    publish_until(straight, 0, ROWS, "run-1", None, When.AFTER)
    wanted = state(straight)
    # At the first effect after the record is there, so that all of the steps are left to do.
    first = 0
    for at in count(1):
        place = new_place(tmp_path, kind, at)
        assert not run(publish_until, place, 0, ROWS, "run-1", at, When.AFTER)
        if state(place)[3]:
            first = at
            break
    for at in count(1):
        place = new_place(tmp_path, kind, 100 + at)
        assert not run(publish_until, place, 0, ROWS, "run-1", first, When.AFTER)
        if run(recover_until, place, at, When.AFTER):
            break
        assert run(recover_until, place, None, When.AFTER)
        assert state(place) == wanted
    assert at > 5


def test_w6_task_output_goes_before_the_record(tmp_path: Path) -> None:
    """So a crash between the two leaves no output that nobody knows of."""
    seen = []
    for at in count(1):
        place = new_place(tmp_path, COPIES, at)
        if run(publish_until, place, 0, ROWS, "run-1", at, When.AFTER):
            break
        files, _, _, is_recorded = state(place)
        seen.append((any(file.startswith("task-output/") for file in files), is_recorded))
    assert (False, True) in seen
    assert (True, False) not in seen[1:]


@pytest.mark.parametrize("kind", [LEDGER, FILES], ids=["ledger", "files"])
def test_after_a_crash_of_the_task_that_publishes_another_one_goes_on(tmp_path: Path, kind: dict[str, bool]) -> None:
    """Between any two of: report, verdict, record, each step, and the removal of task output and record."""
    ended = []
    for at in count(1):
        place = new_place(tmp_path, kind, at)
        if run(report_until, place, ROWS, at, When.AFTER):
            break
        with ledger.open(place.ledger) as opened:
            world = World(place, ledger=opened)
            was_recorded, was_done = world.steps.exists("clicks", URN), world.watermark() == ROWS
            published = publisher(world).close(URN)
            ended.append((published.outcome.value, was_recorded, was_done))
            if published.outcome.value == "published":
                assert (world.published(), world.watermark()) == (list(range(ROWS)), ROWS)
                assert not [file for file in world.all_files() if file.startswith("task-output/")]
            else:
                assert (world.published(), world.watermark()) == ([], 0)
            assert not world.steps.exists("clicks", URN)
    # While tasks had not reported, between report and record, between record and the last step, and after that.
    assert ended[:2] == [("refused", False, False)] * 2
    assert {("published", False, False), ("published", True, False), ("published", True, True)} <= set(ended)
