"""Messages whose writers' schemas are registered: a registry that tells them, and values of random schemas of Avro and
Protobuf beside what they say.

A generator knows what it encoded, so it is the judge: for Avro the number that is stored and its meaning, for Protobuf
the value that was set.
"""

from __future__ import annotations

import decimal
import json
import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any

from lakeseal.ingest.sources.kafka_values import value_reader

NUMBERS = (0, 1, -1, 127, 128, -32769, 2**24 + 1, 2**31 - 1, 2**31, -(2**31), 2**53 + 1, -(2**53), 2**63 - 1, -(2**63))
FLOATS = (0.0, -0.0, 0.5, 1e300, 16777217.0, 3.4028234663852886e38, 5e-324, float("inf"), float("-inf"))
WORDS = ("", "a", "7", "1.5", "true", "2026-01-01", "ü€😀", "\x00", "\ufeff", "null", "x" * 70)
DAY = 86_400 * 10**9


class Message:
    def __init__(self, offset: int, value: bytes) -> None:
        self._offset, self._value = offset, value

    def value(self) -> bytes:
        return self._value

    def offset(self) -> int:
        return self._offset


class Schemas:
    """A registry."""

    def __init__(self, url: str, told: dict[int, dict[str, Any]]) -> None:
        self.url, self._told = url, told

    def add(self, schema: Any, kind: str = "AVRO", refers_to: Mapping[str, int] = MappingProxyType({})) -> int:
        """`refers_to`: the numbers of others by the names that they have in it. A number is a version, too."""
        text = schema if kind == "PROTOBUF" else json.dumps(schema)
        references = [{"name": name, "subject": "any", "version": number} for name, number in refers_to.items()]
        self._told[number := len(self._told) + 1] = {"schema": text, "schemaType": kind, "references": references}
        return number


def framed(number: int, value: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + value


@contextmanager
def registry() -> Iterator[Schemas]:
    told: dict[int, dict[str, Any]] = {}

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            number = int(self.path.partition("?")[0].rpartition("/")[2])
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(told[number]).encode())

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Schemas(f"http://127.0.0.1:{server.server_port}", told)
        server.shutdown()


def read(
    kind: str, values: list[bytes], url: str | None, **schemas: Any
) -> tuple[dict[int, dict[str, Any]], list[int]]:
    """Rows by the message that they are of, moments as numbers, and the messages that are none."""
    reader = value_reader(
        kind,
        schema=schemas.get("schema"),
        avro_schema=schemas.get("avro_schema"),
        schema_registry=url,
        include=("offset",),
        prefix="_",
    )
    chunk = reader.read([Message(n, value) for n, value in enumerate(values)])
    rows = {}
    for row in as_stored(chunk.rows):
        rows[row.pop("_offset")] = row
    return rows, sorted(int(bad.position.split()[1]) for bad in chunk.bad)


def as_stored(rows: Any) -> list[dict[str, Any]]:
    """There are more moments than Python has."""
    import pyarrow as pa

    def plain(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_date(kind):
            return pa.int32()
        if pa.types.is_timestamp(kind):
            return pa.int64()
        if pa.types.is_list(kind):
            return pa.list_(plain(kind.value_type))
        if pa.types.is_map(kind):
            return pa.map_(kind.key_type, plain(kind.item_type))
        if pa.types.is_struct(kind):
            return pa.struct([pa.field(field.name, plain(field.type)) for field in kind])
        return kind

    columns = [column.cast(plain(column.type)).to_pylist(maps_as_pydicts="strict") for column in rows.columns]
    return [dict(zip(rows.schema.names, values, strict=True)) for values in zip(*columns, strict=True)]


class Leaf:
    """A type of Avro without parts."""

    def __init__(self, base: str, meaning: str | None = None, **more: Any) -> None:
        self.base, self.meaning, self.more = base, meaning, more

    def schema(self) -> Any:
        if self.meaning is None and not self.more:
            return self.base
        return {"type": self.base, **({"logicalType": self.meaning} if self.meaning else {}), **self.more}

    def stored(self) -> Any:
        return {"type": self.base, **self.more} if self.base in ("fixed", "enum") else self.base

    def value(self, chance: random.Random) -> Any:
        if self.meaning == "decimal":
            size = self.more.get("size", 4)
            return chance.choice((0, 1, -1, 123, -99_999, 99_999, 1_234_567)).to_bytes(size, "big", signed=True)
        match self.base:
            case "boolean":
                return chance.random() < 0.5
            case "int":
                return chance.choice([one for one in NUMBERS if -(2**31) <= one < 2**31])
            case "long":
                return chance.choice((*NUMBERS, chance.randint(-(10**15), 10**15), chance.randint(0, 2 * 10**18)))
            case "float":
                return chance.choice((0.5, -0.0, 1.5, float("inf"), 16777216.0))
            case "double":
                return chance.choice(FLOATS)
            case "string":
                return chance.choice(WORDS)
            case "enum":
                return chance.choice(self.more["symbols"])
            case "fixed":
                return chance.randbytes(self.more["size"])
            case _:
                return chance.choice((b"", b"a", b"\xff", b"\xc3\xbc", b"\x01\x02"))

    def says(self, stored: Any, like: Leaf | None = None) -> Any:
        """What a stored value is; without a meaning of its own, by that of `like`."""
        meaning = self.meaning if self.meaning is not None or like is None else like.meaning
        told = self if self.meaning is not None or like is None else like
        if meaning is None or stored is None:
            return stored
        if meaning == "decimal":
            number = int.from_bytes(stored, "big", signed=True) if isinstance(stored, bytes) else stored
            return decimal.Decimal(number).scaleb(-told.more["scale"])
        family, _, unit = meaning.rpartition("-")
        if unit in ("millis", "micros", "nanos"):
            # A moment without a zone is in UTC.
            return family.removeprefix("local-"), stored * {"millis": 10**6, "micros": 1000, "nanos": 1}[unit]
        return (meaning, stored) if meaning != "uuid" else stored

    def column(self, value: Any) -> Any:
        """What a column of this type says, in the same words."""
        if value is None or self.meaning in (None, "uuid", "decimal"):
            return value
        meaning = str(self.meaning)
        if "timestamp" in meaning and not meaning.endswith("nanos"):
            return "timestamp", value * 1000  # microseconds, whatever was stored
        return self.says(value)


def _leaves() -> list[Leaf]:
    plain = [Leaf(name) for name in ("boolean", "int", "long", "float", "double", "string", "bytes")]
    moments = [
        Leaf("long", f"{local}timestamp-{unit}") for local in ("", "local-") for unit in ("millis", "micros", "nanos")
    ]
    times = [Leaf("int", "date"), Leaf("int", "time-millis"), Leaf("long", "time-micros")]
    decimals = [Leaf("bytes", "decimal", precision=p, scale=s) for p, s in ((5, 2), (9, 4), (20, 2), (38, 18))]
    fixed = [
        Leaf("fixed", "decimal", name="money", size=4, precision=9, scale=2),
        Leaf("fixed", None, name="raw", size=3),
        Leaf("fixed", "duration", name="span", size=12),
    ]
    enums = [
        Leaf("enum", None, name="kind", symbols=["A", "B", "C"]),
        Leaf("enum", None, name="kind", symbols=["A", "B"]),
        Leaf("enum", None, name="kind", symbols=["A", "B"], default="A"),
    ]
    return [*plain, *moments, *times, *decimals, *fixed, *enums, Leaf("string", "uuid")]


LEAVES = _leaves()
