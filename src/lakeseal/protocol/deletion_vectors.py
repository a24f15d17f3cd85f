"""Deletion vectors: which rows of a data file are gone, as bytes and as row positions.

`decode` and `encode` are inverse over sorted positions; `frame` and `unframe` are the layout of a deletion vector's
file, checksums included; `z85_encode` and `z85_decode` are the text form that descriptors use. Nothing here does I/O.

Any bytes that do not hold what they should raise `BrokenDeletionVector`. Bytes are untrusted: a few of them can claim
billions of rows, so positions are laid out in memory only after their number was compared to the descriptor's.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Sequence
from uuid import UUID

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap, BitMap64

from lakeseal.errors import BrokenDeletionVector
from lakeseal.protocol.actions import DeletionVectorDescriptor

Positions = npt.NDArray[np.uint64]

FILE_VERSION = 1
PORTABLE_MAGIC = 1681511377
NATIVE_MAGIC = 1681511376
"""Early clients wrote it: 32-bit bitmaps one behind the other, each behind its length, and no keys. The protocol's own
example of an inline vector has it too, with numbers in big-endian order."""

INLINE = "i"
RELATIVE = "u"
ABSOLUTE = "p"

_NATIVE_MAGIC_BIG_ENDIAN = int.from_bytes(NATIVE_MAGIC.to_bytes(4, "big"), "little")
_UUID_LENGTH = 20
_MAX_POSITION = 2**63 - 1
_ALPHABET = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_DIGITS = np.frombuffer(_ALPHABET, dtype=np.uint8)
_VALUES = np.full(256, 255, dtype=np.uint8)
_VALUES[_DIGITS] = np.arange(85, dtype=np.uint8)
_PLACES = np.array([85**4, 85**3, 85**2, 85, 1], dtype=np.uint64)
_FILLER = _ALPHABET.index(b"#")


def z85_encode(data: bytes) -> str:
    """Z85 text; data whose length is not a multiple of four is filled up with zero bytes."""
    words = np.frombuffer(data + bytes(-len(data) % 4), dtype=">u4").astype(np.uint64)
    text: str = _DIGITS[words[:, None] // _PLACES % 85].tobytes().decode("ascii")
    return text


def z85_decode(text: str, size: int | None = None) -> bytes:
    """The bytes of a Z85 text, cut to `size` where it was filled up.

    Some writers do not fill up the bytes but the text: for each byte that the last group has less than four, a `#`
    stands before its digits. No four bytes are written that way, for the number would be beyond 2^32."""
    codes = _VALUES[np.frombuffer(text.encode("utf-8"), dtype=np.uint8)]
    if len(codes) % 5 or (codes == 255).any():
        raise BrokenDeletionVector("A deletion vector's text is not Z85")
    groups = codes.reshape(-1, 5).astype(np.uint64)
    absent = _filled(groups[-1]) if len(groups) else 0
    if absent:
        groups[-1, :absent] = 0
    words = (groups * _PLACES).sum(axis=1, dtype=np.uint64)
    if (words >= 2**32).any() or (absent and words[-1] >= 256 ** (4 - absent)):
        raise BrokenDeletionVector("A deletion vector's text is not Z85")
    data: bytes = words.astype(">u4").tobytes()
    if absent:
        data = data[:-4] + data[-4 + absent :]
    if size is None:
        return data
    least = len(data) if absent else len(data) - 3
    if not least <= size <= len(data):
        raise BrokenDeletionVector(f"A deletion vector holds {len(data)} bytes where its descriptor says {size}")
    return data[:size]


def _filled(group: Positions) -> int:
    """How many places at the start of a group are filled with `#`; at least one byte, so two digits, is left."""
    digits = np.flatnonzero(group != _FILLER)
    return min(int(digits[0]), 3) if len(digits) else 3


def relative_path(descriptor: DeletionVectorDescriptor) -> str:
    """The file of a `u` descriptor, relative to the table."""
    text = descriptor.path_or_inline_dv
    data = z85_decode(text[-_UUID_LENGTH:])
    if len(data) != 16:
        raise BrokenDeletionVector(f"The deletion vector {text!r} does not end in a UUID")
    prefix = text[:-_UUID_LENGTH]
    name = f"deletion_vector_{UUID(bytes=data)}.bin"
    return f"{prefix}/{name}" if prefix else name


def relative_descriptor(
    uuid: UUID, *, prefix: str = "", offset: int, size: int, cardinality: int
) -> DeletionVectorDescriptor:
    """The descriptor of a vector at `offset` in the file that `relative_path` gives back."""
    return DeletionVectorDescriptor(
        storage_type=RELATIVE,
        path_or_inline_dv=prefix + z85_encode(uuid.bytes),
        offset=offset,
        size_in_bytes=size,
        cardinality=cardinality,
    )


def inline_descriptor(data: bytes, cardinality: int) -> DeletionVectorDescriptor:
    """The descriptor that holds an encoded vector itself."""
    return DeletionVectorDescriptor(
        storage_type=INLINE,
        path_or_inline_dv=z85_encode(data),
        size_in_bytes=len(data),
        cardinality=cardinality,
    )


def inline_positions(descriptor: DeletionVectorDescriptor) -> Positions:
    data = z85_decode(descriptor.path_or_inline_dv, descriptor.size_in_bytes)
    return decode(data, descriptor.cardinality)


def decode(data: bytes, cardinality: int) -> Positions:
    """The positions that are gone, ascending; exactly as many as the descriptor's `cardinality`."""
    if len(data) < 4:
        raise BrokenDeletionVector("A deletion vector is cut short")
    (magic,) = struct.unpack_from("<I", data)
    if magic == PORTABLE_MAGIC:
        bitmap = _portable(data[4:])
    elif magic == NATIVE_MAGIC:
        bitmap = _native(data, cardinality, "<I")
    elif magic == _NATIVE_MAGIC_BIG_ENDIAN:
        bitmap = _native(data, cardinality, ">I")
    else:
        raise BrokenDeletionVector(
            f"A deletion vector starts with {magic}, which is no format that is known",
            hint="Read the table with a newer client",
        )
    if len(bitmap) != cardinality:
        raise BrokenDeletionVector(
            f"A deletion vector holds {len(bitmap)} rows where its descriptor says {cardinality}"
        )
    if cardinality and bitmap.max() > _MAX_POSITION:
        raise BrokenDeletionVector("A deletion vector holds a row position beyond 2^63")
    return np.frombuffer(bitmap.to_array(), dtype=np.uint64)


def encode(positions: Positions | Sequence[int]) -> bytes:
    """The portable format over positions in any order."""
    bitmap = _bitmap(np.asarray(positions, dtype=np.uint64))
    if bitmap and bitmap.max() > _MAX_POSITION:
        raise BrokenDeletionVector("A row position is beyond 2^63")
    return struct.pack("<I", PORTABLE_MAGIC) + bytes(bitmap.serialize())


def _bitmap(positions: Positions) -> BitMap64:
    # Only an array.array takes the fast way in; a numpy array would be walked item by item.
    values = array("Q")
    values.frombytes(positions.tobytes())
    return BitMap64(values)


def _portable(data: bytes) -> BitMap64:
    if len(data) < 8:
        raise BrokenDeletionVector("A deletion vector is cut short")
    try:
        return BitMap64.deserialize(data)
    except ValueError as error:
        raise BrokenDeletionVector(f"A deletion vector is not a bitmap: {error}") from error


def _native(data: bytes, cardinality: int, number: str) -> BitMap64:
    bitmap, at, found = BitMap64(), 8, 0
    if len(data) < at:
        raise BrokenDeletionVector("A deletion vector is cut short")
    (count,) = struct.unpack_from(number, data, 4)
    for high in range(count):
        if len(data) < at + 4:
            raise BrokenDeletionVector("A deletion vector is cut short")
        (size,) = struct.unpack_from(number, data, at)
        if not 0 < size <= len(data) - at - 4:
            raise BrokenDeletionVector("A deletion vector is cut short")
        try:
            part = BitMap.deserialize(data[at + 4 : at + 4 + size])
        except ValueError as error:
            raise BrokenDeletionVector(f"A deletion vector is not a bitmap: {error}") from error
        found += len(part)
        if found > cardinality:
            raise BrokenDeletionVector(f"A deletion vector holds more rows than the {cardinality} of its descriptor")
        if part:
            low = np.frombuffer(part.to_array(), dtype=np.uint32).astype(np.uint64)
            bitmap |= _bitmap(low | np.uint64(high << 32))
        at += 4 + size
    return bitmap


def frame(vectors: Sequence[bytes]) -> tuple[bytes, list[int]]:
    """One file for many vectors, and the offset of each for its descriptor."""
    parts, offsets, at = [bytes([FILE_VERSION])], [], 1
    for data in vectors:
        offsets.append(at)
        parts += [struct.pack(">I", len(data)), data, struct.pack(">I", zlib.crc32(data))]
        at += 8 + len(data)
    return b"".join(parts), offsets


def framed_range(descriptor: DeletionVectorDescriptor) -> tuple[int, int]:
    """Where in its file the bytes for `unframe` are: start and length."""
    if not 0 <= descriptor.size_in_bytes < 2**31 or (descriptor.offset or 0) < 0:
        raise BrokenDeletionVector("A deletion vector's descriptor has an impossible size or offset")
    # A vector cannot start where the version is, so an offset that is left out or zero can only mean the first one.
    return max(descriptor.offset or 0, 1), descriptor.size_in_bytes + 8


def unframe(framed: bytes, descriptor: DeletionVectorDescriptor) -> bytes:
    """The vector in the bytes that `framed_range` asked for, its size and checksum verified."""
    size = descriptor.size_in_bytes
    if len(framed) < size + 8:
        raise BrokenDeletionVector("A deletion vector's file is cut short")
    (stated,) = struct.unpack_from(">I", framed)
    if stated != size:
        raise BrokenDeletionVector(f"A deletion vector's file states {stated} bytes, its descriptor {size}")
    data = framed[4 : 4 + size]
    (checksum,) = struct.unpack_from(">I", framed, 4 + size)
    if checksum != zlib.crc32(data):
        raise BrokenDeletionVector("A deletion vector's checksum does not match its bytes")
    return data
