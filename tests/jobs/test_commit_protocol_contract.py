"""What every `FileCommitProtocol` must do. A protocol joins by a `Harness` in `HARNESSES`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from lakeseal.branches import embedded
from lakeseal.branches.paths import data_prefix
from lakeseal.commands.branch_job import BranchJob, JobPlan
from lakeseal.errors import InvalidArgument
from lakeseal.jobs.branch_commit_protocol import BranchCommitProtocol
from lakeseal.jobs.delayed_commit_protocol import DelayedCommitProtocol
from lakeseal.jobs.file_commit_protocol import (
    FileCommitProtocol,
    TaskCommitMessage,
    TaskContext,
    TaskFile,
    WrittenFile,
)
from lakeseal.jobs.staged_commit_protocol import SequenceJob, StagedCommitProtocol
from lakeseal.protocol.partitions import parse_partition_directory
from lakeseal.steps.context import StepContext
from lakeseal.steps.file_store import FileStepStore
from lakeseal.storage import StoreSpec, open_store


@dataclass(frozen=True)
class Harness:
    new: Callable[[], FileCommitProtocol]
    """A protocol as driver and tasks make it, all over one place."""
    write: Callable[[TaskFile, bytes], None]
    """Put bytes where a task would."""
    committed: Callable[[FileCommitProtocol], list[tuple[dict[str, str | None], int]]]
    """What the driver's protocol has after commit_job: partition values and size of each file."""
    visible: Callable[[], Sequence[str]]
    """What readers of the place see now."""


def task(split: int = 0, attempt: int = 0) -> TaskContext:
    return TaskContext(job_id="delta", split=split, attempt=attempt, task_attempt_id=10 * split + attempt)


def written(file: TaskFile, data: bytes) -> WrittenFile:
    return WrittenFile(
        key=file.key,
        size=len(data),
        modified_ms=1_700_000_000_000,
        num_records=1,
        stats='{"numRecords":1}',
        checksum=f"sha256:{hashlib.sha256(data).hexdigest()}",
    )


def delayed(root: Path) -> Harness:
    (root / "_delta_log").mkdir()

    def write(file: TaskFile, data: bytes) -> None:
        target = root / file.key
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)

    def committed(driver: FileCommitProtocol) -> list[tuple[dict[str, str | None], int]]:
        assert isinstance(driver, DelayedCommitProtocol)
        return [(add.partition_values, add.size) for add in driver.added_statuses]

    return Harness(
        new=lambda: DelayedCommitProtocol(path=str(root)),
        write=write,
        committed=committed,
        # Readers see what the log names, and the protocol never writes to the log.
        visible=lambda: [p.name for p in (root / "_delta_log").iterdir()],
    )


def on_a_branch(root: Path) -> Harness:
    repository = embedded.create(root / "repository")

    def new() -> BranchCommitProtocol:
        job = BranchJob(repository, JobPlan(id="delta", dest="main", path="out"))
        return BranchCommitProtocol(path="out", job_id="delta", data_prefix=data_prefix("out", "delta"), job=job)

    def committed(driver: FileCommitProtocol) -> list[tuple[dict[str, str | None], int]]:
        return [(parse_partition_directory(entry.path), entry.size) for entry in repository.list("main", "out")]

    return Harness(
        new=new,
        write=lambda file, data: repository.objects.open().put(file.key, data),
        committed=committed,
        visible=lambda: [entry.path for entry in repository.list("main")],
    )


def staged(root: Path) -> Harness:
    steps = FileStepStore(open_store(root / "steps"))
    spec = StoreSpec(uri=str(root / "out"))
    store = spec.open()

    def new() -> StagedCommitProtocol:
        job = SequenceJob(steps, StepContext(owners={}), store="jobs", dataset="out")
        return StagedCommitProtocol(store=spec, path="", job_id="delta", job=job)

    def visible() -> list[str]:
        return [meta.key for meta in store.list(recursive=True) if not meta.key.startswith("_")]

    def committed(driver: FileCommitProtocol) -> list[tuple[dict[str, str | None], int]]:
        return [(parse_partition_directory(key), store.head(key).size) for key in visible()]

    return Harness(new=new, write=lambda file, data: store.put(file.key, data), committed=committed, visible=visible)


HARNESSES: dict[str, Callable[[Path], Harness]] = {"delayed": delayed, "branch": on_a_branch, "staged": staged}


@pytest.fixture(params=HARNESSES)
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Harness:
    return HARNESSES[request.param](tmp_path)


def run_task(harness: Harness, context: TaskContext, files: Sequence[tuple[str | None, bytes]]) -> TaskCommitMessage:
    protocol = harness.new()
    protocol.setup_task(context)
    done = []
    for directory, data in files:
        file = protocol.new_task_file(context, directory, "-c000.parquet")
        harness.write(file, data)
        done.append(written(file, data))
    return protocol.commit_task(context, done)


def test_files_of_all_tasks_are_committed_once_each(harness: Harness) -> None:
    driver = harness.new()
    driver.setup_job()
    messages = [
        run_task(harness, task(0), [("p=1", b"a"), ("p=2", b"bb")]),
        run_task(harness, task(1), [("p=1", b"ccc")]),
    ]
    driver.commit_job(messages)
    assert sorted(harness.committed(driver), key=lambda f: f[1]) == [
        ({"p": "1"}, 1),
        ({"p": "2"}, 2),
        ({"p": "1"}, 3),
    ]


def test_messages_survive_their_way_as_json(harness: Harness) -> None:
    driver = harness.new()
    driver.setup_job()
    message = run_task(harness, task(3, 2), [("p=é %3A", b"x")])
    back = TaskCommitMessage.from_json(message.to_json())
    assert back == message
    assert back.task == task(3, 2)
    driver.commit_job([back])
    assert harness.committed(driver) == [({"p": "é :"}, 1)]


@pytest.mark.parametrize(
    "text", ["", "[]", "null", '{"protocol": 1}', '{"protocol":"x","task":{}}', "\ud800", "[" * 9999]
)
def test_a_malformed_message_is_refused_with_a_lakeseal_error(harness: Harness, text: str) -> None:
    with pytest.raises(InvalidArgument):
        TaskCommitMessage.from_json(text)


def test_a_message_of_another_protocol_is_refused(harness: Harness) -> None:
    driver = harness.new()
    driver.setup_job()
    with pytest.raises(InvalidArgument, match="another"):
        driver.commit_job([TaskCommitMessage(protocol="another", task=task())])


def test_nothing_is_visible_before_the_job_is_committed(harness: Harness) -> None:
    before = list(harness.visible())
    harness.new().setup_job()
    run_task(harness, task(), [(None, b"x"), (None, b"y")])
    assert list(harness.visible()) == before


def test_no_name_is_given_twice_whatever_the_attempts(harness: Harness) -> None:
    names = set()
    for attempt in range(3):
        protocol = harness.new()
        protocol.setup_task(task(0, attempt))
        names |= {protocol.new_task_file(task(0, attempt), "p=1", ".parquet").key for _ in range(10)}
    assert len(names) == 30


def test_a_name_that_was_not_used_is_forgotten(harness: Harness) -> None:
    driver, protocol = harness.new(), harness.new()
    driver.setup_job()
    protocol.setup_task(task())
    protocol.new_task_file(task(), None, ".parquet")
    used = protocol.new_task_file(task(), None, ".parquet")
    harness.write(used, b"xyz")
    driver.commit_job([protocol.commit_task(task(), [written(used, b"xyz")])])
    assert harness.committed(driver) == [({}, 3)]


def test_a_file_that_was_not_named_for_the_task_is_refused(harness: Harness) -> None:
    protocol = harness.new()
    protocol.setup_task(task())
    with pytest.raises(InvalidArgument, match="not named"):
        protocol.commit_task(task(), [written(TaskFile(key="elsewhere", path="x/elsewhere"), b"x")])


def test_a_task_without_files_sends_an_empty_message(harness: Harness) -> None:
    driver, protocol = harness.new(), harness.new()
    driver.setup_job()
    protocol.setup_task(task())
    message = protocol.commit_task(task(), [])
    assert message.entries == ()
    driver.commit_job([message])
    assert harness.committed(driver) == []


def test_a_split_that_two_attempts_committed_counts_once(harness: Harness) -> None:
    driver = harness.new()
    driver.setup_job()
    first = run_task(harness, task(0, 0), [(None, b"1")])
    second = run_task(harness, task(0, 1), [(None, b"22")])
    driver.commit_job([first, second])
    assert harness.committed(driver) == [({}, 2)]


def test_a_job_without_tasks_commits_nothing(harness: Harness) -> None:
    driver = harness.new()
    driver.setup_job()
    driver.commit_job([])
    assert harness.committed(driver) == []


def test_aborting_twice_is_fine_and_shows_nothing(harness: Harness) -> None:
    before = list(harness.visible())
    driver = harness.new()
    driver.setup_job()
    protocol = harness.new()
    protocol.setup_task(task())
    file = protocol.new_task_file(task(), None, ".parquet")
    harness.write(file, b"x")
    for _ in range(2):
        protocol.abort_task(task())
    for _ in range(2):
        driver.abort_job()
    assert list(harness.visible()) == before
