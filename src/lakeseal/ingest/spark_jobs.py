"""The Spark side of a run: one job that extracts for all datasets, and one for each that Spark transforms.

Only the DataFrame API is used. Rows of a dataset without a transform never enter the JVM: its tasks read, judge and
write in Arrow. With one, they are extracted first, to a table in the target's own staging area; the transform then
reads what is fixed and can be read again, whatever happens to Spark's tasks.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's users know

from lakeseal.errors import InvalidArgument, InvalidExpression, InvalidInput, LakesealError, StorageUnavailable
from lakeseal.ingest.config import Check, Dataset
from lakeseal.ingest.quality import MARKS, MOST_RULES, row_rules
from lakeseal.ingest.task import REPORT, DatasetWork, ExtractTask, Order, OrderReport, PublishTask
from lakeseal.protocol.schema import StructType
from lakeseal.spark.failures import find
from lakeseal.spark.in_plan import planned
from lakeseal.spark.schema import data_schema
from lakeseal.write.job import WriteJobSpec
from lakeseal.write.runner import InPlan

_WITH = re.compile(r"\s*WITH\s+", re.IGNORECASE)


def extract(
    spark: SparkSession, name: str, works: Sequence[DatasetWork], tasks: Sequence[Sequence[Order]]
) -> list[OrderReport]:
    rows = [(n, msgspec.json.encode(order).decode()) for n, orders in enumerate(tasks) for order in orders]
    frame = spark.createDataFrame(rows, "task int, order string")
    # A shuffle costs more than a short task; it is needed only to keep several apart.
    parted = frame.repartitionById(len(tasks), "task") if len(tasks) > 1 else frame.coalesce(1)
    return _reports(parted, ExtractTask(name, works))


def publish(
    frame: DataFrame, work: DatasetWork, spec: WriteJobSpec, in_plan: InPlan, checks: Sequence[Check], name: str
) -> list[OrderReport]:
    if in_plan.checks:
        raise in_plan.checks[0].reason
    whole = planned(frame, data_schema(frame.schema), spec, in_plan)
    rules = row_rules(checks)
    if len(rules) > MOST_RULES:
        raise InvalidArgument(f"A dataset has at most {MOST_RULES} rules for rows")
    if rules:
        marks = F.lit(0).cast("long")
        for number, rule in enumerate(rules):
            broken = F.when(F.coalesce(F.expr(rule.rule or ""), F.lit(False)), F.lit(0)).otherwise(F.lit(1 << number))
            marks = marks + broken.cast("long")
        try:
            whole = whole.withColumn(MARKS, marks)
            _ = whole.schema
        except PySparkException as error:
            raise InvalidExpression(f"Spark cannot evaluate a rule of quality: {_line(error)}") from error
    return _reports(whole, PublishTask(name, work))


def _reports(frame: DataFrame, task: ExtractTask | PublishTask) -> list[OrderReport]:
    try:
        rows = frame.mapInArrow(task, REPORT).collect()
    except PySparkException as error:
        raise failure(error) from error
    return [OrderReport.from_json(row.report) for row in rows]


def failure(error: PySparkException) -> LakesealError:
    """What a failed job is to its caller: the user's query and data fail again, a lost worker does not."""
    ours = find(str(error))
    if ours is not None:
        return ours
    if error.getCondition() is not None:
        return InvalidInput(f"Spark cannot run the query: {_line(error)}", hint="Mend the transform, or the input")
    return StorageUnavailable(f"A job of Spark failed: {_line(error)}", hint="Run it again, and look into Spark's log")


def transformed(spark: SparkSession, dataset: Dataset, frame: DataFrame) -> DataFrame:
    transform = dataset.transform
    if transform is None:
        return frame
    if not isinstance(transform, str):
        made = transform(frame)
        if not hasattr(made, "mapInArrow"):
            raise InvalidArgument(
                f"The transform of {dataset.name!r} returned a {type(made).__name__}", hint="Return a DataFrame"
            )
        return made
    # A view is the session's, and datasets run side by side: each query gets one under a name of its own.
    view = f"lakeseal_input_{uuid.uuid4().hex}"
    frame.createOrReplaceTempView(view)
    mine = f"input AS (SELECT * FROM {view})"  # noqa: S608  a name of ours
    starts = _WITH.match(transform)
    query = f"WITH {mine} {transform}" if starts is None else f"WITH {mine}, {transform[starts.end() :]}"
    try:
        made = spark.sql(query)
        _ = made.schema
    except PySparkException as error:
        raise InvalidExpression(
            f"Spark cannot run the transform: {_line(error)}", hint="It is a query over the view input"
        ) from error
    return made


def frame_schema(frame: DataFrame) -> StructType:
    return data_schema(frame.schema)


def _line(error: BaseException) -> str:
    text = str(error).strip()
    return text.partition("\n")[0] or type(error).__name__
