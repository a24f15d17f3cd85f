"""Owner, clients and store in one thread, in many orders: nothing breaks, and what would break is found."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from lakeseal.commit import attempts
from lakeseal.commit.filesystem_owner import FilesystemOwner
from lakeseal.commit.owner import Conflict, Outcome
from lakeseal.owner import ownership, ratification, snapshots
from lakeseal.owner.messages import CommitRequest, Taken
from lakeseal.owner.ownership import Ownership, StepRefusal
from lakeseal.owner.queue import Queue
from models.strict_order import Done, check_one_order
from simulated.shrinking import shrunk, why
from simulated.worker import start, sums
from simulated.world import Plan, run

RUNS = 40
"""In `make test`; `make trust` makes 100,000."""


def test_no_order_of_steps_breaks_an_invariant() -> None:
    """Others every day: a seed that fails is made again by `python trust/run.py simulation --case seed=…`."""
    found = sums(start(dt.date.today().toordinal() * RUNS, RUNS))
    assert not found.failed
    assert found.runs == RUNS
    assert found.operations > RUNS, "something was done"


def test_a_seed_makes_the_same_run_again() -> None:
    twice = [sums(one) for one in [start(100, 8), start(100, 8)]]
    assert twice[0].digest == twice[1].digest > 0


def _plan(*jobs: tuple[str, ...], owned: tuple[bool, ...] = (True,), faults: tuple[str, ...] = ()) -> Plan:
    return Plan(seed=0, owned=owned, jobs=jobs, faults=faults, share=0.3)


def _believes_that_it_lost(self: FilesystemOwner, version: int, *_: object, **__: object) -> Outcome:
    return Conflict(version=version)


def _knows_nobody(_: object, request: CommitRequest, __: object) -> Taken:
    return Taken(table=request.table, version=request.version)


_mark, _promise, _begin = ownership.mark_backfilled, ownership.promise, ownership.begin_release


def _marks_all(row: Ownership, version: int, *, epoch: int) -> Ownership:
    return _mark(row, row.latest, epoch=epoch)


def _promises_again(row: Ownership, *asked: Any, epoch: int | None = None, **more: Any) -> Ownership | StepRefusal:
    return _promise(row, *asked, **more)


def _releases_again(row: Ownership, release_id: str, *, epoch: int | None = None) -> Ownership | StepRefusal:
    return _begin(row, release_id)


def _ratifies_in_any_epoch(
    row: Ownership,
    version: int,
    *,
    epoch: int,
    timestamp: int,
    ratify: Callable[..., Ownership | StepRefusal] = ownership.ratify,
) -> Ownership | StepRefusal:
    return ratify(row, version, epoch=row.epoch, timestamp=timestamp)


BUGS = {
    "who wins a put and loses the reply believes that it lost": (
        patch.object(FilesystemOwner, "_read_back", _believes_that_it_lost),
        _plan(("append",) * 3, ("append",) * 3, owned=(False,), faults=("reply of a put is lost",)),
    ),
    "whoever asks again is told that the version is another's": (
        patch.object(ratification, "_whose", _knows_nobody),
        _plan(("append",) * 3, ("append",) * 3, faults=("reply is lost",)),
    ),
    "what is not in the log yet is marked as if it were": (
        patch.object(ownership, "mark_backfilled", _marks_all),
        _plan(("append",) * 3, ("append",) * 3, ("append",) * 3),
    ),
    "nobody looks at who won": (
        patch.object(attempts, "check", lambda *_, **__: None),
        _plan(("count",) * 3, ("count",) * 3),
    ),
    "a late message of a take-over promises the same again": (
        patch.object(ownership, "promise", _promises_again),
        _plan(("take over", "release"), ("take over", "release"), owned=(False,), faults=("request comes twice",)),
    ),
    "a late message of a release begins another": (
        patch.object(ownership, "begin_release", _releases_again),
        _plan(("release", "take over") * 3, ("append",) * 2, faults=("request comes twice",)),
    ),
    "tables are asked for one after the other": (
        patch.object(snapshots, "at_one_moment", lambda owner, tables: tuple(map(owner.get_commits, tables))),
        _plan(("write to all",) * 3, ("read all",) * 3, owned=(True, True)),
    ),
    "a turn is passed on to nobody": (
        patch.object(Queue, "_pass_on", lambda _: None),
        _plan(("append",) * 2, ("append",) * 2, ("append",) * 2),
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_is_found(bug: str) -> None:
    wrong, plan = BUGS[bug]
    assert why(plan) == "", "it is the bug that is found"
    with wrong:
        found = next((seed for seed in range(150) if why(replace(plan, seed=seed))), None)
    assert found is not None


def test_a_run_that_fails_is_made_smaller() -> None:
    wrong, plan = BUGS["nobody looks at who won"]
    plan = replace(plan, jobs=(*plan.jobs, ("read", "append")), owned=(True, True), kills=1, faults=("reply is lost",))
    with wrong:
        failing = next(one for seed in range(100) if why(one := replace(plan, seed=seed)))
        small = shrunk(failing, tries=60)
        assert why(small)
    assert sum(map(len, small.jobs)) < sum(map(len, failing.jobs))
    assert why(small) == ""
    trace: list[str] = []
    run(small, trace=trace)
    assert any("put_if_absent" in line for line in trace), "what was done can be read"


def _done(name: str, start: int, end: int, **more: Any) -> Done:
    return Done(name=name, start=start, end=end, **more)


def test_one_order_over_tables_is_found_where_there_is_one() -> None:
    both = _done("both", 0, 9, made={"a": 1, "b": 1})
    assert check_one_order([both, _done("early", 1, 2, saw={"a": 0, "b": 0}), _done("late", 3, 4, saw={"a": 1})]) == 3


@pytest.mark.parametrize(
    "done",
    [
        pytest.param([_done("both", 0, 9, made={"a": 1, "b": 1}), _done("r", 1, 2, saw={"a": 1, "b": 0})], id="half"),
        pytest.param([_done("w", 0, 1, made={"a": 1}), _done("r", 2, 3, saw={"a": 0})], id="the past"),
        pytest.param(
            [
                _done("w1", 0, 9, made={"a": 1}),
                _done("w2", 0, 9, made={"b": 1}),
                _done("r1", 1, 8, saw={"a": 1, "b": 0}),
                _done("r2", 1, 8, saw={"a": 0, "b": 1}),
            ],
            id="two readers who disagree",
        ),
        pytest.param([_done("w1", 0, 9, made={"a": 1}), _done("w2", 0, 9, made={"a": 1})], id="twice"),
    ],
)
def test_what_fits_no_order_is_told(done: list[Done]) -> None:
    with pytest.raises(AssertionError):
        check_one_order(done)
