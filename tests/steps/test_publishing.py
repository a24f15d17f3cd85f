"""Task states, and sequences that are built from them without the driver."""

from __future__ import annotations

import threading
import uuid
from pathlib import Path

import pytest

from lakeseal import ledger
from lakeseal.errors import InvalidArgument
from lakeseal.ledger import Ledger
from lakeseal.steps import StepSettings
from lakeseal.steps.fs_rename import Rename, checksum
from lakeseal.steps.publishing import (
    Published,
    PublishReport,
    PublishRequest,
    TaskOutput,
    publish,
    publish_share,
    sequence_of,
)
from lakeseal.steps.sequence import Leftover
from lakeseal.steps.task_states import (
    FileTaskStates,
    LedgerTaskStates,
    TaskState,
    TaskStateStore,
    all_finished,
    have_ended,
)
from lakeseal.steps.watermarks import WatermarkChange
from lakeseal.storage import open_store
from lakeseal.testing.published_rows import PIPELINE, STORE, Place, World
from lakeseal.testing.s3 import S3Server


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

    assert [(state.task, state.output) for state in found] == [(0, {}), (1, {"a": [1, None, "ü"]})]
    assert all_finished(found)
    assert states.states("s", "é/😀", "run-2") == ()
    assert states.states("s", "e/😀", "run-1") == ()
    states.remove("s", "é/😀", "run-1")
    assert states.states("s", "é/😀", "run-1") == ()


def test_the_first_attempt_that_finished_counts(states: TaskStateStore) -> None:
    """Bug 34: what is published must be what was counted, whichever attempts there were."""
    failed = TaskState(task=0, tasks=1, state="failed", reason="why")
    assert states.report("s", "d", "r", failed).state == "failed"
    assert have_ended(states.states("s", "d", "r"))
    assert not all_finished(states.states("s", "d", "r"))

    first = TaskState(task=0, tasks=1, output={"attempt": 1})
    assert states.report("s", "d", "r", first) == first
    assert states.report("s", "d", "r", TaskState(task=0, tasks=1, output={"attempt": 2})) == first
    assert states.report("s", "d", "r", failed) == first

    assert states.states("s", "d", "r") == (first,)


def test_a_task_is_one_of_its_tasks() -> None:
    with pytest.raises(InvalidArgument):
        TaskState(task=2, tasks=2)


@pytest.fixture(params=["ledger", "files"])
def crew(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[World, StepSettings]:
    url = f"sqlite:///{tmp_path}/ledger.db"
    steps = None if request.param == "ledger" else str(tmp_path / "recorded")
    return World(Place(root=str(tmp_path), ledger=url), ledger=ledger.open(url)), StepSettings(ledger=url, steps=steps)


def output(world: World, dataset: str, task: int, *, rows: int) -> TaskOutput:
    data = "".join(f"{task * rows + row}\n" for row in range(rows)).encode()
    source = f"task-output/run-1/{dataset}/{task}.txt"
    world.files.put(source, data)
    return TaskOutput(
        source=world.files.uri,
        target=world.files.uri,
        files=(Rename(source, f"job-output/{dataset}/{task}.txt", len(data), checksum(data)),),
        watermarks=() if task else (WatermarkChange(partition="0", expected=None, value=3 * rows),),
        leftovers=(Leftover(uri=world.files.uri, prefix=f"task-output/run-1/{dataset}/"),),
    )


def states_of(world: World, settings: StepSettings) -> TaskStateStore:
    if settings.steps is None:
        return LedgerTaskStates(world.ledger)
    return FileTaskStates(open_store(f"{settings.steps}/tasks"))


def request(*datasets: str, patience: float = 0.0) -> PublishRequest:
    return PublishRequest(
        store=STORE,
        pipeline=PIPELINE,
        run="run-1",
        datasets=datasets,
        patience_s=patience,
        pause_s=0.01,
    )


def test_a_dataset_is_published_by_whoever_is_responsible_once_its_tasks_have_finished(
    crew: tuple[World, StepSettings],
) -> None:
    world, settings = crew
    states = states_of(world, settings)
    for dataset, tasks in {"a": range(3), "b": range(2), "c": range(3)}.items():
        for task in tasks:
            output_of = output(world, dataset, task, rows=4).to_json()
            states.report(STORE, dataset, "run-1", TaskState(task=task, tasks=3, output=output_of))
    states.report(STORE, "c", "run-1", TaskState(task=2, tasks=3, state="failed", reason="late"))
    states.report(STORE, "d", "run-1", TaskState(task=0, tasks=2))
    states.report(STORE, "d", "run-1", TaskState(task=1, tasks=2, state="failed", reason="no disk"))
    states.report(STORE, "e", "run-1", TaskState(task=0, tasks=1, output=TaskOutput(source="", target="").to_json()))

    report = PublishReport.from_json(publish_share(settings, request(*"abcdef").to_json()))

    outcomes = {one.dataset: one.outcome for one in report.datasets}
    assert outcomes == {
        "a": Published.PUBLISHED,
        "b": Published.WAITING,
        "c": Published.PUBLISHED,
        "d": Published.FAILED,
        "e": Published.NOTHING,
        "f": Published.WAITING,
    }
    assert report.datasets[3].reason == "1 of 2 tasks failed: no disk"
    world.check(12, "a")
    world.check(12, "c")
    assert world.published("b") == []
    assert [key.split("/")[2] for key in world.all_files() if key.startswith("task-output")] == ["b", "b"]
    world.ledger.close()


def test_publishing_waits_for_the_last_task(crew: tuple[World, StepSettings]) -> None:
    world, settings = crew
    states = states_of(world, settings)
    tasks = [TaskState(task=n, tasks=3, output=output(world, "a", n, rows=4).to_json()) for n in range(3)]

    def work() -> None:
        for task in tasks:
            states.report(STORE, "a", "run-1", task)

    thread = threading.Timer(0.05, work)
    thread.start()
    report = PublishReport.from_json(publish_share(settings, request("a", patience=60).to_json()))
    thread.join()

    assert [one.outcome for one in report.datasets] == [Published.PUBLISHED]
    world.check(12, "a")
    world.ledger.close()


def test_building_the_same_sequence_again_publishes_nothing_twice(world: World) -> None:
    """The responsible one died after its sequence was finished and before the task states were removed."""
    states = LedgerTaskStates(world.ledger)
    tasks = [TaskState(task=n, tasks=3, output=output(world, "a", n, rows=4).to_json()) for n in range(3)]
    asked = request("a")
    for _ in range(2):
        for task in tasks:
            states.report(STORE, "a", "run-1", task)
        report = publish(world.steps, states, world.context(), asked)
        assert [one.outcome for one in report.datasets] == [Published.PUBLISHED]

    world.check(12, "a")


def test_a_sequence_has_one_step_for_all_files_of_a_place() -> None:
    outputs = [
        TaskOutput(source="file:///s", target="file:///t", files=(Rename(str(n), str(n), 1, "x"),)) for n in range(100)
    ]

    sequence = sequence_of(outputs, store="s", pipeline="p", dataset="d", epoch=3)

    assert sequence is not None
    assert len(sequence.steps) == 1
    assert sequence.epoch == 3
