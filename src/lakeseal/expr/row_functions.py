"""Functions that are computed one row at a time, in Python: the long tail, for which Arrow has no kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from lakeseal.errors import EvaluationError
from lakeseal.expr.bound import Bound
from lakeseal.expr.row_function import RowFunction
from lakeseal.expr.row_moments import MOMENT_FUNCTIONS
from lakeseal.expr.row_numbers import NUMBER_FUNCTIONS
from lakeseal.expr.row_texts import TEXT_FUNCTIONS
from lakeseal.expr.values import Datum, on_arrays

ROW = "row"
ROW_WITH_NULLS = "row with nulls"

ROW_FUNCTIONS: dict[str, RowFunction] = TEXT_FUNCTIONS | NUMBER_FUNCTIONS | MOMENT_FUNCTIONS


def run_rows(node: Bound, args: Sequence[Datum]) -> Datum:
    """The kernel of every row function; the node's option is its name, or what computes a row."""
    option = node.option
    compute: Callable[..., Any] = ROW_FUNCTIONS[option].compute if isinstance(option, str) else option
    strict = node.op == ROW

    def kernel(*arrays: pa.Array) -> pa.Array:
        rows = zip(*(_values(array) for array in arrays), strict=True)
        if strict:
            return _array([None if any(v is None for v in row) else compute(*row) for row in rows], node.arrow)
        return _array([compute(*row) for row in rows], node.arrow)

    return on_arrays(kernel, *args)


def _values(array: pa.Array) -> list[Any]:
    return list(_numbered(array).to_pylist())


def _numbered(array: pa.Array) -> pa.Array:
    """With numbers in place of dates and timestamps, at every depth."""
    return array.cast(_numbered_type(array.type)) if _has_moments(array.type) else array


def _has_moments(arrow: pa.DataType) -> bool:
    if pa.types.is_nested(arrow):
        return any(_has_moments(arrow.field(n).type) for n in range(arrow.num_fields))
    return bool(pa.types.is_date(arrow) or pa.types.is_timestamp(arrow) or pa.types.is_duration(arrow))


def _numbered_type(arrow: pa.DataType) -> pa.DataType:
    if pa.types.is_date(arrow):
        return pa.int32()
    if pa.types.is_timestamp(arrow) or pa.types.is_duration(arrow):
        return pa.int64()
    if pa.types.is_list(arrow):
        return pa.list_(arrow.value_field.with_type(_numbered_type(arrow.value_type)))
    if pa.types.is_map(arrow):
        return pa.map_(_numbered_type(arrow.key_type), _numbered_type(arrow.item_type))
    if pa.types.is_struct(arrow):
        fields = (arrow.field(n) for n in range(arrow.num_fields))
        return pa.struct([field.with_type(_numbered_type(field.type)) for field in fields])
    return arrow


def _array(values: list[Any], arrow: pa.DataType) -> pa.Array:
    try:
        if _has_moments(arrow):
            return pa.array(values, _numbered_type(arrow)).cast(arrow)
        return pa.array(values, arrow)
    except (pa.ArrowInvalid, OverflowError):
        raise EvaluationError(f"A result does not fit {arrow}") from None
