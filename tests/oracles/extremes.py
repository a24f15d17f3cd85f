"""Tables whose values lie where statistics go wrong, and conditions that ask for just these values.

A table has a few columns, each of one type, in a few files that one of several writers made: Lakeseal, or one whose
files and statistics Lakeseal has to cope with. Values come from a pool of extremes per type, so that many files hold
one side of a border only.
"""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
from msgspec import Struct

import lakeseal
from lakeseal import Table, expr

WRITERS = ("lakeseal", "lakeseal", "lakeseal", "deltalake", "polars")

_DECIMALS = ("-9999999.99", "9999999.99", "0.00", "0.01", "-0.01", "2.50")
_LARGE = ("-1e34", "1e34", "0.001", "-0.001", "12345678901234567.891")
_WHOLE = ("9" * 38, "-" + "9" * 38, "9223372036854775807", "-9223372036854775809", "9007199254740993", "0", "7")
_TINY = ("0.1000000000000000055511151231257827", "-0.30000000000000004", "0." + "9" * 38, "0", "0.1", "1e-38")
_TEXTS = ("", " ", "a", "A", "ab", "é", "ab\x01c", "\uffff", "'", "\\", "%", "z" * 5000)
_LONG_TEXTS = ("a" * 32, "a" * 33, "a" * 32 + "b", "z" * 40, "\x7f" * 40, "a" * 31 + "\U0010ffff")
_WIDE_TEXTS = (
    "\ufb00" * 33,
    "\U0001f600" * 33,
    "\U0010ffff" * 40,
    "a" * 32 + "\U0010ffff" * 2 + "b",
    "a" * 31 + "\ud7ff" * 9,
)
_DATES = ("0001-01-01", "1582-10-04", "1900-01-01", "1969-12-31", "1970-01-01", "2024-02-29", "9999-12-31")
_MOMENTS = (
    "1900-01-01 00:00:00",
    "1969-12-31 23:59:59.999999",
    "1970-01-01 00:00:00",
    "2024-03-10 07:30:00.000001",
    "2024-03-10 07:30:00.000999",
    "2024-03-10 07:30:00.001000",
    "2024-11-03 05:59:59.999500",
    "2262-04-12 00:00:00",
)
_MOMENT = tuple(map(dt.datetime.fromisoformat, _MOMENTS))

_TYPES: dict[str, tuple[pa.DataType, Sequence[Any]]] = {
    "double": (pa.float64(), (math.nan, math.nan, 0.0, -0.0, 1.5, -1.0, 1e300, -1e300, math.inf, -math.inf, 5e-324)),
    "float": (pa.float32(), (math.nan, math.nan, 0.0, -0.0, 0.5, -1.0, 1e30, math.inf, -math.inf, 16777216.0)),
    "byte": (pa.int8(), (-128, 127, 0, 1, -1)),
    "short": (pa.int16(), (-32768, 32767, 0, 7)),
    "int": (pa.int32(), (-(2**31), 2**31 - 1, 0, 7, -7)),
    "long": (pa.int64(), (-(2**63), 2**63 - 1, 2**53 + 1, -(2**53) - 1, 0, 7)),
    "decimal": (pa.decimal128(9, 2), tuple(map(Decimal, _DECIMALS))),
    "large": (pa.decimal128(38, 3), tuple(map(Decimal, _LARGE))),
    "whole": (pa.decimal128(38, 0), tuple(map(Decimal, _WHOLE))),
    "tiny": (pa.decimal128(38, 38), tuple(map(Decimal, _TINY))),
    "string": (pa.string(), (*_TEXTS, *_LONG_TEXTS, *_WIDE_TEXTS)),
    "date": (pa.date32(), tuple(map(dt.date.fromisoformat, _DATES))),
    "timestamp": (pa.timestamp("us", "UTC"), tuple(moment.replace(tzinfo=dt.UTC) for moment in _MOMENT)),
    "moment": (pa.timestamp("us"), _MOMENT),
    "boolean": (pa.bool_(), (True, False)),
    "binary": (pa.binary(), (b"", b"\x00", b"\xff" * 70, b"a" * 70, b"\x80")),
}
_POLARS = {"=": "eq", "<>": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}


class Condition(Struct, frozen=True, kw_only=True):
    """A comparison of one column, for whoever reads it."""

    path: tuple[str, ...]
    op: str
    """A comparison, `in`, `null` or `true`."""
    values: tuple[Any, ...] = ()
    negated: bool = False

    def sql(self, dialect: str = "spark") -> str:
        quote = "`" if dialect == "spark" else '"'
        column = ".".join(f"{quote}{name}{quote}" for name in self.path)
        if dialect == "datafusion" and len(self.path) == 2:
            column = f"\"{self.path[0]}\"['{self.path[1]}']"
        literals = [literal(self.path[-1], value, dialect) for value in self.values]
        match self.op:
            case "null":
                text = f"{column} IS NULL"
            case "true":
                text = column
            case "in" if dialect == "datafusion" and self.path[-1] in ("double", "float"):
                # Where it filters rows as it reads them, IN takes 0.0 and -0.0 for two values, and = does not.
                text = " OR ".join(f"{column} = {one}" for one in literals)
            case "in":
                text = f"{column} IN ({', '.join(literals)})"
            case op:
                text = f"{column} {op} {literals[0]}"
        return f"NOT ({text})" if self.negated else text

    def polars(self) -> pl.Expr:
        column = pl.col(self.path[0])
        for name in self.path[1:]:
            column = column.struct.field(name)
        kind = _TYPES[self.path[-1]][0]
        literals = [pl.lit(pl.from_arrow(pa.array([value], kind))).first() for value in self.values]  # type: ignore[arg-type]
        match self.op:
            case "null":
                found = column.is_null()
            case "true":
                found = column
            case "in":
                found = column.eq(literals[0])
                for one in literals[1:]:
                    found = found | column.eq(one)
            case op:
                found = getattr(column, _POLARS[op])(literals[0])
        return ~found if self.negated else found


class Extremes(Struct, frozen=True, kw_only=True):
    table: Table
    rows: pa.Table
    writer: str
    conditions: tuple[Condition, ...]


def extremes(
    chance: random.Random,
    place: Path,
    *,
    writers: Sequence[str] = WRITERS,
    vectors: bool = True,
    structs: bool = True,
    partitions: bool = False,
    conditions: int = 24,
) -> Extremes:
    """`vectors` says whether deleted rows may be in deletion vectors, which not all engines read; `structs`
    whether columns may be in structs too, of whose statistics polars refuses those that lack a field, as Delta's do."""
    writer = chance.choice(writers)
    names = chance.sample(sorted(_TYPES), k=chance.randint(2, 5))
    nested = structs and chance.random() < 0.4
    # Of these deltalake writes what it can't read again, or names of files that are too long.
    hard = {"tiny"} if writer == "lakeseal" else {"tiny", "large", "decimal", "double", "string", "binary"}
    fit = [name for name in names if name not in hard]
    partition = chance.choice(fit) if partitions and fit and len(names) > 2 and chance.random() < 0.3 else None
    schema = pa.schema([("id", pa.int64()), *((name, _TYPES[name][0]) for name in names)])
    batches = [_batch(chance, names, schema) for _ in range(chance.randint(1, 4))]
    if nested:
        batches = [_with_struct(batch, names) for batch in batches]
    _write(chance, writer, place, batches, vectors, partition)
    rows = pa.concat_tables(batches)
    table = Table(place)
    if writer == "lakeseal":
        rows = _changed(chance, table, rows)
    asked = [_condition(chance, names, nested=nested) for _ in range(conditions)]
    rows = pa.table([column.combine_chunks() for column in rows.columns], schema=rows.schema)
    if partition in ("string", "binary"):
        # What is empty is null as a partition's value, in all tables of the format.
        known = [value or None for value in rows[partition].to_pylist()]
        rows = rows.set_column(
            rows.schema.get_field_index(partition), partition, pa.array(known, rows.schema.field(partition).type)
        )
    return Extremes(table=table, rows=rows, writer=writer, conditions=tuple(asked))


def _batch(chance: random.Random, names: Sequence[str], schema: pa.Schema) -> pa.Table:
    count = chance.choice((1, 1, 2, 3, 8))
    columns = [pa.array([chance.randrange(100) for _ in range(count)], pa.int64())]
    for name in names:
        arrow, pool = _TYPES[name]
        # A few values of the pool for each file, so that bounds are narrow.
        few = chance.sample(list(pool), k=min(len(pool), chance.randint(1, 3)))
        nulls = chance.choice((0.0, 0.0, 0.3, 1.0 if count > 1 else 0.3))
        columns.append(pa.array([None if chance.random() < nulls else chance.choice(few) for _ in range(count)], arrow))
    return pa.table(columns, schema=schema)


def _with_struct(batch: pa.Table, names: Sequence[str]) -> pa.Table:
    whole = batch.select(names).combine_chunks()
    inner = pa.StructArray.from_arrays(
        [whole.column(name).chunk(0) for name in names],
        fields=[pa.field(name, whole.schema.field(name).type) for name in names],
        mask=pa.array([n % 3 == 2 for n in range(batch.num_rows)]),
    )
    return batch.append_column("s", inner)


def _write(
    chance: random.Random,
    writer: str,
    place: Path,
    batches: Sequence[pa.Table],
    vectors: bool,
    partition: str | None,
) -> None:
    by = [] if partition is None else [partition]
    for batch in batches:
        match writer:
            case "deltalake":
                deltalake.write_deltalake(str(place), batch, mode="append", partition_by=by or None)
            case "polars":
                options = {"partition_by": by} if by else {}
                pl.from_arrow(batch).write_delta(str(place), mode="append", delta_write_options=options)  # type: ignore[union-attr]
            case _:
                made = {"delta.enableDeletionVectors": str(vectors).lower()}
                Table(place).write(batch, properties=made, partition_by=by)
    if chance.random() < 0.3:
        lakeseal.Table(place).checkpoint()


def _changed(chance: random.Random, table: Table, rows: pa.Table) -> pa.Table:
    """Some rows deleted, or all files put together."""
    match chance.randrange(4):
        case 0:
            gone = chance.randrange(100)
            table.delete(f"id < {gone}")
            return rows.filter(pa.array([value >= gone for value in rows["id"].to_pylist()], pa.bool_()))
        case 1:
            table.optimize()
    return rows


def _condition(chance: random.Random, names: Sequence[str], *, nested: bool) -> Condition:
    name = chance.choice(names)
    path = ("s", name) if nested and chance.random() < 0.4 else (name,)
    negated, pool = chance.random() < 0.25, _TYPES[name][1]
    kind = chance.random()
    if kind < 0.2:
        return Condition(path=path, op="null", negated=negated)
    if name == "boolean":
        return Condition(path=path, op="true", negated=negated)
    if kind < 0.35:
        return Condition(path=path, op="in", values=tuple(chance.choices(pool, k=3)), negated=negated)
    return Condition(path=path, op=chance.choice(tuple(_POLARS)), values=(chance.choice(pool),), negated=negated)


def literal(name: str, value: Any, dialect: str) -> str:
    """A value in the words of Spark and Lakeseal (`spark`), DuckDB (`duckdb`) or deltalake (`datafusion`)."""
    match name:
        case "double" | "float":
            return f"CAST('{_float_text(value)}' AS {'DOUBLE' if name == 'double' else 'FLOAT'})"
        case "decimal" | "large" | "whole" | "tiny":
            kind = _TYPES[name][0]
            return f"CAST('{value:f}' AS DECIMAL({kind.precision}, {kind.scale}))"
        case "date":
            return f"DATE '{value.isoformat()}'"
        case "timestamp" if dialect == "datafusion":
            return f"arrow_cast('{value.isoformat()}', 'Timestamp(Microsecond, Some(\"UTC\"))')"
        case "timestamp":
            return f"CAST('{value.isoformat(' ')}' AS {'TIMESTAMPTZ' if dialect == 'duckdb' else 'TIMESTAMP'})"
        case "moment" if dialect == "datafusion":
            return f"arrow_cast('{value.isoformat()}', 'Timestamp(Microsecond, None)')"
        case "moment" if dialect == "spark":
            return f"TIMESTAMP_NTZ '{value.isoformat(' ')}'"
        case "moment":
            return f"CAST('{value.isoformat(' ')}' AS TIMESTAMP)"
        case "binary" if dialect == "duckdb":
            return "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::BLOB"
        case "binary":
            return f"X'{value.hex()}'"
        case "string" if dialect == "spark":
            return expr.literal(value).sql
        case "string":
            return "'" + value.replace("'", "''") + "'"
        case "long" if value == -(2**63):
            return "CAST('-9223372036854775808' AS BIGINT)"
        case _:
            return str(value)


def _float_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return repr(value) if math.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")
