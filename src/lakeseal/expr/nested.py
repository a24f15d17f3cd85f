"""Parts of structs, arrays and maps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeseal.errors import EvaluationError
from lakeseal.expr.bound import Bound
from lakeseal.expr.values import Datum, either, on_arrays, to_numpy
from lakeseal.protocol.nested import without_hidden


def struct_field(array: pa.Array, name: str) -> pa.Array:
    """A struct's field, null where the struct is."""
    position = array.type.get_field_index(name)
    child = array.field(position)
    return child if not array.null_count else pc.if_else(pc.is_valid(array), child, pa.scalar(None, child.type))


def get_field(node: Bound, args: Sequence[Datum]) -> Datum:
    return on_arrays(lambda array: struct_field(array, node.option), *args)


def array_item(node: Bound, args: Sequence[Datum]) -> Datum:
    """`a[i]`, from 0; an index beyond the array is an error, as in Spark."""

    def kernel(array: pa.Array, index: pa.Array) -> pa.Array:
        positions, nulls = to_numpy(index)
        positions = positions.astype(np.int64)
        lengths, no_array = to_numpy(pc.list_value_length(array))
        nulls = either(nulls, no_array)
        bad = (positions < 0) | (positions >= lengths)
        bad = bad if nulls is None else bad & ~nulls
        if bad.any():
            first = int(np.argmax(bad))
            raise EvaluationError(
                f"The index {positions[first]} is beyond an array of {lengths[first]} elements",
                hint="Check size() first",
            )
        starts = np.asarray(array.offsets)[:-1].astype(np.int64)
        return array.values.take(pa.array(starts + positions, mask=nulls))

    return on_arrays(kernel, *args)


def map_item(node: Bound, args: Sequence[Datum]) -> Datum:
    """`m[key]` for the constant key in the node's option; NULL where the map has no such key."""
    return on_arrays(lambda array: pc.map_lookup(array, query_key=node.option, occurrence="first"), *args)


def size(node: Bound, args: Sequence[Datum]) -> Datum:
    def kernel(array: pa.Array) -> pa.Array:
        counts = np.diff(np.asarray(array.offsets)).astype(np.int32)
        return pa.array(counts, mask=np.asarray(pc.is_null(array)).astype(np.bool_))

    return on_arrays(kernel, *args)


def array_contains(node: Bound, args: Sequence[Datum]) -> Datum:
    """Whether an array holds the constant in the node's option; NULL if it does not, but holds a NULL."""

    def kernel(array: pa.Array) -> pa.Array:
        count = len(array)
        array = without_hidden(array)
        owners = np.asarray(pc.list_parent_indices(array))
        items = pc.list_flatten(array)
        found = np.zeros(count, dtype=np.bool_)
        unknown = np.asarray(pc.is_null(array)).astype(np.bool_)
        found[owners[np.asarray(pc.fill_null(pc.equal(items, node.option), False)).astype(np.bool_)]] = True
        unknown[owners[np.asarray(pc.is_null(items)).astype(np.bool_)]] = True
        return pa.array(found, mask=unknown & ~found)

    return on_arrays(kernel, *args)
