"""Type widening: which types a column may grow into, and what its metadata then says. Pure.

Values in files that are there stay as they were written; readers take them for values of the new type. Every change is
noted in the field's `delta.typeChanges`, oldest first; of what an array or a map holds, in the field that holds it,
with the path that leads there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakeseal.protocol.schema import (
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
    type_to_json,
)

TYPE_CHANGES = "delta.typeChanges"

_INTEGERS = (BYTE, SHORT, INTEGER, LONG)
_DIGITS = {BYTE: 10, SHORT: 10, INTEGER: 10, LONG: 20}


def is_widening(old: DataType, new: DataType) -> bool:
    """Whether a column of type `old` may become one of type `new`."""
    if isinstance(new, DecimalType) and old in _INTEGERS:
        return new.precision - new.scale >= _DIGITS[old]
    return is_growth(old, new) or (old in (BYTE, SHORT, INTEGER) and new == DOUBLE)


def is_growth(old: DataType, new: DataType) -> bool:
    """Whether it may do so without being asked, because data of that type comes: the kind of value stays."""
    if isinstance(old, DecimalType) and isinstance(new, DecimalType):
        more_scale, more_digits = new.scale - old.scale, new.precision - old.precision
        return old != new and more_scale >= 0 and more_digits >= more_scale
    if old in _INTEGERS and new in _INTEGERS:
        return _INTEGERS.index(new) > _INTEGERS.index(old)
    return (old, new) in ((FLOAT, DOUBLE), (DATE, TIMESTAMP_NTZ))


def with_change(notes: Mapping[str, Any], old: DataType, new: DataType, inner: tuple[str, ...]) -> dict[str, Any]:
    """The field's metadata with one more change; `inner` leads into arrays and maps."""
    change = {"fromType": type_to_json(old), "toType": type_to_json(new)}
    if inner:
        change["fieldPath"] = ".".join(inner)
    before = notes.get(TYPE_CHANGES)
    return {**notes, TYPE_CHANGES: [*(before if isinstance(before, list) else []), change]}
