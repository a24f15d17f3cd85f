"""Queries without Spark: each of these gave another answer than Spark's, or is one that both give."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import lakeseal
from lakeseal import errors

ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3, 4], pa.int64()),
        "i": pa.array([7, None, -3, 0], pa.int32()),
        "x": [math.nan, 1.5, -0.0, None],
        "f": pa.array([0.1, 1, 2, None], pa.float32()),
        "m": pa.array([Decimal("1.25"), None, Decimal("-0.05"), Decimal(0)], pa.decimal128(10, 2)),
        "s": ["a", None, "it's", "1.5"],
        "d": [dt.date(2024, 1, 31), None, dt.date(2023, 12, 31), dt.date(2024, 2, 29)],
        "t": pa.array([dt.datetime(2024, 1, 31, 1, 2, 3, 500_000), None, None, None], pa.timestamp("us", "UTC")),
        "l": [[1, 2], None, [None], []],
        "a b": ["p", "q", "r", "s"],
    }
)


@pytest.fixture
def table(tmp_path: Path) -> str:
    lakeseal.Table(tmp_path / "it").write(ROWS)
    return f"delta.`{tmp_path / 'it'}`"


def asked(query: str, table: str) -> list[Any]:
    return [tuple(row.values()) for row in lakeseal.sql(query.replace("@t", table)).to_pylist()]


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT id FROM @t WHERE x > 1 ORDER BY id", [(1,), (2,)]),
        ("SELECT id FROM @t WHERE x > '1' ORDER BY id", [(1,), (2,)]),
        ("SELECT id FROM @t WHERE NOT x < 1", [(1,), (2,)]),
        ("SELECT id FROM @t ORDER BY i, id", [(2,), (3,), (4,), (1,)]),
        ("SELECT id FROM @t ORDER BY x DESC, id", [(1,), (2,), (3,), (4,)]),
        ("SELECT max(id) OVER (ORDER BY i) FROM @t ORDER BY id", [(4,), (2,), (3,), (4,)]),
        ("SELECT concat(s, 'x'), concat(s, NULL), s || 'y' FROM @t WHERE id = 1", [("ax", None, "ay")]),
        ("SELECT CAST(x AS INT) FROM @t WHERE id = 2", [(1,)]),
        ("SELECT substring('abc', 0, 2), substring('abc', -5, 3), left('abc', -1)", [("ab", "a", "")]),
        ("SELECT CAST(t AS STRING), CAST(d AS STRING) FROM @t WHERE id = 1", [("2024-01-31 01:02:03.5", "2024-01-31")]),
        ("SELECT dayofweek(d), weekday(d), datediff(d, DATE '2024-01-01') FROM @t WHERE id = 1", [(4, 2, 30)]),
        ("SELECT date_add(d, 1), date_sub(d, 31) FROM @t WHERE id = 1", [(dt.date(2024, 2, 1), dt.date(2023, 12, 31))]),
        ("SELECT sum(i), ceil(1.2), 2e0 FROM @t", [(4, 2, 2.0)]),
        ("SELECT count_if(i > 1), count_if(i > 99) FROM @t WHERE id > 9", [(0, 0)]),
        ("SELECT `a b` FROM @t WHERE `a b` = 'q'", [("q",)]),
        ("SELECT id FROM @t WHERE s = 'it''s'", [(3,)]),
        ("SELECT i / 2 AS h, count(*) FROM @t WHERE i > 0 GROUP BY i / 2", [(3.5, 1)]),
        ("SELECT id + 1 AS g, count(*) AS n FROM @t GROUP BY g ORDER BY g LIMIT 1", [(2, 1)]),
        ("SELECT DISTINCT i IS NULL AS v FROM @t ORDER BY v", [(False,), (True,)]),
        ("SELECT NULL AS v UNION ALL SELECT s FROM @t WHERE id = 1", [(None,), ("a",)]),
        ("SELECT col1 FROM (VALUES (1, 2))", [(1,)]),
        ("WITH w AS (VALUES (1, 'a')) SELECT col2, col1 FROM w", [("a", 1)]),
        ("SELECT n FROM (VALUES (1, 2)) AS v(m, n)", [(2,)]),
        ("SELECT id % 2 AS g, count(*) AS n FROM @t GROUP BY g ORDER BY -g", [(1, 2), (0, 2)]),
    ],
)  # fmt: skip
def test_a_query_answers_as_spark_does(table: str, query: str, rows: list[Any]) -> None:
    assert asked(query, table) == rows


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT * FROM @a JOIN @b USING (k)", [("p", 1, 5)]),
        ("SELECT * FROM @a AS a FULL JOIN @b AS b USING (k) ORDER BY k", [("p", 1, 5), ("q", 2, None), ("s", None, 6)]),
        ("SELECT * FROM @a AS a RIGHT JOIN @b AS b USING (k) ORDER BY k", [("p", 1, 5), ("s", None, 6)]),
        ("SELECT *, a.x AS z FROM @a AS a JOIN @b AS b USING (k)", [("p", 1, 5, 1)]),
    ],
)
def test_a_join_by_columns_of_one_name_begins_with_them(tmp_path: Path, query: str, rows: list[Any]) -> None:
    lakeseal.Table(tmp_path / "a").write(pa.table({"x": [1, 2], "k": ["p", "q"]}))
    lakeseal.Table(tmp_path / "b").write(pa.table({"y": [5, 6], "k": ["p", "s"]}))
    text = query.replace("@a", f"delta.`{tmp_path / 'a'}`").replace("@b", f"delta.`{tmp_path / 'b'}`")
    assert asked(text, "") == rows
    lakeseal.sql(f"CREATE TABLE delta.`{tmp_path / 'c'}` (k STRING, x BIGINT, y BIGINT)")
    if len(rows[0]) == 3:
        lakeseal.sql(f"INSERT INTO delta.`{tmp_path / 'c'}` {text}")
        assert {tuple(row.values()) for row in lakeseal.Table(tmp_path / "c").to_arrow().to_pylist()} == set(rows)


def test_sums_of_integers_are_longs_and_times_have_a_zone(table: str) -> None:
    made = lakeseal.sql(f"SELECT sum(i) AS a, TIMESTAMP '2024-01-01 00:00:00' AS b, 1e0 AS c FROM {table}")
    assert made.schema.types == [pa.int64(), pa.timestamp("us", "UTC"), pa.float64()]
    with pytest.raises(errors.EvaluationError, match="too large"):
        lakeseal.sql(f"SELECT sum(9223372036854775807) AS a FROM {table}")


@pytest.mark.parametrize(
    "query",
    [
        'SELECT "s" FROM @t',
        r"SELECT 'a\tb'",
        "SELECT 1L",
        "SELECT 1a",
        "SELECT s || id + 1 FROM @t",
        "SELECT 1 | 2 & 3",
        "SELECT true = id IN (1, 2) FROM @t",
        "SELECT 2 ^ 3",
        "SELECT id <=> 1 FROM @t",
        "SELECT id << 1 FROM @t",
        "SELECT log(i) FROM @t",
        "SELECT regexp_replace(s, 'a', 'b') FROM @t",
        "SELECT split(s, 'a') FROM @t",
        "SELECT position('a' IN s) FROM @t",
        "SELECT trim('a', s) FROM @t",
        "SELECT trim(BOTH 'x' FROM s) || s FROM @t",
        "SELECT l[1] FROM @t",
        "SELECT id FROM @t ORDER BY l",
        "SELECT max(l) FROM @t",
        "SELECT array_agg(i) FROM @t",
        "SELECT first(i) FROM @t",
        "SELECT hash(i) FROM @t",
        "SELECT typeof(i) FROM @t",
        "SELECT extract(DOW FROM d) FROM @t",
        "SELECT d - d FROM @t",
        "SELECT d + INTERVAL '1' DAY FROM @t",
        "SELECT t - t FROM @t",
        "SELECT m / 2 FROM @t",
        "SELECT avg(m) FROM @t",
        "SELECT f + 0.1 FROM @t",
        "SELECT id FROM @t WHERE f = 0.1",
        "SELECT i = '1.0' FROM @t",
        "SELECT coalesce(i, '5') FROM @t",
        "SELECT CASE WHEN i = 1 THEN i ELSE '1' END FROM @t",
        "SELECT i FROM @t UNION ALL SELECT s FROM @t",
        "SELECT CAST(s AS INT) FROM @t WHERE id = 4",
        "SELECT CAST(m AS INT) FROM @t",
        "SELECT CAST(x AS STRING) FROM @t",
        "SELECT upper('straße')",
        "SELECT round(x, 2) FROM @t",
        "SELECT s LIKE s FROM @t",
        "SELECT s ILIKE 'A' FROM @t",
        "SELECT * FROM @t PIVOT (count(i) FOR s IN ('a'))",
        "SELECT * FROM @t AS a NATURAL JOIN @t AS b",
        "SELECT a.* FROM @t AS a JOIN @t AS b USING (id)",
        "SELECT * FROM @t AS a JOIN @t AS b USING (id) JOIN @t AS c USING (i)",
        "SELECT CAST(s AS DECIMAL) FROM @t",
        "SELECT s::numeric FROM @t",
        "SELECT X'41'",
        "SELECT count(a.*) FROM @t AS a",
        "SELECT -id AS id FROM @t ORDER BY id + 0",
        "SELECT i AS id FROM @t ORDER BY abs(id) LIMIT 1",
    ],
)
def test_what_duckdb_would_answer_otherwise_is_refused(table: str, query: str) -> None:
    with pytest.raises(errors.UnsupportedExpression, match="Without Spark"):
        asked(query, table)


@pytest.mark.parametrize(
    "query", ["SELECT i / 0 FROM @t", "SELECT i % i FROM @t", "SELECT CAST(2147483647 AS INT) + 1"]
)
def test_what_fails_in_spark_fails(table: str, query: str) -> None:
    with pytest.raises(errors.EvaluationError):
        asked(query, table)


def test_a_long_chain_of_operators_is_planned(table: str) -> None:
    sums, texts = " + ".join(["id"] * 60), " || ".join(["s"] * 60)
    assert asked(f"SELECT {sums}, {texts} FROM @t WHERE id = 1", table) == [(60, "a" * 60)]


def test_rows_that_are_inserted_by_a_query_are_those_of_spark(table: str, tmp_path: Path) -> None:
    lakeseal.sql(
        f"CREATE TABLE delta.`{tmp_path / 'new'}` AS SELECT id, sum(i) AS n FROM {table} WHERE x > 1 GROUP BY id"
    )
    assert asked("SELECT id, n FROM @t ORDER BY id", f"delta.`{tmp_path / 'new'}`") == [(1, 7), (2, None)]


def test_null_alone_has_no_type_and_goes_into_every_column(table: str, tmp_path: Path) -> None:
    """DuckDB calls it an integer."""
    new = f"delta.`{tmp_path / 'new'}`"
    lakeseal.sql(f"CREATE TABLE {new} (id BIGINT, d DATE, l ARRAY<INT>)")
    lakeseal.sql(f"INSERT INTO {new} SELECT id, NULL, NULL FROM {table} WHERE id = 1")
    lakeseal.sql(f"INSERT INTO {new} SELECT id, NULL, NULL FROM {table} WHERE id > 9")
    assert asked(f"SELECT * FROM {new}", "") == [(1, None, None)]
    assert lakeseal.sql("SELECT NULL AS a, CAST(NULL AS INT) AS b, 1 AS c").schema.types == [
        pa.null(),
        pa.int32(),
        pa.int32(),
    ]


def test_a_duckdb_whose_answers_nobody_has_compared_is_not_asked(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked("SELECT count(*) FROM @t", table) == [(4,)]
    monkeypatch.setattr(duckdb, "__version__", "2.0.0")
    with pytest.raises(errors.UnsupportedExpression, match=r"DuckDB 2\.0\.0 is installed.*lakeseal\[duckdb\]"):
        asked("SELECT count(*) FROM @t", table)
