"""What flows between kernels: an Arrow array of one value per row, or one scalar for all rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeseal.protocol.text_values import format_day, format_micros

Datum = Any
"""`pa.Array | pa.Scalar`, which have no type stubs."""

Bools = npt.NDArray[np.bool_]


def is_scalar(datum: Datum) -> bool:
    return isinstance(datum, pa.Scalar)


def as_array(datum: Datum, length: int) -> pa.Array:
    return pa.repeat(datum, length) if is_scalar(datum) else datum


def on_arrays(kernel: Callable[..., pa.Array], *args: Datum) -> Datum:
    """Calls a kernel that knows only arrays of one length; scalars in give a scalar out."""
    length = next((len(arg) for arg in args if not is_scalar(arg)), None)
    if length is None:
        return kernel(*(as_array(arg, 1) for arg in args))[0]
    return kernel(*(as_array(arg, length) for arg in args))


def has_nulls(datum: Datum) -> bool:
    return not datum.is_valid if is_scalar(datum) else datum.null_count > 0


def valid(datum: Datum) -> Datum:
    return pa.scalar(datum.is_valid) if is_scalar(datum) else pc.is_valid(datum)


def truths(datum: Datum, length: int) -> Bools:
    """Where a boolean is TRUE: NULL counts as not."""
    if is_scalar(datum):
        return np.full(length, bool(datum.as_py()), dtype=np.bool_)
    filled = datum.fill_null(False) if datum.null_count else datum
    return np.asarray(filled.to_numpy(zero_copy_only=False), dtype=np.bool_)


def to_numpy(array: pa.Array) -> tuple[npt.NDArray[Any], Bools | None]:
    """A numeric or temporal array's values (anything where null) and where it is null; None if nowhere."""
    if pa.types.is_temporal(array.type):
        array = array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())
    if not array.null_count:
        return array.to_numpy(zero_copy_only=False), None
    nulls = pc.is_null(array).to_numpy(zero_copy_only=False)
    return array.fill_null(pa.scalar(0, array.type)).to_numpy(zero_copy_only=False), nulls


def from_numpy(values: npt.NDArray[Any], nulls: Bools | None, arrow: pa.DataType) -> pa.Array:
    if pa.types.is_temporal(arrow):
        width = pa.int32() if arrow.bit_width == 32 else pa.int64()
        return pa.array(values, type=width, mask=nulls).view(arrow)
    return pa.array(values, type=arrow, mask=nulls)


def either(one: Bools | None, other: Bools | None) -> Bools | None:
    """The union of two null masks."""
    if one is None or other is None:
        return other if one is None else one
    return one | other


def scatter(values: Datum, chosen: Bools) -> Datum:
    """Values of chosen rows back at their places; null everywhere else."""
    if is_scalar(values):
        return values
    return values.take(pa.array(np.cumsum(chosen) - 1, mask=~chosen))


def first_value(array: pa.Array, bad: pa.Array) -> Any:
    """The first value that `bad` marks, for an error's text."""
    scalar = array.filter(bad)[0]
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        # A date that Python's calendar does not have.
        if pa.types.is_date(scalar.type):
            return format_day(scalar.cast(pa.int32()).as_py())
        return format_micros(scalar.cast(pa.int64()).as_py())
