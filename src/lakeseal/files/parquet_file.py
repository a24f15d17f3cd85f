"""One Parquet file, as every reader of Delta tables takes it.

Timestamps are 64-bit microseconds, small decimals are integers, list items are called `element`, and no copy of the
Arrow schema is stored: types are those of the Parquet schema alone. Row groups are as large as the pieces given to
`write`, up to a limit. Pages have checksums: our reader, and any other that looks at them, notices damaged values.

Of floats a file says no more than that they are there. Readers leave out row groups by a footer's bounds and by
dictionaries, and not all of them know what these leave open: NaN is in no bounds, but above all numbers to Spark, which
drops a row group by a maximum that leaves it out; and a dictionary with one zero only is taken to lack the other, equal
one. So float columns have no statistics (those in the log have no maximum where there is NaN, which every reader
takes for unknown), and no dictionary if they hold a negative zero. All other types are ordered alike everywhere.

A dictionary helps only where values repeat, and trying it on those that do not is the most expensive part of writing.
So a sample of each column decides: `Repetition` estimates how many distinct values there are from how many met twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct
from pyarrow import types

from lakeseal.clock import now_ms
from lakeseal.errors import InvalidArgument
from lakeseal.files.uploads import FileSink

ROW_GROUP_ROWS = 2**20
ROW_GROUP_BYTES = 128 * 2**20

_SAMPLE = 2048
_DICTIONARY_BYTES = 2**20
_STREAM_BUFFER = 2**18
_MIN_REPETITION = 4

_Steps: TypeAlias = tuple[str | int, ...]
"""From rows to the values of a leaf: a column, then places in structs."""

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
                paths += (path for path, _, _ in _leaves(field.name, field.type, None))
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


def _leaves(path: str, arrow: pa.DataType, steps: _Steps | None) -> Iterator[tuple[str, pa.DataType, _Steps | None]]:
    """What Parquet calls the leaves of a column, with their types; those in lists and maps without steps."""
    if types.is_struct(arrow):
        for n in range(arrow.num_fields):
            field = arrow.field(n)
            yield from _leaves(f"{path}.{field.name}", field.type, None if steps is None else (*steps, n))
    elif types.is_map(arrow):
        yield from _leaves(f"{path}.key_value.key", arrow.key_type, None)
        yield from _leaves(f"{path}.key_value.value", arrow.item_type, None)
    elif types.is_list(arrow):
        yield from _leaves(f"{path}.list.element", arrow.value_type, None)
    else:
        yield path, arrow, steps


def bounded_leaves(schema: pa.Schema) -> list[str]:
    """Paths of the leaves that have statistics: all but floats."""
    leaves = [leaf for field in schema for leaf in _leaves(field.name, field.type, (field.name,))]
    floats = {path for path, arrow, _ in leaves if types.is_floating(arrow)}
    return [path for path, _, _ in leaves if path not in floats]


def with_negative_zero(rows: pa.Table, paths: Collection[str]) -> set[str]:
    """Those of the paths, as far as readers skip by them, whose values have a negative zero."""
    leaves = (leaf for field in rows.schema for leaf in _leaves(field.name, field.type, (field.name,)))
    floats = [(path, steps) for path, arrow, steps in leaves if path in paths and steps and types.is_floating(arrow)]
    return {path for path, steps in floats if any(_has_negative_zero(array) for array in _values(rows, steps))}


def _values(rows: pa.Table, steps: _Steps) -> Iterator[pa.Array]:
    """The arrays of a leaf, with values below null structs too."""
    for array in rows.column(steps[0]).chunks:
        for step in steps[1:]:
            array = array.field(step)
        yield array


def _has_negative_zero(array: pa.Array) -> bool:
    numbers = array.to_numpy(zero_copy_only=False)
    return bool((np.signbit(numbers) & (numbers == 0)).any())


class ParquetFile:
    """Ends by `close` or `abort`. `takes` says whether rows may go into this file, or need another."""

    def __init__(self, sink: FileSink, schema: pa.Schema, compression: Compression, dictionary: list[str]) -> None:
        self.key = sink.key
        self.rows = 0
        self.modified_ms = 0
        self._sink = sink
        self._dictionary = frozenset(dictionary)
        self._footers: list[pq.FileMetaData] = []
        # The writer hands over each page, and its header, by a call; in Python that would cost more than copying them.
        self._stream = pa.BufferedOutputStream(pa.PythonFile(sink, mode="w"), _STREAM_BUFFER)
        self._writer = pq.ParquetWriter(
            self._stream,
            schema,
            compression=_CODECS[compression.codec][0],
            use_dictionary=dictionary or False,
            write_statistics=bounded_leaves(schema) or False,
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

    def takes(self, rows: pa.Table) -> bool:
        return not with_negative_zero(rows, self._dictionary)

    def write(self, rows: pa.Table) -> None:
        groups = -(-rows.num_rows // ROW_GROUP_ROWS)
        self._writer.write_table(rows, row_group_size=-(-rows.num_rows // groups))
        self._stream.flush()
        self.rows += rows.num_rows

    def close(self) -> pq.FileMetaData:
        self._writer.close()
        self._stream.flush()
        self.modified_ms = now_ms()
        self._sink.publish()
        return self._footers[0]

    def abort(self) -> None:
        self._sink.abort()
        # The writer would write its footer when it is forgotten, which is not worth the work any more.
        self._writer.is_open = False
