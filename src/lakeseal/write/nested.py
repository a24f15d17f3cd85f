"""Structs, lists and maps put together again from changed parts, nulls and slices of the original kept."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc


def children(array: pa.StructArray) -> list[pa.Array]:
    """The fields of a struct, null where the struct is."""
    return array.flatten() if array.null_count else [array.field(n) for n in range(array.type.num_fields)]


def struct_like(array: pa.StructArray, parts: Sequence[pa.Array], arrow: pa.DataType) -> pa.StructArray:
    # Arrow refuses nulls in fields that are flagged as without; flags say what is checked later.
    fields = [arrow.field(n).with_nullable(True) for n in range(arrow.num_fields)]
    mask = array.is_null() if array.null_count else None
    made = pa.StructArray.from_arrays(parts, fields=fields, mask=mask)
    return made if made.type.equals(arrow, check_metadata=True) else made.view(arrow)


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
