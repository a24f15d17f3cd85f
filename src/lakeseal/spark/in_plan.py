"""What Spark does to rows of a DataFrame before a task writes them: columns to compute, checks to evaluate.

The session decides: a value goes into a column of another type by the session's store assignment, and generated
columns, defaults and constraints are what Spark says that they are, in the session's time zone and mode.

The rows leave as the table has them: all of its columns, given ones in the table's types, missing ones computed, with
their default, or null. Checks become one column that names the first one that a row violates; the task makes it an
error with the row in it.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's users know

from lakeseal.errors import UnsupportedExpression
from lakeseal.expr.render import quote_name
from lakeseal.files.constraints import generation_expression
from lakeseal.files.file_schema import CHANGE_TYPE
from lakeseal.files.normalize import CURRENT_DEFAULT
from lakeseal.files.store_assignment import Path
from lakeseal.jobs.engine import InPlan
from lakeseal.jobs.job import WriteJobSpec
from lakeseal.protocol.schema import BINARY, STRING, DataType, StructField, StructType, dotted
from lakeseal.spark import store_assignment
from lakeseal.spark.failures import analysed
from lakeseal.spark.predicates import Settings
from lakeseal.spark.schema import data_schema, spark_type
from lakeseal.spark.tasks import VIOLATED


def planned(
    frame: DataFrame,
    data: StructType,
    spec: WriteJobSpec,
    in_plan: InPlan,
    settings: Settings,
    keeping: Sequence[str] = (),
) -> DataFrame:
    """`data` is the frame's schema, but for columns that are none of the table's and go along: `keeping`."""
    if not in_plan.columns and not in_plan.checks:
        return frame
    table = spec.table
    feed = [F.col(CHANGE_TYPE)] if spec.cdc and CHANGE_TYPE in data.names else []
    tracked = () if spec.row_ids is None else spec.row_ids.names
    along = [*(F.col(quote_name(name)) for name in tracked), *feed, *(F.col(name) for name in keeping)]
    with analysed("evaluate an expression of the table, its constraint, default or generated column"):
        given = frame.select(*(_given(frame, field, data, spec, settings) for field in table.fields), *along)
        columns = [_generated(given, field, data, settings) for field in table.fields]
        whole = given.select(*columns, *along)
        if in_plan.checks:
            violated = _violated([refused.check.sql for refused in in_plan.checks])
            # Rows of the change feed tell how rows were, right or not.
            violated = F.when(F.col(CHANGE_TYPE).isNull(), violated) if feed else violated
            whole = whole.select("*", violated.alias(VIOLATED))
        _ = whole.schema
    return whole


class SessionExpressions:
    """Of a DataFrame's write: Spark evaluates whatever is not there yet, by the session's rules."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def check_cast(self, source: DataType, target: DataType, path: Path) -> None:
        if not store_assignment.is_stored(source, target):
            store_assignment.check(source, target, path, self._settings)
            raise UnsupportedExpression(f"{source} becomes {target} by the session's rules", column=dotted(path))

    def check(self, sql: str, schema: StructType) -> None:
        raise UnsupportedExpression("The session decides what this is")


def _generated(rows: DataFrame, field: StructField, data: StructType, settings: Settings) -> Column:
    sql = generation_expression(field) if data.field(field.name) is None else None
    if sql is None:
        return F.col(quote_name(field.name))
    return _evaluated(rows, sql, field, settings)


def _given(frame: DataFrame, field: StructField, data: StructType, spec: WriteJobSpec, settings: Settings) -> Column:
    source = data.field(field.name)
    if source is not None:
        column = store_assignment.assigned(
            F.col(quote_name(source.name)), source.type, field.type, settings, (field.name,)
        )
    elif isinstance(default := field.metadata.get(CURRENT_DEFAULT), str) and not generation_expression(field):
        column = _evaluated(frame, default, field, settings)
    else:
        column = F.lit(None).cast(spark_type(field.type))
    if field.type in (STRING, BINARY) and field.name.lower() in {name.lower() for name in spec.partition_columns}:
        column = F.when(F.length(column) != 0, column)
    return column.alias(field.name)


def _evaluated(rows: DataFrame, sql: str, field: StructField, settings: Settings) -> Column:
    (given,) = data_schema(rows.select(F.expr(sql).alias("it")).schema).fields
    store_assignment.check(given.type, field.type, (field.name,), settings)
    return store_assignment.assigned(F.expr(sql), given.type, field.type, settings, (field.name,)).alias(field.name)


def _violated(checks: list[str]) -> Column:
    first = F.lit(None).cast("int")
    for number, sql in reversed(list(enumerate(checks))):
        first = F.when(F.coalesce(F.expr(sql), F.lit(False)), first).otherwise(F.lit(number))
    return first
