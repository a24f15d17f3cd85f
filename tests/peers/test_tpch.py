"""TPC-H's 22 queries over our tables answer as DuckDB does, which takes the same steps on the same rows.

DuckDB makes the rows and holds the queries' texts. After the load, after upserts of customers, orders and their lines
with new and known keys, and after deletes, all queries are asked of views by `to_spark` and of views by
`format("lakeseal")`. Tables differ in what they have switched on: partitions, deletion vectors, mapped columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import DataFrame

import lakeseal
from lakeseal import Table
from oracles.sessions import INTERPRETED, with_settings
from oracles.tpch import compare, queries_of

pytestmark = [pytest.mark.peers, pytest.mark.spark, pytest.mark.timeout(1800)]

SCALE = 0.01
VECTORS = {"delta.enableDeletionVectors": "true"}
MADE: Mapping[str, Mapping[str, Any]] = {
    "customer": {"properties": {**VECTORS, "delta.columnMapping.mode": "name"}},
    "lineitem": {"partition_by": ["l_returnflag", "l_linestatus"], "properties": VECTORS},
    "nation": {},
    "orders": {"partition_by": "o_orderpriority"},
    "part": {"properties": VECTORS, "max_records_per_file": 700},
    "partsupp": {"properties": {"delta.columnMapping.mode": "name"}},
    "region": {},
    "supplier": {"max_records_per_file": 90},
}
NEW = 100_000_000
# Each is a table, the columns that are its key, and rows to put into it: some of known keys with other values, which
# also belong to another partition now, and some of new ones.
UPSERTS = (
    (
        "customer",
        ("c_custkey",),
        f"""SELECT * REPLACE (-c_acctbal AS c_acctbal, c_nationkey + 1 - 25 * (c_nationkey // 24) AS c_nationkey)
            FROM customer WHERE c_custkey % 5 = 1
            UNION ALL SELECT * REPLACE (c_custkey + {NEW} AS c_custkey) FROM customer WHERE c_custkey % 9 = 2""",
    ),
    (
        "orders",
        ("o_orderkey",),
        f"""SELECT * REPLACE (o_totalprice + 0.25 AS o_totalprice, o_orderdate + 1 AS o_orderdate,
                CASE o_orderpriority WHEN '1-URGENT' THEN '5-LOW' ELSE '1-URGENT' END AS o_orderpriority)
            FROM orders WHERE o_orderkey % 7 = 3
            UNION ALL SELECT * REPLACE (o_orderkey + {NEW} AS o_orderkey, o_custkey + {NEW} AS o_custkey)
            FROM orders WHERE o_orderkey % 5 = 1 AND o_custkey % 9 = 2""",
    ),
    (
        "lineitem",
        ("l_orderkey", "l_linenumber"),
        f"""SELECT * REPLACE (l_quantity + 1 AS l_quantity, l_receiptdate + 40 AS l_receiptdate,
                CASE l_returnflag WHEN 'R' THEN 'A' ELSE 'R' END AS l_returnflag)
            FROM lineitem WHERE l_orderkey % 7 = 3
            UNION ALL SELECT * REPLACE (l_orderkey + {NEW} AS l_orderkey) FROM lineitem WHERE l_orderkey % 5 = 1""",
    ),
    (
        "partsupp",
        ("ps_partkey", "ps_suppkey"),
        """SELECT * REPLACE (ps_supplycost + 0.5 AS ps_supplycost, ps_availqty + 5000 AS ps_availqty)
           FROM partsupp WHERE ps_partkey % 3 = 0""",
    ),
)
DELETES = (
    "FROM orders WHERE o_orderkey % 11 IN (2, 3) OR o_orderpriority = '3-MEDIUM' AND o_orderdate < DATE '1993-06-01'",
    "FROM lineitem WHERE l_orderkey NOT IN (SELECT o_orderkey FROM orders)",
    "FROM lineitem WHERE l_returnflag = 'N' AND l_discount = 0.04",
    "FROM customer WHERE c_acctbal BETWEEN -500 AND -400 OR c_phone LIKE '2%7'",
    "FROM part WHERE p_size = 7",
    "FROM supplier WHERE s_comment LIKE '%ironic%'",
)


def test_tpch_answers_as_duckdb_does_after_load_upserts_and_deletes(spark: Any, tmp_path: Path) -> None:
    lakeseal.register(spark)
    with duckdb.connect() as duck, with_settings(spark, INTERPRETED):
        queries = queries_of(duck)
        duck.execute(f"CALL dbgen(sf = {SCALE})")
        tables = load(spark, duck, tmp_path)
        loaded = {name: table.version() for name, table in tables.items()}
        first = check(spark, duck, queries, tables, "loaded")
        upsert(spark, duck, tables)
        check(spark, duck, queries, tables, "upserted")
        delete(spark, duck, tables)
        check(spark, duck, queries, tables, "deleted")
        for name, table in tables.items():
            table.to_spark(spark, version=loaded[name]).createOrReplaceTempView(name)
        for number in (1, 13, 18, 22):
            compare(answer(spark.sql(queries[number])), first[number], f"query {number}, as it was when loaded")


def load(spark: Any, duck: Any, folder: Path) -> dict[str, Table]:
    tables = {name: Table(folder / name) for name in MADE}
    for name, table in tables.items():
        whole = duck.execute(f"FROM {name}").to_arrow_table()
        half = whole.num_rows // 2
        table.write(spark.createDataFrame(whole.slice(0, half)).coalesce(1), **MADE[name])
        table.write(whole.slice(half))
    return tables


def upsert(spark: Any, duck: Any, tables: Mapping[str, Table]) -> None:
    for name, keys, text in UPSERTS:
        duck.execute(f"CREATE OR REPLACE TABLE changes AS {text}")
        rows = duck.execute("FROM changes").to_arrow_table()
        on = " AND ".join(f"t.{key} = s.{key}" for key in keys)
        duck.execute(
            f"MERGE INTO {name} t USING changes s ON ({on}) WHEN MATCHED THEN UPDATE BY NAME "
            "WHEN NOT MATCHED THEN INSERT BY NAME"
        )
        spark.createDataFrame(rows).createOrReplaceTempView("changes")
        lakeseal.sql(
            f"MERGE INTO delta.`{tables[name].uri}` t USING changes s ON {on} "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
            spark,
        )


def delete(spark: Any, duck: Any, tables: Mapping[str, Table]) -> None:
    for text in DELETES:
        duck.execute(f"DELETE {text}")
        tables["orders"].to_spark(spark).createOrReplaceTempView("orders")
        name = text.split()[1]
        lakeseal.sql(f"DELETE {text.replace(name, f'delta.`{tables[name].uri}`', 1)}", spark)


def check(
    spark: Any, duck: Any, queries: Mapping[int, str], tables: Mapping[str, Table], about: str
) -> dict[int, list[tuple[Any, ...]]]:
    for name, table in tables.items():
        assert table.to_arrow(columns=[]).num_rows == duck.execute(f"SELECT count(*) FROM {name}").fetchone()[0], name
    right = {number: duck.execute(text).fetchall() for number, text in queries.items()}
    # Of this many rows a few queries find none, and not more.
    assert sum(any(value is not None for row in rows for value in row) for rows in right.values()) >= 18
    for way, views in ways(spark, tables):
        for name, view in views.items():
            view.createOrReplaceTempView(name)
        for number, text in queries.items():
            compare(answer(spark.sql(text)), right[number], f"query {number} by {way}, {about}")
    return right


def ways(spark: Any, tables: Mapping[str, Table]) -> Iterator[tuple[str, dict[str, DataFrame]]]:
    yield "to_spark", {name: table.to_spark(spark) for name, table in tables.items()}
    yield "format", {name: spark.read.format("lakeseal").load(table.uri) for name, table in tables.items()}


def answer(df: DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in df.collect()]
