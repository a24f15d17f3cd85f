"""Spark reads the files that tasks write, and sees the same rows."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lakeseal.protocol.arrow import from_arrow, to_arrow

pytestmark = pytest.mark.spark

SCHEMA = to_arrow(
    from_arrow(
        pa.schema(
            {
                "i8": pa.int8(),
                "i32": pa.int32(),
                "i64": pa.int64(),
                "f32": pa.float32(),
                "b": pa.bool_(),
                "s": pa.string(),
                "bin": pa.binary(),
                "d": pa.date32(),
                "t": pa.timestamp("us", "UTC"),
                "n": pa.timestamp("us"),
                "d9": pa.decimal128(9, 2),
                "d18": pa.decimal128(18, 4),
                "d38": pa.decimal128(38, 10),
                "l": pa.list_(pa.int64()),
                "m": pa.map_(pa.string(), pa.float64()),
                "st": pa.struct({"x": pa.int32(), "y": pa.list_(pa.struct({"z": pa.string()}))}),
            }
        )
    )
)
FULL = {
    "i8": -128,
    "i32": -(2**31),
    "i64": 2**63 - 1,
    "f32": 1.5,
    "b": True,
    "s": "日本 é",
    "bin": b"\0\xff",
    "d": datetime.date(1969, 7, 20),
    "t": datetime.datetime(2024, 1, 2, 3, 4, 5, 678901, datetime.UTC),
    "n": datetime.datetime(2024, 1, 2, 3, 4, 5, 678901),
    "d9": Decimal("-1234567.89"),
    "d18": Decimal("12345678901234.5678"),
    "d38": Decimal("-1234567890123456789012345678.0123456789"),
    "l": [1, None, 3],
    "m": [("k", 1.0), ("j", None)],
    "st": {"x": 1, "y": [{"z": "a"}, None]},
}


def test_every_type_comes_back_from_spark_in_the_tables_own_types(new_table: Callable[..., Any], spark: Any) -> None:
    data = pa.Table.from_pylist([FULL, dict.fromkeys(FULL)], SCHEMA)
    table = new_table(SCHEMA)
    (add,) = table.write(data)
    read = spark.read.parquet(str(table.root / add.path))
    assert {f.name: f.dataType.simpleString() for f in read.schema.fields} == {
        f.name: str(f.type) for f in from_arrow(SCHEMA).fields
    }
    arrow = read.toArrow().cast(SCHEMA)
    assert arrow.sort_by([("i64", "ascending")]).to_pylist() == data.to_pylist()


@pytest.mark.parametrize("codec", ["snappy", "zstd", "gzip", "lz4_raw", "none"])
def test_every_codec_is_read_by_spark(new_table: Callable[..., Any], spark: Any, codec: str) -> None:
    schema = pa.schema({"id": pa.int64(), "s": pa.string()})
    table = new_table(schema, properties={"delta.parquet.compression.codec": codec})
    (add,) = table.write(pa.table({"id": range(1000), "s": ["x" * (n % 9) for n in range(1000)]}))
    row = spark.read.parquet(str(table.root / add.path)).selectExpr("sum(id)", "sum(length(s))").first()
    assert tuple(row) == (499500, sum(n % 9 for n in range(1000)))
