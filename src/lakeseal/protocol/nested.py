"""Structs, lists and maps put together again from changed parts, nulls and slices of the original kept."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeseal.protocol.arrays import array as array_of
from lakeseal.protocol.arrays import numbers, truths


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
    offsets, (own,) = _own(array, values)
    return pa.ListArray.from_arrays(offsets, own, type=arrow)


def map_like(array: pa.MapArray, keys: pa.Array, items: pa.Array, arrow: pa.DataType) -> pa.MapArray:
    """`keys` and `items` are those of `array.keys` and `array.items`, one for one."""
    offsets, (own_keys, own_items) = _own(array, keys, items)
    return pa.MapArray.from_arrays(offsets, own_keys, own_items, type=arrow)


def without_hidden(array: pa.Array) -> pa.Array:
    """The same values, with nothing in a list or a map that is null. Arrow lets something be there, as it always is in
    lists of a fixed size, and kernels disagree on whether to see it."""
    if not has_lists(array.type):
        return array
    if pa.types.is_struct(array.type):
        return struct_like(array, [without_hidden(child) for child in children(array)], array.type)
    if pa.types.is_map(array.type):
        keys, items = without_hidden(array.keys), without_hidden(array.items)
        return map_like(array, keys, items, array.type)
    return list_like(array, without_hidden(array.values), array.type)


def has_lists(arrow: pa.DataType) -> bool:
    """Whether it is a type of lists or of maps, or a struct with one in it."""
    if pa.types.is_struct(arrow):
        return any(has_lists(arrow.field(n).type) for n in range(arrow.num_fields))
    return bool(pa.types.is_list(arrow) or pa.types.is_map(arrow))


def _own(array: pa.Array, *parts: pa.Array) -> tuple[pa.Array, Sequence[pa.Array]]:
    """Offsets with null where the value is null, which is how `from_arrays` takes nulls of a slice, and the parts that
    they are of. What such a null spans is left out: `from_arrays` would give it to the value before."""
    offsets = array.offsets
    if not array.null_count:
        return offsets, parts
    lengths = pc.subtract(offsets.slice(1), offsets.slice(0, len(array)))
    there = array.is_valid()
    hidden = pc.and_(pc.invert(there), pc.greater(lengths, 0))
    if pc.any(hidden).as_py():
        first, last = offsets[0].as_py(), offsets[-1].as_py()
        counts, seen = numbers(lengths), truths(there)
        kept = array_of(np.repeat(seen, counts), pa.bool_())
        parts = tuple(part.slice(first, last - first).filter(kept) for part in parts)
        ends = np.cumsum(np.where(seen, counts, 0), dtype=np.int32)
        offsets = array_of(np.concatenate([np.zeros(1, np.int32), ends]), pa.int32())
    return pc.if_else(pa.concat_arrays([there, pa.array([True])]), offsets, None), parts
