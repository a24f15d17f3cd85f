"""What tasks of a write job are, to Spark: functions from Arrow batches to one report each.

They are plain values that travel by pickle and are found on the executor by import, so an executor needs Lakeseal, in
the driver's version, and nothing else. `name` is how Spark's web pages call the task's operator.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
import pyarrow as pa
import pyspark

from lakeseal import typed_json
from lakeseal.errors import ConstraintViolation
from lakeseal.log.data import DataFile
from lakeseal.spark.failures import noted
from lakeseal.write.constraints import Check, show_row
from lakeseal.write.file_commit_protocol import TaskContext
from lakeseal.write.job import WriteJobSpec
from lakeseal.write.rewrite import Rewrite
from lakeseal.write.task_report import report_task

REPORT = "report string"
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
        self, name: str, spec: WriteJobSpec, checks: Iterable[Check] = (), names: Sequence[str] | None = None
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


def split_to_json(split: tuple[DataFile, ...]) -> str:
    return msgspec.json.encode(split).decode()


def split_from_json(text: str) -> tuple[DataFile, ...]:
    return typed_json.decode(text, tuple[DataFile, ...])


def _reported(report: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"report": [report]})


def _unviolated(batches: Iterable[pa.RecordBatch], checks: tuple[Check, ...]) -> Iterator[pa.RecordBatch]:
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
