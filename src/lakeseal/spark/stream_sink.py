"""`df.writeStream.format("lakeseal")`: every micro-batch is one commit, and counts once.

A commit carries (query id, batch id), or (`txnAppId`, batch id) if that option is given, and a batch that the table has
seen changes nothing. So whatever is repeated after a crash, every row is there once, as long as the query's checkpoint
lives. Append mode adds rows; complete mode replaces all rows (or those of `replaceWhere`) by the batch's.

Only tasks know which query they run for, so they say it in their messages. The batch that the tasks' files were planned
by comes with the first task's message: Spark makes another writer for the commit than for the tasks. A batch without a
task has no rows and no query id; there is nothing to add, and replacing everything by nothing may be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import pyarrow as pa
import pyspark
from msgspec import Struct
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from lakeseal import typed_json
from lakeseal.commands.write import WriteCommand
from lakeseal.errors import InvalidArgument
from lakeseal.jobs.task_report import read_report, report_task
from lakeseal.spark.failures import noted
from lakeseal.spark.planned_write import PlannedSinkWrite, SinkPlan, in_session
from lakeseal.spark.schema import data_schema
from lakeseal.spark.sink_options import SinkOptions
from lakeseal.spark.tasks import task_context

_QUERY_ID = "sql.streaming.queryId"


class _Told(Struct, frozen=True, kw_only=True):
    report: str
    query_id: str | None
    plan: SinkPlan | None = None
    """From the task of the first partition only."""


class TaskMessage(WriterCommitMessage):
    """What a task tells the driver, as JSON."""

    def __init__(self, text: str) -> None:
        self.text = text


class StreamSink(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        if options.txn_version is not None:
            raise InvalidArgument(
                "A stream takes no txnVersion", hint="Leave it out: the version is the number of the micro-batch"
            )
        self._options = msgspec.structs.replace(options, txn_app_id=None)
        self._app_id = options.txn_app_id
        self._overwrite = overwrite
        self._data = data_schema(schema)
        self._plan = self._write().decide(self._command)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        spec = self._plan.spec
        assert spec is not None
        here = pyspark.TaskContext.get()
        assert here is not None
        task = task_context(spec.job_id)
        with noted():
            told = _Told(
                report=report_task(spec, task, in_session(iterator, self._plan)),
                query_id=here.getLocalProperty(_QUERY_ID),
                plan=self._plan if task.split == 0 else None,
            )
        return TaskMessage(msgspec.json.encode(told).decode())

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        told = [typed_json.decode(m.text, _Told) for m in messages if isinstance(m, TaskMessage)]
        plans = [one.plan for one in told if one.plan is not None]
        query_ids = [one.query_id for one in told if one.query_id is not None]
        with noted():
            command = self._of_batch(batchId, query_ids[0] if query_ids else None)
            reports = [read_report(one.report) for one in told]
            if reports or self._overwrite or self._plan.version is None:
                self._write().commit(command, plans[0] if plans else self._plan, reports)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        """Nothing: the outcome of a failed commit may be unknown, so no file is surely free to go."""

    @property
    def _command(self) -> WriteCommand:
        return self._options.command(overwrite=self._overwrite)

    def _of_batch(self, batch: int, query_id: str | None) -> WriteCommand:
        app_id = self._app_id or query_id
        return msgspec.structs.replace(
            self._command,
            txn=None if app_id is None else (app_id, batch),
            operation="STREAMING UPDATE",
            parameters={
                "outputMode": "Complete" if self._overwrite else "Append",
                "queryId": query_id,
                "epochId": str(batch),
            },
        )

    def _write(self) -> PlannedSinkWrite:
        return PlannedSinkWrite(self._options, self._data)
