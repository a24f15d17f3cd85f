"""Work that only Spark can do to rows before a task writes them: columns to compute, checks to evaluate.

The rows leave as the table has them: all of its columns, given ones in the table's types, missing ones computed, with
their default, or null. Checks become one column that names the first one that a row violates; the task makes it an
error with the row in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's users know

from lakeseal.errors import InvalidExpression
from lakeseal.expr.render import quote_name
from lakeseal.protocol.schema import BINARY, STRING, ArrayType, DataType, MapType, StructField, StructType
from lakeseal.spark.schema import spark_type
from lakeseal.spark.tasks import VIOLATED
from lakeseal.write.constraints import generation_expression
from lakeseal.write.file_schema import CHANGE_TYPE
from lakeseal.write.job import WriteJobSpec
from lakeseal.write.normalize import CURRENT_DEFAULT
from lakeseal.write.runner import InPlan


def planned(frame: DataFrame, data: StructType, spec: WriteJobSpec, in_plan: InPlan) -> DataFrame:
    """`data` is the frame's schema."""
    if not in_plan.columns and not in_plan.checks:
        return frame
    table = spec.table
    with _typed():
        given = frame.select(
            *(_given(field, data, spec) for field in table.fields),
            *([F.col(CHANGE_TYPE)] if spec.cdc and CHANGE_TYPE in data.names else []),
        )
        generated = {
            f.name: _cast(F.expr(sql), f.type) for f in table.fields if (sql := _generated(f, data)) is not None
        }
        whole = given.withColumns(generated) if generated else given
        if in_plan.checks:
            whole = whole.withColumn(VIOLATED, _violated([refused.check.sql for refused in in_plan.checks]))
        _ = whole.schema
    return whole


@contextmanager
def _typed() -> Iterator[None]:
    try:
        yield
    except (AnalysisException, ParseException) as error:
        raise InvalidExpression(
            f"Spark cannot evaluate an expression of the table: {str(error).partition(chr(10))[0]}",
            hint="Mend the constraint, the default or the generated column",
        ) from error


def _generated(field: StructField, data: StructType) -> str | None:
    return generation_expression(field) if data.field(field.name) is None else None


def _given(field: StructField, data: StructType, spec: WriteJobSpec) -> Column:
    source = data.field(field.name)
    if source is not None:
        column = _assigned(F.col(quote_name(source.name)), source.type, field.type)
    elif isinstance(default := field.metadata.get(CURRENT_DEFAULT), str) and not generation_expression(field):
        column = _cast(F.expr(default), field.type)
    else:
        column = _cast(F.lit(None), field.type)
    if field.type in (STRING, BINARY) and field.name.lower() in {name.lower() for name in spec.partition_columns}:
        column = F.when(F.length(column) != 0, column)
    return column.alias(field.name)


def _assigned(column: Column, source: DataType, target: DataType) -> Column:
    """A value in the type of its column; Spark's own cast would take a struct's fields by their order."""
    if source == target:
        return column
    match source, target:
        case StructType(), StructType():
            parts = [_part(column, source.field(field.name), field) for field in target.fields]
            return F.when(column.isNotNull(), F.struct(*parts))
        case ArrayType(), ArrayType():
            return F.transform(column, lambda item: _assigned(item, source.element, target.element))
        case MapType(), MapType():
            keyed = F.transform_keys(column, lambda key, _: _assigned(key, source.key, target.key))
            return F.transform_values(keyed, lambda _, value: _assigned(value, source.value, target.value))
        case _:
            return _cast(column, target)


def _cast(column: Column, target: DataType) -> Column:
    return column.cast(spark_type(target))


def _part(struct: Column, source: StructField | None, target: StructField) -> Column:
    if source is None:
        return _cast(F.lit(None), target.type).alias(target.name)
    return _assigned(struct.getField(source.name), source.type, target.type).alias(target.name)


def _violated(checks: list[str]) -> Column:
    first = F.lit(None).cast("int")
    for number, sql in reversed(list(enumerate(checks))):
        first = F.when(F.coalesce(F.expr(sql), F.lit(False)), first).otherwise(F.lit(number))
    return first
