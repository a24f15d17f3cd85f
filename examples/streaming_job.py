"""A stream into a table: every row of every file in the landing folder is there once, whatever is killed in between.

python examples/streaming_job.py /tmp/lake
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

import lakeseal


def run(spark: SparkSession, lake: str) -> int:
    """Takes what has landed, and ends; without the trigger it would go on for ever. The rows of the table then."""
    landed = spark.readStream.schema("id long, page string").json(f"{lake}/landing")
    query = (
        landed.writeStream.format("lakeseal")
        .option("checkpointLocation", f"{lake}/checkpoint")
        .trigger(availableNow=True)
        .start(f"{lake}/clicks")
    )
    query.awaitTermination()
    return lakeseal.Table(f"{lake}/clicks").to_arrow(columns=["id"]).num_rows


if __name__ == "__main__":
    lake = sys.argv[1] if sys.argv[1:] else "lake"
    landing = Path(lake, "landing")
    if not landing.exists():
        landing.mkdir(parents=True)
        (landing / "1.json").write_text('{"id": 1, "page": "home"}\n', encoding="utf-8")
    session = SparkSession.builder.appName("clicks").getOrCreate()
    lakeseal.register(session)
    print(run(session, lake), "rows")
