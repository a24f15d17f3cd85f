"""Writers and readers of several engines on one table, one after the other in a random order, with whatever happens to
a table in between: upkeep, changes of metadata, take-over and release. What each of them reads is what a dictionary
says; a DuckDB that has been attached for a while may read what the table was since then."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import duckdb
import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable

import lakeseal
from support.unity_catalog import SCHEMA, Catalog, attach, open_catalog

Rows = dict[int, str]
NAME = "sales.orders"
PROPERTIES: list[dict[str, str]] = [
    {},
    {"delta.enableDeletionVectors": "true"},
    {"delta.columnMapping.mode": "name"},
    {"delta.enableRowTracking": "true"},
    {"delta.enableChangeDataFeed": "true"},
    {"delta.checkpointInterval": "3", "delta.checkpointPolicy": "v2"},
]

UNKNOWN_TO_DELTALAKE = {"delta.enableDeletionVectors", "delta.columnMapping.mode", "delta.checkpointPolicy"}


class Engine:
    """A DuckDB with the catalog attached."""

    def __init__(self, catalog: Catalog, states: list[Rows]) -> None:
        self._catalog, self._states = catalog, states
        self._connection, self._since = catalog.duckdb(), len(states) - 1

    def attach(self) -> None:
        self._connection.execute("DETACH c")
        attach(self._connection)
        self._since = len(self._states) - 1

    def insert(self, row: int, text: str) -> bool:
        try:
            self._connection.execute(f"INSERT INTO c.sales.orders BY NAME SELECT {row} AS id, '{text}' AS s")
        except duckdb.Error as error:
            self.refused = str(error)
            if isinstance(error, duckdb.FatalException | duckdb.InternalException):
                # DuckDB 1.5.5 falls over columns that came since it attached, and is of no use from then on.
                self._connection.close()
                self._connection, self._since = self._catalog.duckdb(), len(self._states) - 1
            return False
        return True

    def check(self) -> None:
        found = self._connection.execute("SELECT id, s FROM c.sales.orders").fetchall()
        assert sorted(found) in [sorted(one.items()) for one in self._states[self._since :]]

    def close(self) -> None:
        self._connection.close()


class Schedule:
    def __init__(self, catalog: Catalog, seed: int) -> None:
        self.dice = random.Random(seed)
        self.catalog = catalog
        self.names = lakeseal.Catalog(catalog.url, token=catalog.token)
        self.theirs = lakeseal.Catalog(catalog.url, token=catalog.token, kind="unity")
        partition_by = self.dice.choice([(), ("s",)])
        self.properties = self.dice.choice(PROPERTIES)
        catalog.create("orders", partition_by=partition_by, properties=self.properties)
        self.states: list[Rows] = [{}]
        self.kind = "catalog"
        self.engines = [Engine(catalog, self.states) for _ in range(2)]
        self.fresh = 0
        self.done: list[str] = []

    @property
    def rows(self) -> Rows:
        return self.states[-1]

    @property
    def table(self) -> lakeseal.Table:
        """By one of the ways that write to it."""
        if self.kind == "catalog" and self.dice.random() < 0.5:
            return self.theirs.table(NAME)
        return self.names.table(NAME)

    def step(self) -> None:
        steps = ["write", "insert", "insert", "change", "merge", "upkeep", "metadata", "attach", "move", "restore"]
        name = self.dice.choice(steps)
        self.done.append(name)
        getattr(self, name)()

    def new(self) -> tuple[int, str]:
        self.fresh += 1
        return self.fresh, self.dice.choice("xyz")

    def write(self) -> None:
        new = dict(self.new() for _ in range(self.dice.randrange(1, 4)))
        self.table.write(pa.table({"id": list(new), "s": list(new.values())}, SCHEMA))
        self.states.append({**self.rows, **new})

    def insert(self) -> None:
        engine, (row, text) = self.dice.choice(self.engines), self.new()
        before = self.names.table(NAME).version()
        is_in = engine.insert(row, text)
        self.done[-1] += f" {is_in}" if is_in else f" {engine.refused[:150]}"
        assert self.names.table(NAME).version() == before + is_in
        if is_in:
            self.states.append({**self.rows, row: text})

    def change(self) -> None:
        low = self.dice.randrange(self.fresh + 1)
        where = f"id BETWEEN {low} AND {low + 2}"
        hit = {row for row in self.rows if low <= row <= low + 2}
        if self.dice.random() < 0.5:
            self.table.delete(where)
            self.states.append({row: text for row, text in self.rows.items() if row not in hit})
        else:
            self.table.update({"s": "'u'"}, where)
            self.states.append({row: "u" if row in hit else text for row, text in self.rows.items()})

    def merge(self) -> None:
        new = dict([self.new(), (self.dice.randrange(1, self.fresh + 1), "m")])
        source = pa.table({"id": list(new), "s": list(new.values())}, SCHEMA)
        builder = self.table.merge(source, "t.id = s.id").when_matched_update({"s": "s.s"})
        builder.when_not_matched_insert({"id": "s.id", "s": "s.s"}).execute()
        self.states.append({**self.rows, **new})

    def upkeep(self) -> None:
        table = self.table
        what = self.dice.choice(["optimize", "checkpoint", "publish", "vacuum"])
        self.done[-1] += f" {what}"
        if what == "publish":
            assert self.names.opened.owner is not None
            if self.kind != "filesystem":
                self.names.opened.owner.backfill(table.uri)
        elif what == "vacuum":
            table.vacuum()
        else:
            getattr(table, what)()

    def metadata(self) -> None:
        if self.dice.random() < 0.5:
            self.table.set_properties({"owner.team": str(self.fresh)})
        else:
            self.table.add_columns(pa.schema([(f"c{len(self.done)}", pa.int64())]))

    def attach(self) -> None:
        self.dice.choice(self.engines).attach()

    def restore(self) -> None:
        table = self.names.table(NAME)
        version = self.dice.randrange(max(0, table.version() - 5), table.version() + 1)
        rows = held(table.to_arrow(version=version, columns=["id", "s"]))
        table.restore(version)
        self.states.append(dict(rows))

    def move(self) -> None:
        if self.dice.random() < 0.7:
            return
        table = self.names.table(NAME)
        if self.kind == "filesystem":
            self.kind = self.dice.choice(["managed", "catalog"])
            assert self.names.opened.owner is not None
            table.take_over(self.names.opened.owner, kind=self.kind)
        else:
            table.release()
            if self.kind == "catalog":
                table.drop_feature("vacuumProtocolCheck")  # it stays, and deltalake does not know it
            self.kind = "filesystem"
        self.done[-1] += f" {self.kind}"

    def check(self) -> None:
        wanted = sorted(self.rows.items())
        reader = self.dice.choice(["own", "own", "theirs", "duckdb", "attached", "path"])
        self.done.append(f"read by {reader}")
        if reader == "own":
            assert held(self.names.table(NAME).to_arrow()) == wanted
        elif reader == "theirs" and self.kind == "catalog":
            assert held(self.theirs.table(NAME).to_arrow()) == wanted
        elif reader == "duckdb":
            engine = Engine(self.catalog, self.states)
            engine.check()
            engine.close()
        elif reader == "attached":
            self.dice.choice(self.engines).check()
        elif reader == "path" and self.kind != "catalog":
            table = self.names.table(NAME)
            if self.kind == "managed":
                self.names.opened.owner.backfill(table.uri)  # type: ignore[union-attr]
            self.by_path(table.uri, wanted)

    def by_path(self, uri: str, wanted: list[tuple[int, str]]) -> None:
        found = duckdb.sql(f"SELECT id, s FROM delta_scan('{uri}')").fetchall()
        assert sorted(found) == wanted
        if not UNKNOWN_TO_DELTALAKE & self.properties.keys():
            assert held(DeltaTable(uri).to_pyarrow_table()) == wanted
            assert held(polars.read_delta(uri).to_arrow()) == wanted


def held(table: pa.Table) -> list[tuple[int, str]]:
    return sorted((row["id"], row["s"]) for row in table.to_pylist())


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with open_catalog(tmp_path, roots=(f"file://{tmp_path}",)) as found:
        yield found


def run_schedule(catalog: Catalog, seed: int, steps: int) -> None:
    schedule = Schedule(catalog, seed)
    with ExitStack() as stack:
        for engine in schedule.engines:
            stack.callback(engine.close)
        try:
            for _ in range(steps):
                schedule.step()
                schedule.check()
        except BaseException as error:
            error.add_note(f"seed {seed}, {schedule.properties}: {schedule.done}")
            raise


@pytest.mark.parametrize("seed", range(3))
def test_whoever_reads_sees_what_a_dictionary_says(catalog: Catalog, seed: int) -> None:
    run_schedule(catalog, seed, 15)


@pytest.mark.stress
@pytest.mark.timeout(3600)
def test_whoever_reads_sees_what_a_dictionary_says_for_long(tmp_path: Path) -> None:
    first = int(time.time())
    until = time.monotonic() + float(os.environ.get("LAKESEAL_STRESS_SECONDS", "600"))
    while time.monotonic() < until:
        first += 1
        with open_catalog(tmp_path / str(first), roots=(f"file://{tmp_path}",)) as catalog:
            run_schedule(catalog, first, 25)
