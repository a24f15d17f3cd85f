"""Records of databases and messages beside those who made them: the database's own answer, the datum that was encoded.

Every row is read once, in as many runs as it takes, as the values that the database has, or is set aside.
"""

from __future__ import annotations

import datetime as dt
import decimal
import io
import math
import random
import re
import sqlite3
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from lakeseal.errors import InvalidArgument
from lakeseal.ingest import SqlSource
from lakeseal.ingest.sources.kafka_values import value_reader
from oracles.rows import plain
from oracles.seeds import case, cases
from oracles.source_files import TEXTS as ALL_TEXTS

# Without moments that Python lacks.
TEXTS = [text for text in ALL_TEXTS if re.match(r"[+-]?\d{5,}-|-\d+-|0000", text) is None]

CURSORS = {
    "INTEGER": lambda chance: chance.choice((chance.randint(-5, 50), 2**62, -(2**63))),
    "REAL": lambda chance: chance.choice((chance.random(), 0.1, 1e300, -1.5, 3)),
    "TEXT": lambda chance: chance.choice(TEXTS),
    "TEXT COLLATE NOCASE": lambda chance: chance.choice("aAbBcCxYz") + chance.choice("aAbB"),
    "TEXT COLLATE RTRIM": lambda chance: chance.choice("abc") + " " * chance.randint(0, 2),
    "DATETIME": lambda chance: _moment(chance),
    "DATE": lambda chance: str(dt.date(2026, 1, 1) + dt.timedelta(days=chance.randint(0, 99))),
    "NUMERIC": lambda chance: chance.choice((1, 2.5, "x", "2026-01-01", 10**18)),
    "NUMERIC(10,2)": lambda chance: chance.choice((1, 2.5, 0.01, 99.99)),
}
SCHEMAS = ("long", "int", "double", "float", "string", "boolean", "date", "timestamp", "timestamp_ntz", "decimal(8,2)")


def _moment(chance: random.Random) -> str:
    moment = dt.datetime(2026, 1, 1) + dt.timedelta(microseconds=chance.randint(0, 3 * 10**6))
    form = chance.randint(0, 5)
    text = moment.isoformat(" T"[form % 2], "seconds" if form < 2 else "microseconds")
    return text + ("7" if form == 4 else "") + chance.choice(("", "", "Z", "+00:00"))


def _any_value(chance: random.Random) -> Any:
    return chance.choice(
        (
            None,
            chance.randint(-3, 3),
            chance.choice((1.5, 2.0, 1e300, -0.0, 0.1)),
            chance.choice(TEXTS),
            b"\x00\xff",
            2**53 + 1,
            2**31,
            "2026-01-01",
            "2026-01-01T00:00:00.1234567Z",
            1.239,
            123.45,
        )
    )


def test_a_database_s_rows_are_read_once_each_in_its_own_order(tmp_path: Path) -> None:
    for seed in cases(40, 1000):
        with case(seed) as chance:
            _follow(chance, tmp_path / f"{seed}.db")


def _follow(chance: random.Random, file: Path) -> None:
    declared = chance.choice(list(CURSORS))
    kinds = [chance.choice(SCHEMAS) for _ in range(chance.randint(1, 3))]
    with_schema = chance.random() < 0.8
    connection = sqlite3.connect(file)
    # Without an index or a rowid of use: what is larger is what the database says of the column.
    columns = [f"v{n} {'' if with_schema else 'TEXT'}" for n in range(len(kinds))]
    connection.execute(f"CREATE TABLE t (k INTEGER PRIMARY KEY, c {declared}, {', '.join(columns)})")
    cursor = _type_of(declared)
    schema = f"k long, c {cursor}, {', '.join(f'v{n} {kind}' for n, kind in enumerate(kinds))}"
    source = SqlSource(
        url=f"sqlite:///{file}",
        column="c",
        schema=schema if with_schema else None,
        units=chance.choice((1, 1, 3)) if cursor == "long" else 1,
        **({"query": "SELECT * FROM t"} if with_schema and chance.random() < 0.3 else {"table": "t"}),  # type: ignore[arg-type]
    )
    marks: dict[str, Any] = {}
    read: Counter[int] = Counter()
    values: dict[int, dict[str, Any]] = {}
    for run in range(chance.randint(1, 4)):
        for _ in range(chance.randint(0, 8)):
            row = (CURSORS[declared](chance), *(_any_value(chance) for _ in kinds))
            connection.execute(f"INSERT INTO t VALUES (NULL, {', '.join('?' * len(row))})", row)
        if marks:
            # Rows that came at or below the watermark are not promised.
            connection.execute("DELETE FROM t WHERE k > ? AND NOT (c > ?)", (max(read, default=0), marks[""]["value"]))
        connection.commit()
        units = source.plan(marks).units
        for unit in units:
            for chunk in source.read(unit):
                for row in chunk.rows.to_pylist():
                    read[row["k"]] += 1
                    values[row["k"]] = row
                for bad in chunk.bad:
                    read[_key(bad.record)] += 1
            marks[""] = unit.high
        there = [key for (key,) in connection.execute("SELECT k FROM t WHERE c IS NOT NULL")]
        assert read == Counter(there), f"run {run} of {declared}: {read - Counter(there)} {Counter(there) - read}"
    source.close()
    names = ["c", *(f"v{n}" for n in range(len(kinds)))]
    for key, row in values.items():
        (raw,) = connection.execute(f"SELECT {', '.join(names)} FROM t WHERE k = {key}").fetchall()
        for name, stored in zip(names, raw, strict=True):
            assert _is_same(row[name], stored), f"{declared}, {schema}: {name} is {row[name]!r}, not {stored!r}"
    connection.close()


def _key(record: str) -> int:
    return int(record.partition("'k': ")[2].partition(",")[0])


def _type_of(declared: str) -> str:
    return {"INTEGER": "long", "REAL": "double", "DATETIME": "timestamp", "DATE": "date"}.get(
        declared.split()[0], "string" if declared.startswith("TEXT") else "double"
    )


def _is_same(value: Any, stored: Any) -> bool:
    """Whether a value says what the database has, in whatever type."""
    match value, stored:
        case None, None:
            return True
        case None, _:
            return False
        case bool(), _:
            return stored in (int(value), str(value).lower(), str(value), str(value).upper())
        case float(), str():
            told = float(re.sub("Inf(inity)?", "inf", stored))
            return math.isnan(value) if math.isnan(told) else math.isclose(value, told, rel_tol=1e-6, abs_tol=1e-44)
        case float(), _:
            return abs(value - stored) <= 1e-6 * abs(stored)
        case int() | decimal.Decimal(), _:
            return decimal.Decimal(value) == decimal.Decimal(repr(stored) if isinstance(stored, float) else stored)
        case dt.datetime(), str():
            # The database's own reading of it, to the millisecond.
            ask = sqlite3.connect(":memory:")
            told = ask.execute("SELECT strftime('%Y-%m-%d %H:%M:%f', ?)", (stored,)).fetchone()[0]
            ask.close()
            return told is None or abs(dt.datetime.fromisoformat(told) - value.replace(tzinfo=None)) < dt.timedelta(
                milliseconds=2
            )
        case dt.date(), str():
            return stored.lstrip("+-0").startswith(str(value.year)) or value.year < 1000
        case _:
            return bool(value == stored)


AVRO = {
    "boolean": lambda chance: chance.random() < 0.5,
    "int": lambda chance: chance.choice((0, -1, 2**31 - 1, -(2**31))),
    "long": lambda chance: chance.choice((0, -1, 2**63 - 1, -(2**63))),
    "float": lambda chance: chance.choice((0.5, -0.0, math.inf, math.nan)),
    "double": lambda chance: chance.choice((0.1, 1e300, -math.inf, math.nan)),
    "bytes": lambda chance: chance.randbytes(chance.randint(0, 5)),
    "string": lambda chance: chance.choice(TEXTS),
}
LOGICAL = {
    ("int", "date"): lambda chance: dt.date(2026, 1, 1) + dt.timedelta(days=chance.randint(-(10**5), 10**5)),
    ("long", "timestamp-micros"): lambda chance: (
        dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=chance.randint(-(10**15), 10**15))
    ),
    ("long", "timestamp-millis"): lambda chance: (
        dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=chance.randint(-(10**12), 10**12))
    ),
    ("long", "local-timestamp-micros"): lambda chance: (
        dt.datetime(2026, 1, 1) + dt.timedelta(microseconds=chance.randint(0, 10**15))
    ),
    ("int", "time-millis"): lambda chance: dt.time(chance.randint(0, 23), chance.randint(0, 59), 7),
    ("string", "uuid"): lambda chance: uuid.UUID(int=chance.getrandbits(128)),
    ("bytes", "decimal"): lambda chance: decimal.Decimal(chance.randint(-99999, 99999)).scaleb(-2),
}


def _avro_type(chance: random.Random, depth: int, number: list[int]) -> tuple[Any, Any]:
    """A type, and what makes values of it."""
    kind = chance.choice(
        ("plain", "plain", "logical", "null", "array", "map", "record", "enum") if depth else ("plain", "logical")
    )
    match kind:
        case "plain":
            name = chance.choice(list(AVRO))
            return name, AVRO[name]
        case "logical":
            (base, logical), make = chance.choice(list(LOGICAL.items()))
            extra = {"precision": 5, "scale": 2} if logical == "decimal" else {}
            return {"type": base, "logicalType": logical, **extra}, make
        case "null":
            inner, make = _avro_type(chance, 0, number)
            return ["null", inner], lambda c: None if c.random() < 0.3 else make(c)
        case "array":
            inner, make = _avro_type(chance, depth - 1, number)
            return {"type": "array", "items": inner}, lambda c: [make(c) for _ in range(c.randint(0, 3))]
        case "map":
            inner, make = _avro_type(chance, depth - 1, number)
            return {"type": "map", "values": inner}, lambda c: {
                k: make(c) for k in c.sample(["a", "ü", ""], c.randint(0, 3))
            }
        case "enum":
            number[0] += 1
            return {"type": "enum", "name": f"e{number[0]}", "symbols": ["A", "B"]}, lambda c: c.choice("AB")
        case _:
            number[0] += 1
            name = f"r{number[0]}"
            parts = [(f"f{n}", *_avro_type(chance, depth - 1, number)) for n in range(chance.randint(1, 3))]
            fields = [{"name": field, "type": one} for field, one, _ in parts]
            return {"type": "record", "name": name, "fields": fields}, lambda c: {f: make(c) for f, _, make in parts}


class _Message:
    def __init__(self, offset: int, value: bytes | None) -> None:
        self._offset, self._value = offset, value

    def value(self) -> bytes | None:
        return self._value

    def offset(self) -> int:
        return self._offset


def test_avro_values_are_what_was_encoded_or_set_aside() -> None:
    for seed in cases(40, 1000):
        with case(seed) as chance:
            number = [0]
            parts = [(f"c{n}", *_avro_type(chance, 2, number)) for n in range(chance.randint(1, 4))]
            schema = {"type": "record", "name": "row", "fields": [{"name": n, "type": kind} for n, kind, _ in parts]}
            parsed = fastavro.parse_schema(schema)
            data, values, whole = [], [], []
            for _ in range(chance.randint(1, 20)):
                datum = {name: make(chance) for name, _, make in parts}
                out = io.BytesIO()
                fastavro.schemaless_writer(out, parsed, datum)
                value, is_whole = out.getvalue(), True
                if value and chance.random() < 0.15:
                    value, is_whole = value[: chance.randrange(len(value))], False
                elif chance.random() < 0.1:
                    value, is_whole = value + b"\x00", False
                data.append(datum)
                values.append(value)
                whole.append(is_whole)
            try:
                reader = value_reader(
                    "avro", schema=None, avro_schema=schema, schema_registry=None, include=("offset",), prefix="_"
                )
            except InvalidArgument:
                continue  # a type that no column holds
            chunk = reader.read([_Message(n, value) for n, value in enumerate(values)])
            rows, bad = chunk.rows, chunk.bad
            assert sorted([*rows["_offset"].to_pylist(), *(int(b.position.split()[1]) for b in bad)]) == [
                *range(len(data))
            ]
            for row in rows.to_pylist(maps_as_pydicts="strict"):
                n = row.pop("_offset")
                assert whole[n], f"{schema}: {values[n]!r} is not whole, and read as {row}"
                assert plain(row) == plain(_as_columns(data[n])), f"{schema}: {row} is not {data[n]}"
            assert len(bad) == whole.count(False), f"{schema}: {bad}"


def _as_columns(value: Any) -> Any:
    match value:
        case uuid.UUID():
            return str(value)
        case dt.time():
            return (value.hour * 3600 + value.minute * 60 + value.second) * 1000
        case dict():
            return {name: _as_columns(one) for name, one in value.items()}
        case list():
            return [_as_columns(one) for one in value]
        case _:
            return value


@pytest.mark.parametrize("value", [b"\x04\xff\xfe", b"\x06\xed\xa0\x80"])
def test_an_avro_text_that_is_not_utf_8_is_set_aside(value: bytes) -> None:
    schema = {"type": "record", "name": "row", "fields": [{"name": "s", "type": "string"}]}
    reader = value_reader("avro", schema=None, avro_schema=schema, schema_registry=None, include=(), prefix="")
    chunk = reader.read([_Message(0, b"\x02a"), _Message(1, value)])
    assert chunk.rows.to_pylist() == [{"s": "a"}]
    assert [one.position for one in chunk.bad] == ["offset 1"]


def test_message_texts_that_are_not_utf_8_are_set_aside() -> None:
    for kind, schema in (("string", None), ("json", "s string")):
        reader = value_reader(
            kind, schema=schema, avro_schema=None, schema_registry=None, include=("offset",), prefix=""
        )
        values = [b'{"s": "a"}', b'{"s": "\xff"}', b'{"s": "b"}']
        chunk = reader.read([_Message(n, value) for n, value in enumerate(values)])
        rows, bad = chunk.rows, chunk.bad
        assert rows["offset"].to_pylist() == [0, 2]
        assert isinstance(rows, pa.RecordBatch)
        assert [one.position for one in bad] == ["offset 1"]
