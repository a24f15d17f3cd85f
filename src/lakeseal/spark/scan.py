"""A version of a table, or its change feed, as a Spark DataFrame.

Files that cannot have rows for `where` are left out on the driver, by partition values and statistics; then Spark
applies the whole condition, so that rows are exactly those that Spark's own semantics name. Spark's Parquet reader
reads the files where it gives the same rows (`parquet_scan`); everywhere else (deletion vectors, column mapping, object
stores that only we reach, …) tasks read them as Arrow (`read_task`), with no JAR. The rows are the same either way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from lakeseal.errors import located
from lakeseal.expr.render import quote_name
from lakeseal.log.changes import changes, version_range
from lakeseal.log.data import ReadSpec
from lakeseal.log.delta_log import DeltaLog
from lakeseal.log.scan import read_spec, tracked_columns
from lakeseal.log.snapshot import Snapshot
from lakeseal.log.timestamps import Timestamp
from lakeseal.protocol.row_tracking import ROW_COMMIT_VERSION, ROW_ID
from lakeseal.spark.failures import analysed, noted, recovered
from lakeseal.spark.interpreter import use_this_python
from lakeseal.spark.parquet_scan import ParquetScan
from lakeseal.spark.predicates import Settings, columns_of, understood
from lakeseal.spark.read_task import MAX_SPLIT_BYTES, ChangeTask, ReadTask, ScanTask, change_splits, file_splits
from lakeseal.storage import StoreSpec


def to_spark(
    spark: SparkSession,
    snapshot: Snapshot,
    store: StoreSpec,
    *,
    where: str | None = None,
    columns: Sequence[str] | None = None,
    in_tasks: bool | None = None,
    row_ids: bool = False,
) -> DataFrame:
    """The rows of a snapshot. `in_tasks` decides who reads the files: True for ours, None for the better one.
    `row_ids`: with `_row_id` and `_row_commit_version` behind the other columns."""
    with located(table=snapshot.table, version=snapshot.version):
        settings = Settings.of(spark)
        wanted = msgspec.structs.replace(read_spec(snapshot, columns), pads_chars=settings.pads_chars)
        early = None if where is None else understood(where, snapshot.schema, settings)
        files = snapshot.files if early is None else snapshot.files.filter(snapshot.match(early).may)
        names = [field.name for field in wanted.wanted()]
        spec = wanted if where is None else _with_columns(wanted, names, columns_of(where, snapshot.schema, settings))
        tracked = tracked_columns(snapshot) if row_ids else None
        spec = msgspec.structs.replace(spec, row_ids=tracked)
        scan = None if in_tasks or row_ids else ParquetScan.of(snapshot, files, spec.wanted(), settings)
    if scan is not None:
        with located(version=snapshot.version):
            frame = scan.frame(spark)
    else:
        task = ScanTask(store=store, spec=spec, where=early, version=snapshot.version)
        frame = run_in_tasks(spark, task, file_splits(files, max_bytes=_max_split(spark)), f"read of {store.uri}")
    exact = frame
    if where is not None:
        with located(table=snapshot.table), analysed("judge this condition"):
            exact = frame.where(where)
    shown = [F.col(quote_name(name)) for name in names]
    if tracked is not None:
        shown += [
            F.col(quote_name(name)).alias(called)
            for name, called in zip(tracked.names, (ROW_ID, ROW_COMMIT_VERSION), strict=True)
        ]
    return exact.select(*shown)


def first_row(spark: SparkSession, snapshot: Snapshot, store: StoreSpec, where: str) -> dict[str, Any] | None:
    """One of the rows that a condition holds for, in Spark's judgement; None if there is none."""
    with located(table=snapshot.table), recovered(), analysed("judge this condition"):
        rows = to_spark(spark, snapshot, store, where=where).limit(1).collect()
        return rows[0].asDict() if rows else None


def changes_spark(
    spark: SparkSession,
    log: DeltaLog,
    store: StoreSpec,
    start: int | Timestamp,
    end: int | Timestamp | None = None,
) -> DataFrame:
    """The change feed from `start` to `end`, both included, in the schema of the last version."""
    first, last = version_range(log, start, end)
    spec = msgspec.structs.replace(read_spec(log.snapshot(last)), pads_chars=Settings.of(spark).pads_chars)
    task = ChangeTask(store=store, spec=spec)
    splits = change_splits(changes(log, first, last), max_bytes=_max_split(spark))
    return run_in_tasks(spark, task, splits, f"changes of {store.uri}")


def run_in_tasks(spark: SparkSession, task: ReadTask, splits: Sequence[bytes], name: str) -> DataFrame:
    """The rows that `task` makes of splits, one Spark task per split."""
    use_this_python(spark)
    if not splits:
        return spark.createDataFrame([], task.schema)
    numbers = pa.array(range(len(splits)), pa.int32())
    frame = spark.createDataFrame(pa.table({"number": numbers, "split": pa.array(splits, pa.binary())}))
    return frame.repartitionById(len(splits), "number").mapInArrow(_Rows(task, name), task.schema)


class _Rows:
    """What Spark calls with a task's splits; its name stands in the plan."""

    def __init__(self, task: ReadTask, name: str) -> None:
        self._task = task
        self.__name__ = name

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with noted():
            for batch in batches:
                for split in batch["split"].to_pylist():
                    yield from self._task.read(split)


def _with_columns(spec: ReadSpec, names: Sequence[str], more: Sequence[str]) -> ReadSpec:
    asked = {name.lower() for name in names}
    return msgspec.structs.replace(spec, columns=(*names, *(name for name in more if name.lower() not in asked)))


def _max_split(spark: SparkSession) -> int:
    text: Any = spark.conf.get("spark.sql.files.maxPartitionBytes", None)
    digits = str(text or "").lower().removesuffix("b")
    return int(digits) if digits.isdecimal() and int(digits) else MAX_SPLIT_BYTES
