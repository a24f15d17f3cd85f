"""Databases in their own terms: what is above a watermark they say themselves, and values are as they have them."""

from __future__ import annotations

import datetime as dt
import sqlite3
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from lakeseal.errors import InvalidArgument
from lakeseal.ingest import SqlSource


@pytest.fixture
def database(tmp_path: Path) -> Any:
    file = tmp_path / "shop.db"
    connection = sqlite3.connect(file)

    def run(*statements: str | tuple[str, Any]) -> str:
        for statement in statements:
            connection.execute(*((statement,) if isinstance(statement, str) else statement))
        connection.commit()
        return f"sqlite:///{file}"

    yield run
    connection.close()


def run(source: SqlSource, marks: dict[str, Any]) -> tuple[list[dict[str, Any]], list[Any]]:
    """One run: rows and bad records; the watermark moves on."""
    rows, bad = [], []
    for unit in source.plan(marks).units:
        for chunk in source.read(unit):
            rows += chunk.rows.to_pylist()
            bad += chunk.bad
        marks[""] = unit.high
    source.close()
    return rows, bad


@pytest.mark.parametrize(
    "times",
    [
        ("2026-01-01T10:00:00", "2026-01-01T10:00:01"),
        ("2026-01-01T10:00:00Z", "2026-01-01T10:00:00.5Z", "2026-01-01T10:00:01Z"),
        ("2026-01-01 10:00:00.1234567", "2026-01-01 10:00:00.1234568"),
        ("2026-01-01", "2026-01-01 00:00:00", "2026-01-02"),
        ("2026-01-01 10:00:00+00:00", "2026-01-01 10:00:00.000001+00:00", "2026-01-01 11:00:00+00:00"),
    ],
)
def test_times_that_sqlite_has_as_texts_are_read_once_each(database: Any, times: tuple[str, ...]) -> None:
    url = database("CREATE TABLE t (at DATETIME)")
    source, marks = SqlSource(url=url, table="t", column="at"), {}
    for n, text in enumerate(sorted(times)):
        database(("INSERT INTO t VALUES (?)", (text,)))
        rows, bad = run(source, marks)
        assert (len(rows), bad) == (1, []), f"run {n}"
        assert run(source, marks) == ([], [])


def test_a_cursor_under_a_collation_is_compared_by_the_database(database: Any) -> None:
    url = database("CREATE TABLE t (k TEXT COLLATE NOCASE)", "INSERT INTO t VALUES ('B'), ('a')")
    source, marks = SqlSource(url=url, table="t", column="k"), {}
    assert sorted(row["k"] for row in run(source, marks)[0]) == ["B", "a"]
    database("INSERT INTO t VALUES ('c')")  # above 'B' to the database, and to Python too
    assert [row["k"] for row in run(source, marks)[0]] == ["c"]
    database("INSERT INTO t VALUES ('D')")  # above 'c' to the database only
    assert [row["k"] for row in run(source, marks)[0]] == ["D"]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("long", 1.5),
        ("int", 2**31),
        ("float", 1e300),
        ("timestamp", 1_700_000_000),
        ("date", 19_000),
        ("boolean", 2),
        ("decimal(5,2)", 1.239),
        ("decimal(5,2)", 12345),
        ("double", 2**53 + 1),
        ("string", 5),
        ("timestamp_ntz", "2026-01-01T00:00:00Z"),
        ("long", "0x1F"),
        ("string", b"\x00"),
    ],
)
def test_a_value_that_its_type_would_alter_is_a_bad_record(database: Any, kind: str, value: Any) -> None:
    url = database(
        "CREATE TABLE t (id INTEGER, v)", ("INSERT INTO t VALUES (1, ?)", (value,)), "INSERT INTO t VALUES (2, NULL)"
    )
    source = SqlSource(url=url, table="t", column="id", schema=f"id long, v {kind}")
    rows, bad = run(source, {})
    assert rows == [{"id": 2, "v": None}]
    assert [one.position for one in bad] == ["id 1"]
    assert bad[0].reason.startswith("v: ")


def test_a_text_that_is_not_utf_8_is_a_bad_record_and_the_others_are_rows(database: Any) -> None:
    url = database("CREATE TABLE t (id INTEGER, v TEXT)", "INSERT INTO t VALUES (1, CAST(x'ff61' AS TEXT)), (2, 'ü')")
    rows, bad = run(SqlSource(url=url, table="t", column="id"), {})
    assert rows == [{"id": 2, "v": "ü"}]
    assert [one.position for one in bad] == ["id 1"]


def test_a_table_of_sqlite_without_a_schema_is_read_by_its_declared_types(database: Any) -> None:
    url = database(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, s TEXT, r REAL, n NUMERIC, p NUMERIC(8,2), at DATETIME, d DATE,"
        " b BOOLEAN, x BLOB, v VARCHAR(10))",
        "INSERT INTO t VALUES (1, 'a', 1.5, 3, 1.25, '2026-01-01T10:00:00Z', '2026-01-01', 1, x'00ff', 'v')",
    )
    rows, bad = run(SqlSource(url=url, table="t", column="id"), {})
    moment = dt.datetime(2026, 1, 1, 10, tzinfo=dt.UTC)
    assert bad == []
    assert list(rows[0].values()) == [
        1, "a", 1.5, 3.0, Decimal("1.25"), moment, moment.date(), True, b"\x00\xff", "v",
    ]  # fmt: skip


def test_a_start_is_a_moment_however_the_column_spells_it(database: Any) -> None:
    url = database(
        "CREATE TABLE t (at DATETIME)", "INSERT INTO t VALUES ('2026-01-01 08:00:00'), ('2026-01-01 10:00:00')"
    )
    rows, _ = run(SqlSource(url=url, table="t", column="at", start="2026-01-01T09:00:00"), {})
    assert [row["at"].hour for row in rows] == [10]


def test_a_watermark_of_an_earlier_release_is_gone_on_from(database: Any) -> None:
    url = database(
        "CREATE TABLE t (at DATETIME)",
        "INSERT INTO t VALUES ('2026-01-01 08:00:00.000000'), ('2026-01-01 10:00:00.000000')",
    )
    rows, _ = run(SqlSource(url=url, table="t", column="at"), {"": {"value": "2026-01-01T08:00:00"}})
    assert [row["at"].hour for row in rows] == [10]


@pytest.mark.parametrize("units", [1, 3])
def test_a_run_takes_at_most_so_many_rows_and_those_of_the_same_value(database: Any, units: int) -> None:
    url = database("CREATE TABLE t (n INTEGER)", "INSERT INTO t VALUES (7), (1), (3), (3), (NULL), (5)")
    source, marks = SqlSource(url=url, table="t", column="n", max_rows=2, units=units), dict[str, Any]()
    taken = []
    while source.plan(marks).has_more:
        taken.append([row["n"] for row in run(source, marks)[0]])
    assert taken == [[1, 3, 3]]
    assert [row["n"] for row in run(source, marks)[0]] == [5, 7]
    assert run(source, marks) == ([], [])


def test_a_delay_is_for_times_and_leaves_what_is_younger(database: Any) -> None:
    now = dt.datetime.now(dt.UTC)
    old, young = (now - dt.timedelta(hours=1)).isoformat(), now.isoformat()
    url = database("CREATE TABLE t (at DATETIME)", ("INSERT INTO t VALUES (?), (?)", (old, young)))
    rows, _ = run(SqlSource(url=url, table="t", column="at", delay_seconds=600), {})
    assert [row["at"].isoformat() for row in rows] == [old]
    database("INSERT INTO t VALUES ('soon')")
    with pytest.raises(InvalidArgument, match="delay_seconds"):
        SqlSource(url=url, table="t", column="at", delay_seconds=600).plan({})


POSTGRES = {
    "text": ("'B'", "'a'", "'ü'"),
    "real": ("0.1", "0.2", "0.3"),
    "double precision": ("0.1", "0.2", "1e300"),
    "numeric": ("0.1", "0.25", "12345678901234567890.5"),
    "bigint": ("1", "2", "9223372036854775807"),
    "timestamp": ("'2026-01-01 10:00:00.1'", "'2026-01-01 10:00:00.100001'", "'2026-01-02'"),
    "timestamptz": ("'2026-01-01 10:00:00+01'", "'2026-01-01 10:00:00+00'", "'2026-01-02'"),
    "date": ("'2026-01-01'", "'2026-01-02'", "'2026-01-03'"),
}
SCHEMAS = {
    "text": "string",
    "real": "float",
    "double precision": "double",
    "numeric": "decimal(38,10)",
    "bigint": "long",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
    "date": "date",
}


@pytest.mark.parametrize("by_query", [False, True])
@pytest.mark.parametrize("kind", list(POSTGRES))
def test_postgres_follows_a_column_of_every_type_by_its_own_order(postgres_url: str, kind: str, by_query: bool) -> None:
    url = postgres_url.replace("postgresql://", "postgresql+psycopg://")
    schema = f"c {SCHEMAS[kind]}"
    of: dict[str, Any] = {"query": "SELECT c FROM followed"} if by_query else {"table": "followed"}
    source, marks = SqlSource(url=url, column="c", schema=schema, **of), {}
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("SET TIME ZONE 'America/New_York'")
        connection.execute("DROP TABLE IF EXISTS followed")
        connection.execute(f"CREATE TABLE followed (c {kind})")
        if kind == "real" and by_query:
            connection.execute("INSERT INTO followed VALUES (0.1)")
            with pytest.raises(InvalidArgument, match="does not find"):
                source.plan({})
            source.close()
            return
        for value in POSTGRES[kind]:
            connection.execute(f"INSERT INTO followed VALUES ({value})")
            rows, bad = run(source, marks)
            assert (len(rows), bad) == (1, [])
            assert run(source, marks) == ([], [])


def test_what_postgres_has_more_digits_of_than_a_double_is_a_bad_record(postgres_url: str) -> None:
    url = postgres_url.replace("postgresql://", "postgresql+psycopg://")
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS digits")
        connection.execute("CREATE TABLE digits (id bigint, v numeric)")
        connection.execute("INSERT INTO digits VALUES (1, 0.1), (2, 12345678901234567890.123)")
    rows, bad = run(SqlSource(url=url, table="digits", column="id"), {})
    assert rows == [{"id": 1, "v": 0.1}]
    assert [one.position for one in bad] == ["id 2"]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id, ':x' AS v FROM t WHERE v <> ' :3'",
        r"SELECT id, 'C\:x' AS v FROM t",
        r"SELECT id, '\\: :: \\\:a\:\:b' AS v FROM t",
        "SELECT id, '10:30:00 100%' AS v FROM t WHERE v LIKE 'v:%'",
        "SELECT id, v FROM t -- all: of them",
        "SELECT id, v FROM t;\n",
        "WITH a AS (SELECT * FROM t) SELECT id, v FROM a LIMIT 3",
    ],
)
def test_a_query_is_what_the_database_is_asked(database: Any, tmp_path: Path, query: str) -> None:
    database("CREATE TABLE t (id INTEGER, v TEXT)")
    url = database("INSERT INTO t VALUES (1, 'v:1'), (2, 'v: 2'), (3, ' :3'), (4, 'x')")
    rows, _ = run(SqlSource(url=url, query=query, column="id", schema="id long, v string"), {})
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        assert [(row["id"], row["v"]) for row in rows] == connection.execute(query).fetchall()


def test_units_are_for_a_column_of_integers(database: Any) -> None:
    url = database("CREATE TABLE t (id INTEGER, v TEXT)")
    database("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    assert len(SqlSource(url=url, table="t", column="id", units=2).plan({}).units) == 2
    with pytest.raises(InvalidArgument, match="units says nothing") as refused:
        SqlSource(url=url, table="t", column="v", units=2).plan({})
    assert refused.value.column == "v"
    with pytest.raises(InvalidArgument, match="units says nothing"):
        SqlSource(url=url, table="t", column="v", schema="v string", units=2)
