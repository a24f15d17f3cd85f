"""What a Parquet footer says of its column chunks, and what pages say of themselves, in a way that damage cannot harm.

Arrow checks a footer when it reads rows. Where it is only asked for a column chunk (`row_group.column(n)`, its codec,
its statistics) it throws in C++ at what it does not understand, and nobody catches that: the process ends. So `Footer`
is decoded here, from Arrow's own metadata, and making one raises `pa.ArrowInvalid` for whatever Arrow could not be
asked. After that, Arrow's own accessors may be used as well; for statistics after `check_bounds`.

The thrift compact protocol is decoded generically: a structure is a dictionary by the numbers and types of its fields.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

BYTE_ARRAY = 6
_FIXED_LENGTH = 7
_WIDTHS = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8}
"""Bytes of a value in statistics, by physical type; arrays of bytes have any length."""
_PHYSICAL = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
_CODECS = ("UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW")
DATA_PAGE = 0
_DATA_PAGES = (DATA_PAGE, 3)
_DICTIONARY_PAGE = 2
_BY_DICTIONARY = (2, 8)
"""Encodings of data pages."""
_DEEPEST = 16
# Types of the compact protocol. A field is known by its number and its type, as for Arrow, which passes over others.
_I32, _I64, _BINARY, _LIST, _STRUCT = 5, 6, 8, 9, 12
_BOUNDS = tuple(_BINARY | number << 4 for number in (1, 2, 5, 6))
_Fields = dict[int, Any]
HEADER = 2**9
"""Enough for a page's header without statistics: a local disk is not slow at small reads, and pages are much larger."""
# A header is short unless it holds statistics of long values.
_WINDOWS = (2**9, 2**16, 2**22)
_MOST_PAGES = 4_096


class ColumnChunk(NamedTuple):
    """A column of a row group."""

    kind: int
    codec: str
    values: int
    compressed: int
    start: int
    """Where its first page is."""
    nulls: int | None
    has_whole_bounds: bool
    """Whether Arrow can be asked for the statistics."""


class Pages(NamedTuple):
    """What the pages of a chunk say that they unfold to, in bytes."""

    largest: int
    dictionary: int
    plain: int
    """All data pages together."""
    densest: float
    """The most that a data page has per value."""
    entries: int | None
    """Of the dictionary, where all data pages only refer to it."""


class Footer:
    def __init__(self, metadata: pq.FileMetaData, source: pa.NativeFile) -> None:
        """`source` is the file that Arrow has read the metadata from."""
        groups = _structs(_read(source), 4)
        leaves = [_Leaf.of(metadata, n) for n in range(metadata.num_columns)]
        if len(groups) != metadata.num_row_groups:
            raise pa.ArrowInvalid(f"The footer has {len(groups)} row groups, not {metadata.num_row_groups}")
        self.metadata = metadata
        self._pages: dict[tuple[int, int], list[Page] | None] = {}
        self.rows: list[int] = [group.get(_I64 | 3 << 4, 0) for group in groups]
        """Of each row group."""
        self.groups: list[list[ColumnChunk]] = []
        for number, group in enumerate(groups):
            columns = _structs(group, 1)
            if len(columns) != len(leaves) or self.rows[number] < 0:
                raise pa.ArrowInvalid(f"Row group {number} has other columns than the file, or no number of rows")
            self.groups.append([_chunk(*one) for one in zip(columns, leaves, strict=True)])

    def pages(self, group: int, leaf: int, read: Callable[[int, int], bytes], *, ahead: int) -> list[Page] | None:
        """Of a column chunk, see `each_page`; they are looked for once."""
        place = group, leaf
        if place not in self._pages:
            self._pages[place] = each_page(self.groups[group][leaf], read, ahead=ahead)
        return self._pages[place]

    def check_bounds(self) -> None:
        """Rows can be read without them, so who does not ask for statistics need not mind."""
        if not all(chunk.has_whole_bounds for chunks in self.groups for chunk in chunks):
            raise pa.ArrowInvalid("Statistics in the footer are cut off")


def _read(source: pa.NativeFile) -> _Fields:
    size = source.size()
    tail = source.read_at(8, max(0, size - 8))
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != b"PAR1" or length > size - 8:
        raise pa.ArrowInvalid("The file ends in no footer")
    found, _ = _struct(source.read_at(length, size - 8 - length), 0, 0)
    return found


def _structs(found: _Fields, number: int) -> list[_Fields]:
    held = found.get(_LIST | number << 4, [])
    if not all(isinstance(one, dict) for one in held):
        raise pa.ArrowInvalid("The footer has other things than row groups and columns in its lists")
    return list(held)


class _Leaf(NamedTuple):
    path: str
    kind: int
    length: int
    definitions: int
    repetitions: int

    @classmethod
    def of(cls, metadata: pq.FileMetaData, place: int) -> _Leaf:
        column = metadata.schema.column(place)
        return cls(
            path=column.path,
            kind=_PHYSICAL.index(column.physical_type) if column.physical_type in _PHYSICAL else -1,
            length=column.length,
            definitions=column.max_definition_level,
            repetitions=column.max_repetition_level,
        )


def _chunk(column: _Fields, leaf: _Leaf) -> ColumnChunk:
    stored: _Fields | None = column.get(_STRUCT | 3 << 4)
    if stored is None or _STRUCT | 8 << 4 in column:
        raise pa.ArrowInvalid(f"The column {leaf.path} is encrypted, or its place is not told")
    codec = stored.get(_I32 | 4 << 4, -1)
    if stored.get(_I32 | 1 << 4) != leaf.kind or not 0 <= codec < len(_CODECS):
        raise pa.ArrowInvalid(f"The column {leaf.path} has another type or compression than there is")
    statistics: _Fields = stored.get(_STRUCT | 12 << 4, {})
    width = leaf.length if leaf.kind == _FIXED_LENGTH else _WIDTHS.get(leaf.kind, 0)
    if sizes := stored.get(_STRUCT | 16 << 4):
        for levels, deepest in ((2, leaf.repetitions), (3, leaf.definitions)):
            counted = sizes.get(_LIST | levels << 4)
            if counted and len(counted) != deepest + 1:
                raise pa.ArrowInvalid(f"The column {leaf.path} counts levels that it has not")
        if _I64 | 1 << 4 in sizes and leaf.kind != BYTE_ARRAY:
            raise pa.ArrowInvalid(f"The column {leaf.path} counts bytes of texts and has none")
    start, dictionary = stored.get(_I64 | 9 << 4, 0), stored.get(_I64 | 11 << 4, 0)
    return ColumnChunk(
        kind=leaf.kind,
        codec=_CODECS[codec],
        values=stored.get(_I64 | 5 << 4, 0),
        compressed=stored.get(_I64 | 7 << 4, 0),
        start=dictionary if 0 < dictionary < start else start,
        nulls=statistics.get(_I64 | 3 << 4),
        has_whole_bounds=all(len(statistics[bound]) >= width for bound in _BOUNDS if bound in statistics),
    )


class Page(NamedTuple):
    """Of a column chunk; from its header on."""

    start: int
    end: int
    kind: int
    size: int
    """What it unfolds to."""
    values: int
    """None in a dictionary."""
    encoding: int
    entries: int
    """Of a dictionary."""
    body: int
    """Where the header ends."""
    checksum: int | None
    """CRC-32 of what is stored behind the header."""


def each_page(chunk: ColumnChunk, read: Callable[[int, int], bytes], *, ahead: int = 2**16) -> list[Page] | None:
    """By the headers, which `read(length, offset)` gets, `ahead` bytes at a time; None where there are too many."""
    found: list[Page] = []
    values, at = 0, chunk.start
    window = _Window(read, min(chunk.compressed + 512, ahead))
    for _ in range(_MOST_PAGES):
        if values >= chunk.values:
            return found
        header, end = window.header(at)
        size, stored = header.get(_I32 | 2 << 4, -1), header.get(_I32 | 3 << 4, -1)
        if size < 0 or stored < 0:
            raise pa.ArrowInvalid("A page has a negative size")
        kind, held, encoding, entries = header.get(_I32 | 1 << 4, -1), 0, -1, 0
        if kind in _DATA_PAGES:
            first, second = header.get(_STRUCT | 5 << 4), header.get(_STRUCT | 8 << 4, {})
            held = (first or second).get(_I32 | 1 << 4, 0)
            encoding = first.get(_I32 | 2 << 4, -1) if first else second.get(_I32 | 4 << 4, -1)
        elif kind == _DICTIONARY_PAGE:
            entries = header.get(_STRUCT | 7 << 4, {}).get(_I32 | 1 << 4, 0)
        crc = header.get(_I32 | 4 << 4)
        checksum = None if crc is None else crc & 0xFFFF_FFFF
        found.append(Page(at, end + stored, kind, size, held, encoding, entries, end, checksum))
        values += found[-1].values
        at = found[-1].end
    return None


def pages_of(pages: Sequence[Page]) -> Pages:
    """What they say together."""
    data = [page for page in pages if page.kind in _DATA_PAGES]
    dictionaries = [page for page in pages if page.kind == _DICTIONARY_PAGE]
    refers = len(dictionaries) == 1 and all(page.encoding in _BY_DICTIONARY for page in data)
    return Pages(
        largest=max((page.size for page in pages), default=0),
        dictionary=max((page.size for page in dictionaries), default=0),
        plain=sum(page.size for page in data),
        densest=max((page.size / max(1, page.values) for page in data), default=0.0),
        entries=dictionaries[0].entries if refers else None,
    )


class _Window:
    """A stretch of a file, so that pages of a small chunk are one read."""

    def __init__(self, read: Callable[[int, int], bytes], ahead: int) -> None:
        self._read, self._ahead = read, ahead
        self._start, self._data = 0, b""

    def header(self, at: int) -> tuple[_Fields, int]:
        if self._start <= at < self._start + len(self._data):
            try:
                found, end = _struct(self._data, at - self._start, 0)
            except pa.ArrowInvalid:
                pass
            else:
                return found, self._start + end
        for size in (self._ahead, *(size for size in _WINDOWS if size > self._ahead)):
            self._start, self._data = at, self._read(size, at)
            try:
                found, end = _struct(self._data, 0, 0)
            except pa.ArrowInvalid:
                if len(self._data) < size:
                    raise
            else:
                return found, at + end
        raise pa.ArrowInvalid("A page has a header that does not end")


def _struct(data: bytes, at: int, depth: int) -> tuple[_Fields, int]:
    if depth > _DEEPEST:
        raise pa.ArrowInvalid("A Parquet structure is nested too deep")
    found: _Fields = {}
    field = 0
    try:
        while head := data[at]:
            at += 1
            kind = head & 15
            if head > 15:
                field += head >> 4
            else:
                field, at = _integer(data, at)
            key = field << 4 | kind
            # The most frequent cases without a call: footers of a thousand columns are read for every file.
            if 4 <= kind <= 6 and data[at] < 128:
                number = data[at]
                found[key] = (number >> 1) ^ -(number & 1)
                at += 1
            elif kind == _BINARY and data[at] < 128:
                end = at + 1 + data[at]
                found[key] = data[at + 1 : end]
                at = end
            elif kind <= 2:
                found[key] = kind == 1
            else:
                found[key], at = _value(data, at, kind, depth)
    except IndexError:
        raise pa.ArrowInvalid("A Parquet structure is cut off") from None
    return found, at + 1


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (4, 5, 6):
        return _integer(data, at)
    if kind == _BINARY:
        length, at = _unsigned(data, at)
        if at + length > len(data):
            raise pa.ArrowInvalid("A Parquet structure is cut off")
        return data[at : at + length], at + length
    if kind == _STRUCT:
        return _struct(data, at, depth + 1)
    if kind == _LIST:
        return _list(data, at, depth + 1)
    if kind in (1, 2, 3):  # among others in a list, a truth takes a byte
        return data[at], at + 1
    if kind == 7:
        return None, at + 8
    raise pa.ArrowInvalid(f"A Parquet structure has a field of the type {kind}")


def _list(data: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    if depth > _DEEPEST:
        raise pa.ArrowInvalid("A Parquet structure is nested too deep")
    head = data[at]
    at += 1
    length, kind = head >> 4, head & 15
    if length == 15:
        length, at = _unsigned(data, at)
    if kind in (_I32, _I64):
        piece = data[at : at + length]
        if piece.isascii() and len(piece) == length:  # each number is one byte
            return [(number >> 1) ^ -(number & 1) for number in piece], at + length
    found: list[Any] = []
    for _ in range(length):
        if kind == _STRUCT:
            value, at = _struct(data, at, depth)
        else:
            value, at = _value(data, at, kind, depth)
        found.append(value)
    return found, at


def _unsigned(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    at += 1
    if byte < 128:
        return byte, at
    number, shift = byte & 127, 7
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
        shift += 7
        if shift > 63:
            raise pa.ArrowInvalid("A Parquet structure has a number without an end")


def _integer(data: bytes, at: int) -> tuple[int, int]:
    number, at = _unsigned(data, at)
    return (number >> 1) ^ -(number & 1), at
