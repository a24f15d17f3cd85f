"""Plain directories: staging, task output, job output, and a commit sequence that makes the last move."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.json
import pyarrow.parquet as pq
import pytest

from lakeseal import ledger
from lakeseal.commands.staged_write import PlannedStagedWrite
from lakeseal.errors import AlreadyExists, InvalidArgument, StorageUnavailable, UnsupportedType
from lakeseal.files.file_format import FileFormat
from lakeseal.jobs.file_commit_protocol import TaskCommitMessage, TaskContext
from lakeseal.jobs.in_process import InProcessEngine
from lakeseal.jobs.job import run_task
from lakeseal.jobs.staged_commit_protocol import SequenceJob, StagedCommitProtocol, StagedFile
from lakeseal.steps import CommitSequence, StepContext
from lakeseal.steps.high_watermark import HighWatermarkCommitStep
from lakeseal.steps.ledger_store import LedgerStepStore
from lakeseal.steps.recovery import recover
from lakeseal.steps.step import CommitStep
from lakeseal.steps.watermarks import WatermarkChange, Watermarks
from lakeseal.storage import StoreSpec, open_store
from lakeseal.testing.faults import Fault, FaultyStore


class Directory:
    def __init__(self, root: Path, book: ledger.Ledger) -> None:
        self.path = root / "out"
        self.spec = StoreSpec(uri=str(self.path))
        self.book = book
        self.steps = LedgerStepStore(book)

    def write(self, rows: range, *, context: StepContext | None = None, **options: object) -> list[StagedFile]:
        expected = self.watermark() or None
        change = WatermarkChange(partition="0", expected=expected, value=rows.stop)
        further = [HighWatermarkCommitStep(pipeline="pipeline", dataset="events", changes=(change,))]
        data = pa.table({"id": pa.array(rows, pa.int64()), "day": pa.array([f"d {row % 3}" for row in rows])})
        return self.write_data(data, context or StepContext(ledger=self.book, owners={}), further, **options)

    def write_data(
        self, data: pa.Table, context: StepContext, further: Sequence[CommitStep] = (), **options: object
    ) -> list[StagedFile]:
        source = InProcessEngine(1).open(data)
        job = SequenceJob(self.steps, context, store="pipeline", dataset="events", further=further)
        return PlannedStagedWrite(self.spec, source.schema, job=job, **options).run(source)  # type: ignore[arg-type]

    def watermark(self) -> int:
        return int(Watermarks(self.book).read("pipeline", "events").get("0", 0))

    def visible(self) -> list[Path]:
        return sorted(path for path in self.path.rglob("part-*") if "_lakeseal_jobs" not in path.parts)

    def hidden(self) -> list[Path]:
        return [path for path in (self.path / "_lakeseal_jobs").rglob("*") if path.is_file()]


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Directory]:
    with ledger.open(f"sqlite:///{tmp_path}/ledger.db") as book:
        yield Directory(tmp_path, book)


def test_rows_are_in_the_job_output_and_nothing_else_is_left(directory: Directory) -> None:
    files = directory.write(range(10))
    directory.write(range(10, 15))

    assert sorted(pq.read_table(directory.path, partitioning=None)["id"].to_pylist()) == list(range(15))
    assert len(directory.visible()) == 2
    assert files[0].rows == 10
    assert directory.hidden() == []
    assert directory.watermark() == 15


def test_partitions_are_directories_that_arrow_and_spark_understand(directory: Directory) -> None:
    directory.write(range(9), partition_by=["day"])

    found = pa.dataset.dataset(directory.path, partitioning="hive").to_table()

    assert sorted(zip(found["id"].to_pylist(), found["day"].to_pylist(), strict=True)) == [
        (row, f"d {row % 3}") for row in range(9)
    ]


@pytest.mark.parametrize("name", ["parquet", "csv", "json", "orc"])
def test_every_format_is_written(directory: Directory, name: str) -> None:
    files = directory.write(range(10), format=FileFormat(name=name, header=name == "csv"))

    (path,) = directory.visible()
    read = {
        "parquet": lambda: pq.read_table(path),
        "csv": lambda: pa.csv.read_csv(path),
        "json": lambda: pa.json.read_json(path),
        "orc": lambda: pa.dataset.dataset(path, format="orc").to_table(),
    }[name]()
    assert read["id"].to_pylist() == list(range(10))
    assert files[0].target.endswith(FileFormat(name=name).extension)


def test_a_type_that_a_format_cannot_hold_is_refused_before_anything_is_written(directory: Directory) -> None:
    with pytest.raises(UnsupportedType):
        directory.write_data(pa.table({"a": [[1]]}), StepContext(owners={}), format=FileFormat(name="csv"))
    assert directory.hidden() == []


def test_no_rows_publish_nothing_and_leave_nothing(directory: Directory) -> None:
    directory.write(range(0))

    assert directory.visible() == []
    assert directory.hidden() == []


def test_bug_35_task_output_survives_a_failed_commit_until_recovery_has_used_it(directory: Directory) -> None:
    store = FaultyStore(open_store(directory.path), [Fault("move", times=9, error=StorageUnavailable)])
    context = StepContext(ledger=directory.book, owners={}, open_store=lambda _: store)

    with pytest.raises(StorageUnavailable):
        directory.write(range(10), context=context)

    assert directory.visible() == []
    assert directory.watermark() == 0
    assert directory.hidden() != []
    with pytest.raises(AlreadyExists):
        directory.write(range(10))
    assert len(directory.hidden()) == 1, "the second job leaves nothing, the first everything"

    recovered = recover(directory.steps, "pipeline", StepContext(ledger=directory.book, owners={}))

    assert recovered.clear == ["events"]
    assert pq.read_table(directory.visible()[0])["id"].to_pylist() == list(range(10))
    assert directory.watermark() == 10
    assert directory.hidden() == []


def test_a_task_that_fails_leaves_nothing_behind(directory: Directory) -> None:
    plan = PlannedStagedWrite(directory.spec, staged_schema())
    task = TaskContext(job_id=plan.job_id, split=0)

    def batches():  # type: ignore[no-untyped-def]
        yield pa.record_batch({"id": pa.array(range(10), pa.int64())})
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        run_task(plan.spec, task, batches())

    assert directory.hidden() == []


def test_bug_29_of_two_attempts_one_is_published_and_the_rest_goes_with_the_job(directory: Directory) -> None:
    plan = PlannedStagedWrite(directory.spec, staged_schema())
    rows = pa.record_batch({"id": pa.array(range(10), pa.int64())})
    messages = [
        run_task(plan.spec, TaskContext(job_id=plan.job_id, split=0, attempt=attempt), [rows]) for attempt in range(2)
    ]
    assert len(directory.hidden()) == 2

    # As a pipeline does it: the steps are its own to record.
    arrived = [TaskCommitMessage.from_json(message.to_json()) for message in messages]
    protocol = StagedCommitProtocol(store=directory.spec, path="", job_id=plan.job_id)
    builder = CommitSequence.builder("pipeline", "events").add(*protocol.steps(arrived))
    for leftover in protocol.leftovers:
        builder.then_remove(leftover.uri, leftover.prefix)
    builder.build().commit(directory.steps, StepContext(owners={}))

    assert len(directory.visible()) == 1
    assert directory.hidden() == []


def staged_schema():  # type: ignore[no-untyped-def]
    return InProcessEngine(1).open(pa.table({"id": pa.array([], pa.int64())})).schema


def test_a_column_to_partition_by_must_be_there(directory: Directory) -> None:
    with pytest.raises(InvalidArgument, match="not one of its columns"):
        directory.write(range(3), partition_by=["absent"])
