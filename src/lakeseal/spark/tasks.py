"""What tasks are, to Spark: functions from Arrow batches to one report each.

They are plain values that travel by pickle and are found on the executor by import, so an executor needs Lakeseal, in
the driver's version, and nothing else. `name` is how Spark's web pages call the task's operator.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np
import pyarrow as pa
import pyspark

from lakeseal import typed_json
from lakeseal.errors import ConstraintViolation
from lakeseal.files.constraints import RowCondition, show_row
from lakeseal.jobs.file_commit_protocol import TaskContext
from lakeseal.jobs.job import WriteJobSpec
from lakeseal.jobs.rewrite import Rewrite
from lakeseal.jobs.search import Search
from lakeseal.jobs.task_report import report_task
from lakeseal.log.data import DataFile
from lakeseal.protocol.deletion_vectors import Positions, encode
from lakeseal.spark.failures import noted

REPORT = "report string"
FOUND = "found string"
PLACES = "file int, rows binary, count long"
VIOLATED = "__lakeseal_violated"
"""The column in which Spark's plan says which check a row violates; null if none."""


def task_context(job_id: str) -> TaskContext:
    """Which task this is, in a task."""
    here = pyspark.TaskContext.get()
    assert here is not None
    return TaskContext(
        job_id=job_id,
        split=here.partitionId(),
        attempt=here.attemptNumber(),
        task_attempt_id=here.taskAttemptId(),
    )


class WriteTask:
    """Writes the rows that it is given."""

    def __init__(
        self, name: str, spec: WriteJobSpec, checks: Iterable[RowCondition], names: Sequence[str] | None
    ) -> None:
        """`checks` are those that the column `VIOLATED` speaks of; `names` are the columns', if they come under
        others."""
        self._names = None if names is None else list(names)
        self.__name__ = name
        self._spec = spec.to_json()
        self._checks = tuple(checks)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spec = WriteJobSpec.from_json(self._spec)
        named = batches if self._names is None else (batch.rename_columns(self._names) for batch in batches)
        rows = _unviolated(named, self._checks) if self._checks else named
        with noted():
            yield _reported(report_task(spec, task_context(spec.job_id), rows))


class RewriteTask:
    """Writes the rows of files that it is told, which must be those of one split."""

    def __init__(self, name: str, spec: WriteJobSpec, rewrite: Rewrite) -> None:
        self.__name__ = name
        self._spec = spec.to_json()
        self._rewrite = msgspec.json.encode(msgspec.structs.replace(rewrite, splits=())).decode()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spec = WriteJobSpec.from_json(self._spec)
        rewrite = typed_json.decode(self._rewrite, Rewrite)
        files = [file for batch in batches for text in batch["files"].to_pylist() for file in split_from_json(text)]
        rewrite = msgspec.structs.replace(rewrite, splits=(tuple(files),))
        with noted():
            yield _reported(report_task(spec, task_context(spec.job_id), rewrite.batches(0)))


class SearchTask:
    """Looks through the files that it is told, which must be those of one split."""

    def __init__(self, name: str, search: Search) -> None:
        self.__name__ = name
        self._search = msgspec.json.encode(msgspec.structs.replace(search, splits=(), rows={})).decode()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        search = typed_json.decode(self._search, Search)
        files = [file for batch in batches for text in batch["files"].to_pylist() for file in split_from_json(text)]
        with noted():
            found = msgspec.structs.replace(search, splits=(tuple(files),)).run(0)
        yield pa.RecordBatch.from_pydict({"found": [msgspec.json.encode(found).decode()]})


def places(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Places of rows, put together: for each file of the partition the positions in it."""
    parts: dict[int, list[Positions]] = {}
    for batch in batches:
        files, rows = batch.column(0).to_numpy(), batch.column(1).to_numpy()
        for file in np.unique(files):
            parts.setdefault(int(file), []).append(rows[files == file].astype(np.uint64))
    whole = {file: np.unique(np.concatenate(positions)) for file, positions in parts.items()}
    yield pa.RecordBatch.from_arrays(
        [
            pa.array(list(whole), pa.int32()),
            pa.array([encode(positions) for positions in whole.values()], pa.binary()),
            pa.array([len(positions) for positions in whole.values()], pa.int64()),
        ],
        names=["file", "rows", "count"],
    )


def split_to_json(split: tuple[DataFile, ...]) -> str:
    return msgspec.json.encode(split).decode()


def split_from_json(text: str) -> tuple[DataFile, ...]:
    return typed_json.decode(text, tuple[DataFile, ...])


def _reported(report: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"report": [report]})


def _unviolated(batches: Iterable[pa.RecordBatch], checks: tuple[RowCondition, ...]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        violated = batch[VIOLATED]
        rows = batch.drop_columns([VIOLATED])
        if violated.null_count < len(violated):
            row = violated.is_valid().index(True).as_py()
            check = checks[violated[row].as_py()]
            raise ConstraintViolation(
                f"The {check} is violated by the row {show_row(rows, row)}",
                column=check.column,
                hint="Mend or leave out such rows; nothing was written",
            )
        yield rows
