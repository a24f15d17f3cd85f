"""`SparkRunner`: the tasks of a write job on Spark's executors, over DataFrames.

One partition of the DataFrame is one task. Rows reach it as Arrow batches, and what comes back is one report per task:
Spark hands on the rows of one attempt only, so whatever other attempts wrote was never reported and never counts.
A `Rewrite` runs the same way with one split per task; its rows are read in the task and never enter the JVM.

Spark's web pages show the job as a write to the table: in its description (over Spark Connect the server writes its
own there), as its tag, and as the name of the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from lakeseal.errors import InvalidArgument
from lakeseal.protocol.schema import StructType
from lakeseal.spark.arrow_batches import cut_by_rows
from lakeseal.spark.failures import recovered
from lakeseal.spark.in_plan import SessionExpressions, planned
from lakeseal.spark.interpreter import use_this_python
from lakeseal.spark.predicates import Settings
from lakeseal.spark.rewrite_plan import rewritten
from lakeseal.spark.schema import data_schema
from lakeseal.spark.tasks import REPORT, RewriteTask, WriteTask, split_to_json
from lakeseal.write.expressions import IN_TASK
from lakeseal.write.file_commit_protocol import TaskCommitMessage
from lakeseal.write.job import WriteJobSpec
from lakeseal.write.rewrite import Rewrite
from lakeseal.write.runner import InPlan, WriteInput
from lakeseal.write.task_report import read_report

ArrowTask = WriteTask | RewriteTask


class SparkRunner:
    def __init__(self, spark: SparkSession, settings: Settings | None = None) -> None:
        use_this_python(spark)
        self._spark = spark
        self._settings = Settings.of(spark) if settings is None else settings

    def open(self, data: Any) -> WriteInput:
        match data:
            case _FrameInput() | _RewriteInput():
                return data
            case DataFrame():
                return _FrameInput(self._spark, data, self._settings)
            case Rewrite(in_plan=True):
                return _FrameInput(self._spark, rewritten(self._spark, data, self._settings), self._settings)
            case Rewrite():
                return _RewriteInput(self._spark, data)
            case _:
                raise InvalidArgument(
                    f"Spark cannot write a {type(data).__name__}", hint="Give a Spark DataFrame, or write without Spark"
                )


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
        # Spark looks columns up by these names, without quoting them.
        names = frame.columns if any("." in column or "`" in column for column in frame.columns) else None
        if names is not None:
            frame = frame.toDF(*(f"c{number}" for number in range(len(names))))
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
        reasons = [*(c.reason for c in in_plan.columns), *(c.reason for c in in_plan.checks)]
        if reasons:
            raise reasons[0]
        splits = self._rewrite.splits
        if not splits:
            return []
        name = f"rewrite of {sum(map(len, splits))} files of {spec.store.uri}"
        rows = [(number, split_to_json(split)) for number, split in enumerate(splits)]
        frame = self._spark.createDataFrame(rows, "split int, files string").repartitionById(len(rows), "split")
        return _run(self._spark, frame, RewriteTask(name, spec, self._rewrite), name)


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
