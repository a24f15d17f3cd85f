"""Avro messages whose writers' schemas are not the reader's: each value is what its writer meant, or is set aside."""

from __future__ import annotations

import io
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import fastavro
import pytest

from lakeseal.errors import InvalidArgument, UnsupportedType
from lakeseal.ingest import KafkaSource
from lakeseal.ingest.sources.debezium import DebeziumReader
from oracles.messages import Message, Schemas, as_stored, framed, read, registry


@pytest.fixture(scope="module")
def schemas() -> Iterator[Schemas]:
    with registry() as told:
        yield told


def record(kind: Any, name: str = "v", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "row", "fields": [{"name": name, "type": kind, **more}]}


def meant(kind: str, meaning: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": meaning, **more}


def without_meaning(kind: Any) -> Any:
    return {name: value for name, value in kind.items() if name != "logicalType"} if isinstance(kind, dict) else kind


def one(schemas: Schemas, writer: Any, value: Any, reader: Any) -> Any:
    """What is read of a value that is stored as it stands; the name of what it became, or None if it was set aside."""
    fastavro.schemaless_writer(out := io.BytesIO(), record(without_meaning(writer)), {"v": value})
    number = schemas.add(record(writer))
    rows, bad = read("avro", [framed(number, out.getvalue())], schemas.url, avro_schema=record(reader))
    assert len(rows) + len(bad) == 1
    return rows[0]["v"] if rows else "set aside"


def decimal_of(precision: int, scale: int) -> dict[str, Any]:
    return meant("bytes", "decimal", precision=precision, scale=scale)


_MICROS, _MILLIS, _NANOS = (meant("long", f"timestamp-{unit}") for unit in ("micros", "millis", "nanos"))
_LOCAL_MICROS, _LOCAL_NANOS = (meant("long", f"local-timestamp-{unit}") for unit in ("micros", "nanos"))
_DURATION = {"type": "fixed", "name": "d", "size": 12, "logicalType": "duration"}


@pytest.mark.parametrize(
    ("writer", "value", "reader", "found"),
    [
        (_NANOS, 1_700_000_000_123_456_789, _MICROS, 1_700_000_000_123_456),
        (_NANOS, -1, _MICROS, -1),
        (_LOCAL_NANOS, 1_700_000_000_123_456_789, _LOCAL_MICROS, 1_700_000_000_123_456),
        (_NANOS, 1_700_000_000_123_456_789, _NANOS, 1_700_000_000_123_456_789),
        (_MILLIS, 1_700_000_000_123, _MICROS, 1_700_000_000_123_000),
        (_MICROS, 2**60, _MICROS, 2**60),
        (_MICROS, 1_700_000_000_123_456, _NANOS, "set aside"),
        ("long", 1_700_000_000_123, _MILLIS, 1_700_000_000_123_000),
        ("int", 1_000, _MILLIS, 1_000_000),
        (meant("int", "time-millis"), 1234, meant("long", "time-micros"), "set aside"),
        (meant("int", "time-millis"), 1234, meant("int", "time-millis"), 1234),
        (meant("long", "time-micros"), 1234, _MICROS, "set aside"),
        (meant("int", "date"), 19_000, _MICROS, "set aside"),
        (decimal_of(5, 2), (1_234_567).to_bytes(4), decimal_of(15, 2), "set aside"),
        (decimal_of(9, 4), (123_456).to_bytes(4), decimal_of(9, 2), "set aside"),
        (decimal_of(9, 2), (123_456).to_bytes(4), decimal_of(12, 4), Decimal("1234.5600")),
        ("bytes", (12_345).to_bytes(4), decimal_of(5, 2), Decimal("123.45")),
        (_DURATION, b"\1\0\0\0" * 3, _DURATION, b"\1\0\0\0" * 3),
        (meant("string", "uuid"), "no uuid", "string", "no uuid"),
        ("long", 2**53 + 1, "double", "set aside"),
        ("long", 2**53, "double", 2.0**53),
        ("int", 2**24 + 1, "float", "set aside"),
        ("double", 0.5, "float", "set aside"),
        ("string", "7", "long", "set aside"),
        ("string", "ü", "bytes", "ü".encode()),
        ("bytes", b"\xff", "string", "set aside"),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, "B", {"type": "enum", "name": "e", "symbols": ["A"]},
         "set aside"),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, "B",
         {"type": "enum", "name": "e", "symbols": ["A"], "default": "A"}, "A"),
        ({"type": "fixed", "name": "a", "size": 2}, b"ab", {"type": "fixed", "name": "b", "size": 2}, "set aside"),
        (["null", "int", "string"], 5, ["null", "string"], "set aside"),
        (["int", "long"], 2**40, "long", 2**40),
    ],
)  # fmt: skip
def test_a_value_is_what_its_writer_meant_or_is_set_aside(
    schemas: Schemas, writer: Any, value: Any, reader: Any, found: Any
) -> None:
    assert one(schemas, writer, value, reader) == found


@pytest.mark.parametrize(
    ("kind", "default", "found"),
    [
        (_MILLIS, 1000, 1_000_000),
        ("bytes", "\u00ff", b"\xff"),
        (decimal_of(4, 1), "\u0001", Decimal("0.1")),
        (["null", "long"], None, None),
        ({"type": "array", "items": "bytes"}, ["\u00ff"], [b"\xff"]),
        ({"type": "map", "values": "long"}, {"a": 1}, {"a": 1}),
        (record("long", "f", default=3) | {"name": "inner"}, {}, {"f": 3}),
    ],
)
def test_a_field_that_its_writer_did_not_know_has_the_readers_default(
    schemas: Schemas, kind: Any, default: Any, found: Any
) -> None:
    reader = record("long")
    reader["fields"].append({"name": "later", "type": kind, "default": default})
    rows, _ = read("avro", [framed(schemas.add(record("long")), b"\x02")], schemas.url, avro_schema=reader)
    assert rows == {0: {"v": 1, "later": found}}


def test_a_writer_whose_schema_is_another_one_has_bad_records_and_its_neighbours_have_rows(schemas: Schemas) -> None:
    reader = record("long", "new", aliases=["old"])
    broken = {"type": "record", "name": "row", "fields": [{"name": "new", "type": "nobody.knows"}]}
    writers = [record("long", "old"), record("long", "other"), "long", broken, record("int", "new")]
    writers.append({**record("long", "new"), "name": "another"})
    values = [framed(schemas.add(writer), b"\x0a") for writer in writers]
    assert read("avro", values, schemas.url, avro_schema=reader) == ({0: {"new": 5}, 4: {"new": 5}}, [1, 2, 3, 5])


def test_a_writers_schema_may_refer_to_others_that_are_registered(schemas: Schemas) -> None:
    moment = {**record(_NANOS, "at"), "name": "shop.Moment"}
    first = schemas.add(moment)
    order = {"type": "record", "name": "shop.Order", "fields": [{"name": "of", "type": "Moment"}]}
    second = schemas.add(order, refers_to={"shop.Moment": first})
    idle = schemas.add(record("nobody.Knows") | {"name": "shop.Idle"})
    number = schemas.add(record(["null", "shop.Order"]), refers_to={"shop.Order": second, "shop.Idle": idle})
    reader = record(
        {**order, "fields": [{"name": "of", "type": {**moment, "fields": record(_MICROS, "at")["fields"]}}]}
    )
    fastavro.schemaless_writer(out := io.BytesIO(), record(["null", "long"]), {"v": 1_999})
    rows, bad = read("avro", [framed(number, out.getvalue())], schemas.url, avro_schema=reader)
    assert (rows, bad) == ({0: {"v": {"of": {"at": 1}}}}, [])


_LIST = {
    "type": "record",
    "name": "row",
    "fields": [{"name": "v", "type": "long"}, {"name": "next", "type": ["null", "row"]}],
}


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_message_that_is_nested_too_deep_is_a_bad_record_and_its_neighbours_are_rows(
    schemas: Schemas, is_elsewhere: bool
) -> None:
    """Compiled code does not count how deep it is: it would end the process."""
    reader = record("long")
    if is_elsewhere:
        reader = {**reader, "name": "outer", "fields": [{"name": "of", "type": {**record("long"), "name": "row"}}]}
        number = schemas.add(
            {"type": "record", "name": "outer", "fields": [{"name": "of", "type": "row"}]},
            refers_to={"row": schemas.add(_LIST)},
        )
    else:
        number = schemas.add(_LIST)
    values = [framed(number, b"\x0a\x02" * levels + b"\x0a\x00") for levels in (0, 1_000_000, 20)]
    rows, bad = read("avro", values, schemas.url, avro_schema=reader)
    assert rows == dict.fromkeys((0, 2), {"of": {"v": 5}} if is_elsewhere else {"v": 5})
    assert bad == [1]


def test_a_schema_that_is_nested_too_deep_makes_bad_records(schemas: Schemas) -> None:
    deep: Any = "long"
    for _ in range(900):
        deep = {"type": "array", "items": deep}
    numbers = [schemas.add(record(deep)), schemas.add(record("long"))]
    rows, bad = read("avro", [framed(number, b"\x0a") for number in numbers], schemas.url, avro_schema=record("long"))
    assert (rows, bad) == ({1: {"v": 5}}, [0])


def test_a_meaning_that_its_type_cannot_have_counts_for_nothing(schemas: Schemas) -> None:
    assert one(schemas, meant("int", "timestamp-millis"), 5, meant("long", "time-micros")) == 5
    assert one(schemas, meant("string", "date"), "x", meant("string", "date")) == "x"
    assert one(schemas, meant("long", "decimal", precision=5), 7, "long") == 7


@pytest.mark.parametrize(
    "kind",
    [
        {"type": "array"},
        {"type": "record", "name": "x"},
        {"type": "fixed", "name": "f"},
        {"type": ["long"]},
        decimal_of(64, 2),
        meant("bytes", "decimal"),
        meant("bytes", "decimal", precision="5", scale=2),
    ],
)
def test_a_schema_of_the_reader_that_is_none_is_told_early(kind: Any) -> None:
    with pytest.raises((InvalidArgument, UnsupportedType)):
        KafkaSource(brokers="b", topic="t", value="avro", avro_schema=record(kind))


def test_messages_of_several_writers_keep_their_order(schemas: Schemas) -> None:
    kinds = [_NANOS, _MICROS, _MILLIS]
    numbers = [schemas.add(record(kind)) for kind in kinds]
    stored = [fastavro.schemaless_writer(out := io.BytesIO(), record("long"), {"v": 10**18}) or out.getvalue()]
    values = [framed(numbers[n % 3], stored[0]) for n in range(7)]
    rows, bad = read("avro", values, schemas.url, avro_schema=record(_MICROS))
    assert [rows[n]["v"] for n in (0, 3, 6)] == [10**15] * 3
    assert [rows[n]["v"] for n in (1, 4)] == [10**18] * 2
    assert bad == [2, 5]  # no moment of microseconds is so late


def test_a_decimal_keeps_its_digits_without_a_registry() -> None:
    kind = decimal_of(9, 2)
    fastavro.schemaless_writer(out := io.BytesIO(), record("bytes"), {"v": (1_234_567).to_bytes(4)})
    assert read("avro", [out.getvalue()], None, avro_schema=record(kind))[0] == {0: {"v": Decimal("12345.67")}}


def test_a_decimal_of_an_envelope_keeps_its_digits(schemas: Schemas) -> None:
    row = {"type": "record", "name": "Value", "fields": [{"name": "price", "type": decimal_of(5, 2)}]}
    fields = [{"name": "after", "type": ["null", row]}, {"name": "op", "type": "string"}]
    envelope = {"type": "record", "name": "Envelope", "fields": fields}
    stored = {**envelope, "fields": [{"name": "after", "type": ["null", record("bytes", "price")]}, fields[1]]}
    fastavro.schemaless_writer(out := io.BytesIO(), stored, {"after": {"price": (1_234_567).to_bytes(4)}, "op": "c"})
    message = Message(0, framed(schemas.add(envelope), out.getvalue()))
    chunk = DebeziumReader("avro", "price decimal(15,2)", schemas.url, None).read([message])
    assert [row["price"] for row in as_stored(chunk.rows)] == [Decimal("12345.67")]
    chunk = DebeziumReader("avro", "price decimal(5,2)", schemas.url, None).read([message])
    assert (chunk.rows.num_rows, len(chunk.bad)) == (0, 1)
