"""Columns that are there: type widening, nested drops and renames, defaults, NOT NULL, comments."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakeseal
from lakeseal.errors import ConstraintViolation, InvalidArgument, InvalidExpression, SchemaMismatch
from lakeseal.protocol.schema import (
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
)
from lakeseal.protocol.type_widening import is_growth, is_widening
from support.examples import examples

WIDENING = {"delta.enableTypeWidening": "true"}
MAPPED = {"delta.columnMapping.mode": "name"}

_NESTED = pa.struct([("a", pa.int32()), ("b", pa.string()), ("inner", pa.struct([("x", pa.float32())]))])


def nested(path: Path, **properties: Any) -> lakeseal.Table:
    table = lakeseal.create(path / "t", pa.schema([("id", pa.int64()), ("s", _NESTED)]), properties=MAPPED | properties)
    rows = [{"id": 1, "s": {"a": 1, "b": "x", "inner": {"x": 0.5}}}, {"id": 2, "s": None}]
    table.write(pa.Table.from_pylist(rows, schema=table.schema()))
    return table


@pytest.mark.parametrize("properties", [{}, MAPPED, {"delta.enableDeletionVectors": "true"}])
def test_old_files_are_read_with_the_wider_type(tmp_path: Path, properties: Any) -> None:
    schema = pa.schema(
        [("n", pa.int8()), ("f", pa.float32()), ("d", pa.date32()), ("l", pa.list_(pa.int16())), ("p", pa.int32())]
    )
    table = lakeseal.create(tmp_path / "t", schema, "p", properties=WIDENING | properties)
    day = datetime.date(2024, 2, 29)
    rows = [{"n": n, "f": n / 2, "d": day, "l": [n, None], "p": n % 2} for n in range(4)]
    table.write(pa.Table.from_pylist(rows, schema=schema))

    table.change_type("n", "int")
    table.change_type("n", pa.decimal128(14, 4))
    table.change_type("f", "double")
    table.change_type("d", "timestamp_ntz")
    table.change_type("l.element", "bigint")
    table.change_type("p", "bigint")
    table.write(pa.table({"n": [decimal.Decimal("12345678.5")], "p": pa.array([2**40], pa.int64())}))

    wide = datetime.datetime(2024, 2, 29)
    assert table.to_arrow(where="n < 3").sort_by("n").to_pylist() == [
        {"n": decimal.Decimal(n), "f": n / 2, "d": wide, "l": [n, None], "p": n % 2} for n in range(3)
    ]
    assert table.to_arrow(where=f"p = {2**40}")["n"].to_pylist() == [decimal.Decimal("12345678.5")]
    assert table.to_arrow(where="d = TIMESTAMP_NTZ'2024-02-29 00:00:00'").num_rows == 4
    assert "typeWidening" in (table.snapshot().protocol.reader_features or ())
    table.update({"f": "f + 1"}, "n = 1")
    table.delete("n = 2")
    table.checkpoint()
    table.optimize()
    assert sorted(lakeseal.Table(tmp_path / "t").to_arrow(where="n < 9")["f"].to_pylist()) == [0.0, 1.5, 1.5]


def test_types_change_only_where_widening_is_on_and_only_to_wider_ones(tmp_path: Path) -> None:
    table = lakeseal.create(tmp_path / "t", pa.schema([("n", pa.int32()), ("s", pa.string())]))

    with pytest.raises(InvalidArgument, match="enableTypeWidening"):
        table.change_type("n", "bigint")
    table.set_properties(WIDENING)
    for name, wanted in (("n", "smallint"), ("n", "string"), ("s", "int"), ("n", "decimal(9,0)"), ("n", "float")):
        with pytest.raises(InvalidArgument, match="cannot become"):
            table.change_type(name, wanted)
    table.add_constraint("positive", "n > 0")
    with pytest.raises(InvalidArgument, match="positive uses it"):
        table.change_type("n", "bigint")
    table.drop_constraint("positive")
    table.change_type("n", "bigint")

    assert table.schema().field("n").type == pa.int64()


def test_merge_schema_widens_to_the_types_of_the_data(tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int16()), ("f", pa.float32()), ("c", pa.decimal128(4, 1)), ("l", pa.list_(pa.int8()))])
    on = lakeseal.create(tmp_path / "on", schema, properties=WIDENING)
    off = lakeseal.create(tmp_path / "off", schema)
    wide = pa.table(
        {
            "n": pa.array([2**40], pa.int64()),
            "f": pa.array([0.1], pa.float64()),
            "c": pa.array([decimal.Decimal("12345.67")], pa.decimal128(7, 2)),
            "l": pa.array([[1000]], pa.list_(pa.int32())),
        }
    )
    on.write(pa.Table.from_pylist([{"n": 1, "f": 0.5, "c": decimal.Decimal("1.5"), "l": [1]}], schema=schema))

    on.write(wide, merge_schema=True)
    with pytest.raises(lakeseal.LakesealError):
        off.write(wide, merge_schema=True)

    assert on.schema().types == wide.schema.types
    assert on.to_arrow().sort_by("n").to_pylist()[1] == wide.to_pylist()[0]
    assert off.schema() == schema
    on.write(pa.table({"n": pa.array([7], pa.int8())}), merge_schema=True)
    assert on.schema().field("n").type == pa.int64()


_TYPES = [
    BYTE,
    SHORT,
    INTEGER,
    LONG,
    FLOAT,
    DOUBLE,
    DATE,
    TIMESTAMP_NTZ,
    STRING,
    DecimalType(10, 0),
    DecimalType(20, 5),
]


@examples(60, 600)
@given(st.sampled_from(_TYPES), st.sampled_from(_TYPES), st.sampled_from(_TYPES))
def test_widening_goes_one_way_and_growing_is_widening(one: DataType, two: DataType, three: DataType) -> None:
    assert not (is_widening(one, two) and is_widening(two, one))
    assert not is_growth(one, two) or is_widening(one, two)
    if is_growth(one, two) and is_growth(two, three):
        assert is_growth(one, three)


def test_fields_of_structs_are_renamed_and_dropped(tmp_path: Path) -> None:
    table = nested(tmp_path)

    table.rename_column("s.inner.x", "y")
    table.rename_column("s.a", "first")
    table.drop_column("s.b")

    assert table.to_arrow().sort_by("id").to_pylist() == [
        {"id": 1, "s": {"first": 1, "inner": {"y": 0.5}}},
        {"id": 2, "s": None},
    ]
    assert table.to_arrow(where="s.inner.y > 0")["id"].to_pylist() == [1]
    table.add_columns(pa.schema([("b", pa.string())]))
    assert table.to_arrow()["b"].null_count == 2
    with pytest.raises(InvalidArgument, match="needs a field"):
        table.drop_column("s.inner.y")
    with pytest.raises(InvalidArgument, match="already"):
        table.rename_column("s.first", "INNER")
    table.add_constraint("c", "s.first > 0 OR s IS NULL")
    with pytest.raises(InvalidArgument, match="c uses it"):
        table.drop_column("s")
    with pytest.raises(InvalidArgument, match="c uses it"):
        table.rename_column("s.first", "x")


def test_fields_below_arrays_and_maps_are_renamed_and_dropped(tmp_path: Path) -> None:
    pair = pa.struct([("a", pa.int64()), ("b", pa.int64())])
    schema = pa.schema([("l", pa.list_(pair)), ("m", pa.map_(pa.string(), pair))])
    table = lakeseal.create(tmp_path / "t", schema, properties={"delta.columnMapping.mode": "name"})
    table.write(pa.table({"l": [[{"a": 1, "b": 2}, None]], "m": [[("k", {"a": 3, "b": 4})]]}, schema=schema))

    table.rename_column("l.element.a", "first")
    table.rename_column("m.value.a", "first")
    table.drop_column("m.value.b")

    assert table.to_arrow().to_pylist(maps_as_pydicts="strict") == [
        {"l": [{"first": 1, "b": 2}, None], "m": {"k": {"first": 3}}}
    ]
    with pytest.raises(InvalidArgument, match="already"):
        table.rename_column("l.element.first", "B")


def test_structs_of_a_mapped_table_meet_those_of_rows(tmp_path: Path) -> None:
    """What the table notes of its fields makes no other type of them."""
    schema = pa.schema([("id", pa.int64()), ("s", pa.struct([("l", pa.list_(pa.struct([("q", pa.int64())])))]))])
    table = lakeseal.create(tmp_path / "t", schema, properties={"delta.columnMapping.mode": "name"})
    table.write(pa.table({"id": [1, 2], "s": [{"l": [{"q": 1}]}, None]}, schema=schema))
    rows = pa.table({"id": [1, 2], "s": [None, {"l": None}]}, schema=schema)
    table.merge(rows, "t.id = s.id").when_matched_update({"s": "coalesce(s.s, t.s)"}).execute()
    assert table.to_arrow().sort_by("id")["s"].to_pylist() == [{"l": [{"q": 1}]}, {"l": None}]


def test_a_struct_of_a_mapped_table_is_changed_by_statements_that_say_its_type(tmp_path: Path) -> None:
    """Names in files are no part of the type that a statement says."""
    kinds = {"l": "array<struct<a:int,b:string>>", "m": "map<string,struct<x:int>>", "s": "struct<a:int>"}
    columns = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
    place = f"delta.`{tmp_path}/t`"
    lakeseal.sql(f"CREATE TABLE {place} ({columns}) TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    for name, kind in kinds.items():
        lakeseal.sql(f"ALTER TABLE {place} CHANGE COLUMN {name} {name} {kind} COMMENT 'of {name}'")
        lakeseal.sql(f"ALTER TABLE {place} ALTER COLUMN {name} TYPE {kind}")
    fields = lakeseal.Table(tmp_path / "t").snapshot().schema.fields
    assert {field.name: field.metadata["comment"] for field in fields} == {name: f"of {name}" for name in kinds}
    with pytest.raises(InvalidArgument):
        lakeseal.sql(f"ALTER TABLE {place} ALTER COLUMN s TYPE struct<a:int COMMENT 'one'>")


def test_fields_stay_where_columns_are_not_mapped(tmp_path: Path) -> None:
    table = lakeseal.create(tmp_path / "t", pa.schema([("s", _NESTED)]))

    for change in (lambda: table.drop_column("s.a"), lambda: table.rename_column("s.a", "c")):
        with pytest.raises(InvalidArgument, match="column mapping"):
            change()
    with pytest.raises(InvalidArgument, match="no column"):
        table.drop_column("s.none")


def test_defaults_are_for_rows_to_come(tmp_path: Path) -> None:
    table = lakeseal.create(tmp_path / "t", pa.schema([("id", pa.int64()), ("s", pa.string())]))
    table.write(pa.table({"id": [1]}))

    table.set_default("s", "'x'")
    table.write(pa.table({"id": [2]}))
    table.merge(pa.table({"id": [3]}), "t.id = s.id").when_not_matched_insert({"id": "s.id"}).execute()
    table.drop_default("s")
    table.write(pa.table({"id": [4]}))

    assert table.to_arrow().sort_by("id")["s"].to_pylist() == [None, "x", "x", None]
    assert "allowColumnDefaults" in (table.snapshot().protocol.writer_features or ())
    with pytest.raises(SchemaMismatch):
        table.set_default("id", "'x'")
    with pytest.raises(InvalidExpression):
        table.set_default("id", "id + 1")


def test_not_null_holds_for_rows_that_are_there(tmp_path: Path) -> None:
    table = nested(tmp_path)

    with pytest.raises(ConstraintViolation, match="NOT NULL"):
        table.set_not_null("s")
    table.set_not_null("s.a")  # a struct that is null has none
    table.delete("s IS NULL")
    table.set_not_null("s")
    with pytest.raises(ConstraintViolation):
        table.write(pa.table({"id": [5], "s": pa.array([None], _NESTED)}))
    with pytest.raises(ConstraintViolation):
        table.write(pa.Table.from_pylist([{"id": 5, "s": {"b": "x"}}], schema=pa.schema(table.schema())))
    table.drop_not_null("s")
    table.drop_not_null("s.a")
    table.write(pa.table({"id": [5], "s": pa.array([None], _NESTED)}))

    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 5]


def test_comments_come_and_go(tmp_path: Path) -> None:
    table = nested(tmp_path)

    table.set_comment("s.a", "first")
    table.set_comment("id", "key")
    table.set_comment("id", None)

    fields = table.snapshot().schema.fields
    assert "comment" not in fields[0].metadata
    assert fields[1].type.fields[0].metadata["comment"] == "first"  # type: ignore[union-attr]
