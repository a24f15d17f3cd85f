"""Rows put into Spark as they are, for Spark to judge by."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from lakeseal.protocol.arrow import from_arrow
from lakeseal.spark.schema import to_spark


def bare(spark: Any, rows: pa.Table) -> DataFrame:
    # Left to itself, Spark takes moments without a zone for moments in the session's.
    found: DataFrame = spark.createDataFrame(rows, to_spark(from_arrow(rows.schema)))
    return found
