"""One catalog for a team: Spark writes a table by its name, and somebody with DuckDB asks it by the same name.

python examples/duckdb_and_spark_team.py /tmp/lake
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

import lakeseal


def run(spark: SparkSession, lake: str) -> list[tuple[str, int]]:
    catalog = lakeseal.Catalog(f"sqlite:///{lake}/catalog.db")  # a service's address for a team on several machines
    orders = spark.createDataFrame([(1, "north"), (2, "south"), (3, "north")], "id long, shop string")
    catalog.create("sales.orders", orders.schema, kind="managed").write(orders)

    shared = catalog.table("sales.orders")
    relation = shared.to_duckdb(where="id > 0")
    counted: list[tuple[str, int]] = relation.aggregate("shop, count(*) AS orders").order("shop").fetchall()
    return counted


if __name__ == "__main__":
    lake = Path(sys.argv[1] if sys.argv[1:] else "lake")
    lake.mkdir(parents=True, exist_ok=True)
    print(run(SparkSession.builder.appName("team").getOrCreate(), str(lake)))
