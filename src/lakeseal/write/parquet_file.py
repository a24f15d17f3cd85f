"""One Parquet file, as every reader of Delta tables takes it.

Timestamps are 64-bit microseconds, small decimals are integers, list items are called `element`, and no copy of the
Arrow schema is stored: types are those of the Parquet schema alone. Row groups are as large as the pieces given to
`write`, up to a limit. Pages have checksums: our reader, and any other that looks at them, notices damaged values.

A dictionary helps only where values repeat, and trying it on those that do not is the most expensive part of writing.
So a sample of each column decides: `Repetition` estimates how many distinct values there are from how many met twice.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct
from pyarrow import types

from lakeseal.errors import InvalidArgument
from lakeseal.write.uploads import FileSink

ROW_GROUP_ROWS = 2**20
ROW_GROUP_BYTES = 128 * 2**20

_SAMPLE = 2048
_DICTIONARY_BYTES = 2**20
_STREAM_BUFFER = 2**18
_MIN_REPETITION = 4

_CODECS: Mapping[str, tuple[str, str]] = {
    # The name for the writer, and what file names say.
    "snappy": ("snappy", ".snappy"),
    "zstd": ("zstd", ".zstd"),
    "gzip": ("gzip", ".gz"),
    "lz4": ("lz4", ".lz4raw"),
    "lz4_raw": ("lz4", ".lz4raw"),
    "brotli": ("brotli", ".br"),
    "uncompressed": ("none", ""),
    "none": ("none", ""),
}


class Compression(Struct, frozen=True):
    codec: str = "snappy"

    def __post_init__(self) -> None:
        if self.codec not in _CODECS:
            raise InvalidArgument(
                f"Parquet files cannot be compressed by {self.codec!r}", hint=f"Use one of {', '.join(sorted(_CODECS))}"
            )

    @property
    def extension(self) -> str:
        return f"{_CODECS[self.codec][1]}.parquet"


class Repetition:
    """How often values repeat, column by column, judged from a sample of rows."""

    def __init__(self, rows: pa.Table) -> None:
        sample = _spread(rows) if rows.num_rows > _SAMPLE else rows
        self._distinct = {name: _estimated_distinct(sample.column(name)) for name in rows.column_names}

    def repeating(self, schema: pa.Schema, rows: int) -> list[str]:
        """Parquet paths of the columns whose values are worth a dictionary in a row group of so many rows."""
        paths: list[str] = []
        for field in schema:
            distinct, size = self._distinct[field.name]
            if distinct is None or (distinct * _MIN_REPETITION <= rows and distinct * size <= _DICTIONARY_BYTES):
                paths += _leaf_paths(field.name, field.type)
        return paths


def _spread(rows: pa.Table) -> pa.Table:
    """Some rows from everywhere, piece by piece: to take from many pieces at once Arrow first joins them all."""
    wanted = np.linspace(0, rows.num_rows - 1, _SAMPLE).astype(np.int64)
    taken, start = [], 0
    for batch in rows.to_batches():
        first, last = np.searchsorted(wanted, [start, start + batch.num_rows])
        taken.append(batch.take(pa.array(wanted[first:last] - start)))
        start += batch.num_rows
    return pa.Table.from_batches(taken)


def _estimated_distinct(sample: pa.ChunkedArray) -> tuple[float | None, float]:
    """Distinct values and bytes per value; None where nothing is known and trying costs little."""
    rows = len(sample) - sample.null_count
    if types.is_nested(sample.type) or types.is_boolean(sample.type) or rows < 2:
        return None, 0
    distinct = pc.count_distinct(sample).as_py()
    # Of n draws from D equal values n²/2D meet an earlier one, as long as that is few; beyond, D is close to what came.
    met = rows - distinct
    estimate = max(distinct, rows * rows / (2 * met)) if met else float("inf")
    return estimate, sample.nbytes / rows


def _leaf_paths(path: str, arrow: pa.DataType) -> Iterator[str]:
    if types.is_struct(arrow):
        for n in range(arrow.num_fields):
            yield from _leaf_paths(f"{path}.{arrow.field(n).name}", arrow.field(n).type)
    elif types.is_map(arrow):
        yield from _leaf_paths(f"{path}.key_value.key", arrow.key_type)
        yield from _leaf_paths(f"{path}.key_value.value", arrow.item_type)
    elif types.is_list(arrow):
        yield from _leaf_paths(f"{path}.list.element", arrow.value_type)
    else:
        yield path


class ParquetFile:
    """Ends by `close` or `abort`."""

    def __init__(self, sink: FileSink, schema: pa.Schema, compression: Compression, dictionary: list[str]) -> None:
        self.key = sink.key
        self.rows = 0
        self.modified_ms = 0
        self._sink = sink
        self._footers: list[pq.FileMetaData] = []
        # The writer hands over each page, and its header, by a call; in Python that would cost more than copying them.
        self._stream = pa.BufferedOutputStream(pa.PythonFile(sink, mode="w"), _STREAM_BUFFER)
        self._writer = pq.ParquetWriter(
            self._stream,
            schema,
            compression=_CODECS[compression.codec][0],
            use_dictionary=dictionary or False,
            store_schema=False,
            store_decimal_as_integer=True,
            version="2.6",
            write_page_index=True,
            write_page_checksum=True,
            metadata_collector=self._footers,
        )

    @property
    def size(self) -> int:
        """Bytes so far; those of the file once it is closed."""
        return self._sink.size

    @property
    def checksum(self) -> str | None:
        return self._sink.checksum

    def write(self, rows: pa.Table) -> None:
        groups = -(-rows.num_rows // ROW_GROUP_ROWS)
        self._writer.write_table(rows, row_group_size=-(-rows.num_rows // groups))
        self._stream.flush()
        self.rows += rows.num_rows

    def close(self) -> pq.FileMetaData:
        self._writer.close()
        self._stream.flush()
        self.modified_ms = time.time_ns() // 1_000_000
        self._sink.publish()
        return self._footers[0]

    def abort(self) -> None:
        self._sink.abort()
        # The writer would write its footer when it is forgotten, which is not worth the work any more.
        self._writer.is_open = False
