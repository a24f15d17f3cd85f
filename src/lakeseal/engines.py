"""Which engine a call runs on: that of the session that it is given or whose data it gets, and otherwise this process.

pyspark is an extra, so what is Spark's is told by its name, and imported only then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakeseal.commands.create import Judge
from lakeseal.jobs.engine import Engine
from lakeseal.jobs.in_process import InProcessEngine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def engine_for(data: Any) -> Engine:
    """Who writes such data: for a DataFrame its own session, which decides what its values become."""
    return engine_of(data.sparkSession if is_spark(data) else None)


def engine_of(spark: SparkSession | None) -> Engine:
    if spark is None:
        return InProcessEngine()
    from lakeseal.spark.engine import SparkEngine  # pyspark is an extra

    return SparkEngine(spark)


def judge_of(spark: SparkSession | None) -> Judge | None:
    """Who says what an expression means to Spark; None without a session."""
    if spark is None:
        return None
    from lakeseal.spark.engine import SparkJudge  # pyspark is an extra

    return SparkJudge(spark)


def is_spark(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "pyspark"
