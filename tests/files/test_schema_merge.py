from __future__ import annotations

import pytest

from lakeseal.errors import SchemaMismatch
from lakeseal.files.schema_merge import merge_schema
from lakeseal.protocol.actions import Metadata
from lakeseal.protocol.schema import LONG, STRING, VOID, ArrayType, MapType, StructField, StructType


def merged(table: StructType, data: StructType) -> StructType:
    metadata = Metadata(id="x", schema_string=table.to_json())
    return StructType.from_json(merge_schema(metadata, data).schema_string or "")


def struct(**fields: object) -> StructType:
    return StructType(tuple(StructField(name, data_type) for name, data_type in fields.items()))  # type: ignore[arg-type]


def test_new_columns_come_behind_the_others_at_every_depth() -> None:
    table = struct(a=LONG, s=struct(x=LONG), l=ArrayType(struct(y=LONG)), m=MapType(STRING, struct(z=LONG)))
    data = struct(
        new=STRING, S=struct(w=LONG, X=LONG), l=ArrayType(struct(v=LONG)), m=MapType(STRING, struct(u=ArrayType(LONG)))
    )
    assert merged(table, data) == struct(
        a=LONG,
        s=struct(x=LONG, w=LONG),
        l=ArrayType(struct(y=LONG, v=LONG)),
        m=MapType(STRING, struct(z=LONG, u=ArrayType(LONG))),
        new=STRING,
    )


def test_types_and_flags_of_columns_that_are_there_stay() -> None:
    table = StructType((StructField("a", LONG, False, {"comment": "kept"}),))
    assert merged(table, struct(A=STRING)) == table


def test_new_columns_may_be_null_and_keep_only_their_comment() -> None:
    metadata = {"comment": "c", "PARQUET:field_id": "7", "delta.columnMapping.id": 3}
    data = StructType((StructField("n", StructType((StructField("x", LONG, False),)), False, metadata),))
    (_, new) = merged(struct(a=LONG), data).fields
    assert new == StructField("n", struct(x=LONG), True, {"comment": "c"})


def test_a_void_column_takes_the_type_of_the_data() -> None:
    assert merged(struct(v=VOID), struct(v=ArrayType(LONG))) == struct(v=ArrayType(LONG))
    assert merged(struct(v=VOID), struct(v=VOID)) == struct(v=VOID)


def test_a_new_column_without_a_type_is_refused() -> None:
    with pytest.raises(SchemaMismatch) as caught:
        merged(struct(a=LONG), struct(s=struct(n=VOID)))
    assert caught.value.column == "s.n"


def test_metadata_is_the_same_where_nothing_is_new() -> None:
    metadata = Metadata(id="x", schema_string=struct(a=LONG).to_json())
    assert merge_schema(metadata, struct(A=LONG)) is metadata
