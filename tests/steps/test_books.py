"""What `Books` promise, in this process and behind a service."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from lakeseal.errors import Fenced, InvalidArgument, LeaseHeld, WatermarkMoved
from lakeseal.owner.connect import connect
from lakeseal.steps.books import Books, books_of
from lakeseal.steps.leases import of_pipeline
from lakeseal.steps.runs import RunRecord
from lakeseal.steps.task_states import TaskState
from lakeseal.steps.watermarks import WatermarkChange

P, D = "clicks é", "urn:événements"
LEASE = of_pipeline(P)


def change(partition: str, expected: object, value: object) -> WatermarkChange:
    return WatermarkChange(partition=partition, expected=expected, value=value)


def test_watermarks_move_together_and_only_from_where_they_stand(books: Books) -> None:
    marks = books.watermarks
    marks.advance(P, D, [change("0", None, {"offset": 1}), change("1", None, "a")])
    marks.advance(P, D, [change("0", None, {"offset": 1})])
    with pytest.raises(WatermarkMoved):
        marks.advance(P, D, [change("1", "a", "b"), change("0", {"offset": 7}, {"offset": 8})])
    with pytest.raises(InvalidArgument, match="go back"):
        marks.advance(P, D, [change("0", {"offset": 1}, {"offset": 0})])
    assert marks.read(P, D) == {"0": {"offset": 1}, "1": "a"}
    assert [mark.dataset for mark in marks.of_pipeline(P)] == [D, D]
    marks.reset(P, D, {"0": 5})
    assert marks.read(P, D) == {"0": 5}


def test_w8_a_turn_has_one_holder_and_fences_the_one_before(books: Books) -> None:
    one = books.leases.acquire(LEASE, holder="one", seconds=60)
    with pytest.raises(LeaseHeld, match="one"):
        books.leases.acquire(LEASE, holder="two")
    assert books.leases.renew(one).epoch == one.epoch
    books.leases.release(one)
    two = books.leases.acquire(LEASE, holder="two")
    assert two.epoch == one.epoch + 1
    with pytest.raises(Fenced):
        books.leases.renew(one)
    with pytest.raises(Fenced):
        books.watermarks.advance(P, D, [change("0", None, 1)], turn=one.turn)
    books.watermarks.advance(P, D, [change("0", None, 1)], turn=two.turn)


def test_a_run_that_did_not_end_has_died_when_the_next_begins(books: Books) -> None:
    assert not books.runs.begin(P, "a", 1)
    assert not books.runs.begin(P, "a", 1)
    assert books.runs.begin(P, "b", 2)
    books.runs.end(RunRecord(run_id="b", pipeline=P, state="published", started_ms=0, ended_ms=9, detail={"rows": 3}))
    told = {run.run_id: (run.state, run.ended_ms, run.detail.get("rows")) for run in books.runs.history(P)}
    assert told["b"] == ("published", 9, 3)
    assert told["a"][0] == "died"
    assert len(books.runs.history(P, limit=1)) == 1


def test_the_first_finished_attempt_at_a_task_counts(books: Books) -> None:
    failed = TaskState(task=0, tasks=2, state="failed", reason="why")
    first, second = (TaskState(task=0, tasks=2, output={"n": n}) for n in (1, 2))
    assert books.task_states.report(P, D, "run", failed) == failed
    assert books.task_states.report(P, D, "run", first) == first
    assert books.task_states.report(P, D, "run", second) == first
    assert books.task_states.states(P, D, "run") == (first,)
    books.task_states.remove(P)
    assert books.task_states.states(P, D, "run") == ()


def test_books_keep_the_ledger_of_their_owner_open(tmp_path: Path) -> None:
    books = books_of(connect(f"sqlite:///{tmp_path}/ledger.db"))
    gc.collect()
    assert books.runs.history(P) == []
