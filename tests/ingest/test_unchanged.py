"""Large values that an update does not touch, and that the database therefore does not send: they stay."""

from __future__ import annotations

import json
import random
from typing import Any

import psycopg
import pytest

from lakeseal.errors import RunFailed
from lakeseal.ingest import Check, Dataset, KafkaSource
from support.captured_table import Captured

COLUMNS = "id bigint PRIMARY KEY, n int, big text, raw bytea"


@pytest.fixture(params=["ledger", "none"])
def captured(request: pytest.FixtureRequest, lake: Any, database: str) -> Any:
    made = _captured(lake, database, owner=request.param)
    yield made
    made.connection.close()


def _captured(lake: Any, database: str, **options: Any) -> Captured:
    made = Captured(lake, database, COLUMNS, **options)
    made.do("ALTER TABLE t ALTER big SET STORAGE EXTERNAL", "ALTER TABLE t ALTER raw SET STORAGE EXTERNAL")
    return made


def _put(captured: Captured, key: int, big: str, raw: bytes | None = None) -> None:
    captured.connection.execute("INSERT INTO t VALUES (%s, 0, %s, %s)", (key, big, raw))


def _source(captured: Captured) -> list[dict[str, Any]]:
    with captured.connection.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        return cursor.execute("SELECT * FROM t ORDER BY id").fetchall()


def test_an_update_beside_a_large_value_leaves_it(captured: Captured) -> None:
    _put(captured, 1, "a" * 5000, b"\x00\xff" * 3000)
    captured.rows()
    captured.do("UPDATE t SET n = 1")
    assert captured.rows() == _source(captured), "the target has it"
    _put(captured, 2, "b" * 5000)
    captured.do("UPDATE t SET n = 2 WHERE id = 2", "UPDATE t SET n = 3 WHERE id = 2")
    assert captured.rows() == _source(captured), "an earlier change of the run has it"
    captured.do("UPDATE t SET big = NULL WHERE id = 1", "UPDATE t SET n = 4")
    assert captured.rows() == _source(captured), "null is null"


def test_a_large_value_goes_with_its_row_to_another_key(captured: Captured) -> None:
    _put(captured, 1, "a" * 5000)
    _put(captured, 2, "b" * 5000)
    captured.rows()
    captured.do("DELETE FROM t WHERE id = 2", "UPDATE t SET id = 2 WHERE id = 1", "UPDATE t SET n = 1 WHERE id = 2")
    _put(captured, 1, "c" * 5000)
    assert captured.rows() == _source(captured)


def test_random_changes_of_rows_with_large_values_end_as_the_source(captured: Captured) -> None:
    rng = random.Random(12)
    for _ in range(12):
        for _ in range(rng.randrange(1, 25)):
            key, other = rng.randrange(6), rng.randrange(6)
            there = {row["id"] for row in _source(captured)}
            match rng.randrange(6):
                case 0 if key not in there:
                    _put(captured, key, rng.randbytes(1500).hex(), rng.randbytes(4000))
                case 1 if key in there:
                    captured.do(f"DELETE FROM t WHERE id = {key}")
                case 2 if key in there and other not in there:
                    captured.do(f"UPDATE t SET id = {other} WHERE id = {key}")
                case 3 if key in there:
                    big = rng.choice([None, "small", rng.randbytes(1500).hex()])
                    captured.connection.execute("UPDATE t SET big = %s WHERE id = %s", (big, key))
                case 4 if rng.random() < 0.05:
                    captured.do("TRUNCATE t")
                case _:
                    captured.do(f"UPDATE t SET n = n + 1 WHERE id = {key}")
        assert captured.rows() == _source(captured)


def test_rows_that_get_another_key_while_the_table_is_loaded_keep_their_values(captured: Captured) -> None:
    for key in (1, 2, 3):
        _put(captured, key, str(key) * 5000)
    captured.source.plan({})  # the slot is there, and what follows comes again behind the load
    captured.do("UPDATE t SET id = 11 WHERE id = 1", "UPDATE t SET n = 1 WHERE id = 2")
    captured.pipeline.run()
    captured.do("UPDATE t SET id = 13 WHERE id = 3", "UPDATE t SET n = 2 WHERE id = 11")
    assert captured.rows() == _source(captured)


def test_a_key_that_was_given_away_while_the_table_was_loaded_is_another_row(captured: Captured) -> None:
    _put(captured, 1, "a" * 5000)
    captured.source.plan({})
    captured.do("UPDATE t SET id = 2 WHERE id = 1")
    _put(captured, 1, "b" * 5000)
    captured.pipeline.run()
    captured.do("UPDATE t SET n = 5")
    assert captured.rows() == _source(captured)


def test_a_transaction_that_was_open_while_the_table_was_loaded_is_not_left_out(captured: Captured) -> None:
    _put(captured, 1, "a" * 5000)
    captured.source.plan({})
    with psycopg.connect(captured.source.url) as other:
        other.execute("UPDATE t SET n = 7")
        captured.do("INSERT INTO t VALUES (2, 0, 'x', NULL)")
        captured.pipeline.run()
        other.commit()
    assert captured.rows() == _source(captured)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"mode": "append", "keys": ()}, "only a target in the mode cdc"),
        ({"quality": (Check(rule="big IS NOT NULL"),)}, "a rule of quality is about it"),
        ({"sequence_by": "n"}, "by n, the table may have another row"),
    ],
)
def test_where_nobody_has_the_value_any_more_the_run_says_so_and_moves_nothing(
    lake: Any, database: str, options: dict[str, Any], reason: str
) -> None:
    captured = _captured(lake, database, **options)
    _put(captured, 1, "a" * 5000)
    captured.pipeline.run()
    before = captured.pipeline.watermarks()
    captured.do("UPDATE t SET n = 1")
    with pytest.raises(RunFailed, match=f"'big', as it stays; .*{reason}"):
        captured.pipeline.run()
    assert captured.pipeline.watermarks() == before
    captured.connection.close()


def test_debeziums_placeholder_is_no_value(lake: Any, broker: Any) -> None:
    broker.create_topic("large", partitions=1)
    source = KafkaSource(
        brokers=broker.address, topic="large", envelope="debezium", schema="id long, n long, big string, raw binary"
    )
    pipeline = lake.pipeline(Dataset(name="t", source=source, target=lake.to_table(mode="cdc", keys=("id",))))

    def send(op: str, **row: Any) -> None:
        broker.produce("large", [json.dumps({"op": op, "after": row}).encode()], partition=0)

    send("c", id=1, n=0, big="a" * 3000, raw="AAEC")
    pipeline.run()
    left = {"big": "__debezium_unavailable_value", "raw": "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="}
    send("u", id=1, n=1, **left)
    send("u", id=1, n=2, **left)
    pipeline.run()
    assert lake.table().to_arrow().to_pylist() == [{"id": 1, "n": 2, "big": "a" * 3000, "raw": b"\x00\x01\x02"}]
    send("c", id=2, n=1, **left)
    with pytest.raises(RunFailed, match="is new under its key"):
        pipeline.run()
