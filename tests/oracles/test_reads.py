"""Every way to read a table gives the rows that Spark finds in them.

Tables come from `tables`, the rows are also put into Spark as they are, and random queries are asked of both: filters,
projections, aggregates, joins of the table with itself, unions, subqueries, caches, one DataFrame for all of them. Ways
to read: `to_spark` by Spark's reader and by tasks, `format("lakeseal")` with filters pushed by Spark and without,
`where=` and `columns=`, earlier versions, `to_arrow`, and other engines where they know the table's features.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pytest
from pyspark.sql import DataFrame

import lakeseal
from lakeseal.errors import UnsupportedExpression
from lakeseal.spark.scan import to_spark
from oracles.bare import bare
from oracles.rows import same_rows
from oracles.seeds import case, cases
from oracles.sessions import INTERPRETED, some_session, with_settings
from oracles.tables import AnyTable, Field, condition

pytestmark = pytest.mark.spark

SHORT, FULL = 1, 60
QUERIES = 8
PUSHING = "spark.sql.python.filterPushdown.enabled"
ASKED = ("new-york", "ansi-off", "case-sensitive", "aqe-off")


def test_every_way_to_read_gives_the_rows_that_spark_finds_in_them(spark: Any, tmp_path: Path) -> None:
    lakeseal.register(spark)
    for seed in cases(SHORT, FULL):
        with case(seed) as chance:
            made = AnyTable(chance, tmp_path / str(seed)).make()
            name, settings = some_session(chance, *ASKED)
            with with_settings(spark, {**settings, **INTERPRETED, PUSHING: "false"}):
                _check_queries(spark, chance, made, f"{name}: {made.story}")
                _check_arguments(spark, chance, made, f"{name}: {made.story}")
                _check_versions(spark, chance, made, f"{name}: {made.story}")
            _check_others(made)


def _check_queries(spark: Any, chance: random.Random, made: AnyTable, about: str) -> None:
    queries = [_query(chance, made.fields) for _ in range(QUERIES)]
    bare(spark, made.arrow()).createOrReplaceTempView("bare")
    right = [_answer(spark.sql(query.replace("@t", "bare"))) for query in queries]
    for way, df in _ways(spark, made):
        df.createOrReplaceTempView("seen")
        with with_settings(spark, {PUSHING: "true" if way == "pushed" else "false"}):
            for query, expected in zip(queries, right, strict=True):
                text = query.replace("@t", "seen")
                same_rows(_answer(spark.sql(text)), expected, f"{way}: {text} ({about})")
            first = condition(chance, made.fields)
            cached = df.where(first).cache()
            try:
                found = _answer(spark.sql("SELECT * FROM bare").where(first))
                same_rows(_answer(cached), found, f"{way}, cached: {first} ({about})")
                same_rows(_answer(df), made.arrow().to_pylist(), f"{way}, whole ({about})")
            finally:
                cached.unpersist()


def _ways(spark: Any, made: AnyTable) -> Iterator[tuple[str, DataFrame]]:
    table = made.table
    yield "to_spark", table.to_spark(spark)
    yield "tasks", to_spark(spark, table.snapshot(), table.spec, in_tasks=True)
    yield "format", spark.read.format("lakeseal").load(table.uri)
    yield "pushed", spark.read.format("lakeseal").load(table.uri)


def _query(chance: random.Random, fields: list[Field]) -> str:
    """`@t` stands for the table."""

    def where(prefix: str = "") -> str:
        return condition(chance, fields, prefix)

    one = chance.choice([field for field in fields if field.is_atomic]).sql
    some = ", ".join(field.sql for field in chance.sample(fields, k=chance.randint(1, len(fields))))
    return chance.choice(
        (
            f"SELECT {some} FROM @t WHERE {where()}",
            f"SELECT count(*) AS n, count({one}) AS c, min({one}) AS l, max({one}) AS h FROM @t WHERE {where()}",
            f"SELECT {one} AS g, count(*) AS n FROM @t WHERE {where()} GROUP BY {one}",
            f"SELECT a.id AS a, b.id AS b FROM @t a JOIN @t b ON a.id = b.id + 1 WHERE {where('a.')} OR {where('b.')}",
            f"SELECT a.id AS a, b.id AS b FROM @t a LEFT JOIN (SELECT * FROM @t WHERE {where()}) b ON a.id = b.id",
            f"SELECT id FROM @t WHERE {where()} UNION ALL SELECT id FROM @t WHERE {where()}",
            f"SELECT (SELECT count(*) FROM @t WHERE {where()}) AS a, (SELECT count(*) FROM @t WHERE {where()}) AS b",
            f"SELECT id FROM @t WHERE id NOT IN (SELECT id FROM @t WHERE {where()}) AND {where()}",
            f"SELECT id FROM @t WHERE {one} >= (SELECT max({one}) FROM @t WHERE {where()})",
            f"SELECT {some} FROM @t WHERE {where()} ORDER BY id LIMIT 3",
        )
    )


def _check_arguments(spark: Any, chance: random.Random, made: AnyTable, about: str) -> None:
    whole = bare(spark, made.arrow())
    in_utc = spark.conf.get("spark.sql.session.timeZone") == "UTC"
    for _ in range(QUERIES // 2):
        where = condition(chance, made.fields)
        names = [field.name for field in chance.sample(made.fields, k=chance.randint(1, len(made.fields)))]
        expected = _answer(whole.where(where).select(*(Field(name, "").sql for name in names)))
        asked: dict[str, Any] = {"where": where, "columns": names}
        same_rows(_answer(made.table.to_spark(spark, **asked)), expected, f"to_spark({asked}) ({about})")
        tasks = to_spark(spark, made.table.snapshot(), made.table.spec, in_tasks=True, **asked)
        same_rows(_answer(tasks), expected, f"tasks({asked}) ({about})")
        if in_utc:
            try:
                found = made.table.to_arrow(**asked)
            except UnsupportedExpression:
                continue
            same_rows(found.to_pylist(), expected, f"to_arrow({asked}) ({about})")


def _check_versions(spark: Any, chance: random.Random, made: AnyTable, about: str) -> None:
    version = chance.choice(sorted(made.versions))
    expected = made.versions[version].to_pylist()
    table = made.table
    same_rows(table.to_arrow(version=version).to_pylist(), expected, f"to_arrow at {version} ({about})")
    same_rows(_answer(table.to_spark(spark, version=version)), expected, f"to_spark at {version} ({about})")
    df = spark.read.format("lakeseal").option("versionAsOf", version).load(table.uri)
    same_rows(_answer(df), expected, f"format at {version} ({about})")


def _check_others(made: AnyTable) -> None:
    expected = made.arrow().to_pylist()
    path = made.table.uri.removeprefix("file://")
    if made.is_mapped and any(field.is_partition for field in made.fields):
        return  # DuckDB reads nulls for them, of tables that Delta Spark wrote too
    with duckdb.connect() as connection:
        connection.execute("LOAD delta; SET TimeZone = 'UTC'")
        found = connection.execute(f"SELECT * FROM delta_scan('{path}')").to_arrow_table()
    same_rows(found.to_pylist(), expected, f"DuckDB ({made.story})")
    if not made.is_mapped and not made.has_vectors:
        rows = deltalake.DeltaTable(path).to_pyarrow_table().to_pylist()
        same_rows(rows, expected, f"deltalake ({made.story})")


def _answer(df: DataFrame) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = df.toArrow().to_pylist()
    return found
