"""How much a file may unfold to, and how to read it so that no more of it is in memory at once.

A few bytes can stand for gigabytes: one long value in a dictionary for every row, a run of a billion rows, a line of
text that compresses well. So `DecodedSize` counts what has come out of a file and refuses it, as `DecodedTooLarge`,
above the reader's limit or ten thousand times the file's own size, whichever is more: files that are written for being
read stay far below that, however many rows they repeat. And `fitting_rows` says how many rows of a Parquet row group
to decode at a time, by what the footer and the headers of pages say: a page that unfolds to too much is refused before
it is, and texts are taken to be as long as the longest in their dictionary, which is looked at where that matters.

Pages of a large chunk in a store that is slow at small reads are not looked at. Arrow decompresses a page whole, so
what a page can state of itself, 2 GiB, is what remains for one to cost there; and such a chunk is decoded a few rows at
a time, which are put together again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeseal.errors import DecodedTooLarge
from lakeseal.protocol.parquet_footer import BYTE_ARRAY, HEADER, Footer, pages_of
from lakeseal.trust import MAX_DECODED_BYTES

_TIMES_ITS_SIZE = 10_000
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 8}
# What a byte can unfold to at most, by how these formats write repetitions; others may do anything. Snappy's take three
# bytes for 64.
_MOST_PER_BYTE = {"UNCOMPRESSED": 1, "SNAPPY": 22, "LZ4": 256, "LZ4_RAW": 256, "GZIP": 1_100}
# To look at pages first costs requests; a store that is slow at these is asked only for chunks that are cheap.
_REMOTE_CHUNK = 2**20
_UNSEEN_ROWS = 4_096
_BUFFER = 2**16


class DecodedSize:
    """Of one file, so far."""

    def __init__(self, limit: int, stored: int) -> None:
        self._most = max(limit, _TIMES_ITS_SIZE * stored)
        self._stored = stored
        self._decoded = 0

    def add(self, decoded: int) -> None:
        self._decoded += decoded
        if self._decoded > self._most:
            raise too_large(f"A file of {self._stored:,} bytes unfolds to more than {self._most:,}")


def too_large(what: str) -> DecodedTooLarge:
    return DecodedTooLarge(what, hint=f"If whoever wrote it is to be trusted, raise the limit: {MAX_DECODED_BYTES}")


def leaves_below(metadata: pq.FileMetaData, columns: Iterable[str]) -> list[int]:
    """The leaf columns of these columns, which are named by their paths or by their beginnings."""
    wanted = set(columns)
    found = []
    for leaf in range(metadata.num_columns):
        path = metadata.schema.column(leaf).path
        beginnings = accumulate(path.split("."), lambda above, name: f"{above}.{name}")
        if not wanted.isdisjoint(beginnings):
            found.append(leaf)
    return found


class Fitting(NamedTuple):
    """What of a row group to decode at a time."""

    rows: int
    dictionaries: dict[int, int]
    """Of leaf columns with texts that are in their dictionaries alone: how many each of these has."""


def fitting_rows(
    footer: Footer,
    source: pa.NativeFile,
    group: int,
    leaves: Collection[int],
    *,
    rows: int,
    limit: int,
    page_limit: int,
    is_local: bool,
) -> Fitting:
    """How many of a row group's rows, at most `rows`, take no more than about `limit` bytes in these leaf columns.

    `source` is the file of the footer. A page of more than `page_limit` bytes is refused where its chunk is small."""
    held = footer.rows[group]
    rows = max(1, min(rows, held))
    width, texts, dictionaries, unseen = 0.0, {}, {}, False
    for leaf in leaves:
        chunk, column = footer.groups[group][leaf], footer.metadata.schema.column(leaf)
        each = _WIDTHS.get(column.physical_type) or max(1, column.length)
        most = max(limit, _TIMES_ITS_SIZE * chunk.compressed)
        if chunk.values > held and chunk.values * each > most:
            # Repeated values: a row may hold any number of them, and a row is not cut.
            raise too_large(f"{chunk.values:,} values of {column.path} are in one row group")
        width += each
        is_text = chunk.kind == BYTE_ARRAY
        unfolded = chunk.compressed * _MOST_PER_BYTE.get(chunk.codec, 2**31)
        if unfolded * (rows if is_text else 1) <= limit:
            continue
        is_seen = is_local or chunk.compressed < _REMOTE_CHUNK
        seen = footer.pages(group, leaf, source.read_at, ahead=HEADER if is_local else 2**16) if is_seen else None
        if seen is None:
            unseen = unseen or is_text
            continue
        pages = pages_of(seen)
        if pages.largest > max(page_limit, most):
            raise too_large(f"A page of {column.path} has {pages.largest:,} bytes")
        elif is_text:
            texts[column.path] = pages.dictionary
            width += pages.densest if pages.plain > limit else 0
            if pages.entries is not None:
                dictionaries[leaf] = pages.entries
    if rows * (width + sum(texts.values())) > limit and any(texts.values()):
        looked_at = [path for path, dictionary in texts.items() if dictionary]
        width += _longest(footer.metadata, source, group, looked_at, limit)
    fitting = min(rows, max(1, int(limit // max(1, width))))
    return Fitting(min(fitting, _UNSEEN_ROWS) if unseen else fitting, dictionaries)


def fitting_batches(
    parquet: pq.ParquetFile, source: pa.NativeFile, columns: Sequence[str], *, rows: int, limit: int
) -> Iterator[pa.RecordBatch]:
    """The rows of a whole file, in batches that fit, as long as all of them together do."""
    decoded = DecodedSize(limit, source.size())
    footer = Footer(parquet.metadata, source)
    leaves = leaves_below(parquet.metadata, columns)
    for group in range(parquet.num_row_groups):
        fitting = fitting_rows(
            footer, source, group, leaves, rows=rows, limit=limit // 4, page_limit=limit, is_local=True
        )
        for batch in parquet.iter_batches(fitting.rows, row_groups=[group], columns=columns):
            decoded.add(batch.nbytes)
            yield batch


def joined(batches: Iterable[pa.RecordBatch], *, rows: int, limit: int) -> Iterator[pa.RecordBatch]:
    """The same rows in larger batches: small ones are put together as long as they fit. Whoever works on batches pays
    for each of them."""
    held: list[pa.RecordBatch] = []
    count = size = 0
    for batch in batches:
        if held and (count + batch.num_rows > rows or size + batch.nbytes > limit):
            yield _one(held)
            held, count, size = [], 0, 0
        held.append(batch)
        count, size = count + batch.num_rows, size + batch.nbytes
    if held:
        yield _one(held)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _longest(metadata: pq.FileMetaData, source: Any, group: int, columns: list[str], limit: int) -> int:
    """The lengths of the longest values that these columns have in their dictionaries, together."""
    # Dictionaries come whole with the first row; values that are not in one are as long as their pages, at most.
    reader = pq.ParquetFile(
        source, metadata=metadata, read_dictionary=columns, buffer_size=_BUFFER, page_checksum_verification=True
    )
    first = next(reader.iter_batches(1, row_groups=[group], columns=columns, use_threads=False), None)
    found = 0
    for column in () if first is None else first.columns:
        for dictionary in _dictionaries(column):
            longest = pc.max(pc.binary_length(dictionary)).as_py() or 0
            if longest > limit:
                raise too_large(f"A value has {longest:,} bytes")
            found += longest
    return found


def _dictionaries(array: pa.Array) -> list[pa.Array]:
    kind = array.type
    if pa.types.is_dictionary(kind):
        return [array.dictionary] if pa.types.is_binary(kind.value_type) or pa.types.is_string(kind.value_type) else []
    if pa.types.is_struct(kind):
        return [one for n in range(kind.num_fields) for one in _dictionaries(array.field(n))]
    if pa.types.is_map(kind):
        return [*_dictionaries(array.keys), *_dictionaries(array.items)]
    return _dictionaries(array.values) if pa.types.is_list(kind) else []
