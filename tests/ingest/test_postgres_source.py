"""A table of a real PostgreSQL, captured by logical replication: equal to the source in the end, and every version in
between a state that the source had."""

from __future__ import annotations

import datetime as dt
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from lakeseal.errors import RunFailed, SourceChanged
from lakeseal.ingest import Dataset, Pipeline, PostgresSource, Retries
from lakeseal.ingest.sources.pgoutput import Decoder
from lakeseal.table import Table
from lakeseal.testing.postgres import fresh_database, postgres_server
from support.crashes import When

DRIVER = Path(__file__).parent / "capture_driver.py"
State = frozenset[tuple[Any, ...]]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres_server(wal_level="logical", max_replication_slots="20", fsync="off") as url:
        yield url


@pytest.fixture
def database(server: str) -> Iterator[str]:
    with fresh_database(server) as url:
        yield url
        with psycopg.connect(url, autocommit=True) as connection:
            for (slot,) in connection.execute(
                "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
            ).fetchall():
                connection.execute("SELECT pg_drop_replication_slot(%s)", (slot,))


class Captured:
    """A table of the database, and a pipeline that captures it."""

    def __init__(self, lake: Any, database: str, columns: str, **target: Any) -> None:
        self.lake = lake
        self.connection = psycopg.connect(database, autocommit=True)
        self.connection.execute(f"CREATE TABLE t ({columns})")
        self.source = PostgresSource(url=database, table="t", slot="cap")
        to = lake.to_table(mode="cdc", keys=("id",), **target)
        self.pipeline: Pipeline = lake.pipeline(
            Dataset(name="t", source=self.source, target=to, retries=Retries(times=5, first_pause_seconds=0.05))
        )

    def do(self, *statements: str) -> None:
        with self.connection.transaction():
            for statement in statements:
                self.connection.execute(statement)

    def rows(self) -> list[dict[str, Any]]:
        self.pipeline.run()
        return self.lake.table().to_arrow().sort_by("id").to_pylist()  # type: ignore[no-any-return]

    def confirmed(self) -> str:
        asked = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = 'cap'"
        found = self.connection.execute(asked).fetchone()
        assert found is not None
        return str(found[0])


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


class Writer(threading.Thread):
    """Random transactions, and every state that the table had."""

    def __init__(self, url: str, rng: random.Random) -> None:
        super().__init__(daemon=True)
        self.connection = psycopg.connect(url, autocommit=True)
        self.rng, self.over = rng, threading.Event()
        self.now: dict[int, tuple[Any, ...]] = {}
        self.states: set[State] = {frozenset()}
        self.transactions = 0

    def run(self) -> None:
        while not self.over.wait(0.002):
            self.write()

    def write(self) -> None:
        after = dict(self.now)
        with self.connection.transaction():
            for _ in range(self.rng.randrange(1, 5)):
                self._change(after)
        self.now = after
        self.states.add(frozenset(after.values()))
        self.transactions += 1

    def _change(self, rows: dict[int, tuple[Any, ...]]) -> None:
        key, text = self.rng.randrange(40), str(self.rng.random())
        kind = self.rng.random()
        if kind < 0.02:
            self.connection.execute("TRUNCATE t")
            rows.clear()
        elif kind < 0.3 and key in rows:
            self.connection.execute("DELETE FROM t WHERE id = %s", (key,))
            del rows[key]
        elif kind < 0.4 and key in rows and key + 100 not in rows:
            self.connection.execute("UPDATE t SET id = id + 100 WHERE id = %s", (key,))
            rows[key + 100] = (key + 100, rows.pop(key)[1])
        else:
            self.connection.execute(
                "INSERT INTO t VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET a = excluded.a", (key, text)
            )
            rows[key] = (key, text)


def captured_under_kills(lake: Any, database: str, owner: str, *, kills: int, seed: int) -> int:
    rng = random.Random(seed)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id bigint PRIMARY KEY, a text)")
    yaml = lake.place / "capture.yaml"
    yaml.write_text(
        f"""
name: capture
ledger: {lake.ledger}
lease_seconds: 1
datasets:
  - name: t
    source: {{type: postgres, url: "{database}", table: t, slot: cap}}
    target: {{type: table, uri: {lake.place}/t, mode: cdc, keys: [id], owner: {owner}}}
    retries: {{times: 20, first_pause_seconds: 0.05}}
"""
    )
    writer = Writer(database, rng)
    for _ in range(20):
        writer.write()
    writer.start()
    killed = 0
    for _ in range(kills):
        when = rng.choice(list(When)).name
        command = [sys.executable, str(DRIVER), str(yaml), str(rng.randrange(1, 22)), when]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(DRIVER.parent.parent), *sys.path])}
        ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
        killed += ended.returncode != 0
    writer.over.set()
    writer.join()
    pipeline = Pipeline.from_yaml(yaml)
    while pipeline.run().state != "nothing_new":
        continue
    table = Table(f"{lake.place}/t", lake.ledger)
    for version in range(table.version() + 1):
        found = table.to_arrow(version=version)
        state = frozenset(zip(found["id"].to_pylist(), found["a"].to_pylist(), strict=True))
        assert len(state) == found.num_rows
        assert state in writer.states, f"version {version} is no state of the source"
    assert state == frozenset(writer.now.values())
    writer.connection.close()
    assert writer.transactions > 50
    return killed


@pytest.mark.parametrize("owner", ["ledger", "none"])
def test_a_table_that_changes_while_runs_are_killed_is_captured_as_it_was(lake: Any, database: str, owner: str) -> None:
    assert captured_under_kills(lake, database, owner, kills=3, seed=5) >= 1


@pytest.mark.stress
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("owner", ["ledger", "none"])
def test_a_table_that_changes_for_long_while_runs_are_killed_is_captured_as_it_was(
    lake: Any, database: str, owner: str
) -> None:
    assert captured_under_kills(lake, database, owner, kills=40, seed=6) >= 20
