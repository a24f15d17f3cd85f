"""Merges and appends that bring other columns than the table has, at any depth, against a dictionary.

A source's type is the table's with fields left out, added, in another order and in another case. What the table then
has is worked out on plain rows: fields go in by name, those that only the source has come behind the table's own, and
those that it lacks stay as they are by an update, in structs that no array or map is around; elsewhere they are null.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
from msgspec import Struct

from lakeseal import Table
from oracles.seeds import case, cases

Row = dict[str, Any]
_FEATURES = ("delta.enableDeletionVectors", "delta.enableChangeDataFeed")


class Kind(Struct, frozen=True):
    """A type: `long`, `text`, `struct` with fields, or `array` or `map` of its one field."""

    name: str
    fields: tuple[tuple[str, Kind], ...] = ()

    @property
    def arrow(self) -> pa.DataType:
        match self.name:
            case "struct":
                return pa.struct([(name, kind.arrow) for name, kind in self.fields])
            case "array":
                return pa.list_(self.fields[0][1].arrow)
            case "map":
                return pa.map_(pa.string(), self.fields[0][1].arrow)
            case name:
                return pa.int64() if name == "long" else pa.string()

    def field(self, name: str) -> tuple[str, Kind] | None:
        return next((one for one in self.fields if one[0].lower() == name.lower()), None)


def test_what_a_source_brings_and_lacks_is_as_on_a_dictionary(tmp_path: Path) -> None:
    for seed in cases(6, 400):
        with case(seed) as chance:
            _History(chance, tmp_path / str(seed)).run()


class _History:
    def __init__(self, chance: random.Random, place: Path) -> None:
        self._chance, self._names = chance, (f"new{n}" for n in count())
        own = [(name, self._kind(0)) for name in chance.sample(["x", "Y", "z z"], chance.randrange(1, 3))]
        self._kind_of_rows = Kind("struct", (("id", Kind("long")), *own))
        self._table, self._rows = Table(place), {n: self._row(self._kind_of_rows, n) for n in range(4)}
        properties = {name: "true" for name in _FEATURES if chance.random() < 0.5}
        properties |= {"delta.columnMapping.mode": chance.choice(["none", "name"])}
        self._table.write(_frame(self._kind_of_rows, self._rows.values()), properties=properties)

    def run(self) -> None:
        for step in range(1, 4):
            given = Kind("struct", (("id", Kind("long")), *self._varied(self._kind_of_rows).fields))
            given = Kind("struct", tuple(dict(given.fields).items()))
            both = united(self._kind_of_rows, given)
            how = self._chance.choice(["append", "upsert", "update"])
            first = step * 100 if how == "append" else 0
            source = {n: self._row(given, n) for n in self._chance.sample(range(first, first + 8), 4)}
            before = {n: widened(both, row) for n, row in self._rows.items()}
            new = {n: put(both, given, row) for n, row in source.items() if n not in before}
            changed = {n: put(both, given, row, before[n]) for n, row in source.items() if n in before}
            if how == "append":
                self._table.write(_frame(given, source.values()), merge_schema=True)
            else:
                merge = self._table.merge(_frame(given, source.values()), "t.id = s.id", merge_schema=True)
                merge = merge.when_matched_update("*")
                (merge.when_not_matched_insert("*") if how == "upsert" else merge).execute()
            self._rows = before | changed | ({} if how == "update" else new)
            self._kind_of_rows = both
            # A merge that changed nothing has added no column either.
            there = set(self._table.schema().names)
            expected = [{k: v for k, v in row.items() if k in there or v is not None} for row in self._rows.values()]
            found = self._table.to_arrow().to_pylist()
            assert _bag(found) == _bag(expected), f"{how} of {given.arrow}"
            if there != {name for name, _ in both.fields}:
                return

    def _kind(self, depth: int) -> Kind:
        if depth > 2 or self._chance.random() < 0.45:
            return Kind(self._chance.choice(["long", "text"]))
        name = self._chance.choice(["struct", "struct", "struct", "array", "map"])
        names = self._chance.sample(["a", "b", "C", "d e"], self._chance.randrange(1, 4) if name == "struct" else 1)
        return Kind(name, tuple((one, self._kind(depth + 1)) for one in names))

    def _varied(self, kind: Kind) -> Kind:
        fields = [(name, self._varied(inner)) for name, inner in kind.fields if name != "id"]
        if kind.name == "struct":
            fields = [one for one in fields if self._chance.random() < 0.65] or fields[:1]
            if self._chance.random() < 0.4:
                fields.append((next(self._names), self._kind(2)))
            self._chance.shuffle(fields)
            fields = [(name.swapcase() if self._chance.random() < 0.15 else name, inner) for name, inner in fields]
        return Kind(kind.name, tuple(fields))

    def _row(self, kind: Kind, number: int) -> Row:
        return {name: self._value(inner) for name, inner in kind.fields} | {"id": number}

    def _value(self, kind: Kind) -> Any:
        chance = self._chance
        if chance.random() < 0.35:
            return None
        match kind.name:
            case "struct":
                return {name: self._value(inner) for name, inner in kind.fields}
            case "array":
                return [self._value(kind.fields[0][1]) for _ in range(chance.randrange(3))]
            case "map":
                return [(key, self._value(kind.fields[0][1])) for key in chance.sample("pq", chance.randrange(3))]
            case name:
                return chance.randrange(9) if name == "long" else chance.choice("xyz")


def united(own: Kind, given: Kind) -> Kind:
    """The table's type with what only the source has."""
    if own.name in ("array", "map"):
        return Kind(own.name, ((own.fields[0][0], united(own.fields[0][1], given.fields[0][1])),))
    pairs = [(name, inner, given.field(name)) for name, inner in own.fields]
    known = tuple((name, inner if other is None else united(inner, other[1])) for name, inner, other in pairs)
    return Kind(own.name, (*known, *(one for one in given.fields if own.field(one[0]) is None)))


def lacks(own: Kind, given: Kind) -> bool:
    pairs = [(inner, given.field(name)) for name, inner in own.fields]
    return own.name == "struct" and any(other is None or lacks(inner, other[1]) for inner, other in pairs)


_NEW = object()


def put(own: Kind, given: Kind, value: Any, old: Any = _NEW) -> Any:
    """A value of the source as one of the table, over an old one."""
    if value is None and (old is _NEW or old is None or not lacks(own, given)):
        return None
    if own.name == "array":
        return [put(own.fields[0][1], given.fields[0][1], one) for one in value]
    if own.name == "map":
        return [(key, put(own.fields[0][1], given.fields[0][1], one)) for key, one in value]
    if own.name != "struct":
        return value
    made = {}
    for name, inner in own.fields:
        before = _NEW if old is _NEW else (old or {}).get(name)
        other = given.field(name)
        made[name] = (
            (None if before is _NEW else before)
            if other is None
            else put(inner, other[1], (value or {}).get(other[0]), before)
        )
    return made


def widened(own: Kind, value: Any) -> Any:
    """A value of the table as it was, with nulls for fields that are new."""
    if value is None or own.name in ("long", "text"):
        return value
    if own.name == "struct":
        return {name: widened(inner, value.get(name)) for name, inner in own.fields}
    inner = own.fields[0][1]
    return [(one[0], widened(inner, one[1])) if own.name == "map" else widened(inner, one) for one in value]


def _frame(kind: Kind, rows: Iterable[Row]) -> pa.Table:
    return pa.Table.from_pylist([*rows], schema=pa.schema([(name, inner.arrow) for name, inner in kind.fields]))


def _bag(rows: Iterable[Row]) -> Counter[str]:
    return Counter(json.dumps(row, sort_keys=True) for row in rows)
