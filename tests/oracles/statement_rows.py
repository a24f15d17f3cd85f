"""Rows, tables and sources for random statements: nulls, repeated keys, moments around a clock change, NaN, structs.

Literals say the same in every session: no text of a moment depends on a zone.
"""

from __future__ import annotations

import datetime as dt
import math
import random
from typing import Any

import pyarrow as pa
from msgspec import Struct

from lakeseal import Table

PAIR = pa.struct([("a", pa.int32()), ("b", pa.string())])
SCHEMA = pa.schema(
    [
        ("id", pa.int32()),
        ("k", pa.string()),
        ("v", pa.int32()),
        ("x", pa.float64()),
        ("d", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("s", PAIR),
        ("l", pa.list_(PAIR)),
        ("m", pa.map_(pa.string(), PAIR)),
    ]
)
_PAIR = "STRUCT<a: INT, b: STRING>"
KINDS = {
    "id": "INT",
    "k": "STRING",
    "v": "INT",
    "x": "DOUBLE",
    "d": "DATE",
    "ts": "TIMESTAMP",
    "s": _PAIR,
    "l": f"ARRAY<{_PAIR}>",
    "m": f"MAP<STRING, {_PAIR}>",
}
DDL = ", ".join(f"{name} {kind}" for name, kind in KINDS.items())
NESTED = ("s", "l", "m")
_TEXTS = ("x", "it's", "A", "WHEN MATCHED", "", None, "b\"'", "back\\slash", "2024-03-10")
_CLOCKS = dt.datetime(2024, 3, 10, 7, tzinfo=dt.UTC)  # New York's go forward
Row = dict[str, Any]


class Made(Struct, frozen=True, kw_only=True):
    """A table: its rows by files, and how it is kept."""

    files: tuple[tuple[Row, ...], ...]
    feed: bool = False
    vectors: bool = False
    mapped: bool = False
    partitioned: tuple[str, ...] = ()
    checked: bool = False
    """It has a CHECK constraint."""
    extras: bool = False
    """It has a generated column `g` and a column `f` with a default."""

    @classmethod
    def of(cls, chance: random.Random) -> Made:
        files = tuple(tuple(a_row(chance) for _ in range(chance.randint(1, 4))) for _ in range(chance.randint(1, 3)))
        return cls(
            files=files,
            feed=chance.random() < 0.4,
            vectors=chance.random() < 0.3,
            mapped=chance.random() < 0.15,
            partitioned=chance.choice(((), (), (), (), ("k",), ("d",), ("k", "d"))),
            checked=chance.random() < 0.15,
            extras=chance.random() < 0.2,
        )

    @property
    def properties(self) -> dict[str, str]:
        found = {
            "delta.enableChangeDataFeed": str(self.feed).lower(),
            "delta.enableDeletionVectors": str(self.vectors).lower(),
        }
        return found | ({"delta.columnMapping.mode": "name"} if self.mapped else {})

    @property
    def rows(self) -> list[Row]:
        return [row for file in self.files for row in file]

    def table(self, uri: str) -> Table:
        """Without what only a judge with such columns and constraints of its own can follow."""
        table = Table(uri)
        table.write(SCHEMA.empty_table(), partition_by=self.partitioned, properties=self.properties)
        for file in self.files:
            table.write(pa.Table.from_pylist([for_arrow(row) for row in file], SCHEMA))
        return table

    def creation(self, uri: str) -> list[str]:
        """The same table by Delta Spark's SQL."""
        found = dict(self.properties)
        columns = DDL
        if self.extras:
            columns += ", g INT GENERATED ALWAYS AS (CAST(id % 3 AS INT)), f INT DEFAULT 7"
            found["delta.feature.allowColumnDefaults"] = "supported"
        properties = ", ".join(f"'{name}' = '{value}'" for name, value in found.items())
        by = f"PARTITIONED BY ({', '.join(self.partitioned)})" if self.partitioned else ""
        made = [f"CREATE TABLE delta.`{uri}` ({columns}) USING delta {by} TBLPROPERTIES ({properties})"]
        if self.checked:
            made.append(f"ALTER TABLE delta.`{uri}` ADD CONSTRAINT small CHECK (coalesce(v, 0) < 45 OR k = 'x')")
        names = ", ".join(SCHEMA.names)
        return made + [f"INSERT INTO delta.`{uri}` ({names}) {values_of(file)}" for file in self.files]


def values_of(rows: tuple[Row, ...] | list[Row]) -> str:
    shown = ", ".join(f"({', '.join(_literal(row[name], name) for name in SCHEMA.names)})" for row in rows)
    return f"SELECT * FROM VALUES {shown} AS x({', '.join(SCHEMA.names)})"


def a_row(chance: random.Random, ids: int = 5) -> Row:
    def pair() -> Row | None:
        return None if chance.random() < 0.25 else {"a": an_int(chance), "b": chance.choice(_TEXTS)}

    def several() -> list[Row | None] | None:
        return None if chance.random() < 0.25 else [pair() for _ in range(chance.randint(0, 2))]

    keys = [key for key in ("x", "y") if chance.random() < 0.5]
    moment = _CLOCKS + dt.timedelta(minutes=30 * chance.randint(-20, 20))
    return {
        "id": None if chance.random() < 0.12 else chance.randint(0, ids),
        "k": chance.choice(("x", "it's", "A", None, "z", "back\\slash")),
        "v": an_int(chance),
        "x": chance.choice((None, 0.0, -0.0, 1.5, math.nan, math.inf, -2.0)),
        "d": None if chance.random() < 0.15 else moment.date(),
        "ts": None if chance.random() < 0.15 else _CLOCKS + dt.timedelta(minutes=30 * chance.randint(-20, 20)),
        "s": pair(),
        "l": several(),
        "m": None if chance.random() < 0.25 else {key: pair() for key in keys},
    }


def an_int(chance: random.Random) -> int | None:
    return chance.choice((None, 0, 1, 2, 3, -1, 40))


def some_shape(chance: random.Random, evolves: bool) -> dict[str, str]:
    """Columns of a source: the order of a struct's fields, and what it lacks or has more."""
    fields = ["ab", "ba"]
    if evolves:
        fields += ["b", "cba", "ca"]
    elif chance.random() < 0.1:
        fields = ["b", "abc"]
    shape = {name: chance.choice(fields) for name in NESTED}
    if evolves and chance.random() < 0.5:
        shape["n"] = "n"
    return shape


def some_source(chance: random.Random, shape: dict[str, str], *, foreign: float = 0) -> str:
    """A query. Columns in any order; by `foreign` chances of another type, in other letters, or missing."""
    rows = [a_row(chance, ids=7) for _ in range(chance.randint(1, 4))]
    if chance.random() < 0.7:
        rows = list({row["id"]: row for row in rows}.values())
    columns = {name: name for name in ("id", "k", "v", "x", "d", "ts")}
    columns |= {name: _shaped(name, shape.get(name, "ab")) for name in NESTED}
    if "n" in shape:
        columns["n"] = "concat('n', coalesce(k, ''))"
    if chance.random() < foreign:
        name = chance.choice(list(columns))
        others = {
            "v": ["CAST(v AS BIGINT)", "v + 0.5", "3000000000"],
            "k": ["v", "ts", "d", "x > 0"],
            "d": ["ts", "CAST(ts AS TIMESTAMP_NTZ)"],
            "ts": ["d", "CAST(ts AS TIMESTAMP_NTZ)"],
            "x": ["v", "CAST(v AS DECIMAL(5, 2))", "CAST(x AS FLOAT)"],
        }
        columns[name] = chance.choice(others.get(name, ["NULL"]))
    names = list(columns)
    if chance.random() < 0.5:
        chance.shuffle(names)
    if chance.random() < foreign:
        names.remove(chance.choice(names))
    shown = {name: name.upper() if chance.random() < foreign / 4 else name for name in names}
    return f"SELECT {', '.join(f'{columns[name]} AS {shown[name]}' for name in names)} FROM ({values_of(rows)})"


def _shaped(name: str, fields: str) -> str:
    def struct(value: str) -> str:
        parts = {"a": f"{value}.a", "b": f"{value}.b", "c": f"{value}.a + 100"}
        inside = ", ".join(f"'{field}', {parts[field]}" for field in fields)
        return f"CASE WHEN {value} IS NOT NULL THEN named_struct({inside}) END"

    match name:
        case "s":
            return struct("s")
        case "l":
            return f"transform(l, one -> {struct('one')})"
        case _:
            return f"transform_values(m, (key, one) -> {struct('one')})"


def for_arrow(row: Row) -> Row:
    return {**row, "m": None if row["m"] is None else list(row["m"].items())}


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _literal(value: Any, name: str) -> str:
    return f"CAST({_plain(value)} AS {KINDS[name]})"


def _plain(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case str():
            # A backslash means something else in another session.
            return " || ".join([quoted(part) for part in value.split("\\")]).replace(" || ", " || chr(92) || ")
        case int():
            return str(value)
        case float():
            return f"CAST('{'NaN' if math.isnan(value) else 'Infinity' if math.isinf(value) else value}' AS DOUBLE)"
        case dt.datetime():
            return f"timestamp_seconds({int(value.timestamp())})"
        case dt.date():
            return f"DATE'{value}'"
        case list():
            return f"array({', '.join(_pair(one) for one in value)})" if value else f"CAST(array() AS ARRAY<{_PAIR}>)"
        case dict() if set(value) == {"a", "b"}:
            return _pair(value)
        case _:
            pairs = ", ".join(f"{quoted(key)}, {_pair(one)}" for key, one in value.items())
            return f"map({pairs})" if value else f"CAST(map() AS MAP<STRING, {_PAIR}>)"


def _pair(value: Row | None) -> str:
    if value is None:
        return f"CAST(NULL AS {_PAIR})"
    return f"named_struct('a', CAST({_plain(value['a'])} AS INT), 'b', CAST({_plain(value['b'])} AS STRING))"
