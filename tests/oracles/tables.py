"""Tables with any history, and the rows that they hold at each version, kept apart from them.

Columns have types and names of all kinds, partitions among them; rows are appended, deleted and changed by their
number, which every row has of its own; columns are added, renamed and dropped, and their names given to others; all
is overwritten or restored. What the table then holds is known without reading it: steps are taken on plain rows too.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import os
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


class Version(Struct, frozen=True):
    """What a table had once."""

    fields: tuple[Field, ...]
    rows: tuple[Row, ...]

    def arrow(self) -> pa.Table:
        schema = pa.schema([(field.name, field.arrow) for field in self.fields])
        columns = [pa.array([row.get(f.name) for row in self.rows], f.arrow) for f in self.fields]
        return pa.table(columns, schema=schema)


class AnyTable:
    """A table that is being made; `fields` and `rows` are what it has now, `versions` what it had."""

    def __init__(self, chance: random.Random, place: Path) -> None:
        self._chance = chance
        self.table = Table(place)
        self.is_mapped = chance.random() < 0.5
        self.has_vectors = chance.random() < 0.5
        self.keeps_times = chance.random() < 0.3
        """Whether commits say when they happened; files' times do otherwise."""
        self._names = list(chance.sample(_PLAIN_NAMES, k=len(_PLAIN_NAMES)))
        if self.is_mapped:
            self._names = chance.sample([*_PLAIN_NAMES, *_MAPPED_NAMES], k=len(_PLAIN_NAMES) + len(_MAPPED_NAMES))
        self.fields = [Field(ID, "long"), *(self._field() for _ in range(chance.randint(2, 6)))]
        for _ in range(chance.choice((0, 0, 1, 1, 2))):
            self.fields.append(Field(self._names.pop(), chance.choice(_PARTITIONS), True))
        self.rows: list[Row] = []
        self._next = 0
        self.versions: dict[int, Version] = {}
        self.story: list[str] = []

    def make(self) -> AnyTable:
        self._append(create=True)
        for _ in range(self._chance.randint(1, 5)):
            step = self._chance.choice(
                (self._append, self._append, self._delete, self._update, self._add, self._rename, self._drop,
                 self._optimize, self._checkpoint, self._overwrite, self._restore)
            )  # fmt: skip
            step()
        self._date()
        return self

    def arrow(self) -> pa.Table:
        return Version(tuple(self.fields), tuple(self.rows)).arrow()

    def moment(self, version: int) -> str:
        """A moment that saw the version, as the log's files say it."""
        commit = self._commit(version)
        if self.keeps_times:
            ms = json.loads(commit.read_text().splitlines()[0])["commitInfo"]["inCommitTimestamp"]
            return dt.datetime.fromtimestamp(ms / 1000, dt.UTC).isoformat(timespec="milliseconds")
        return (dt.datetime.fromtimestamp(commit.stat().st_mtime, dt.UTC) + dt.timedelta(seconds=59)).isoformat()

    def _commit(self, version: int) -> Path:
        return Path(self.table.uri.removeprefix("file://")) / "_delta_log" / f"{version:020}.json"

    def _date(self) -> None:
        """A minute from one commit to the next, so that moments are of one of them."""
        for version in range(self.table.version() + 1):
            then = dt.datetime(2024, 3, 10, 6, 58, version % 60, tzinfo=dt.UTC) + dt.timedelta(minutes=version)
            os.utime(self._commit(version), (then.timestamp(), then.timestamp()))

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
        self.versions[version] = Version(tuple(self.fields), tuple(self.rows))

    def _fresh(self) -> list[Row]:
        fresh = []
        for _ in range(self._chance.randint(1, 8)):
            fresh.append({field.name: self.value(field) for field in self.fields} | {ID: self._next})
            self._next += 1
        return fresh

    def _append(self, *, create: bool = False) -> None:
        fresh = self._fresh()
        data = Version(tuple(self.fields), tuple(fresh)).arrow()
        self.rows = self.rows + fresh
        made: dict[str, Any] = {}
        if create:
            made["properties"] = {"delta.enableDeletionVectors": str(self.has_vectors).lower()}
            if self.is_mapped:
                made["properties"]["delta.columnMapping.mode"] = "name"
            if self.keeps_times:
                made["properties"]["delta.enableInCommitTimestamps"] = "true"
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
        if self._chance.random() < 0.5:
            self._names.append(old.name)
        self.rows = [{name if key == old.name else key: value for key, value in row.items()} for row in self.rows]
        self._done(f"{old.name} is called {name}")

    def _drop(self) -> None:
        droppable = [f for f in self.fields if f.name != ID and not f.is_partition]
        if not self.is_mapped or len(droppable) < 2:
            return
        gone = self._chance.choice(droppable)
        self.table.drop_column(gone.name)
        self.fields.remove(gone)
        if self._chance.random() < 0.5:
            self._names.append(gone.name)  # the next new column has it
        self.rows = [{key: value for key, value in row.items() if key != gone.name} for row in self.rows]
        self._done(f"dropped {gone.name}")

    def _optimize(self) -> None:
        self.table.optimize()
        self._done("optimize")

    def _checkpoint(self) -> None:
        self.table.checkpoint()

    def _overwrite(self) -> None:
        self.rows = self._fresh()
        self.table.write(self.arrow(), mode="overwrite")
        self._done(f"overwritten by {len(self.rows)}")

    def _restore(self) -> None:
        version = self._chance.choice(sorted(self.versions))
        self.table.restore(version)
        before = self.versions[version]
        self.fields, self.rows = list(before.fields), list(before.rows)
        self._names = [name for name in self._names if name not in {field.name for field in self.fields}]
        self._done(f"restored to {version}")


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
            if chance.random() < 0.3:
                return _odd(chance, fields, prefix, field)
            if chance.random() < 0.2:
                return f"{column} IN ({', '.join(_literal(chance, kind, chance.choice(pool)) for _ in range(3))})"
            op = chance.choice(("=", "<>", "<", "<=", ">", ">=", "<=>"))
            return f"{column} {op} {_literal(chance, kind, chance.choice(pool))}"


_NUMBERS = ("long", "int", "short", "byte", "double", "float", "decimal")
_WHOLE = ("long", "int", "short", "byte")
_DATED = ("date", "timestamp", "moment")
_OPS = ("=", "<>", "<", "<=", ">", ">=", "<=>")
_OTHER_NUMBERS = ("1.5", "-2.25D", "0.1F", "2147483648", "-129", "1e300", "12345.670", "0.100000000000000001", "-0.0D",
                  "CAST('NaN' AS DOUBLE)", "CAST('Infinity' AS DOUBLE)", "'1'", "'0'", "-9223372036854775809",
                  "99999999999999999999", "7S", "3L", "CAST(2 AS DECIMAL(3, 1))")  # fmt: skip
_OTHER_DATES = ("DATE '2024-03-10'", "DATE '1970-01-01'", "'2024-02-29'", "'1969-12-31 23:59:59.999999'",
                "TIMESTAMP '2024-02-29 00:00:00'", "TIMESTAMP '1969-12-31 19:00:00'", "'2024-03-10 02:30:00.000001Z'",
                "TIMESTAMP_NTZ '2024-03-10 02:30:00'", "TIMESTAMP_NTZ '1970-01-01 00:00:00'", "'9999-12-31'",
                "TIMESTAMP '2024-03-10 02:30:00.000001+05:30'", "'1900-01-01'", "DATE '9999-12-31'")  # fmt: skip


def _odd(chance: random.Random, fields: Sequence[Field], prefix: str, field: Field) -> str:
    """Comparisons with values of other types, with other columns, through functions, and with nulls."""
    column, kind, op = f"{prefix}{field.sql}", field.kind, chance.choice(_OPS)
    pool = range(12) if field.name == ID else _POOLS[kind][1]
    # Functions want their arguments to be of one type: a moment must not be a bare text.
    spelt = (_literal(chance, kind, chance.choice(pool)) for _ in range(2))
    one, two = (f"TIMESTAMP{text}" if kind == "timestamp" and text.startswith(" '") else text for text in spelt)
    family = next((some for some in (_NUMBERS, _DATED, (kind,)) if kind in some), (kind,))
    other = f"{prefix}{chance.choice([each for each in fields if each.kind in family]).sql}"
    anything = (
        f"{column} {op} {other}",
        f"{other} {op} {column}",
        f"{column} BETWEEN {one} AND {two}",
        f"{column} NOT BETWEEN {one} AND {two}",
        f"{column} IN ({one}, NULL, {two})",
        f"{column} NOT IN ({one}, {two})",
        f"{column} NOT IN ({one}, NULL)",
        f"{column} <=> NULL",
        f"coalesce({column}, {one}) {op} {two}",
        f"nullif({column}, {one}) IS NULL",
        f"(CASE WHEN {column} {op} {one} THEN 1 WHEN {column} IS NULL THEN 2 END) = {chance.choice('12')}",
        f"if({column} {op} {one}, NULL, true)",
        f"({column} {op} {one}) IS {chance.choice(('', 'NOT '))}TRUE",
        f"({column} {op} {one}) {chance.choice(('=', '<>', '<=>'))} ({other} IS NULL)",
        f"{one} {op} {column}",
        f"greatest({column}, {one}) {op} {two}",
    )
    of_kind: tuple[str, ...] = ()
    if kind in _NUMBERS:
        number = chance.choice(_OTHER_NUMBERS)
        of_kind = (
            f"{column} {op} {number}",
            f"{number} {op} {column}",
            f"{column} IN ({number}, {chance.choice(_OTHER_NUMBERS[:9])})",
            f"CAST({column} AS STRING) {op} '{chance.choice(('0', '1', '-3', '1.5', '0.10', 'NaN', '7'))}'",
            f"{column} / 2 {op} {number}",
            f"CAST({column} AS DOUBLE) {op} {number}",
            f"isnan(CAST({column} AS DOUBLE))",
        )
        if kind in _WHOLE:
            of_kind = (*of_kind, f"{column} % 3 = {chance.randrange(-2, 3)}", f"({column} & 1) = {chance.choice('01')}")
    elif kind in _DATED:
        moment = chance.choice(_OTHER_DATES)
        of_kind = (
            f"{column} {op} {moment}",
            f"{moment} {op} {column}",
            f"CAST({column} AS DATE) {op} {chance.choice(_OTHER_DATES[:3])}",
            f"year({column}) {op} {chance.choice(('1969', '1970', '2024'))}",
            f"{column} BETWEEN {chance.choice(_OTHER_DATES)} AND {moment}",
            f"CAST({column} AS STRING) {op} '{chance.choice(('2024', '1970-01-01', '2024-03-10 02:30:00'))}'",
            f"date_trunc('day', {column}) {op} {chance.choice(_OTHER_DATES[4:6])}",
        )
    elif kind == "string":
        of_kind = (
            f"{column} LIKE '{chance.choice(('%', '_', 'a%', '%s', 'x%y', '%/b=%', ''))}'",
            f"{column} NOT LIKE '{chance.choice(('%x', 'a_b%', 'it%'))}'",
            f"{column} || 'x' {op} 'ax'",
            f"substring({column}, 1, 1) {op} 'x'",
            f"startswith({column}, '{chance.choice(('x', 'a', ''))}')",
            f"{column} RLIKE '^[a-z]'",
            f"trim({column}) = ''",
        )
    return chance.choice(of_kind if of_kind and chance.random() < 0.6 else anything)


def _literal(chance: random.Random, kind: str, value: Any) -> str:
    if kind == "moment":
        return f"TIMESTAMP_NTZ '{value.isoformat(' ')}'"
    if kind == "timestamp" and chance.random() < 0.6:
        # Without a zone: the session's counts.
        return f"{chance.choice(('TIMESTAMP', ''))} '{value.replace(tzinfo=None).isoformat(' ')}'"
    return expr.literal(value).sql
