"""The table's schema as its data files hold it.

Files have all columns of the table but the partition columns, in the table's order, all of them nullable (what must
not be null is checked before, and files stay readable after a column became nullable), under their physical names and
with their ids where the table maps columns. Columns of type void are in no file. `to_file` changes names and flags of
columns only, so no value is copied.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeseal.errors import InvalidInput, SchemaMismatch, UnsupportedType
from lakeseal.protocol.arrow import PARQUET_FIELD_ID, to_arrow_type
from lakeseal.protocol.nested import children, list_like, map_like, struct_like
from lakeseal.protocol.schema import (
    NESTED_IDS,
    VOID,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    VariantType,
    dotted,
)

CHANGE_TYPE = "_change_type"
"""The column that change files have beside the table's own."""

INSERTED = "inserted"
"""In that column, of a row that is the table's and goes to the change feed as an insert, too."""

CDC_PARTITION_COL = "__is_cdc"
"""Parts the change rows of a job from the others, on their way to their files."""
CDC_PARTITION_FALSE = f"{CDC_PARTITION_COL}=false"
CDC_PARTITION_TRUE = f"{CDC_PARTITION_COL}=true"


class FileSchema:
    """`columns` are the table's fields that files have; `arrow` is how files have them. `along` are names of numbers
    that files keep beside them."""

    def __init__(
        self,
        schema: StructType,
        partition_columns: Collection[str],
        *,
        mapped: bool,
        cdc: bool = False,
        along: tuple[str, ...] = (),
    ) -> None:
        skipped = {name.lower() for name in partition_columns}
        self.columns = tuple(f for f in schema.fields if f.name.lower() not in skipped and f.type != VOID)
        if not self.columns and not cdc:
            raise SchemaMismatch(
                "A table needs a column that is not a partition column",
                hint="Partition by fewer columns, or add one",
            )
        self.has_changes = cdc
        self.along = along
        fields = [_file_field(f, mapped, (f.name,)) for f in self.columns]
        fields += [pa.field(name, pa.int64()) for name in along]
        if cdc:
            fields.append(pa.field(CHANGE_TYPE, pa.string()))
        self.arrow = pa.schema(fields)
        self.names = (*(f.name for f in self.columns), *along, *((CHANGE_TYPE,) if cdc else ()))

    def to_file(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns of a batch, given under the table's names, that belong into a file."""
        arrays = [_retyped(batch.column(name), field.type) for name, field in zip(self.names, self.arrow, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)


def _file_field(field: StructField, mapped: bool, path: tuple[str, ...]) -> pa.Field:
    if not mapped:
        return pa.field(field.name, _file_type(field.type, False, {}, "", path))
    name = field.physical_name
    nested = field.metadata.get(NESTED_IDS)
    data_type = _file_type(field.type, True, nested if isinstance(nested, dict) else {}, name, path)
    return pa.field(name, data_type, metadata=_id_metadata(field.field_id))


def _file_type(
    data_type: DataType, mapped: bool, nested_ids: Mapping[str, Any], prefix: str, path: tuple[str, ...]
) -> pa.DataType:
    def child(name: str, child_type: DataType, nullable: bool = True) -> pa.Field:
        place = f"{prefix}.{name}"
        arrow = _file_type(child_type, mapped, nested_ids, place, (*path, name))
        return pa.field(name, arrow, nullable, metadata=_id_metadata(nested_ids.get(place)))

    match data_type:
        case StructType(fields=fields):
            kept = [f for f in fields if f.type != VOID]
            if not kept:
                raise UnsupportedType(
                    "A struct without columns cannot be stored", hint="Give it a column", column=dotted(path)
                )
            return pa.struct([_file_field(f, mapped, (*path, f.name)) for f in kept])
        case ArrayType(element=element):
            return pa.list_(child("element", element))
        case MapType(key=key, value=value):
            return pa.map_(child("key", key, nullable=False), child("value", value))
        case VariantType():
            # Readers know a variant by its two binary columns, which are there whenever the variant is.
            return pa.struct([pa.field(n, pa.binary(), nullable=False) for n in ("metadata", "value")])
        case _ if data_type == VOID:
            raise UnsupportedType(
                "Values of type void cannot be stored in arrays and maps", hint="Cast them", column=dotted(path)
            )
        case _:
            return to_arrow_type(data_type)


def _id_metadata(field_id: Any) -> dict[bytes, bytes] | None:
    return {PARQUET_FIELD_ID: str(field_id).encode()} if field_id is not None else None


def _retyped(array: pa.Array, arrow: pa.DataType) -> pa.Array:
    if array.type.equals(arrow, check_metadata=True):
        return array
    if _is_variant(arrow):
        return _variant(array, arrow)
    if _same_shape(array.type, arrow) and not _has_variant(arrow):
        return array.view(arrow)
    return _rebuilt(array, arrow)


def _is_variant(arrow: pa.DataType) -> bool:
    # Of all that is in files only a variant's binaries are never null.
    return bool(pa.types.is_struct(arrow)) and not arrow.field(0).nullable


def _has_variant(arrow: pa.DataType) -> bool:
    return _is_variant(arrow) or any(_has_variant(arrow.field(n).type) for n in range(arrow.num_fields))


def _variant(array: pa.StructArray, arrow: pa.DataType) -> pa.StructArray:
    """Below a variant that is null its binaries are empty, since they may not be null."""
    filled = []
    for part in children(array):
        if part.null_count > array.null_count:
            raise InvalidInput("A variant lacks one of its two binaries")
        filled.append(pc.fill_null(part, b""))
    return struct_like(array, filled, arrow)


def _same_shape(source: pa.DataType, target: pa.DataType) -> bool:
    return source.num_fields == target.num_fields and all(
        _same_shape(source.field(n).type, target.field(n).type) for n in range(source.num_fields)
    )


def _rebuilt(array: pa.Array, arrow: pa.DataType) -> pa.Array:
    if pa.types.is_struct(arrow):
        kept = [child for child in children(array) if not pa.types.is_null(child.type)]
        return struct_like(array, [_retyped(c, arrow.field(n).type) for n, c in enumerate(kept)], arrow)
    if pa.types.is_map(arrow):
        return map_like(array, _retyped(array.keys, arrow.key_type), _retyped(array.items, arrow.item_type), arrow)
    return list_like(array, _retyped(array.values, arrow.value_type), arrow)
