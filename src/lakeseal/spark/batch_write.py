"""`df.write.format("lakeseal")`: one write, one commit.

Spark makes the writer on the driver, where the write is planned; sends it to tasks; and calls `commit` with their
messages in a process of its own, where the plan becomes a version of the table. A message is a task's report as JSON.
If a task fails for good or the commit is refused, nothing of the write is visible, and its files are vacuum's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from lakeseal.jobs.task_report import read_report, report_task
from lakeseal.spark.failures import noted
from lakeseal.spark.planned_write import PlannedSinkWrite, in_session
from lakeseal.spark.schema import data_schema
from lakeseal.spark.sink_options import SinkOptions
from lakeseal.spark.tasks import task_context


class Reported(WriterCommitMessage):
    def __init__(self, report: str) -> None:
        self.report = report


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        self._options = options
        self._data = data_schema(schema)
        self._command = options.command(overwrite=overwrite)
        self._plan = PlannedSinkWrite(options, self._data).decide(self._command)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        spec = self._plan.spec
        if spec is None:
            drain(iterator)
            return Reported("")
        with noted():
            return Reported(report_task(spec, task_context(spec.job_id), in_session(iterator, self._plan)))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if self._plan.spec is None:
            return
        with noted():
            reports = [read_report(message.report) for message in messages if isinstance(message, Reported)]
            PlannedSinkWrite(self._options, self._data).commit(self._command, self._plan, reports)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing: the outcome of a failed commit may be unknown, so no file is surely free to go."""


def drain(batches: Iterator[pa.RecordBatch]) -> None:
    """Spark wants a task to take all that it is sent."""
    for _ in batches:
        pass
