"""`format("lakeseal")` for directories on branches: read by `ref`, written to a `branch` as one job.

A DataFrame reads the commit that its ref stood for when it was made. A write begins its job on the driver, its tasks
write files that nobody sees, and its commit, wherever Spark calls it, finds the job by its id and merges it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceReader, InputPartition, WriterCommitMessage
from pyspark.sql.types import StructType

from lakeseal.commands.branch_write import PlannedBranchWrite
from lakeseal.files.tree_scan import TreeScan
from lakeseal.jobs.job import WriteJobSpec
from lakeseal.jobs.task_report import read_report, report_task
from lakeseal.spark.batch_write import Reported, drain
from lakeseal.spark.failures import noted
from lakeseal.spark.schema import data_schema
from lakeseal.spark.tasks import task_context
from lakeseal.spark.tree_options import TreeReadOptions, TreeSinkOptions
from lakeseal.spark.tree_scan import TreeTask, tree_splits


class TreeBatchReader(DataSourceReader):
    def __init__(self, options: TreeReadOptions, schema: StructType, scan: TreeScan | None) -> None:
        """`scan` is the one whose schema Spark was told; without, the schema is the user's own."""
        with noted():
            found = options.scan(data_schema(schema)) if scan is None else scan
        self._files = found.files
        self._task = TreeTask.of(found)

    def __getstate__(self) -> dict[str, Any]:
        # Tasks need to know what to read, not all that there is.
        return {"_task": self._task}

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(split) for split in tree_splits(self._files)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Where there are no splits, Spark makes a partition of its own.
        if partition.value is not None:
            with noted():
                yield from self._task.read(partition.value)


class TreeBatchWriter(DataSourceArrowWriter):
    def __init__(self, options: TreeSinkOptions, schema: StructType) -> None:
        self._options = options
        self._data = data_schema(schema)
        with noted():
            write = PlannedBranchWrite(options.place.open(), options.command, self._data)
            self._job_id = write.job_id
            spec = write.decide()
        self._spec = spec.to_json() if isinstance(spec, WriteJobSpec) else None

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        if self._spec is None:
            drain(iterator)
            return Reported("")
        spec = WriteJobSpec.from_json(self._spec)
        with noted():
            return Reported(report_task(spec, task_context(spec.job_id), iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if self._spec is None:
            return
        with noted():
            reports = [read_report(message.report) for message in messages if isinstance(message, Reported)]
            self._resumed().commit(reports)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if self._spec is not None:
            with noted():
                self._resumed().abort()

    def _resumed(self) -> PlannedBranchWrite:
        options = self._options
        write = PlannedBranchWrite(options.place.open(), options.command, self._data, job_id=self._job_id)
        write.decide()
        return write
