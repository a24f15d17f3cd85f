"""`SparkJudge`: what an expression of a table's definition means to a session."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from lakeseal.protocol.schema import DataType, StructType
from lakeseal.spark.failures import analysed
from lakeseal.spark.rows import rows_schema
from lakeseal.spark.schema import data_schema


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
