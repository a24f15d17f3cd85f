"""Some rows of a row group, without decoding the pages before and behind them.

Arrow decodes a column chunk from its first page on, and knows no way to begin with another. So it is given the file
with other bytes where the chunk is: its dictionary, and the pages that have the rows. It reads as many as these have,
piece by piece, and never comes to what would follow, which is zeros. Which page has which rows is told by the headers
of all pages, as Arrow itself would come upon them, and not by the page index, which may be wrong.

A scan for 10,000 rows of a file of 250,000 takes half of the CPU time.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from lakeseal.log.parquet_reader import open_parquet
from lakeseal.protocol.parquet_footer import HEADER, ColumnChunk, Footer, Page

# Arrow asks for this much at a time, or for a page.
_BUFFER = 2**16


def rows_of(
    parquet: pq.ParquetReader,
    source: pa.NativeFile,
    footer: Footer,
    group: int,
    leaves: Sequence[int],
    rows: range,
    *,
    most: int,
) -> pa.RecordBatch | None:
    """These rows of a row group, of the columns that have these leaves; None where they have to be read with the whole
    group: there are repeated or nested columns, more than `most` rows from the beginning of a page on, or pages that
    are not what the footer says, which Arrow then complains of."""
    schema = parquet.schema_arrow
    names = schema.names
    parts: list[tuple[int, int, pa.PythonFile]] = []
    for leaf in leaves:
        column, chunk = footer.metadata.schema.column(leaf), footer.groups[group][leaf]
        if column.max_repetition_level or column.name != column.path or names.count(column.name) != 1:
            return None
        if not 0 < chunk.compressed < source.size():
            return None
        pages = footer.pages(group, leaf, source.read_at, ahead=HEADER)
        if pages is None or sum(page.values for page in pages) != footer.rows[group]:
            return None
        first, needed = _with_rows(pages, rows)
        if rows.stop - first > most or any(page.values < 0 for page in pages):
            return None
        data = _bytes_of(source, chunk, needed)
        parts.append((leaf, first, pa.PythonFile(_Chunk(source.size(), chunk.start, data), mode="r")))
    arrays, fields = [], []
    for leaf, first, file in parts:
        reader = open_parquet(file, metadata=footer.metadata, buffer_size=_BUFFER)
        wanted = rows.stop - first
        batch = next(reader.iter_batches(wanted, [group], column_indices=[leaf], use_threads=False), None)
        if batch is None or batch.num_rows != wanted or batch.num_columns != 1:
            return None
        arrays.append(batch.column(0).slice(rows.start - first))
        fields.append(schema.field(footer.metadata.schema.column(leaf).name))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _with_rows(pages: Sequence[Page], rows: range) -> tuple[int, list[Page]]:
    """The first row of these pages, and they: those that hold the rows, and whatever comes before all data."""
    needed: list[Page] = []
    first, at = rows.start, 0
    for page in pages:
        if page.values == 0:
            needed.append(page)
        elif at < rows.stop and at + page.values > rows.start:
            first = min(first, at)
            needed.append(page)
        at += page.values
    return first, needed


def _bytes_of(source: pa.NativeFile, chunk: ColumnChunk, pages: Sequence[Page]) -> bytes:
    """These pages one after the other, as far as the chunk goes."""
    ranges: list[tuple[int, int]] = []
    left = chunk.compressed
    for page in pages:
        length = min(page.end - page.start, left)
        left -= length
        if ranges and sum(ranges[-1]) == page.start:
            start, before = ranges.pop()
            ranges.append((start, before + length))
        else:
            ranges.append((page.start, length))
    return b"".join(source.read_at(length, start) for start, length in ranges)


class _Chunk(io.RawIOBase):
    """A file of which nothing is there but how one chunk begins; zeros are behind that."""

    def __init__(self, size: int, start: int, data: bytes) -> None:
        self._size, self._start, self._data, self._at = size, start, data, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        begin = self._at - self._start
        if begin < 0 or size < 0:
            raise pa.ArrowInvalid(f"There is no column chunk at {self._at}")
        self._at += size
        return self._data[begin : begin + size].ljust(size, b"\0")
