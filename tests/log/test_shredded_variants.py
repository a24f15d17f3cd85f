"""Variants of which a file keeps a part in typed columns, put together again; DuckDB's are in tests/oracles."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql.types import VariantVal

import lakeseal
from lakeseal.errors import BrokenDataFile, UnsupportedType
from lakeseal.log.physical import Projection
from lakeseal.protocol.schema import LONG, VARIANT, StructField, StructType

UTC = pa.timestamp("us", "UTC")
MOMENT = dt.datetime(2024, 3, 10, 2, 30, 0, 123456)
ID = uuid.UUID("12345678-1234-5678-1234-567812345678")


def dictionary(*names: str) -> bytes:
    """Metadata, as the format has it: its version, the number of names, where they end, and they themselves."""
    ends, data = [0], b""
    for name in names:
        data += name.encode()
        ends.append(len(data))
    return bytes([1, len(names), *ends]) + data


def short(text: str) -> bytes:
    return bytes([len(text.encode()) << 2 | 1]) + text.encode()


def read(rows: list[dict[str, Any] | None], typed: pa.DataType, *, value: bool = True) -> list[Any]:
    """What Spark's decoder makes of the variants in these rows."""
    fields = [("metadata", pa.binary()), ("value", pa.binary()), ("typed_value", typed)]
    kind = pa.struct([field for field in fields if value or field[0] != "value"])
    given = pa.array([None if row is None else {"metadata": dictionary(), **row} for row in rows], kind)
    projection = Projection.of([StructField("v", VARIANT)], pa.schema([("v", kind)]), "none")
    # Cut out of the middle, as batches of a file may be.
    batch = pa.RecordBatch.from_arrays([pa.concat_arrays([given, given, given])], names=["v"])
    found = projection.apply(batch.slice(len(rows), len(rows)))[0]
    found.validate(full=True)
    return [v and VariantVal(v["value"], v["metadata"]).toPython() for v in found.to_pylist()]


def shredded(*columns: tuple[str, pa.DataType]) -> pa.DataType:
    fields = [(name, pa.struct([("value", pa.binary()), ("typed_value", kind)])) for name, kind in columns]
    return pa.struct(fields)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.bool_(), [True, False]),
        (pa.int8(), [-128, 127]),
        (pa.int16(), [-(2**15)]),
        (pa.int32(), [2**31 - 1]),
        (pa.int64(), [-(2**63)]),
        (pa.float32(), [0.5]),
        (pa.float64(), [0.1]),
        (pa.decimal128(9, 2), [decimal.Decimal("-1234567.89")]),
        (pa.decimal128(18, 0), [decimal.Decimal(10**18 - 1)]),
        (pa.decimal128(38, 38), [decimal.Decimal("-0." + "9" * 28)]),
        (pa.date32(), [dt.date(1900, 1, 1), dt.date(2024, 2, 29)]),
        (UTC, [MOMENT.replace(tzinfo=dt.UTC)]),
        (pa.timestamp("us"), [MOMENT]),
        (pa.string(), ["", "é" * 31, "x" * 63, "x" * 64, "x" * 70_000]),
        (pa.large_string(), ["a"]),
        (pa.binary(), [b"", b"\x00\xff" * 300]),
    ],
    ids=str,
)
def test_simple_values_are_what_their_column_holds(kind: pa.DataType, values: list[Any]) -> None:
    rows = [{"typed_value": value} for value in values]
    assert read([*rows, None, {"value": short("else")}, {"value": b"\x00"}], kind) == [*values, None, "else", None]
    assert read([*rows, None], kind, value=False) == [*values, None]
    elements = [{"typed_value": v} for v in values]
    assert read([{"typed_value": elements}], pa.list_(shredded(("x", kind)).field(0).type)) == [values]


def test_a_uuid_is_its_bytes() -> None:
    kind = pa.struct([("metadata", pa.binary()), ("value", pa.binary()), ("typed_value", pa.binary(16))])
    given = pa.array([{"metadata": dictionary(), "typed_value": ID.bytes}], kind)
    projection = Projection.of([StructField("v", VARIANT)], pa.schema([("v", kind)]), "none")
    (found,) = projection.apply(pa.RecordBatch.from_arrays([given], names=["v"]))[0].to_pylist()
    assert found["value"] == bytes([20 << 2]) + ID.bytes


def test_fields_come_from_their_columns_and_from_what_is_left() -> None:
    kind = shredded(("b", pa.int32()), ("a", pa.string()))
    names = dictionary("a", "c", "b")
    left = bytes([2, 1, 1, 0, 2]) + b"\x0c\x07"  # {"c": 7}
    rows = [
        {"metadata": names, "typed_value": {"a": {"typed_value": "x"}, "b": {"value": short("no number")}}},
        {"metadata": names, "typed_value": {"a": {}, "b": {"typed_value": 5}}, "value": left},
        {"metadata": names, "typed_value": {"a": {"value": b"\x00"}, "b": {}}},
        {"metadata": names, "typed_value": {"a": {}, "b": {}}},
        {"metadata": names, "value": short("no object")},
        {"metadata": names},
        None,
    ]
    assert read(rows, kind) == [
        {"a": "x", "b": "no number"},
        {"b": 5, "c": 7},
        {"a": None},
        {},
        "no object",
        None,
        None,
    ]


def test_objects_lists_and_what_is_missing_in_them() -> None:
    inner = shredded(("n", pa.int64()))
    kind = pa.list_(pa.struct([("value", pa.binary()), ("typed_value", inner)]))
    names = dictionary("n")
    rows = [
        {
            "metadata": names,
            "typed_value": [{"typed_value": {"n": {"typed_value": 1}}}, {"value": short("s")}, {}, None],
        },
        {"metadata": names, "typed_value": []},
        None,
        {"metadata": names, "typed_value": [{"typed_value": {"n": {}}}] * 300},
    ]
    assert read(rows, kind) == [[{"n": 1}, "s", None, None], [], None, [{}] * 300]


def test_fields_are_in_the_order_of_their_bytes() -> None:
    names = ("\uffff", "\U0001f600", "z", "a")
    kind = shredded(*((name, pa.int8()) for name in names))
    fields = {name: {"typed_value": n} for n, name in enumerate(names)}
    kind_of_all = pa.struct([("metadata", pa.binary()), ("value", pa.binary()), ("typed_value", kind)])
    given = pa.array([{"metadata": dictionary(*names), "typed_value": fields}], kind_of_all)
    projection = Projection.of([StructField("v", VARIANT)], pa.schema([("v", kind_of_all)]), "none")
    (found,) = projection.apply(pa.RecordBatch.from_arrays([given], names=["v"]))[0].to_pylist()
    assert list(found["value"][2:6]) == [3, 2, 0, 1]


@pytest.mark.parametrize(
    "row",
    [
        {"typed_value": {"a": {"typed_value": 1}}, "value": short("and a text")},
        {"typed_value": {"a": {"typed_value": 1}}, "value": bytes([2, 1, 0, 0, 1]) + b"\x00"},
        {"typed_value": {"a": {"typed_value": 1}}, "metadata": dictionary("b")},
        {"typed_value": {"a": {"typed_value": 1, "value": b"\x00"}}},
        {"typed_value": {"a": {"typed_value": 1}}, "metadata": b""},
        {"typed_value": {"a": {"typed_value": 1}}, "metadata": b"\x02\x00\x00"},
        {"typed_value": {"a": {"typed_value": 1}}, "metadata": b"\x01\x09\x00"},
        {"typed_value": {"a": {"typed_value": 1}}, "value": b"\x02\xff"},
        {"typed_value": {"a": {"typed_value": 1}}, "metadata": None},
    ],
)
def test_what_makes_no_variant_is_a_broken_file(row: dict[str, Any]) -> None:
    with pytest.raises(BrokenDataFile, match="variant"):
        read([{"metadata": dictionary("a"), **row}], shredded(("a", pa.int32())))


@pytest.mark.parametrize("kind", [pa.uint8(), pa.duration("us"), pa.timestamp("ms"), pa.binary(3)], ids=str)
def test_columns_that_no_variant_can_have_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(UnsupportedType, match="shredded as"):
        read([], shredded(("a", kind)))


def test_shredded_variants_are_read_from_a_table_and_written_again(tmp_path: Path) -> None:
    table = lakeseal.create(str(tmp_path), StructType((StructField("id", LONG), StructField("v", VARIANT))))
    table.write(pa.table({"id": pa.array([1, 2, 3], pa.int64())}))
    (file,) = table.files()["path"].to_pylist()
    documents = """SELECT 1::BIGINT AS id, {'a': 1, 'b': 'x'}::VARIANT AS v
        UNION ALL SELECT 2, {'a': 2.5, 'c': [1]}::VARIANT UNION ALL SELECT 3, NULL"""
    with duckdb.connect() as connection:
        connection.sql(f"COPY ({documents}) TO '{tmp_path / file}' (FORMAT parquet)")
    expected = [{"a": 1, "b": "x"}, {"a": decimal.Decimal("2.5"), "c": [1]}, None]

    def held() -> list[Any]:
        rows = sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"])
        return [v and VariantVal(v["value"], v["metadata"]).toPython() for v in (row["v"] for row in rows)]

    assert held() == expected
    table.update({"id": "id + 10"}, "id > 0")
    assert held() == expected
