"""What a table promises of columns that it fills itself, through random histories of every way to change it: identities
are its steps and never given twice, in whatever version; generated and default columns are what they say. The judge is
a dictionary of rows by their identities."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakeseal
from lakeseal import Table
from oracles.seeds import case, cases

_SCHEMA = pa.schema([("k", pa.int64()), ("i", pa.int64()), ("p", pa.string()), ("g", pa.int64()), ("d", pa.int64())])
_WAYS = [
    "write",
    "values",
    "query",
    "merge",
    "update",
    "delete",
    "overwrite",
    "replace",
    "restore",
    "optimize",
    "clone",
    "again",
]
Row = tuple[int | None, str | None, int | None]


def test_what_a_table_fills_itself_is_what_it_promises(tmp_path: Path) -> None:
    for seed in cases(6, 400):
        with case(seed) as chance:
            _History(chance, tmp_path / str(seed)).run()


class _History:
    def __init__(self, chance: random.Random, place: Path) -> None:
        self._chance, self._place = chance, place
        self._start, self._step = chance.choice([1, 0, -5, 10**12]), chance.choice([1, -1, 3, -7])
        switches = ["delta.enableDeletionVectors", "delta.enableChangeDataFeed", "delta.enableRowTracking"]
        properties = {name: "true" for name in switches if chance.random() < 0.5}
        self._table = lakeseal.create(
            place / "t",
            _SCHEMA,
            chance.choice([(), ("p",), ("g",)]),
            {**properties, "delta.columnMapping.mode": chance.choice(["none", "name"])},
            identity={"i": lakeseal.Identity(start=self._start, step=self._step)},
            generated={"g": "k * 2"},
            defaults={"d": "42"},
        )
        self._name = f"delta.`{place / 't'}`"
        self._rows: dict[int, Row] = {}
        self._versions: dict[int, dict[int, Row]] = {0: {}}
        self._given: set[int] = set()
        self._told: list[str] = []

    def run(self) -> None:
        for _ in range(self._chance.randrange(4, 12)):
            way = self._chance.choice(_WAYS)
            self._told.append(way)
            kept, new = getattr(self, f"_{way}")()
            self._settle(kept, new)
            version = self._chance.choice(list(self._versions))
            assert _by_identity(self._table.to_arrow(version=version)) == self._versions[version], self._told

    def _settle(self, kept: dict[int, Row], new: list[Row]) -> None:
        rows = self._table.to_arrow()
        assert all(g == (None if k is None else k * 2) for k, g in zip(*_lists(rows, "k", "g"), strict=True)), (
            self._told
        )
        found = _by_identity(rows)
        assert {i: row for i, row in found.items() if i in kept} == kept, self._told
        fresh = {i: row for i, row in found.items() if i not in kept}
        assert Counter(fresh.values()) == Counter(new), self._told
        assert not self._given & fresh.keys(), f"given twice: {self._given & fresh.keys()}, {self._told}"
        assert all((i - self._start) % self._step == 0 <= (i - self._start) // self._step for i in fresh), self._told
        self._given |= fresh.keys()
        self._rows = self._versions[self._table.version()] = found

    def _some(self) -> list[tuple[int | None, str | None]]:
        chance = self._chance
        return [
            (chance.choice([None, *range(20)]), chance.choice([None, "a", "b"])) for _ in range(chance.randrange(4))
        ]

    def _write(self) -> tuple[dict[int, Row], list[Row]]:
        some = self._some()
        self._table.write(_frame(some))
        return self._rows, [(k, p, 42) for k, p in some]

    def _values(self) -> tuple[dict[int, Row], list[Row]]:
        k = self._chance.randrange(20)
        lakeseal.sql(
            f"INSERT INTO {self._name} (k, i, d, g)"
            f" VALUES ({k}, DEFAULT, DEFAULT, DEFAULT), (NULL, DEFAULT, 1, DEFAULT)"
        )
        return self._rows, [(k, None, 42), (None, None, 1)]

    def _query(self) -> tuple[dict[int, Row], list[Row]]:
        lakeseal.sql(f"INSERT INTO {self._name} (p, k) SELECT p, k FROM {self._name} WHERE k > 9")
        return self._rows, [(k, p, 42) for k, p, _ in self._rows.values() if k is not None and k > 9]

    def _merge(self) -> tuple[dict[int, Row], list[Row]]:
        keys = self._chance.sample(range(20), 3)
        source = dict(zip(keys, ("a", "b", None), strict=True))
        merge = self._table.merge(_frame(list(source.items())), "t.k = s.k", merge_schema=True)
        merge.when_matched_update("*").when_not_matched_insert("*").execute()
        there = {k for k, _, _ in self._rows.values()}
        kept = {i: (k, source.get(k, p) if k in source else p, d) for i, (k, p, d) in self._rows.items()}
        return kept, [(k, p, 42) for k, p in source.items() if k not in there]

    def _update(self) -> tuple[dict[int, Row], list[Row]]:
        least = self._chance.randrange(20)
        self._table.update({"k": "k + 1"}, f"k >= {least}")
        moved = {i: (k + 1, p, d) for i, (k, p, d) in self._rows.items() if k is not None and k >= least}
        return {**self._rows, **moved}, []

    def _delete(self) -> tuple[dict[int, Row], list[Row]]:
        key = self._chance.randrange(20)
        self._table.delete(f"k = {key}")
        return {i: row for i, row in self._rows.items() if row[0] != key}, []

    def _overwrite(self) -> tuple[dict[int, Row], list[Row]]:
        some = self._some()
        self._table.write(_frame(some), "overwrite")
        return {}, [(k, p, 42) for k, p in some]

    def _replace(self) -> tuple[dict[int, Row], list[Row]]:
        key = self._chance.randrange(20)
        self._table.write(_frame([(key, None)]), "overwrite", replace_where=f"k = {key}")
        return {i: row for i, row in self._rows.items() if row[0] != key}, [(key, None, 42)]

    def _restore(self) -> tuple[dict[int, Row], list[Row]]:
        version = self._chance.choice(list(self._versions))
        self._table.restore(version)
        return self._versions[version], []

    def _optimize(self) -> tuple[dict[int, Row], list[Row]]:
        self._table.optimize()
        return self._rows, []

    def _clone(self) -> tuple[dict[int, Row], list[Row]]:
        place = self._place / f"clone-{len(self._told)}"
        self._table.clone(place, deep=self._chance.random() < 0.5)
        Table(place).write(_frame([(3, "a")]))
        found = _by_identity(Table(place).to_arrow())
        assert [row for i, row in found.items() if i not in self._rows] == [(3, "a", 42)], self._told
        return self._rows, []

    def _again(self) -> tuple[dict[int, Row], list[Row]]:
        self._table = Table(self._place / "t")
        return self._rows, []


def _frame(rows: list[tuple[Any, Any]]) -> pa.Table:
    return pa.table({"p": pa.array([p for _, p in rows], pa.string()), "k": pa.array([k for k, _ in rows], pa.int64())})


def _lists(rows: pa.Table, *names: str) -> list[list[Any]]:
    return [rows[name].to_pylist() for name in names]


def _by_identity(rows: pa.Table) -> dict[int, Row]:
    found = dict(zip(rows["i"].to_pylist(), zip(*_lists(rows, "k", "p", "d"), strict=True), strict=True))
    assert len(found) == rows.num_rows, f"an identity is there twice: {rows['i'].to_pylist()}"
    return found
