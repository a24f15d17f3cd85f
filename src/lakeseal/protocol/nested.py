"""Structs, lists and maps put together again from changed parts, nulls and slices of the original kept."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc


def nullable(arrow: pa.DataType) -> pa.DataType:
    """The same type without a word on nulls, at every depth; only keys of maps are never null."""
    if pa.types.is_struct(arrow):
        return pa.struct(
            [
                arrow.field(n).with_type(nullable(arrow.field(n).type)).with_nullable(True)
                for n in range(arrow.num_fields)
            ]
        )
    if pa.types.is_map(arrow):
        return pa.map_(
            arrow.key_field.with_type(nullable(arrow.key_type)),
            arrow.item_field.with_type(nullable(arrow.item_type)).with_nullable(True),
        )
    if pa.types.is_list(arrow):
        return pa.list_(arrow.value_field.with_type(nullable(arrow.value_type)).with_nullable(True))
    return arrow


def children(array: pa.StructArray) -> list[pa.Array]:
    """The fields of a struct, null where the struct is."""
    return array.flatten() if array.null_count else [array.field(n) for n in range(array.type.num_fields)]


def struct_like(array: pa.StructArray, parts: Sequence[pa.Array], arrow: pa.DataType) -> pa.StructArray:
    """`parts` are of the types of the fields of `arrow`."""
    fields = [arrow.field(n) for n in range(arrow.num_fields)]
    return pa.StructArray.from_arrays(parts, fields=fields, mask=array.is_null() if array.null_count else None)


def list_like(array: pa.ListArray, values: pa.Array, arrow: pa.DataType) -> pa.ListArray:
    """`values` are those of `array.values`, one for one."""
    return pa.ListArray.from_arrays(_offsets(array), values, type=arrow)


def map_like(array: pa.MapArray, keys: pa.Array, items: pa.Array, arrow: pa.DataType) -> pa.MapArray:
    """`keys` and `items` are those of `array.keys` and `array.items`, one for one."""
    return pa.MapArray.from_arrays(_offsets(array), keys, items, type=arrow)


def _offsets(array: pa.Array) -> pa.Array:
    """Offsets with null where the value is null, which is how `from_arrays` takes nulls of a slice."""
    offsets = array.offsets
    if not array.null_count:
        return offsets
    return pc.if_else(pa.concat_arrays([array.is_valid(), pa.array([True])]), offsets, None)
