"""Variants as bytes: the parts of their encoding that it takes to put one together again.

A variant is two binaries: `metadata`, a dictionary of field names, and `value`, in which objects name their fields by
places of that dictionary. What is malformed raises `ValueError`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

NULL = b"\x00"

_PRIMITIVE, _SHORT_TEXT, _OBJECT, _ARRAY = range(4)
_VERSION = 1
_BINARY, _TEXT = 15, 16
# By the primitive type's number; texts and binaries say their length themselves.
_SIZES = (0, 0, 0, 1, 2, 4, 8, 8, 5, 9, 17, 4, 8, 8, 4, None, None, 8, 8, 8, 16)
_LONGEST_SHORT_TEXT = 63
_MOST_IN_SMALL = 255


def primitive(number: int, data: bytes = b"") -> bytes:
    """A value of a primitive type, by the type's number in the format."""
    return bytes([number << 2]) + data


def boolean(value: bool) -> bytes:
    return primitive(1 if value else 2)


def integer(value: int, bits: int) -> bytes:
    return primitive({8: 3, 16: 4, 32: 5, 64: 6}[bits], value.to_bytes(bits // 8, "little", signed=True))


def double(value: float) -> bytes:
    return primitive(7, struct.pack("<d", value))


def single(value: float) -> bytes:
    return primitive(14, struct.pack("<f", value))


def decimal(unscaled: int, precision: int, scale: int) -> bytes:
    number, size = (8, 4) if precision <= 9 else (9, 8) if precision <= 18 else (10, 16)
    return primitive(number, bytes([scale]) + unscaled.to_bytes(size, "little", signed=True))


def text(value: bytes) -> bytes:
    """Of UTF-8."""
    if len(value) <= _LONGEST_SHORT_TEXT:
        return bytes([len(value) << 2 | _SHORT_TEXT]) + value
    return primitive(_TEXT, struct.pack("<I", len(value)) + value)


def binary(value: bytes) -> bytes:
    return primitive(_BINARY, struct.pack("<I", len(value)) + value)


def array(elements: Sequence[bytes]) -> bytes:
    offsets, width = _offsets(elements)
    is_large = len(elements) > _MOST_IN_SMALL
    head = (is_large << 2 | width - 1) << 2 | _ARRAY
    return bytes([head]) + _count(len(elements), is_large=is_large) + offsets + b"".join(elements)


def composed(fields: Mapping[str, bytes], dictionary: Mapping[str, int]) -> bytes:
    """An object of these fields."""
    # By their bytes, as readers search them.
    names = sorted(fields, key=lambda name: name.encode())
    missing = next((name for name in names if name not in dictionary), None)
    if missing is not None:
        raise ValueError(f"its dictionary lacks the field {missing!r}")
    ids = [dictionary[name] for name in names]
    values = [fields[name] for name in names]
    offsets, width = _offsets(values)
    id_width = _width(max(ids, default=0))
    is_large = len(ids) > _MOST_IN_SMALL
    head = (is_large << 4 | id_width - 1 << 2 | width - 1) << 2 | _OBJECT
    placed = b"".join(number.to_bytes(id_width, "little") for number in ids)
    return bytes([head]) + _count(len(ids), is_large=is_large) + placed + offsets + b"".join(values)


@lru_cache(maxsize=256)
def names(metadata: bytes) -> tuple[str, ...]:
    """The dictionary's names in their order."""
    if not metadata or metadata[0] & 0x0F != _VERSION:
        raise ValueError("its metadata is of no version that is known")
    width = (metadata[0] >> 6) + 1
    count = _number(metadata, 1, width)
    ends = [_number(metadata, 1 + width * (n + 1), width) for n in range(count + 1)]
    start = 1 + width * (count + 2)
    parts = [_slice(metadata, start + a, b - a) for a, b in pairwise(ends)]
    return tuple(part.decode() for part in parts)


def fields(value: bytes, dictionary: Sequence[str]) -> dict[str, bytes] | None:
    """The fields of an object; None for what is no object."""
    if not value or value[0] & 3 != _OBJECT:
        return None
    count, places, width, start = _layout(value, 0)
    id_width = (value[0] >> 4 & 3) + 1
    found = {}
    for n in range(count):
        number = _number(value, places - id_width * count + id_width * n, id_width)
        if number >= len(dictionary):
            raise ValueError("it names a field that its dictionary lacks")
        at = start + _number(value, places + width * n, width)
        found[dictionary[number]] = _slice(value, at, _size(value, at))
    return found


def _size(data: bytes, at: int) -> int:
    """How many bytes the value at `at` has."""
    head = _slice(data, at, 1)[0]
    kind, detail = head & 3, head >> 2
    if kind == _SHORT_TEXT:
        return 1 + detail
    if kind == _PRIMITIVE:
        if detail >= len(_SIZES):
            raise ValueError(f"it has a value of the unknown type {detail}")
        size = _SIZES[detail]
        return 5 + _number(data, at + 1, 4) if size is None else 1 + size
    count, places, width, start = _layout(data, at)
    return start + _number(data, places + width * count, width) - at


def _layout(data: bytes, at: int) -> tuple[int, int, int, int]:
    """Of an object or array: how many values, where their offsets begin, how wide each is, and where values begin."""
    detail = data[at] >> 2
    is_object = data[at] & 3 == _OBJECT
    is_large = detail >> (4 if is_object else 2) & 1
    count = _number(data, at + 1, 4 if is_large else 1)
    width = (detail & 3) + 1
    places = at + (5 if is_large else 2) + (count * ((detail >> 2 & 3) + 1) if is_object else 0)
    return count, places, width, places + width * (count + 1)


def _offsets(values: Sequence[bytes]) -> tuple[bytes, int]:
    ends = [0]
    for value in values:
        ends.append(ends[-1] + len(value))
    width = _width(ends[-1])
    return b"".join(end.to_bytes(width, "little") for end in ends), width


def _width(number: int) -> int:
    return max(1, (number.bit_length() + 7) // 8)


def _count(number: int, *, is_large: bool) -> bytes:
    return number.to_bytes(4 if is_large else 1, "little")


def _number(data: bytes, at: int, width: int) -> int:
    return int.from_bytes(_slice(data, at, width), "little")


def _slice(data: bytes, at: int, size: int) -> bytes:
    if size < 0 or at + size > len(data):
        raise ValueError("it is cut off")
    return data[at : at + size]
