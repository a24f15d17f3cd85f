"""A table of a real PostgreSQL, captured by logical replication, change by change."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from lakeseal.errors import RunFailed, SourceChanged
from lakeseal.ingest.sources.pgoutput import Decoder
from support.captured_table import Captured


@pytest.fixture
def captured(lake: Any, database: str) -> Iterator[Captured]:
    made = Captured(lake, database, "id bigint PRIMARY KEY, a text", merge_schema=True)
    yield made
    made.connection.close()


def test_what_was_there_and_every_change_after_it_arrive(captured: Captured) -> None:
    captured.do("INSERT INTO t VALUES (1, 'one'), (2, 'two')")
    assert captured.rows() == [{"id": 1, "a": "one"}, {"id": 2, "a": "two"}]
    captured.do("UPDATE t SET a = 'zwei' WHERE id = 2", "INSERT INTO t VALUES (3, NULL)", "DELETE FROM t WHERE id = 1")
    assert captured.rows() == [{"id": 2, "a": "zwei"}, {"id": 3, "a": None}]
    captured.do("UPDATE t SET id = 30 WHERE id = 3")  # a key that changes
    assert captured.rows() == [{"id": 2, "a": "zwei"}, {"id": 30, "a": None}]
    captured.do("INSERT INTO t VALUES (4, 'gone')", "TRUNCATE t", "INSERT INTO t VALUES (5, 'new')")
    assert captured.rows() == [{"id": 5, "a": "new"}]
    assert captured.pipeline.run().state == "nothing_new"


def test_a_column_that_is_added_comes_with_its_values(captured: Captured) -> None:
    captured.do("INSERT INTO t VALUES (1, 'one')")
    captured.rows()
    captured.do("UPDATE t SET a = 'uno'", "ALTER TABLE t ADD COLUMN b int", "INSERT INTO t VALUES (2, 'two', 2)")
    assert captured.rows() == [{"id": 1, "a": "uno", "b": None}, {"id": 2, "a": "two", "b": 2}]


def test_the_confirmed_position_moves_only_behind_the_commit_and_then_it_does(captured: Captured) -> None:
    captured.do("INSERT INTO t VALUES (1, 'one')")
    captured.rows()
    before = captured.confirmed()
    captured.do("INSERT INTO t VALUES (2, 'two')")
    mark = captured.pipeline.watermarks()[0].value["lsn"]
    captured.source.plan({"": captured.pipeline.watermarks()[0].value})
    assert captured.confirmed() >= before
    assert _number(captured.confirmed()) == mark, "what is not published is not confirmed"
    assert [row["id"] for row in captured.rows()] == [1, 2]
    captured.pipeline.run()
    assert _number(captured.confirmed()) == captured.pipeline.watermarks()[0].value["lsn"] > mark


def _number(lsn: str) -> int:
    high, low = lsn.split("/")
    return (int(high, 16) << 32) + int(low, 16)


def test_values_of_many_types_are_those_of_the_server(lake: Any, database: str) -> None:
    columns = (
        "id int PRIMARY KEY, s smallint, f real, d double precision, n numeric(20, 4), m numeric, flag boolean, "
        "day date, at timestamptz, local timestamp, raw bytea, u uuid, j jsonb, many int[]"
    )
    row = (
        "(%d, -7, 1.5, 0.1, 12345.6789, 3.5, true, '2026-03-01', '2026-03-01 10:00:00.123456+02', "
        "'2026-03-01 10:00:00', '\\x00ff', '11111111-2222-3333-4444-555555555555', '{\"a\": 1}', '{1,2}')"
    )
    captured = Captured(lake, database, columns)
    captured.do(f"INSERT INTO t VALUES {row % 1}")
    captured.rows()
    captured.do(f"INSERT INTO t VALUES {row % 2}")
    first, second = captured.rows()
    assert {**first, "id": 2} == second, "read as a table, and as a change"
    assert second == {
        "id": 2,
        "s": -7,
        "f": 1.5,
        "d": 0.1,
        "n": Decimal("12345.6789"),
        "m": "3.5",
        "flag": True,
        "day": dt.date(2026, 3, 1),
        "at": dt.datetime(2026, 3, 1, 8, 0, 0, 123456, tzinfo=dt.UTC),
        "local": dt.datetime(2026, 3, 1, 10),
        "raw": b"\x00\xff",
        "u": "11111111-2222-3333-4444-555555555555",
        "j": '{"a": 1}',
        "many": "{1,2}",
    }
    captured.connection.close()


def test_a_run_takes_at_most_about_so_many_changes_and_whole_transactions(captured: Captured) -> None:
    captured.do("INSERT INTO t VALUES (0, 'there')")
    captured.limit(max_changes=4)
    captured.rows()
    captured.do("INSERT INTO t VALUES (1, 'a')")
    captured.do("CREATE TABLE IF NOT EXISTS other (id bigint)", "INSERT INTO other SELECT generate_series(1, 20)")
    captured.do("INSERT INTO t SELECT n, 'b' FROM generate_series(2, 9) n", "DELETE FROM t WHERE id = 0")
    captured.do("UPDATE t SET a = 'c' WHERE id = 9")
    captured.do("DELETE FROM t WHERE id = 2")
    states: list[dict[int, str]] = []
    while True:
        result = captured.pipeline.run()
        state = {row["id"]: row["a"] for row in captured.lake.table().to_arrow().to_pylist()}
        if not states or state != states[-1]:
            states.append(state)
        if not result.has_more:
            break
    first = {0: "there", 1: "a"}
    second = {1: "a", **dict.fromkeys(range(2, 10), "b")}
    fourth = {key: value for key, value in {**second, 9: "c"}.items() if key != 2}
    assert len(states) > 1
    assert states[-1] == fourth
    assert all(state in ({0: "there"}, first, second, {**second, 9: "c"}, fourth) for state in states)
    assert captured.pipeline.run().state == "nothing_new"


def test_a_slot_that_is_gone_is_told_and_nothing_is_lost_in_silence(captured: Captured) -> None:
    captured.do("INSERT INTO t VALUES (1, 'one')")
    captured.rows()
    captured.do("SELECT pg_drop_replication_slot('cap')", "INSERT INTO t VALUES (2, 'two')")
    with pytest.raises(RunFailed, match="slot 'cap' is gone"):
        captured.pipeline.run()


def test_a_slot_that_somebody_else_reads_is_told(captured: Captured) -> None:
    captured.do("INSERT INTO t VALUES (1, 'one')")
    captured.rows()
    captured.do("INSERT INTO t VALUES (2, 'two')")
    captured.connection.execute("SELECT pg_replication_slot_advance('cap', pg_current_wal_lsn())")
    with pytest.raises(RunFailed, match="Somebody else has read the slot"):
        captured.pipeline.run()


@pytest.mark.parametrize("message", [b"", b"I", b"B123", b"R\0\0\0\1public", b"X", b"D\0\0\0\7K"])
def test_a_message_that_is_cut_off_or_unknown_is_an_error_of_ours(message: bytes) -> None:
    with pytest.raises(SourceChanged):
        list(Decoder().changes([message]))


def test_changes_of_other_tables_alone_are_no_news(captured: Captured) -> None:
    captured.do("INSERT INTO t VALUES (1, 'one')", "CREATE TABLE other (id bigint)")
    captured.rows()
    captured.do("INSERT INTO other VALUES (1)", "INSERT INTO other VALUES (2)")
    assert captured.pipeline.run().state == "nothing_new"
    captured.do("INSERT INTO other VALUES (3)", "INSERT INTO t VALUES (2, 'two')")
    assert [row["id"] for row in captured.rows()] == [1, 2]
