"""Tables with any history, and the rows that they hold at each version, kept apart from them.

Columns have types and names of all kinds, partitions among them; rows are appended, deleted and changed by their
number, which every row has of its own; columns are added, renamed and dropped. What the table then holds is known
without reading it: steps are taken on plain rows too.
"""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from msgspec import Struct

from lakeseal import Table, expr

ID = "id"
_PLAIN_NAMES = ("n", "Upper", "größe", "x.y", "select", "日本", "p", "q", "_h", "Zz")
_MAPPED_NAMES = ("a b", "tick`s", "c,d", "e=f", "(g)", "quo'te", 'dou"ble', "back\\slash", "%25")

_MOMENTS = tuple(
    map(
        dt.datetime.fromisoformat,
        ("1900-01-01 00:00:00", "1969-12-31 23:59:59.999999", "2024-03-10 02:30:00.000001", "2024-03-10 07:30:00",
         "2024-11-03 05:30:00", "2024-11-03 06:30:00.5"),
    )
)  # fmt: skip
_POOLS: dict[str, tuple[pa.DataType, Sequence[Any]]] = {
    "long": (pa.int64(), (-(2**63), 2**63 - 1, 0, 1, 2, 3)),
    "int": (pa.int32(), (-(2**31), 2**31 - 1, 0, 1, 7)),
    "short": (pa.int16(), (-32768, 0, 5)),
    "byte": (pa.int8(), (-128, 0, 127)),
    "double": (pa.float64(), (math.nan, 0.0, -0.0, 1.5, -2.25, math.inf, -math.inf)),
    "float": (pa.float32(), (math.nan, 0.0, -0.0, 0.5, -1.0, math.inf)),
    "decimal": (pa.decimal128(7, 2), tuple(map(Decimal, ("-3.00", "0.00", "12345.67", "0.10")))),
    "string": (pa.string(), ("a", "A", "b", "it's", "é", "x" * 40, "x" * 39 + "y", " ", "a/b=c%", "NULL", "\\n", '"')),
    "boolean": (pa.bool_(), (True, False)),
    "date": (pa.date32(), tuple(map(dt.date.fromisoformat, ("1900-01-01", "1970-01-01", "2024-02-29", "9999-12-31")))),
    "timestamp": (pa.timestamp("us", "UTC"), tuple(moment.replace(tzinfo=dt.UTC) for moment in _MOMENTS)),
    "moment": (pa.timestamp("us"), _MOMENTS),
    "binary": (pa.binary(), (b"\x00", b"\xff", b"abc")),
}
_PARTITIONS = ("long", "int", "string", "boolean", "date", "decimal", "timestamp", "moment", "double", "short")


class Field(Struct, frozen=True):
    name: str
    kind: str
    """One of `_POOLS`, or `struct`, `array`, `map`."""
    is_partition: bool = False

    @property
    def is_atomic(self) -> bool:
        return self.kind in _POOLS

    @property
    def sql(self) -> str:
        return expr.column(self.name).sql

    @property
    def arrow(self) -> pa.DataType:
        match self.kind:
            case "struct":
                return pa.struct([("a", pa.int32()), ("B", pa.string()), ("f", pa.float64())])
            case "array":
                return pa.list_(pa.int32())
            case "map":
                return pa.map_(pa.string(), pa.int64())
            case kind:
                return _POOLS[kind][0]


Row = dict[str, Any]


class AnyTable:
    """A table that is being made; `fields` and `rows` are what it has now, `versions` what it had."""

    def __init__(self, chance: random.Random, place: Path) -> None:
        self._chance = chance
        self.table = Table(place)
        self.is_mapped = chance.random() < 0.5
        self.has_vectors = chance.random() < 0.5
        self._names = list(chance.sample(_PLAIN_NAMES, k=len(_PLAIN_NAMES)))
        if self.is_mapped:
            self._names = chance.sample([*_PLAIN_NAMES, *_MAPPED_NAMES], k=len(_PLAIN_NAMES) + len(_MAPPED_NAMES))
        self.fields = [Field(ID, "long"), *(self._field() for _ in range(chance.randint(2, 6)))]
        for _ in range(chance.choice((0, 0, 1, 1, 2))):
            self.fields.append(Field(self._names.pop(), chance.choice(_PARTITIONS), True))
        self.rows: list[Row] = []
        self._next = 0
        self.versions: dict[int, pa.Table] = {}
        self.story: list[str] = []

    def make(self) -> AnyTable:
        self._append(create=True)
        for _ in range(self._chance.randint(1, 5)):
            step = self._chance.choice(
                (self._append, self._append, self._delete, self._update, self._add, self._rename, self._drop,
                 self._optimize, self._checkpoint)
            )  # fmt: skip
            step()
        return self

    def arrow(self) -> pa.Table:
        schema = pa.schema([(field.name, field.arrow) for field in self.fields])
        columns = [pa.array([row.get(f.name) for row in self.rows], f.arrow) for f in self.fields]
        return pa.table(columns, schema=schema)

    def _field(self) -> Field:
        chance = self._chance
        kind = chance.choice(("struct", "array", "map")) if chance.random() < 0.2 else chance.choice(sorted(_POOLS))
        return Field(self._names.pop(), kind)

    def value(self, field: Field) -> Any:
        chance = self._chance
        if chance.random() < 0.15:
            return None
        match field.kind:
            case "struct":
                text, number = chance.choice(("s", None, "T")), chance.choice((1, None, 3))
                return {"a": number, "B": text, "f": chance.choice((math.nan, 1.0, None, -0.0))}
            case "array":
                return [chance.choice((1, 2, None)) for _ in range(chance.randrange(3))]
            case "map":
                return [
                    (key, chance.choice((1, None))) for key in chance.sample(["k", "l", "m"], k=chance.randrange(3))
                ]
            case kind:
                return chance.choice(_POOLS[kind][1])

    def _done(self, what: str) -> None:
        version = self.table.version()
        self.story.append(f"{version}: {what}")
        self.versions[version] = self.arrow()

    def _append(self, *, create: bool = False) -> None:
        fresh = []
        for _ in range(self._chance.randint(1, 8)):
            fresh.append({field.name: self.value(field) for field in self.fields} | {ID: self._next})
            self._next += 1
        self.rows, kept = fresh, self.rows
        data = self.arrow()
        self.rows = kept + fresh
        made: dict[str, Any] = {}
        if create:
            made["properties"] = {"delta.enableDeletionVectors": str(self.has_vectors).lower()}
            if self.is_mapped:
                made["properties"]["delta.columnMapping.mode"] = "name"
            made["partition_by"] = [field.name for field in self.fields if field.is_partition]
        self.table.write(data, **made)
        self._done(f"append of {len(fresh)}")

    def _delete(self) -> None:
        gone = {row[ID] for row in self.rows if self._chance.random() < 0.3}
        if gone:
            self.table.delete(f"id IN ({', '.join(map(str, sorted(gone)))})")
            self.rows = [row for row in self.rows if row[ID] not in gone]
            self._done(f"delete of {sorted(gone)}")

    def _update(self) -> None:
        settable = [f for f in self.fields if f.is_atomic and f.name != ID and f.kind != "moment"]
        changed = {row[ID] for row in self.rows if self._chance.random() < 0.3}
        if not settable or not changed:
            return
        field = self._chance.choice(settable)
        value = self._chance.choice(_POOLS[field.kind][1])
        self.table.update({field.sql: expr.literal(value).sql}, f"id IN ({', '.join(map(str, sorted(changed)))})")
        self.rows = [{**row, field.name: value} if row[ID] in changed else row for row in self.rows]
        self._done(f"update of {field.name} to {value!r} in {sorted(changed)}")

    def _add(self) -> None:
        field = self._field()
        self.table.add_columns(pa.schema([(field.name, field.arrow)]))
        self.fields.append(field)
        self._done(f"added {field.name}")

    def _rename(self) -> None:
        if not self.is_mapped:
            return
        place = self._chance.randrange(1, len(self.fields))
        old, name = self.fields[place], self._names.pop()
        self.table.rename_column(old.name, name)
        self.fields[place] = Field(name, old.kind, old.is_partition)
        self.rows = [{name if key == old.name else key: value for key, value in row.items()} for row in self.rows]
        self._done(f"{old.name} is called {name}")

    def _drop(self) -> None:
        droppable = [f for f in self.fields if f.name != ID and not f.is_partition]
        if not self.is_mapped or len(droppable) < 2:
            return
        gone = self._chance.choice(droppable)
        self.table.drop_column(gone.name)
        self.fields.remove(gone)
        self.rows = [{key: value for key, value in row.items() if key != gone.name} for row in self.rows]
        self._done(f"dropped {gone.name}")

    def _optimize(self) -> None:
        self.table.optimize()
        self._done("optimize")

    def _checkpoint(self) -> None:
        self.table.checkpoint()


def condition(chance: random.Random, fields: Sequence[Field], prefix: str = "", *, depth: int = 0) -> str:
    """A condition in Spark's words that no session takes for an error."""
    if depth < 2 and chance.random() < 0.35:
        left, right = (condition(chance, fields, prefix, depth=depth + 1) for _ in range(2))
        return chance.choice((f"({left} AND {right})", f"({left} OR {right})", f"NOT ({left})"))
    field = chance.choice(fields)
    column = f"{prefix}{field.sql}"
    if chance.random() < 0.15:
        return f"{column} IS {chance.choice(('', 'NOT '))}NULL"
    match field.kind:
        case "struct":
            return chance.choice((f"{column}.a > 1", f"{column}.B = 's'", f"{column}.f > 0.5", f"{column}.f IS NULL"))
        case "array":
            return chance.choice((f"size({column}) > 1", f"array_contains({column}, 1)"))
        case "map":
            return chance.choice((f"{column}['k'] = 1", f"map_contains_key({column}, 'l')"))
        case "boolean":
            return chance.choice((column, f"{column} = false", f"{column} <=> true"))
        case "string" if chance.random() < 0.3:
            return chance.choice((f"{column} LIKE 'x%'", f"upper({column}) = 'A'", f"length({column}) > 1"))
        case kind:
            pool = range(12) if field.name == ID else _POOLS[kind][1]
            if chance.random() < 0.2:
                return f"{column} IN ({', '.join(_literal(chance, kind, chance.choice(pool)) for _ in range(3))})"
            op = chance.choice(("=", "<>", "<", "<=", ">", ">=", "<=>"))
            return f"{column} {op} {_literal(chance, kind, chance.choice(pool))}"


def _literal(chance: random.Random, kind: str, value: Any) -> str:
    if kind == "moment":
        return f"TIMESTAMP_NTZ '{value.isoformat(' ')}'"
    if kind == "timestamp" and chance.random() < 0.6:
        # Without a zone: the session's counts.
        return f"{chance.choice(('TIMESTAMP', ''))} '{value.replace(tzinfo=None).isoformat(' ')}'"
    return expr.literal(value).sql
