"""Jobs and tasks: what crosses processes, and what a failure leaves behind."""

from __future__ import annotations

import errno
import logging
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeseal.errors import (
    ConstraintViolation,
    EvaluationError,
    InvalidArgument,
    LakesealError,
    OutOfSpace,
    PermissionDenied,
    SchemaMismatch,
    StorageError,
)
from lakeseal.files.constraints import NotNull, RowCondition
from lakeseal.files.parquet_file import Compression
from lakeseal.jobs.engine import InPlan
from lakeseal.jobs.file_commit_protocol import TaskContext
from lakeseal.jobs.in_process import InProcessEngine
from lakeseal.jobs.job import CommitProtocolSpec, WriteJobSpec, new_protocol, run_task
from lakeseal.jobs.task_report import error_from_json, read_report, report_task
from lakeseal.protocol.arrow import from_arrow
from lakeseal.storage import StoreSpec

SCHEMA = pa.schema({"id": pa.int64(), "p": pa.string()})
TASK = TaskContext(job_id="delta", split=0)


def spec(root: Path | str, **kwargs: Any) -> WriteJobSpec:
    schema = from_arrow(kwargs.pop("schema", SCHEMA)).to_json()
    return WriteJobSpec(
        store=StoreSpec(uri=str(root)), protocol=CommitProtocolSpec(path=str(root)), schema=schema, **kwargs
    )


def rows(count: int, partitions: int = 3) -> list[pa.RecordBatch]:
    table = pa.table({"id": range(count), "p": [f"p{n % partitions}" for n in range(count)]})
    return table.to_batches(max_chunksize=1000)  # type: ignore[no-any-return]


def files(root: Path) -> list[Path]:
    return [p for p in root.rglob("*") if p.is_file()]


class TestSpec:
    def test_is_json_and_back(self, tmp_path: Path) -> None:
        full = spec(
            tmp_path,
            partition_columns=("p",),
            cdc=True,
            compression=Compression("zstd"),
            target_file_size=1,
            max_records_per_file=2,
            constraints=(NotNull(path=("id",)), RowCondition(what="CHECK constraint", name="c", sql="id > 0")),
        )
        assert WriteJobSpec.from_json(full.to_json()) == full

    @pytest.mark.parametrize("text", ["", "{}", "[]", '{"schema": 1}'])
    def test_malformed_json_is_refused(self, text: str) -> None:
        with pytest.raises(InvalidArgument):
            WriteJobSpec.from_json(text)

    def test_secrets_travel_and_are_not_shown(self) -> None:
        store = StoreSpec(uri="s3://bucket/t", storage_options={"aws_secret_access_key": "hush"})
        made = WriteJobSpec(store=store, protocol=CommitProtocolSpec(path=store.uri), schema="{}")
        assert "hush" not in repr(made)
        assert WriteJobSpec.from_json(made.to_json()).store.storage_options == {"aws_secret_access_key": "hush"}

    def test_an_unknown_protocol_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidArgument, match="nope"):
            new_protocol(spec(tmp_path).__class__.from_json(spec(tmp_path).to_json().replace('"delayed"', '"nope"')))


class TestTask:
    def test_the_message_names_the_files(self, tmp_path: Path) -> None:
        message = run_task(spec(tmp_path, partition_columns=("p",)), TASK, rows(3000))
        protocol = new_protocol(spec(tmp_path))
        protocol.commit_job([message])
        assert sum(pq.read_metadata(f).num_rows for f in files(tmp_path)) == 3000
        assert len(message.entries) == len(files(tmp_path)) == 3

    def test_no_batches_make_an_empty_message(self, tmp_path: Path) -> None:
        assert run_task(spec(tmp_path), TASK, []).entries == ()

    def test_runs_in_another_process_from_json_alone(self, tmp_path: Path) -> None:
        script = (
            "import sys, pyarrow as pa\n"
            "from lakeseal.jobs.file_commit_protocol import TaskContext\n"
            "from lakeseal.jobs.job import WriteJobSpec\n"
            "from lakeseal.jobs.task_report import report_task\n"
            "spec = WriteJobSpec.from_json(sys.stdin.read())\n"
            "batch = pa.RecordBatch.from_pydict({'id': [int(sys.argv[1])], 'p': ['x']})\n"
            "print(report_task(spec, TaskContext(job_id='delta', split=7), [batch]))\n"
        )
        job = spec(tmp_path, constraints=(RowCondition(what="CHECK constraint", name="c", sql="id > 0"),))

        def run(value: int) -> str:
            command = [sys.executable, "-c", script, str(value)]
            return subprocess.run(command, input=job.to_json(), capture_output=True, text=True, check=True).stdout

        assert read_report(run(1)).task.split == 7
        with pytest.raises(ConstraintViolation, match=r"\{id: -5, p: 'x'\}") as caught:
            read_report(run(-5))
        assert caught.value.table == job.store.uri

    def test_logs_at_the_level_of_the_driver_in_a_process_of_its_own(self, tmp_path: Path) -> None:
        script = (
            "import sys\n"
            "from lakeseal.jobs.file_commit_protocol import TaskContext\n"
            "from lakeseal.jobs.job import WriteJobSpec, run_task\n"
            "for text in sys.stdin:\n"
            "    run_task(WriteJobSpec.from_json(text), TaskContext(job_id='delta', split=0), [])\n"
        )

        def logged(*levels: int | None) -> str:
            jobs = "\n".join(spec(tmp_path, log_level=level).to_json() for level in levels)
            command = [sys.executable, "-c", script]
            return subprocess.run(command, input=jobs, capture_output=True, text=True, check=True).stderr

        assert logged(None) == ""
        assert logged(logging.WARNING) == ""
        once = logged(logging.DEBUG)
        assert "task 0 commits 0 files" in once
        # Engines keep processes for later jobs.
        assert logged(logging.DEBUG, logging.WARNING).count("\n") == once.count("\n")


class TestFailure:
    def failing(self) -> Iterator[pa.RecordBatch]:
        yield from rows(5000, 500)
        raise RuntimeError("the source broke")

    @pytest.mark.parametrize("buffer_bytes", [1000, 50_000, 10**9])
    def test_a_source_that_raises_leaves_no_file_and_passes_its_error(self, tmp_path: Path, buffer_bytes: int) -> None:
        spill = tmp_path / "spill"
        spill.mkdir()
        job = spec(tmp_path / "t", partition_columns=("p",), buffer_bytes=buffer_bytes, spill_directory=str(spill))
        with pytest.raises(RuntimeError, match="the source broke"):
            run_task(job, TASK, self.failing())
        assert files(tmp_path) == []

    def test_a_violation_in_the_last_batch_leaves_no_file(self, tmp_path: Path) -> None:
        job = spec(tmp_path, max_records_per_file=100, buffer_bytes=1, constraints=(NotNull(path=("p",)),))
        bad = pa.RecordBatch.from_pydict({"id": [1, 2], "p": ["x", None]})
        with pytest.raises(ConstraintViolation, match=r"\{id: 2, p: null\}") as caught:
            run_task(job, TASK, [*rows(2000), bad])
        assert (caught.value.table, caught.value.column) == (job.store.uri, "p")
        assert files(tmp_path) == []

    @pytest.mark.parametrize(
        ("data", "error", "column"),
        [
            ({"id": [1], "q": [1]}, SchemaMismatch, "q"),
            ({"id": ["x"]}, SchemaMismatch, "id"),
            ({"id": [1e300]}, EvaluationError, "id"),
        ],
    )
    def test_wrong_data_is_named(self, tmp_path: Path, data: Any, error: type[LakesealError], column: str) -> None:
        with pytest.raises(error) as caught:
            run_task(spec(tmp_path), TASK, [pa.RecordBatch.from_pydict(data)])
        assert caught.value.column == column
        assert files(tmp_path) == []

    def test_a_directory_that_cannot_be_written_is_a_storage_error(self, tmp_path: Path) -> None:
        (tmp_path / "t").write_text("a file where the table should be")
        with pytest.raises(StorageError):
            run_task(spec(tmp_path / "t"), TASK, rows(10))

    def test_a_spill_directory_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        job = spec(tmp_path, partition_columns=("p",), buffer_bytes=1, spill_directory=str(tmp_path / "nowhere"))
        with pytest.raises(InvalidArgument, match="nowhere"):
            run_task(job, TASK, rows(10))
        assert files(tmp_path) == []


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KB in memory."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("a full disk needs the right to mount one, which this user lacks")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


class TestFullDisk:
    RANDOM = pa.table({"id": range(20_000), "p": [os.urandom(20).hex() for _ in range(20_000)]})

    @pytest.mark.parametrize("compression", ["snappy", "none"])
    def test_of_the_table_is_out_of_space_and_nothing_is_left(self, tiny_disk: Path, compression: str) -> None:
        job = spec(tiny_disk, max_records_per_file=1000, compression=Compression(compression))
        with pytest.raises(OutOfSpace) as caught:
            run_task(job, TASK, self.RANDOM.to_batches(max_chunksize=1000))
        assert caught.value.table == job.store.uri
        assert files(tiny_disk) == []

    def test_in_one_large_file_is_out_of_space_and_nothing_is_left(self, tiny_disk: Path) -> None:
        big = pa.table({"id": range(200_000), "p": [str(n * 7919) * 5 for n in range(200_000)]})
        with pytest.raises(OutOfSpace):
            run_task(spec(tiny_disk, compression=Compression("none")), TASK, big.to_batches(max_chunksize=10_000))
        assert files(tiny_disk) == []

    def test_of_the_spill_says_which_directory(self, tmp_path: Path, tiny_disk: Path) -> None:
        table = tmp_path / "t"
        job = spec(table, partition_columns=("p",), buffer_bytes=100_000, spill_directory=str(tiny_disk))
        data = pa.table({"id": range(100_000), "p": [str(n % 2000) for n in range(100_000)]})
        with pytest.raises(OutOfSpace, match="disk") as caught:
            run_task(job, TASK, data.to_batches(max_chunksize=1000))
        assert "spill_directory" in caught.value.hint
        assert files(table) == []
        assert files(tiny_disk) == []


class TestReport:
    def test_mistakes_in_the_data_are_reported_and_others_are_raised(self, tmp_path: Path) -> None:
        text = report_task(spec(tmp_path), TASK, [pa.RecordBatch.from_pydict({"x": [1]})])
        with pytest.raises(SchemaMismatch) as caught:
            read_report(text)
        assert caught.value.column == "x"
        (tmp_path / "file").write_text("")
        with pytest.raises(StorageError):
            report_task(spec(tmp_path / "file"), TASK, rows(1))

    def test_every_error_comes_back_as_what_it_was(self) -> None:
        error = PermissionDenied("no", table="t", version=3, file="f", column="c", hint="ask")
        back = error_from_json(error.to_json())
        assert type(back) is PermissionDenied
        assert str(back) == str(error)
        assert str(pickle.loads(pickle.dumps(back))) == str(error)
        assert type(error_from_json({"kind": "of a later version", "message": "m"})) is LakesealError

    @pytest.mark.parametrize("text", ["", "{}", '{"message": 1}', '{"error": []}'])
    def test_a_malformed_report_is_refused(self, text: str) -> None:
        with pytest.raises(InvalidArgument):
            read_report(text)


class TestInProcessEngine:
    def run(self, job: WriteJobSpec, data: Any, threads: int) -> list[Any]:
        return InProcessEngine(threads).open(data).run(job, InPlan())

    def test_little_data_is_one_task(self, tmp_path: Path) -> None:
        messages = self.run(spec(tmp_path), pa.Table.from_batches(rows(10_000)), 4)
        assert [m.task.split for m in messages] == [0]
        assert len(files(tmp_path)) == 1

    @pytest.mark.parametrize("threads", [1, 2, 3])
    def test_every_row_is_written_once_whatever_the_threads(
        self, tmp_path: Path, threads: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("lakeseal.jobs.in_process._SPLIT_BYTES", 10_000)
        messages = self.run(spec(tmp_path, partition_columns=("p",)), pa.Table.from_batches(rows(50_000)), threads)
        assert sorted(m.task.split for m in messages) == list(range(threads))
        ids = [n for f in files(tmp_path) for n in pq.ParquetFile(f).read()["id"].to_pylist()]
        assert sorted(ids) == list(range(50_000))

    def test_one_failing_task_fails_the_job_with_its_own_error(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("lakeseal.jobs.in_process._SPLIT_BYTES", 10_000)
        data = pa.Table.from_batches(
            [*rows(20_000), pa.RecordBatch.from_pydict({"id": [-1], "p": ["x"]}), *rows(20_000)]
        )
        job = spec(tmp_path, constraints=(RowCondition(what="CHECK constraint", name="c", sql="id >= 0"),))
        with pytest.raises(ConstraintViolation, match="id: -1"):
            self.run(job, data, 3)

    def test_a_reader_that_fails_fails_the_job_with_its_error(self, tmp_path: Path) -> None:
        def batches() -> Iterator[pa.RecordBatch]:
            yield from rows(1000)
            raise OSError(errno.EIO, "the disk broke")

        with pytest.raises(OSError, match="the disk broke"):
            self.run(spec(tmp_path), pa.RecordBatchReader.from_batches(SCHEMA, batches()), 2)
        assert files(tmp_path) == []

    def test_no_threads_are_refused(self) -> None:
        with pytest.raises(InvalidArgument):
            InProcessEngine(0)
