"""`SparkEngine`: tasks of commands on Spark's executors, and Spark as the judge of their expressions.

One partition of a DataFrame is one task of a write job. Rows reach it as Arrow batches, and what comes back is one
report per task: Spark hands on the rows of one attempt only, so whatever other attempts wrote was never reported and
never counts. A `Rewrite` runs the same way with one split per task; its rows are read in the task and never enter the
JVM. What tasks are told and what they answer is JSON.

Where `expr` judges as the session does, a search reads files in Arrow, too. Elsewhere (another zone, ANSI mode off, a
subquery, a function that only Spark has, …) Spark is given the rows with their places and the condition as it was
written, and tells which rows it chose.

Spark's web pages show a job as a write to the table: in its description (over Spark Connect the server writes its own
there), as its tag, and as the name of the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from types import FunctionType
from typing import Any

import msgspec
import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's users know

from lakeseal import typed_json
from lakeseal.errors import InvalidArgument
from lakeseal.expr.render import quote_name
from lakeseal.files.expressions import IN_TASK
from lakeseal.jobs.engine import InPlan, WriteInput
from lakeseal.jobs.file_commit_protocol import TaskCommitMessage
from lakeseal.jobs.job import WriteJobSpec
from lakeseal.jobs.progress import SILENT, Progress
from lakeseal.jobs.rewrite import Rewrite
from lakeseal.jobs.search import Found, Search
from lakeseal.jobs.task_report import read_report
from lakeseal.log.data import DataFile, ReadSpec
from lakeseal.protocol.deletion_vectors import Positions, decode
from lakeseal.protocol.schema import DataType, StructType
from lakeseal.spark.arrow_batches import cut_by_rows
from lakeseal.spark.failures import analysed, recovered
from lakeseal.spark.in_plan import SessionExpressions, planned
from lakeseal.spark.interpreter import use_this_python
from lakeseal.spark.placed_rows import FILE, ROW, placed_rows
from lakeseal.spark.predicates import Settings, columns_of, judged, same_value, understood
from lakeseal.spark.rewrite_plan import rewritten
from lakeseal.spark.rows import rows_schema
from lakeseal.spark.schema import data_schema
from lakeseal.spark.store_assignment import stores_alike
from lakeseal.spark.tasks import FOUND, PLACES, REPORT, RewriteTask, SearchTask, WriteTask, places, split_to_json

ArrowTask = WriteTask | RewriteTask


class SparkEngine:
    def __init__(self, spark: SparkSession) -> None:
        use_this_python(spark)
        self.spark = spark

    @cached_property
    def settings(self) -> Settings:
        """As they are when a command begins."""
        return Settings.of(self.spark)

    def open(self, data: Any, progress: Progress = SILENT) -> WriteInput:
        """`progress` stays where it is: Spark shows its own."""
        match data:
            case _FrameInput() | _RewriteInput():
                return data
            case DataFrame():
                return _FrameInput(self.spark, data, self.settings)
            case Rewrite(in_plan=True):
                return _FrameInput(self.spark, rewritten(self.spark, data, self.settings), self.settings)
            case Rewrite():
                return _RewriteInput(self.spark, data)
            case _:
                raise InvalidArgument(
                    f"Spark cannot write a {type(data).__name__}", hint="Give a Spark DataFrame, or write without Spark"
                )

    def judged(self, where: str, schema: StructType) -> str | None:
        return judged(where, schema, self.settings)

    def understood(self, where: str, schema: StructType) -> str | None:
        return understood(where, schema, self.settings)

    def evaluates(self, text: str, schema: StructType, target: DataType | None = None) -> bool:
        return stores_alike(target, self.settings) and same_value(text, schema, self.settings)

    def search(self, search: Search, progress: Progress) -> list[Found]:
        if search.in_plan:
            return self._search_in_plan(search)
        rows = [(number, split_to_json(split)) for number, split in enumerate(search.splits)]
        frame = self.spark.createDataFrame(rows, "split int, files string").repartitionById(len(rows), "split")
        task = SearchTask(f"search in {sum(map(len, search.splits))} files of {search.store.uri}", search)
        with recovered():
            answers = frame.mapInArrow(task, FOUND).collect()
        return [found for row in answers for found in typed_json.decode(row.found, list[Found])]

    def _search_in_plan(self, search: Search) -> list[Found]:
        files = [file for split in search.splits for file in split]
        columns = columns_of(search.where, search.table, self.settings)
        spec = ReadSpec(
            schema=search.table,
            partition_columns=search.partition_columns,
            mapping=search.mapping,
            columns=columns,
            max_decoded_bytes=search.max_decoded_bytes,
            places=search.places,
            pads_chars=self.settings.pads_chars,
        )
        with recovered(), analysed("judge this condition"):
            rows = placed_rows(self.spark, search.store, spec, list(enumerate(files)))
            chosen = rows.where(search.where).select(FILE, ROW)
            answers = chosen.mapInArrow(places, PLACES).collect()
        found: dict[int, Positions] = {}
        for row in answers:
            here = decode(bytes(row["rows"]), row["count"])
            found[row["file"]] = np.union1d(found[row["file"]], here) if row["file"] in found else here
        counts = self._counts(search, spec, {number: files[number] for number in found})
        return search.told([(files[number], counts[number], positions) for number, positions in sorted(found.items())])

    def _counts(self, search: Search, spec: ReadSpec, files: dict[int, DataFile]) -> dict[int, int]:
        """How many rows readers see in each file, by the log where it says so."""
        known = {number: search.rows[file.path] for number, file in files.items() if file.path in search.rows}
        unknown = [(number, file) for number, file in files.items() if number not in known]
        if unknown:
            none = msgspec.structs.replace(spec, columns=())
            with recovered():
                counted = placed_rows(self.spark, search.store, none, unknown).groupBy(FILE).count().collect()
            known |= {row[FILE]: row["count"] for row in counted}
        return known


class _FrameInput:
    def __init__(self, spark: SparkSession, frame: DataFrame, settings: Settings) -> None:
        if frame.isStreaming:
            raise InvalidArgument(
                "A stream cannot be written at once",
                hint='Use df.writeStream.format("lakeseal"), or write inside foreachBatch',
            )
        self._spark = spark
        self._frame = frame
        self._settings = settings
        self.schema: StructType = data_schema(frame.schema)
        self.expressions = SessionExpressions(settings)

    def run(self, spec: WriteJobSpec, in_plan: InPlan) -> list[TaskCommitMessage]:
        name = f"write to {spec.store.uri}"
        frame = planned(self._frame, self.schema, spec, in_plan, self._settings)
        if spec.few_files:
            frame = brought_together(frame, spec.partition_columns)
        # Spark looks columns up by these names, without quoting them.
        names = frame.columns if any("." in column or "`" in column for column in frame.columns) else None
        if names is not None:
            frame = frame.toDF(*(f"c{number}" for number in range(len(names))))
        if spec.identity:
            # More tasks would have no lane of their own; those that are fewer stay as they are.
            frame = frame.coalesce(spec.identity_lanes)
        task = WriteTask(name, spec, [refused.check for refused in in_plan.checks], names)
        with cut_by_rows(self._spark, self.schema):
            return _run(self._spark, frame, task, name)


class _RewriteInput:
    """Its expressions were judged before."""

    expressions = IN_TASK

    def __init__(self, spark: SparkSession, rewrite: Rewrite) -> None:
        self._spark = spark
        self._rewrite = rewrite
        self.schema = rewrite.schema

    def run(self, spec: WriteJobSpec, in_plan: InPlan) -> list[TaskCommitMessage]:
        in_plan.refuse()
        splits = self._rewrite.splits
        if not splits:
            return []
        name = f"rewrite of {sum(map(len, splits))} files of {spec.store.uri}"
        rows = [(number, split_to_json(split)) for number, split in enumerate(splits)]
        frame = self._spark.createDataFrame(rows, "split int, files string").repartitionById(len(rows), "split")
        return _run(self._spark, frame, RewriteTask(name, spec, self._rewrite), name)


def brought_together(frame: DataFrame, partition_columns: tuple[str, ...]) -> DataFrame:
    """Rows of one partition in few tasks, each of a size that Spark thinks right."""
    columns = [F.col(quote_name(name)) for name in partition_columns]
    if str(frame.sparkSession.conf.get("spark.sql.adaptive.enabled", "true")).lower() == "true":
        return frame.hint("rebalance", *columns)
    return frame.repartition(*columns) if columns else frame


def _run(spark: SparkSession, frame: DataFrame, task: ArrowTask, name: str) -> list[TaskCommitMessage]:
    def collect() -> list[Any]:
        return frame.mapInArrow(task, REPORT).collect()

    with _tagged(spark, f"Lakeseal, {name}"), recovered():
        reports = _called_from(f"Lakeseal, {name}", collect)()
    return [read_report(row.report) for row in reports]


@contextmanager
def _tagged(spark: SparkSession, tag: str) -> Iterator[None]:
    tag = tag.replace(",", " ")
    spark.addTag(tag)
    try:
        yield
    finally:
        spark.removeTag(tag)


def _called_from(place: str, function: Callable[[], list[Any]]) -> Callable[[], list[Any]]:
    # Spark calls a job after the file of the Python frame that started it, and has no other way to name one that
    # works without a SparkContext.
    assert isinstance(function, FunctionType)
    code = function.__code__.replace(co_filename=place)
    return FunctionType(code, function.__globals__, function.__name__, None, function.__closure__)


class SparkJudge:
    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def type_of(self, sql: str, schema: StructType) -> DataType:
        with analysed("evaluate this expression"):
            rows = self._spark.createDataFrame([], rows_schema(schema.fields))
            # Aggregates and windows are no values of one row, and a condition takes none.
            _ = rows.where(F.expr(sql).isNull()).schema
            (field,) = data_schema(rows.select(F.expr(sql).alias("it")).schema).fields
        return field.type
