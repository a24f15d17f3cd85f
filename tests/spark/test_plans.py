"""What a query costs beside plain Parquet: Spark makes the very same plan of it, for each of TPC-H's queries."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import duckdb
import pytest

import lakeseal
from oracles.sessions import with_settings
from oracles.tpch import queries_of

pytestmark = pytest.mark.spark

TABLES = ("customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier")
WHOLE_TEXTS = {"spark.sql.maxMetadataStringLength": "100000", "spark.sql.debug.maxToStringFields": "1000"}
_NUMBERS = re.compile(r"#\d+L?|plan_id=\d+|\[id=#?\d*\]")


def plan(spark: Any, frames: dict[str, Any], query: str) -> str:
    for name, frame in frames.items():
        frame.createOrReplaceTempView(name)
    text: str = spark.sql(f"EXPLAIN {query}").collect()[0][0]
    return _NUMBERS.sub("", text)


def test_queries_over_tables_are_planned_as_over_plain_parquet_of_the_same_files(spark: Any, tmp_path: Path) -> None:
    with duckdb.connect() as duck:
        queries = queries_of(duck)
        duck.execute("CALL dbgen(sf = 0.001)")
        rows = {name: duck.table(name).to_arrow_table() for name in TABLES}
    tables = {name: lakeseal.Table(tmp_path / name) for name in TABLES}
    for name, table in tables.items():
        half = rows[name].num_rows // 2
        table.write(rows[name].slice(0, half))
        table.write(rows[name].slice(half))
    ours = {name: table.to_spark(spark) for name, table in tables.items()}
    plain = {
        name: spark.read.parquet(*(f"{tmp_path}/{name}/{path}" for path in table.files()["path"].to_pylist()))
        for name, table in tables.items()
    }
    assert len(queries) == 22
    with with_settings(spark, WHOLE_TEXTS):
        plans = {n: [plan(spark, frames, query) for frames in (ours, plain)] for n, query in queries.items()}
    other = [n for n, (one, two) in plans.items() if one != two]
    assert not other, "\n".join(plans[other[0]])
