"""How much a file may unfold to, and how to read it so that no more of it is in memory at once.

A few bytes can stand for gigabytes: one long value in a dictionary for every row, a run of a billion rows, a line of
text that compresses well. So `DecodedSize` counts what has come out of a file and refuses it, as `DecodedTooLarge`,
above the reader's limit or ten thousand times the file's own size, whichever is more: files that are written for being
read stay far below that, however many rows they repeat. And `fitting_rows` says how many rows of a Parquet row group
to decode at a time: values are taken to be as long as the longest in their dictionary, which is looked at first.

Arrow decompresses a page whole, so what a page states of itself (below 2 GiB) is what remains for one to cost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeseal.errors import DecodedTooLarge
from lakeseal.trust import MAX_DECODED_BYTES

_TIMES_ITS_SIZE = 10_000
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 8}
# What a byte can unfold to at most, by how these formats write repetitions; others may do anything.
_MOST_PER_BYTE = {"UNCOMPRESSED": 1, "SNAPPY": 64, "LZ4": 256, "LZ4_RAW": 256, "GZIP": 1_100}
# To look at dictionaries first costs requests; a store that is slow at these is asked only for chunks that are cheap.
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


def fitting_rows(
    parquet: pq.ParquetFile, source: Any, group: int, leaves: Collection[int], *, rows: int, limit: int, is_local: bool
) -> int:
    """How many of a row group's rows, at most `rows`, take no more than about `limit` bytes in these leaf columns.

    `source` is the file that `parquet` reads."""
    chunks = parquet.metadata.row_group(group)
    # A broken column chunk ends the process where the footer is asked for it, and is an error where it is read.
    paths = [parquet.metadata.schema.column(leaf).path for leaf in leaves]
    next(parquet.iter_batches(1, row_groups=[group], columns=paths), None)
    rows = max(1, min(rows, chunks.num_rows))
    width, texts, unseen = 0, [], False
    for leaf in leaves:
        chunk = chunks.column(leaf)
        kind = chunk.physical_type
        each = _WIDTHS.get(kind) or max(1, parquet.metadata.schema.column(leaf).length)
        if chunk.num_values > chunks.num_rows and chunk.num_values * each > max(
            limit, _TIMES_ITS_SIZE * chunk.total_compressed_size
        ):
            # Repeated values: a row may hold any number of them, and a row is not cut.
            raise too_large(f"{chunk.num_values:,} values of {chunk.path_in_schema} are in one row group")
        width += each
        per_byte = _MOST_PER_BYTE.get(chunk.compression, 2**31)
        if kind == "BYTE_ARRAY" and rows * chunk.total_compressed_size * per_byte > limit:
            if is_local or chunk.total_compressed_size < _REMOTE_CHUNK:
                texts.append(parquet.metadata.schema.column(leaf).path)
            else:
                unseen = True
    if texts:
        width += _longest(parquet.metadata, source, group, texts, limit)
    fitting = min(rows, max(1, limit // max(1, width)))
    return min(fitting, _UNSEEN_ROWS) if unseen else fitting


def fitting_batches(
    parquet: pq.ParquetFile, source: pa.NativeFile, columns: Sequence[str], *, rows: int, limit: int
) -> Iterator[pa.RecordBatch]:
    """The rows of a whole file, in batches that fit, as long as all of them together do."""
    decoded = DecodedSize(limit, source.size())
    leaves = leaves_below(parquet.metadata, columns)
    for group in range(parquet.num_row_groups):
        fitting = fitting_rows(parquet, source, group, leaves, rows=rows, limit=limit // 4, is_local=True)
        for batch in parquet.iter_batches(fitting, row_groups=[group], columns=columns):
            decoded.add(batch.nbytes)
            yield batch


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
