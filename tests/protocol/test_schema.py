from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeseal.errors import InvalidMetadata, UnsupportedType
from lakeseal.protocol.schema import (
    CHAR_VARCHAR,
    COLUMN_ID,
    INTEGER,
    LONG,
    MAX_DEPTH,
    NESTED_IDS,
    PHYSICAL_NAME,
    STRING,
    TIMESTAMP,
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
    "void",
]


def field(name: str, json_type: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": json_type, "nullable": True, "metadata": {}, **more}


def struct(*fields: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
metadata = st.dictionaries(
    names,
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | names,
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2),
        max_leaves=4,
    ),
    max_size=2,
)
decimals = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: DecimalType(p, s)))


def structs(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[StructType]:
    return st.lists(
        st.builds(StructField, names, inner, st.booleans(), metadata), max_size=4, unique_by=lambda f: f.name.lower()
    ).map(lambda fields: StructType(tuple(fields)))


types: st.SearchStrategy[DataType] = st.recursive(
    st.sampled_from(PRIMITIVES).map(PrimitiveType) | decimals | st.just(VARIANT),
    lambda inner: (
        st.builds(ArrayType, inner, st.booleans()) | st.builds(MapType, inner, inner, st.booleans()) | structs(inner)
    ),
    max_leaves=8,
)


@given(structs(types))
def test_schemas_survive_json_and_pickle(schema: StructType) -> None:
    assert StructType.from_json(schema.to_json()) == schema
    assert StructType.from_json(json.loads(schema.to_json())) == schema
    assert pickle.loads(pickle.dumps(schema)) == schema
    assert hash(StructType.from_json(schema.to_json())) == hash(schema)


def test_json_is_written_as_spark_writes_it() -> None:
    schema = StructType(
        (
            StructField("é", ArrayType(DecimalType(10, 2), False), False, {"comment": "x"}),
            StructField("m", MapType(STRING, VARIANT)),
        )
    )

    assert schema.to_json() == (
        '{"type":"struct","fields":['
        '{"name":"é","type":{"type":"array","elementType":"decimal(10,2)","containsNull":false},'
        '"nullable":false,"metadata":{"comment":"x"}},'
        '{"name":"m","type":{"type":"map","keyType":"string","valueType":"variant","valueContainsNull":true},'
        '"nullable":true,"metadata":{}}]}'
    )


def test_a_type_reads_as_sql() -> None:
    schema = StructType((StructField("a", MapType(INTEGER, ArrayType(LONG))), StructField("b", DecimalType(5, 1))))

    assert str(schema) == "struct<a:map<int,array<bigint>>,b:decimal(5,1)>"


@pytest.mark.parametrize(
    ("json_type", "expected"),
    [
        ("null", VOID),
        ("timestamp_ltz", TIMESTAMP),
        ("decimal", DecimalType(10, 0)),
        ("decimal( 5 , 2 )", DecimalType(5, 2)),
    ],
)
def test_names_that_older_clients_wrote_are_understood(json_type: str, expected: DataType) -> None:
    assert StructType.from_json(struct(field("a", json_type))).fields[0].type == expected


def test_a_bare_varchar_becomes_a_string_that_remembers_it() -> None:
    (column,) = StructType.from_json(struct(field("a", "varchar(5)"))).fields

    assert column == StructField("a", STRING, True, {CHAR_VARCHAR: "varchar(5)"})
    assert column.char_varchar == "varchar(5)"


def test_metadata_may_be_absent() -> None:
    assert StructType.from_json(struct({"name": "a", "type": "long", "nullable": False})).fields == (
        StructField("a", LONG, False),
    )


@pytest.mark.parametrize(
    ("json_type", "name"),
    [
        ("interval day to second", "interval day to second"),
        ("interval", "interval"),
        ("time(6)", "time(6)"),
        ("geometry(4326)", "geometry(4326)"),
        ("bigint", "bigint"),
        ("", "''"),
        ({"type": "udt", "class": "x.Y", "sqlType": "string"}, "udt"),
        ("decimal(39,0)", "decimal(39,0)"),
        ("decimal(0,0)", "decimal(0,0)"),
        ("decimal(5,6)", "decimal(5,6)"),
        ("decimal(5,-1)", "decimal(5,-1)"),
        ("decimal(99999999999,0)", "decimal(99999999999,0)"),
    ],
)
def test_a_type_that_is_not_known_is_refused_with_its_name_and_column(json_type: Any, name: str) -> None:
    array = {"type": "array", "elementType": struct(field("c", json_type)), "containsNull": True}

    with pytest.raises(UnsupportedType) as caught:
        StructType.from_json(struct(field("a", struct(field("b.x", array)))))

    assert name in caught.value.message
    assert caught.value.column == "a.`b.x`.element.c"


@pytest.mark.parametrize(
    ("value", "column"),
    [
        ("", None),
        ("{", None),
        ("[]", None),
        ("5", None),
        ('"long"', None),
        ('{"type":"array","elementType":"long","containsNull":true}', None),
        ("{}", None),
        ('{"type":5}', None),
        ('{"type":"struct"}', None),
        ('{"type":"struct","fields":{}}', None),
        (b"\xff", None),
        (struct(5), None),
        (struct({"type": "long", "nullable": True}), None),
        (struct({**field("a", "long"), "name": 5}), None),
        (struct({"name": "a", "nullable": True}), "a"),
        (struct({"name": "a", "type": "long"}), "a"),
        (struct(field("a", "long", nullable="yes")), "a"),
        (struct(field("a", "long", metadata=[])), "a"),
        (struct(field("a", None)), "a"),
        (struct(field("a", 5)), "a"),
        (struct(field("a", {"type": "array", "containsNull": True})), "a"),
        (struct(field("a", {"type": "array", "elementType": "long"})), "a"),
        (struct(field("a", {"type": "map", "keyType": "long", "valueContainsNull": True})), "a"),
        (struct(field("a", struct(field("b", struct({"name": "c"}))))), "a.b.c"),
    ],
)
def test_a_malformed_schema_is_refused_with_the_field(value: Any, column: str | None) -> None:
    with pytest.raises(InvalidMetadata) as caught:
        StructType.from_json(value)

    assert caught.value.column == column


@pytest.mark.parametrize("other", ["a", "A"])
def test_names_that_differ_by_case_only_are_refused_at_every_level(other: str) -> None:
    inner = struct(field("a", "long"), field(other, "string"))
    for value, column in [(inner, other), (struct(field("s", inner)), f"s.{other}")]:
        with pytest.raises(InvalidMetadata) as caught:
            StructType.from_json(value)
        assert caught.value.column == column


def nested(levels: int) -> str:
    return '{"type":"struct","fields":[{"name":"a","nullable":true,"type":' * levels + '"long"' + "}]}" * levels


@pytest.mark.parametrize("levels", [MAX_DEPTH, 100, 100_000])
def test_a_schema_that_is_too_deep_is_refused(levels: int) -> None:
    with pytest.raises(InvalidMetadata, match="nested deeper"):
        StructType.from_json(nested(levels))


def test_a_schema_of_the_greatest_depth_is_read() -> None:
    assert json.loads(StructType.from_json(nested(MAX_DEPTH - 1)).to_json())


SCHEMA = StructType.from_json(
    struct(
        field("Id", "long", metadata={COLUMN_ID: 1, PHYSICAL_NAME: "col-1"}),
        field(
            "s",
            struct(
                field("x", "string", metadata={COLUMN_ID: 3, PHYSICAL_NAME: "col-3"}),
                field("Y", struct(field("z", "date"))),
            ),
            metadata={COLUMN_ID: 2, PHYSICAL_NAME: "col-2"},
        ),
        field(
            "l",
            {
                "type": "array",
                "elementType": struct(field("e", "long", metadata={COLUMN_ID: 5, PHYSICAL_NAME: "col-5"})),
                "containsNull": True,
            },
            metadata={COLUMN_ID: 4, PHYSICAL_NAME: "col-4"},
        ),
    )
)


@pytest.mark.parametrize("name", ["Id", "id", "ID"])
def test_a_field_is_found_in_any_case(name: str) -> None:
    found = SCHEMA.field(name)

    assert found is not None
    assert found.name == "Id"
    assert SCHEMA.field("nothing") is None


def test_leaves_enter_structs_but_not_arrays_and_maps() -> None:
    assert [path for path, _ in SCHEMA.leaves()] == [("Id",), ("s", "x"), ("s", "Y", "z"), ("l",)]


def test_columns_are_known_by_id_and_physical_name() -> None:
    column = SCHEMA.fields[0]

    assert (column.field_id, column.physical_name) == (1, "col-1")
    plain = StructField("a", LONG)
    assert (plain.field_id, plain.physical_name) == (None, "a")


def test_the_physical_schema_renames_every_mapped_field() -> None:
    physical = SCHEMA.to_physical()

    assert (
        str(physical)
        == "struct<col-1:bigint,col-2:struct<col-3:string,Y:struct<z:date>>,col-4:array<struct<col-5:bigint>>>"
    )
    assert physical.fields[0].field_id == 1


def test_the_greatest_column_id_is_found_at_any_depth() -> None:
    assert SCHEMA.max_column_id() == 5
    assert StructType((StructField("a", LONG),)).max_column_id() == 0
    with_nested = StructField("a", ArrayType(LONG), True, {COLUMN_ID: 1, NESTED_IDS: {"a.element": 9}})
    assert StructType((with_nested,)).max_column_id() == 9


@pytest.mark.parametrize("value", ["5", 1.5, True, {}])
def test_a_column_id_that_is_no_number_is_refused(value: Any) -> None:
    with pytest.raises(InvalidMetadata, match=COLUMN_ID):
        _ = StructField("a", LONG, True, {COLUMN_ID: value}).field_id


@pytest.mark.parametrize("value", [5, "", None])
def test_a_physical_name_that_is_no_name_is_refused(value: Any) -> None:
    with pytest.raises(InvalidMetadata, match=PHYSICAL_NAME):
        _ = StructField("a", LONG, True, {PHYSICAL_NAME: value}).physical_name


def test_types_cannot_be_made_up() -> None:
    with pytest.raises(UnsupportedType):
        PrimitiveType("int")
    with pytest.raises(UnsupportedType):
        DecimalType(39, 0)
