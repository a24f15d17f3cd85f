"""Spark's `hash` (Murmur3) and `xxhash64` of values, in that order, with seed 42. A null leaves the hash as it was."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from lakeseal.expr.row_numbers import wrapped
from lakeseal.protocol.schema import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    SHORT,
    STRING,
    DataType,
    DecimalType,
)

_32 = 0xFFFFFFFF
_64 = 0xFFFFFFFFFFFFFFFF
_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_SEED = 42


def bits_of(value: Any, data_type: DataType) -> tuple[str, Any]:
    """What is hashed of a value: an int, a long, or bytes."""
    if data_type == BOOLEAN:
        return "int", int(value)
    if data_type in (BYTE, SHORT, INTEGER, DATE):
        return "int", value
    if data_type == FLOAT:
        return "int", struct.unpack("<i", struct.pack("<f", value + 0.0 if value == value else float("nan")))[0]
    if data_type == DOUBLE:
        return "long", struct.unpack("<q", struct.pack("<d", value + 0.0 if value == value else float("nan")))[0]
    if data_type == STRING:
        return "bytes", value.encode()
    if data_type == BINARY:
        return "bytes", value
    if isinstance(data_type, DecimalType):
        unscaled = int(value.scaleb(data_type.scale))
        if data_type.precision <= 18:
            return "long", unscaled
        return "bytes", unscaled.to_bytes((unscaled + (unscaled < 0)).bit_length() // 8 + 1, "big", signed=True)
    return "long", value


def murmur3(types: tuple[DataType, ...], *values: Any) -> int:
    return wrapped(_folded(types, values, _murmur3_value), 32)


def xxhash64(types: tuple[DataType, ...], *values: Any) -> int:
    return wrapped(_folded(types, values, _xxhash64_value), 64)


def _folded(types: tuple[DataType, ...], values: tuple[Any, ...], one: Callable[[str, Any, int], int]) -> int:
    seed = _SEED
    for data_type, value in zip(types, values, strict=True):
        if value is not None:
            seed = one(*bits_of(value, data_type), seed)
    return seed


def _rotated(value: int, count: int, bits: int) -> int:
    mask = (1 << bits) - 1
    return ((value << count) | (value >> (bits - count))) & mask


def _mixed_word(word: int) -> int:
    return _rotated(word * 0xCC9E2D51 & _32, 15, 32) * 0x1B873593 & _32


def _mixed_hash(seed: int, word: int) -> int:
    return (_rotated(seed ^ _mixed_word(word & _32), 13, 32) * 5 + 0xE6546B64) & _32


def _murmur3_value(kind: str, value: Any, seed: int) -> int:
    seed &= _32
    if kind == "int":
        return _murmur3_end(_mixed_hash(seed, value), 4)
    if kind == "long":
        return _murmur3_end(_mixed_hash(_mixed_hash(seed, value), value >> 32), 8)
    whole = len(value) // 4 * 4
    for (word,) in struct.iter_unpack("<I", value[:whole]):
        seed = _mixed_hash(seed, word)
    for byte in value[whole:]:
        seed = _mixed_hash(seed, byte - 256 if byte > 127 else byte)
    return _murmur3_end(seed, len(value))


def _murmur3_end(value: int, length: int) -> int:
    value ^= length
    value = (value ^ value >> 16) * 0x85EBCA6B & _32
    value = (value ^ value >> 13) * 0xC2B2AE35 & _32
    return value ^ value >> 16


def _xxhash64_value(kind: str, value: Any, seed: int) -> int:
    seed &= _64
    if kind == "int":
        mixed = (seed + _P5 + 4) & _64
        mixed ^= (value & _32) * _P1 & _64
        return _xxhash64_end((_rotated(mixed, 23, 64) * _P2 + _P3) & _64)
    if kind == "long":
        mixed = (seed + _P5 + 8) & _64
        mixed ^= _rotated((value & _64) * _P2 & _64, 31, 64) * _P1 & _64
        return _xxhash64_end((_rotated(mixed, 27, 64) * _P1 + _P4) & _64)
    return _xxhash64_bytes(value, seed)


def _round(lane: int, word: int) -> int:
    return _rotated((lane + word * _P2) & _64, 31, 64) * _P1 & _64


def _xxhash64_bytes(data: bytes, seed: int) -> int:
    at, end = 0, len(data)
    if end >= 32:
        lanes = [(seed + _P1 + _P2) & _64, (seed + _P2) & _64, seed, (seed - _P1) & _64]
        while at + 32 <= end:
            words = struct.unpack_from("<4Q", data, at)
            lanes = [_round(lane, word) for lane, word in zip(lanes, words, strict=True)]
            at += 32
        mixed = sum(_rotated(lane, n, 64) for lane, n in zip(lanes, (1, 7, 12, 18), strict=True)) & _64
        for lane in lanes:
            mixed = ((mixed ^ _round(0, lane)) * _P1 + _P4) & _64
    else:
        mixed = (seed + _P5) & _64
    mixed = (mixed + end) & _64
    while at + 8 <= end:
        (word,) = struct.unpack_from("<Q", data, at)
        mixed = (_rotated(mixed ^ _round(0, word), 27, 64) * _P1 + _P4) & _64
        at += 8
    if at + 4 <= end:
        (word,) = struct.unpack_from("<I", data, at)
        mixed = (_rotated(mixed ^ (word * _P1 & _64), 23, 64) * _P2 + _P3) & _64
        at += 4
    for byte in data[at:]:
        mixed = _rotated(mixed ^ (byte * _P5 & _64), 11, 64) * _P1 & _64
    return _xxhash64_end(mixed)


def _xxhash64_end(mixed: int) -> int:
    mixed = (mixed ^ mixed >> 33) * _P2 & _64
    mixed = (mixed ^ mixed >> 29) * _P3 & _64
    return mixed ^ mixed >> 32
