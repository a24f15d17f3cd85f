"""Arrow arrays of Python's and NumPy's values, as `pa.array` makes them, and without pandas.

`pa.array` loads pandas, where it is installed, when it is first given anything but Arrow's, and so does `to_numpy`:
0.2 s of a process that opens a small table in 0.01 s otherwise. So what is on the way to a table's files is made here,
out of buffers, until somebody else has loaded pandas; from then on `pa.array` does it, which is faster.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

_NUMBERS = {pa.int32(): np.int32, pa.int64(): np.int64}
_MOST_TEXT = 2**31 - 1


def array(values: Sequence[Any] | np.ndarray, kind: pa.DataType) -> pa.Array:
    """Of this type; None is null."""
    made = None if "pandas" in sys.modules else _made(values, kind)
    return pa.array(values, kind) if made is None else made


def numbers(values: pa.Array) -> np.ndarray:
    """As `to_numpy`, which loads pandas, too. Of integers without nulls; not a copy."""
    held = values.buffers()[1]
    kind = _NUMBERS[values.type]
    return np.frombuffer(b"" if held is None else held, dtype=kind)[values.offset : values.offset + len(values)]


def truths(values: pa.Array) -> np.ndarray:
    """As `to_numpy`, of truths without nulls."""
    held = values.buffers()[1]
    bits = np.frombuffer(b"" if held is None else held, dtype=np.uint8)
    end = values.offset + len(values)
    return np.unpackbits(bits, count=end, bitorder="little")[values.offset :].astype(np.bool_)


def _made(values: Sequence[Any] | np.ndarray, kind: pa.DataType) -> pa.Array | None:
    """None where this is left to Arrow, which may refuse it."""
    if len(values) == 0:
        return pa.nulls(0, kind)
    if isinstance(values, np.ndarray):
        return _of_numpy(values, kind)
    if types.is_string(kind):
        return _texts(values)
    if types.is_boolean(kind):
        return _truths(values)
    if kind in _NUMBERS:
        return _numbers(values, kind)
    if types.is_struct(kind):
        return _structs(values, kind)
    return None


def _of_numpy(values: np.ndarray, kind: pa.DataType) -> pa.Array | None:
    if types.is_boolean(kind) and values.dtype == np.bool_:
        return pa.Array.from_buffers(kind, len(values), [None, _bits(values)])
    if kind in _NUMBERS and values.dtype == _NUMBERS[kind]:
        return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])
    return None


def _texts(values: Sequence[Any]) -> pa.Array | None:
    if not all(type(value) is str or value is None for value in values):
        return None
    try:
        encoded = [b"" if value is None else value.encode() for value in values]
    except UnicodeEncodeError:
        return None
    ends = np.cumsum([len(value) for value in encoded], dtype=np.int64)
    if ends[-1] > _MOST_TEXT:
        return None
    offsets = np.zeros(len(values) + 1, dtype=np.int32)
    offsets[1:] = ends
    buffers = [_validity(values), pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(values), buffers)


def _truths(values: Sequence[Any]) -> pa.Array | None:
    if not all(type(value) is bool or value is None for value in values):
        return None
    bits = _bits(np.array([value is True for value in values], dtype=np.bool_))
    return pa.Array.from_buffers(pa.bool_(), len(values), [_validity(values), bits])


def _numbers(values: Sequence[Any], kind: pa.DataType) -> pa.Array | None:
    if not all(type(value) is int or value is None for value in values):
        return None
    try:
        numbers = np.array([0 if value is None else value for value in values], dtype=_NUMBERS[kind])
    except OverflowError:
        return None
    return pa.Array.from_buffers(kind, len(values), [_validity(values), pa.py_buffer(numbers)])


def _structs(values: Sequence[Any], kind: pa.StructType) -> pa.Array | None:
    if not all(type(value) is dict or value is None for value in values):
        return None
    children = [_made([None if v is None else v.get(field.name) for v in values], field.type) for field in kind]
    if any(child is None for child in children):
        return None
    return pa.Array.from_buffers(kind, len(values), [_validity(values)], children=children)


def _validity(values: Sequence[Any]) -> pa.Buffer | None:
    present = np.array([value is not None for value in values], dtype=np.bool_)
    return None if present.all() else _bits(present)


def _bits(truths: np.ndarray) -> pa.Buffer:
    return pa.py_buffer(np.packbits(truths, bitorder="little"))
