"""A nightly Spark job: yesterday's orders are merged into a table, in one commit.

python examples/spark_job.py /tmp/lake 2026-03-01
"""

from __future__ import annotations

import datetime
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import lakeseal


def orders_of(spark: SparkSession, day: str) -> DataFrame:
    """Stands for whatever the job reads and computes."""
    ids = spark.range(1000).withColumn("day", F.to_date(F.lit(day)))
    return ids.withColumn("price", (F.col("id") % 100).cast("double"))


def run(spark: SparkSession, lake: str, day: str) -> int:
    table = lakeseal.Table(f"{lake}/orders")
    orders = orders_of(spark, day)
    # A job that is started again for the same day changes nothing: the table has seen (application, version).
    version = datetime.date.fromisoformat(day).toordinal()
    if not table.exists():
        table.write(orders, partition_by=["day"], txn=("nightly", version))
        return table.version()
    merging = table.merge(orders, "t.id = s.id AND t.day = s.day", user_metadata=f"orders of {day}")
    merging.when_matched_update("*").when_not_matched_insert("*").execute()
    return table.version()


if __name__ == "__main__":
    session = SparkSession.builder.appName("nightly").getOrCreate()
    lake, day = sys.argv[1:] or ("lake", "2026-03-01")
    print("version", run(session, lake, day))
