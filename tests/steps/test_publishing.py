"""Task states, and sequences that are built from them without the driver."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lakeseal.errors import Fenced, InvalidArgument
from lakeseal.ledger import Ledger
from lakeseal.steps.publishing import Outcome, Published
from lakeseal.steps.task_states import FileTaskStates, LedgerTaskStates, TaskState, TaskStateStore, have_ended
from lakeseal.storage import open_store
from lakeseal.testing.s3 import S3Server
from support.published_rows import STORE, TASKS, URN, World, publisher, run_task


@pytest.fixture(params=["sqlite", "postgresql", "local", "memory", "s3"])
def states(request: pytest.FixtureRequest, tmp_path: Path) -> TaskStateStore:
    match request.param:
        case "sqlite" | "postgresql":
            book: Ledger = request.getfixturevalue("sqlite_ledger" if request.param == "sqlite" else "postgres_ledger")
            return LedgerTaskStates(book)
        case "local":
            return FileTaskStates(open_store(tmp_path / "tasks"))
        case "memory":
            return FileTaskStates(open_store(f"memory://{uuid.uuid4().hex}"))
    server: S3Server = request.getfixturevalue("s3")
    return FileTaskStates(open_store(server.uri(uuid.uuid4().hex), server.storage_options))


def test_what_tasks_report_is_there_for_others(states: TaskStateStore) -> None:
    states.report("s", "é/😀", "run-1", TaskState(task=1, tasks=2, output={"a": [1, None, "ü"]}))
    assert not have_ended(states.states("s", "é/😀", "run-1"))
    states.report("s", "é/😀", "run-1", TaskState(task=0, tasks=2))

    found = states.states("s", "é/😀", "run-1")

    assert states.reported("s", "é/😀", "run-1") == 2
    assert [(state.task, state.output) for state in found] == [(0, {}), (1, {"a": [1, None, "ü"]})]
    assert have_ended(found)
    assert states.states("s", "é/😀", "run-2") == ()
    assert states.states("s", "e/😀", "run-1") == ()
    states.report("other", "d", "run", TaskState(task=0, tasks=1))
    states.remove("s")
    assert states.states("s", "é/😀", "run-1") == ()
    assert len(states.states("other", "d", "run")) == 1


@pytest.mark.field_bug(34)
def test_the_first_attempt_that_finished_counts(states: TaskStateStore) -> None:
    """Bug 34: what is published must be what was counted, whichever attempts there were."""
    failed = TaskState(task=0, tasks=1, state="failed", reason="why")
    assert states.report("s", "d", "r", failed).state == "failed"
    assert have_ended(states.states("s", "d", "r"))

    first = TaskState(task=0, tasks=1, output={"attempt": 1})
    assert states.report("s", "d", "r", first) == first
    assert states.report("s", "d", "r", TaskState(task=0, tasks=1, output={"attempt": 2})) == first
    assert states.report("s", "d", "r", failed) == first

    assert states.states("s", "d", "r") == (first,)
    assert states.reported("s", "d", "r") == 1


def test_a_task_is_one_of_its_tasks() -> None:
    with pytest.raises(InvalidArgument):
        TaskState(task=2, tasks=2)


def outcome(published: Published | None) -> Outcome:
    assert published is not None
    return published.outcome


@pytest.mark.field_bug(34)
def test_whoever_reports_last_publishes(world: World) -> None:
    """Bug 34: of two attempts at a task the first that finished counts, and its output is what is published."""
    tasks = publisher(world)
    for task in (2, 0):
        first = run_task(world, task, 12)
        assert tasks.report(URN, first) == first
        assert tasks.report(URN, run_task(world, task, 12, attempt=1)) == first
        assert tasks.publish(URN, TASKS) is None
        assert tasks.has_finished(URN, task)
    assert not tasks.has_finished(URN, 1)
    assert world.published() == []
    tasks.report(URN, run_task(world, 1, 12))

    assert outcome(tasks.publish(URN, TASKS)) is Outcome.PUBLISHED

    world.check(12)
    assert {key.split("/")[0] for key in world.all_files()} == {"job-output"}
    assert world.steps.statuses(STORE) == []


def test_what_was_decided_on_a_dataset_stands(world: World) -> None:
    """So that it may be extracted again: a task that is late, or is run a second time, publishes nothing any more."""
    tasks = publisher(world)
    tasks.report(URN, run_task(world, 0, 12))
    tasks.report(URN, TaskState(task=1, tasks=TASKS, state="failed", reason="why"))
    refused = tasks.close(URN)
    assert (refused.outcome, refused.error and refused.error["message"]) == (Outcome.REFUSED, "1 of 3 tasks finished")

    for task in (1, 2):
        tasks.report(URN, run_task(world, task, 12))

    assert outcome(tasks.publish(URN, TASKS)) is Outcome.REFUSED
    assert world.published() == []
    again = publisher(world, run="run-2")
    for task in range(TASKS):
        again.report(URN, run_task(world, task, 12))
    assert outcome(again.publish(URN, TASKS)) is Outcome.PUBLISHED
    assert outcome(tasks.publish(URN, TASKS)) is Outcome.REFUSED
    world.check(12)


def test_several_that_publish_at_once_or_late_publish_once(world: World) -> None:
    for n in range(8):
        for task in range(TASKS):
            publisher(world).report(f"d{n}", run_task(world, task, 12, dataset=f"d{n}"))
        together = threading.Barrier(3)

        def publish(dataset: str = f"d{n}", together: threading.Barrier = together) -> Outcome:
            mine = publisher(world)
            together.wait()
            return outcome(mine.publish(dataset, TASKS))

        with ThreadPoolExecutor(3) as pool:
            assert {future.result() for future in [pool.submit(publish) for _ in range(3)]} == {Outcome.PUBLISHED}
        # A late one, after readers have taken a file away, brings nothing back.
        world.check(12, f"d{n}")
        world.files.delete([f"job-output/d{n}/0.txt"])
        assert outcome(publisher(world).close(f"d{n}")) is Outcome.PUBLISHED
        assert len(world.published(f"d{n}")) == 8
    assert world.steps.statuses(STORE) == []


def test_a_task_that_lost_its_turn_publishes_nothing(world: World) -> None:
    late = publisher(world, epoch=world.take_turn())
    for task in range(TASKS):
        late.report(URN, run_task(world, task, 12))
    world.steps.claim(STORE, [URN], world.take_turn())

    with pytest.raises(Fenced):
        late.publish(URN, TASKS)

    assert (world.published(), world.watermark()) == ([], 0)


def test_steps_that_fail_leave_the_verdict_and_whoever_calls_again_goes_on(world: World) -> None:
    tasks = publisher(world)
    states = [run_task(world, task, 12) for task in range(TASKS)]
    for state in states:
        tasks.report(URN, state)
    world.files.delete([states[1].output["rename"][0]])
    assert outcome(tasks.publish(URN, TASKS)) is Outcome.FAILED
    run_task(world, 1, 12)

    assert outcome(publisher(world).close(URN)) is Outcome.PUBLISHED

    world.check(12)
