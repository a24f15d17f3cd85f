from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeseal.errors import InvalidArgument, UnsupportedType
from lakeseal.protocol.arrow import from_arrow, from_arrow_type, to_arrow, to_arrow_type
from lakeseal.protocol.schema import (
    BINARY,
    BOOLEAN,
    COLUMN_ID,
    DATE,
    FLOAT,
    INTEGER,
    LONG,
    MAX_DEPTH,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VARIANT,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)

PRIMITIVES = [
    "string",
    "long",
    "integer",
    "short",
    "byte",
    "float",
    "double",
    "boolean",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
]
names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)
metadata = st.dictionaries(names.map(lambda name: "x." + name), names, max_size=2) | st.integers(1, 2**31 - 1).map(
    lambda number: {COLUMN_ID: number}
)
decimals = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: DecimalType(p, s)))


def structs(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[StructType]:
    return st.lists(
        st.builds(StructField, names, inner, st.booleans(), metadata), max_size=4, unique_by=lambda f: f.name.lower()
    ).map(lambda fields: StructType(tuple(fields)))


# Arrow cannot forbid nulls in a column that has nothing else, so void is tested by itself.
types: st.SearchStrategy[DataType] = st.recursive(
    st.sampled_from(PRIMITIVES).map(PrimitiveType) | decimals | st.just(VARIANT),
    lambda inner: (
        st.builds(ArrayType, inner, st.booleans()) | st.builds(MapType, inner, inner, st.booleans()) | structs(inner)
    ),
    max_leaves=8,
)


@given(structs(types))
def test_schemas_survive_arrow(schema: StructType) -> None:
    assert from_arrow(to_arrow(schema)) == schema


@pytest.mark.parametrize(
    ("delta", "arrow"),
    [
        (TIMESTAMP, pa.timestamp("us", "UTC")),
        (TIMESTAMP_NTZ, pa.timestamp("us")),
        (VOID, pa.null()),
        (DATE, pa.date32()),
        (DecimalType(38, 3), pa.decimal128(38, 3)),
        (VARIANT, pa.struct([("metadata", pa.binary()), ("value", pa.binary())])),
        (ArrayType(LONG, False), pa.list_(pa.field("element", pa.int64(), False))),
        (MapType(STRING, LONG, False), pa.map_(pa.string(), pa.field("value", pa.int64(), False))),
    ],
)
def test_a_delta_type_has_one_arrow_form(delta: DataType, arrow: pa.DataType) -> None:
    assert to_arrow_type(delta) == arrow


@pytest.mark.parametrize(
    ("arrow", "delta"),
    [
        (pa.uint8(), SHORT),
        (pa.uint16(), INTEGER),
        (pa.uint32(), LONG),
        (pa.float16(), FLOAT),
        (pa.large_string(), STRING),
        (pa.string_view(), STRING),
        (pa.large_binary(), BINARY),
        (pa.binary_view(), BINARY),
        (pa.binary(16), BINARY),
        (pa.uuid(), BINARY),
        (pa.date64(), DATE),
        (pa.timestamp("s"), TIMESTAMP_NTZ),
        (pa.timestamp("ns"), TIMESTAMP_NTZ),
        (pa.timestamp("ms", "Europe/Paris"), TIMESTAMP),
        (pa.timestamp("ns", "+02:00"), TIMESTAMP),
        (pa.dictionary(pa.int8(), pa.large_string()), STRING),
        (pa.run_end_encoded(pa.int32(), pa.bool_()), BOOLEAN),
        (pa.decimal32(5, 2), DecimalType(5, 2)),
        (pa.decimal64(12, 2), DecimalType(12, 2)),
        (pa.decimal256(38, 10), DecimalType(38, 10)),
        (pa.large_list(pa.uint8()), ArrayType(SHORT)),
        (pa.list_(pa.int64(), 3), ArrayType(LONG)),
        (pa.list_view(pa.int64()), ArrayType(LONG)),
        (pa.large_list_view(pa.int64()), ArrayType(LONG)),
        (pa.list_(pa.field("item", pa.int64(), False)), ArrayType(LONG, False)),
        (pa.map_(pa.large_string(), pa.uint8()), MapType(STRING, SHORT)),
    ],
)
def test_what_users_bring_has_a_delta_type(arrow: pa.DataType, delta: DataType) -> None:
    assert from_arrow_type(arrow) == delta


@pytest.mark.parametrize(
    "arrow",
    [
        pa.uint64(),
        pa.time32("s"),
        pa.time64("us"),
        pa.duration("us"),
        pa.month_day_nano_interval(),
        pa.dense_union([pa.field("a", pa.int8())]),
        pa.decimal256(39, 0),
        pa.decimal128(5, -2),
        pa.dictionary(pa.int8(), pa.time32("s")),
    ],
)
def test_what_delta_has_no_type_for_is_refused_with_the_columns_path(arrow: pa.DataType) -> None:
    schema = pa.schema([("a", pa.struct([("b.c", pa.list_(pa.map_(pa.string(), arrow)))]))])

    with pytest.raises(UnsupportedType) as caught:
        from_arrow(schema)

    assert caught.value.column == "a.`b.c`.element.value"
    assert caught.value.hint


def test_the_hint_for_unsigned_64_bits_says_what_to_cast_to() -> None:
    with pytest.raises(UnsupportedType, match=r"uint64.*decimal128\(20, 0\)"):
        from_arrow(pa.schema([("n", pa.uint64())]))


def test_columns_that_differ_by_case_only_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="'A'"):
        from_arrow(pa.schema([("a", pa.int8()), ("A", pa.int8())]))


def test_an_arrow_schema_that_is_too_deep_is_refused() -> None:
    arrow: Any = pa.int64()
    for _ in range(MAX_DEPTH):
        arrow = pa.list_(arrow)

    with pytest.raises(InvalidArgument, match="nested deeper"):
        from_arrow(pa.schema([("a", arrow)]))


def test_field_metadata_is_kept() -> None:
    arrow = pa.field("a", pa.int64(), metadata={"comment": "é", "PARQUET:field_id": "7"})

    schema = from_arrow(pa.schema([arrow]))

    assert schema.fields[0].metadata == {"comment": "é", "PARQUET:field_id": "7"}
    assert to_arrow(schema).field(0).metadata == arrow.metadata


def test_an_extension_leaves_no_label_behind() -> None:
    arrow = pa.field("a", pa.binary(16), metadata={"ARROW:extension:name": "arrow.uuid", "k": "v"})

    assert from_arrow(pa.schema([arrow])).fields[0].metadata == {"k": "v"}


def test_column_ids_become_parquet_field_ids_when_asked_for() -> None:
    inner = StructField("b", LONG, True, {COLUMN_ID: 2})
    schema = StructType((StructField("a", StructType((inner,)), True, {COLUMN_ID: 1}), StructField("c", LONG)))

    arrow = to_arrow(schema, field_ids=True)

    assert arrow.field("a").metadata[b"PARQUET:field_id"] == b"1"
    assert arrow.field("a").type.field("b").metadata[b"PARQUET:field_id"] == b"2"
    assert arrow.field("c").metadata is None
    assert b"PARQUET:field_id" not in to_arrow(schema).field("a").metadata


def test_a_variant_that_spark_hands_over_is_a_variant() -> None:
    mark = pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"})
    arrow = pa.struct([pa.field("value", pa.binary(), nullable=False), mark])

    assert from_arrow_type(arrow) == VARIANT
    assert from_arrow_type(pa.struct([("metadata", pa.binary()), ("value", pa.binary())])) != VARIANT


def test_void_is_nullable_in_arrow_whatever_the_schema_says() -> None:
    schema = StructType(
        (
            StructField("a", VOID, False),
            StructField("b", ArrayType(VOID, False)),
            StructField("c", MapType(STRING, VOID, False)),
        )
    )

    assert from_arrow(to_arrow(schema)) == StructType(
        (StructField("a", VOID), StructField("b", ArrayType(VOID)), StructField("c", MapType(STRING, VOID)))
    )


def test_a_map_with_keys_of_type_void_is_refused_with_its_column() -> None:
    with pytest.raises(UnsupportedType) as caught:
        to_arrow(StructType((StructField("m", ArrayType(MapType(VOID, VOID))),)))

    assert caught.value.column == "m"
