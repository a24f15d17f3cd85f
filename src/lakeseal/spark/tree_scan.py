"""A directory on a branch as a Spark DataFrame: tasks read its files as Arrow, in any of the formats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import pyarrow as pa
import pyspark.sql.types as types
from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession

from lakeseal.files.tree_reader import TreeFile, TreeReader, TreeSpec
from lakeseal.files.tree_scan import TreeScan
from lakeseal.spark.read_task import MAX_SPLIT_BYTES, runs, split_goal
from lakeseal.spark.rows import for_spark, rows_schema
from lakeseal.spark.scan import run_in_tasks
from lakeseal.storage import StoreSpec

_OPEN_BYTES = 2**20


class TreeTask(Struct, frozen=True, kw_only=True):
    """Rows of files on a branch."""

    store: StoreSpec
    spec: TreeSpec

    @classmethod
    def of(cls, scan: TreeScan) -> TreeTask:
        return cls(store=scan.store, spec=scan.spec)

    @property
    def schema(self) -> types.StructType:
        return rows_schema(self.spec.table.wanted())

    def read(self, split: bytes) -> Iterator[pa.RecordBatch]:
        reader = TreeReader(self.store, self.spec)
        files = msgspec.msgpack.decode(split, type=list[TreeFile])
        return for_spark(reader.read(files), reader.schema)


def tree_splits(files: Sequence[TreeFile]) -> list[bytes]:
    """Splits for `TreeTask`: files are dealt out whole."""
    if not files:
        return []
    sizes = np.array([file.size for file in files], np.int64) + _OPEN_BYTES
    goal = split_goal(int(sizes.sum()), MAX_SPLIT_BYTES)
    return [msgspec.msgpack.encode(list(files[first:last])) for first, last in runs(sizes, goal)]


def to_spark(spark: SparkSession, scan: TreeScan) -> DataFrame:
    task = TreeTask.of(scan.at_zone(str(spark.conf.get("spark.sql.session.timeZone", "UTC"))))
    return run_in_tasks(spark, task, tree_splits(scan.files), f"read of {scan.path} in {scan.store.uri}")
