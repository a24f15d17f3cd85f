"""Databases, tables, and what users bring themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from lakeseal.errors import InvalidArgument, SourceChanged, SourceNotFound, SourceUnavailable
from lakeseal.ingest import Source, SqlSource, TableSource
from lakeseal.table import Table


@pytest.fixture
def database(tmp_path: Path) -> Any:
    engine = sa.create_engine(f"sqlite:///{tmp_path}/shop.db")

    def run(*statements: str) -> str:
        with engine.begin() as connection:
            for statement in statements:
                connection.execute(sa.text(statement))
        return str(engine.url)

    run("CREATE TABLE orders (id INTEGER, name TEXT, price NUMERIC(8,2), at DATETIME)")
    yield run
    engine.dispose()


def read(source: Source, marks: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    units = source.plan(marks or {}).units
    found = [row for unit in units for chunk in source.read(unit) for row in chunk.rows.to_pylist()]
    source.close()
    return found


def high(source: Source, marks: dict[str, Any] | None = None) -> dict[str, Any]:
    found = {"": source.plan(marks or {}).units[-1].high}
    source.close()
    return found


def test_rows_above_the_watermark_are_read_up_to_the_largest_there_is(database: Any) -> None:
    url = database("INSERT INTO orders VALUES (1, 'a', 1.5, NULL), (2, 'b', 2, NULL)")
    source = SqlSource(url=url, table="orders", column="id")
    assert [(row["id"], str(row["price"])) for row in read(source)] == [(1, "1.50"), (2, "2.00")]
    marks = high(source)
    assert source.plan(marks).units == ()
    database("INSERT INTO orders VALUES (5, 'c', NULL, NULL), (4, 'd', NULL, NULL)")
    assert [row["id"] for row in read(source, marks)] == [4, 5]


def test_a_range_of_integers_is_cut_without_losing_or_doubling_a_row(database: Any) -> None:
    url = database(*(f"INSERT INTO orders (id) VALUES ({n})" for n in (1, 2, 2, 50, 99, 100)))
    source = SqlSource(url=url, table="orders", column="id", units=7)
    assert len(source.plan({}).units) == 7
    assert [row["id"] for row in read(source)] == [1, 2, 2, 50, 99, 100]


def test_a_column_of_times_is_followed(database: Any) -> None:
    url = database("INSERT INTO orders VALUES (1, 'a', 1, '2026-01-01 10:00:00.000000')")
    source = SqlSource(url=url, table="orders", column="at", start="2025-12-31T00:00:00")
    marks = high(source)
    assert marks[""]["value"] == "2026-01-01 10:00:00.000000"
    database("INSERT INTO orders VALUES (2, 'b', 1, '2026-01-01 10:00:01.000000')")
    assert [row["id"] for row in read(source, marks)] == [2]
    late = SqlSource(url=url, table="orders", column="at", delay_seconds=3600 * 24 * 365 * 100)
    assert late.plan({}).units == ()
    late.close()


def test_rows_without_a_value_are_never_read_and_a_note_says_so(database: Any) -> None:
    url = database("INSERT INTO orders (id) VALUES (NULL), (1)")
    source = SqlSource(url=url, table="orders", column="id")
    assert source.plan({}).notes == ("1 rows have no id and are never read",)
    assert len(read(source)) == 1


def test_a_query_is_read_by_its_schema(database: Any) -> None:
    url = database("INSERT INTO orders (id, name) VALUES (1, 'a'), (2, 'b')")
    query = "SELECT id, upper(name) AS name FROM orders WHERE id > 1"
    source = SqlSource(url=url, query=query, schema="id long, name string", column="id")
    assert read(source) == [{"id": 2, "name": "B"}]


def test_what_the_database_lacks_is_told_without_its_password(database: Any) -> None:
    url = database()
    with pytest.raises(SourceNotFound, match="nothing"):
        SqlSource(url=url, table="nothing", column="id").plan({})
    with pytest.raises(InvalidArgument, match="no column"):
        SqlSource(url=url, table="orders", column="nothing").plan({})
    with pytest.raises(SourceUnavailable) as caught:
        SqlSource(url="postgresql+psycopg://me:s3cret@127.0.0.1:1/x", table="t", column="id").plan({})
    assert "s3cret" not in str(caught.value)


def test_a_source_of_sql_is_of_a_table_or_a_query() -> None:
    for wrong in ({}, {"table": "t", "query": "q"}, {"query": "q"}, {"query": "q", "schema": "x long"}):
        with pytest.raises(InvalidArgument):
            SqlSource(url="sqlite://", column="id", **wrong)


def test_a_table_is_read_whole_and_then_by_its_changes(tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    table.write(pa.table({"id": [1, 2]}), properties={"delta.enableChangeDataFeed": "true"})
    source = TableSource(uri=str(tmp_path / "t"))
    assert [(row["id"], row["_change_type"]) for row in read(source)] == [(1, "insert"), (2, "insert")]
    marks = high(source)
    assert source.plan(marks).units == ()
    table.delete("id = 1")
    table.write(pa.table({"id": [3]}))
    found = [(row["id"], row["_change_type"], row["_commit_version"]) for row in read(source, marks)]
    assert found == [(1, "delete", 1), (3, "insert", 2)]
    one = TableSource(uri=str(tmp_path / "t"), max_versions=1)
    assert high(one, marks)[""]["version"] == 1
    assert one.plan(marks).has_more
    assert not one.plan(high(one, marks)).has_more


def test_a_table_without_a_feed_or_made_again_is_noticed(tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    table.write(pa.table({"id": [1]}))
    source = TableSource(uri=str(tmp_path / "t"))
    marks = high(source)
    table.write(pa.table({"id": [2]}))
    with pytest.raises(InvalidArgument, match="change feed"):
        source.plan(marks)
    with pytest.raises(SourceChanged, match="another one"):
        source.plan({"": {"table_id": "other", "version": 0}})
    with pytest.raises(SourceNotFound):
        TableSource(uri=str(tmp_path / "nothing")).plan({})
