"""A table of PostgreSQL that keeps changing, captured by runs that are killed: equal to the source in the end, and each
version in between a state that the source had."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from lakeseal.ingest import Pipeline
from lakeseal.table import Table
from support.crashes import When

DRIVER = Path(__file__).parent / "capture_driver.py"
Row = tuple[int, str | None, str | None]
State = tuple[int, int]
"""How many rows, and the sum of what each comes to."""
_CHANGES_A_SECOND = 1000


def state_of(rows: dict[int, Row]) -> State:
    return len(rows), sum(map(_number, rows.values()))


def _number(row: Row) -> int:
    return int.from_bytes(hashlib.blake2b(repr(row).encode(), digest_size=16).digest(), "big")


class Writer(threading.Thread):
    """Random transactions, and every state that the table had."""

    def __init__(self, url: str, rng: random.Random, keys: int) -> None:
        super().__init__(daemon=True)
        self.connection = psycopg.connect(url, autocommit=True)
        self.rng, self.keys, self.over = rng, keys, threading.Event()
        self.now: dict[int, Row] = {}
        self._sum = 0
        self.states: set[State] = {(0, 0)}
        self.transactions = self.changes = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        began, first = time.monotonic(), self.changes
        try:
            while not self.over.is_set():
                self.write()
                ahead = (self.changes - first) / _CHANGES_A_SECOND - (time.monotonic() - began)
                if ahead > 0:
                    self.over.wait(ahead)
        except BaseException as error:
            self.error = error
            raise

    def write(self) -> None:
        """One transaction, and one message to the server."""
        statements = [self._change() for _ in range(self.rng.randrange(1, 5))]
        self.connection.execute("; ".join(statements))
        self.changes += len(statements)
        self.states.add((len(self.now), self._sum))
        self.transactions += 1

    def _put(self, row: Row) -> None:
        self._take(row[0])
        self.now[row[0]] = row
        self._sum += _number(row)

    def _take(self, key: int) -> Row | None:
        row = self.now.pop(key, None)
        self._sum -= 0 if row is None else _number(row)
        return row

    def _change(self) -> str:
        key, text = self.rng.randrange(self.keys), str(self.rng.random())
        moved = key + self.keys
        kind = self.rng.random()
        if kind < 0.5 / self.keys:
            self.now.clear()
            self._sum = 0
            return "TRUNCATE t"
        if kind < 0.25 and key in self.now:
            self._take(key)
            return f"DELETE FROM t WHERE id = {key}"
        if kind < 0.35 and key in self.now and moved not in self.now:
            self._put((moved, *self.now[key][1:]))
            self._take(key)
            return f"UPDATE t SET id = {moved} WHERE id = {key}"
        if kind < 0.75 and key in self.now:  # a large value stays as it is
            self._put((key, text, self.now[key][2]))
            return f"UPDATE t SET a = '{text}' WHERE id = {key}"
        large = None if kind < 0.8 else self.rng.randbytes(1500).hex() if kind > 0.95 else text[2:]
        self._put((key, text, large))
        return (
            f"INSERT INTO t VALUES ({key}, '{text}', {'NULL' if large is None else repr(large)})"
            " ON CONFLICT (id) DO UPDATE SET a = excluded.a, b = excluded.b"
        )


def _driven(yaml: Path, seconds: float, *death: str) -> int:
    command = [sys.executable, str(DRIVER), str(yaml), str(seconds), *death]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(DRIVER.parent.parent), *sys.path])}
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
    return ended.returncode


def captured_under_kills(
    lake: Any, database: str, owner: str, *, kills: int, seed: int, keys: int = 40, seconds: float = 0
) -> None:
    rng = random.Random(seed)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id bigint PRIMARY KEY, a text, b text)")
        connection.execute("ALTER TABLE t ALTER b SET STORAGE EXTERNAL")
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
    writer = Writer(database, random.Random(seed), keys)
    for _ in range(20):
        writer.write()
    writer.start()
    began, killed = time.monotonic(), 0
    for n in range(kills):
        until = began + (n + 1) * seconds / kills
        left = max(0.0, until - time.monotonic())
        most = 150 if seconds else 14
        killed += _driven(yaml, left, str(rng.randrange(1, most)), rng.choice(list(When)).name) != 0
        if not seconds:
            Pipeline.from_yaml(yaml).run()
        elif (left := until - time.monotonic()) > 0:
            assert _driven(yaml, left) == 0
    while killed < kills:  # some runs were over before they came so far
        killed += _driven(yaml, min(seconds, 30), str(rng.randrange(1, 14)), rng.choice(list(When)).name) != 0
    writer.over.set()
    writer.join()
    assert writer.error is None
    took = time.monotonic() - began
    pipeline = Pipeline.from_yaml(yaml)
    while pipeline.run().state != "nothing_new":
        continue
    table = Table(f"{lake.place}/t", lake.ledger)
    versions = range(table.version() + 1)
    for version in versions:
        found = table.to_arrow(version=version).to_pylist()
        rows = {row["id"]: (row["id"], row["a"], row["b"]) for row in found}
        assert len(rows) == len(found)
        assert state_of(rows) in writer.states, f"version {version} is no state of the source"
    assert rows == writer.now
    writer.connection.close()
    assert writer.transactions > 50
    print(
        f"{owner}: {writer.changes} changes in {took:.0f} s ({writer.changes / took:.0f} a second), "
        f"{writer.transactions} states, {len(versions)} versions, {killed} kills"
    )


@pytest.mark.parametrize("owner", ["ledger", "none"])
def test_a_table_that_changes_while_runs_are_killed_is_captured_as_it_was(lake: Any, database: str, owner: str) -> None:
    captured_under_kills(lake, database, owner, kills=3, seed=5)


@pytest.mark.stress
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("owner", ["ledger", "none"])
def test_a_table_that_changes_for_long_while_runs_are_killed_is_captured_as_it_was(
    lake: Any, database: str, owner: str
) -> None:
    """LAKESEAL_STRESS_SECONDS makes it shorter."""
    seconds = float(os.environ.get("LAKESEAL_STRESS_SECONDS", "600"))
    kills = max(1, round(seconds / 30))
    captured_under_kills(lake, database, owner, kills=kills, seed=6, keys=1000, seconds=seconds)
