"""Reading inside tasks: how a scan is cut into splits, and the rows that a task makes of one.

A split is bytes, so that it travels in a DataFrame's row as well as in a data source's partition. What all splits share
(where the table is, its schema, what is wanted of it) is the task's own and travels once. One split is one task.

Splits have about the same number of bytes. A file that is too large for one is cut at its row groups: a split has the
row groups that begin between two offsets, and the last one has all that begin behind the first of its two, so that rows
are neither lost nor doubled even where the log is wrong about a file's size.

Rows come in Spark's Arrow form, in the order of the task's `schema`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Protocol

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyspark.sql.types as spark
from msgspec import Struct

from lakeseal import expr
from lakeseal.errors import located
from lakeseal.log.changes import ChangeReader, VersionChanges
from lakeseal.log.data import DataReader, ReadSpec
from lakeseal.protocol.feed_columns import CHANGE_FIELDS, check_no_feed_columns
from lakeseal.protocol.parquet_footer import Footer
from lakeseal.spark.rows import for_spark, rows_schema
from lakeseal.storage import Store, StoreSpec, open_store

MAX_SPLIT_BYTES = 128 * 2**20
_MIN_SPLIT_BYTES = 16 * 2**20
# Enough tasks to keep a small cluster busy, where each would still have a worthwhile share.
_WANTED_SPLITS = 64
# What it costs to open a file, in bytes that could have been read meanwhile.
_OPEN_BYTES = 2**20
# A file is cut only if that leaves no crumbs.
_CUT_FROM = 1.5

_FILE_COLUMNS = ("path", "partitionValues", "deletionVector", "size", "baseRowId", "defaultRowCommitVersion")
ROW_NUMBER = "lakeseal.row"
"""Stands in where no columns are wanted: Spark has no batches without columns."""


class ReadTask(Protocol):
    """What runs on executors; pickled with the plan."""

    @property
    def schema(self) -> spark.StructType: ...

    def read(self, split: bytes) -> Iterator[pa.RecordBatch]: ...


class ScanTask(Struct, frozen=True, kw_only=True):
    """Rows of data files."""

    store: StoreSpec
    spec: ReadSpec
    where: str | None = None
    """Rows for which this is not true may be left out; whoever asked applies it again."""
    only_for_where: tuple[str, ...] = ()
    """Columns that `where` needs and nobody else: they are read, and go no further."""
    version: int | None = None
    """Of the table, for errors to name."""

    @property
    def schema(self) -> spark.StructType:
        tracked = () if self.spec.row_ids is None else self.spec.row_ids.fields
        if not (*self.spec.wanted(), *tracked):
            return spark.StructType([spark.StructField(ROW_NUMBER, spark.LongType())])
        return rows_schema((*self.spec.wanted(), *tracked))

    def read(self, split: bytes) -> Iterator[pa.RecordBatch]:
        part = msgspec.msgpack.decode(split, type=_FileSplit)
        has_columns = self.spec.wanted() or self.spec.row_ids is not None
        spec = self.spec if has_columns else msgspec.structs.replace(self.spec, position_column=ROW_NUMBER)
        if self.only_for_where:
            spec = msgspec.structs.replace(spec, columns=(*(f.name for f in spec.wanted()), *self.only_for_where))
        reader = DataReader(self.store.open(), spec, outside=opener(self.store))
        files = pa.ipc.open_stream(part.files).read_all()
        batches = reader.read(files, transform=self._filter(), row_groups=part.row_groups())
        schema = reader.schema
        if self.only_for_where:
            names = schema.names[: -len(self.only_for_where)]
            schema = pa.schema([schema.field(name) for name in names])
            batches = (batch.select(names) for batch in batches)
        with located(version=self.version):
            yield from for_spark(batches, schema)

    def _filter(self) -> Callable[[pa.RecordBatch], pa.RecordBatch] | None:
        if self.where is None:
            return None
        bound = expr.bind_predicate(expr.parse(self.where), self.spec.schema)
        return lambda batch: expr.filter_batch(bound, batch)


class ChangeTask(Struct, frozen=True, kw_only=True):
    """Rows of the change feed."""

    store: StoreSpec
    spec: ReadSpec

    @property
    def schema(self) -> spark.StructType:
        check_no_feed_columns(self.spec.schema)
        return rows_schema((*self.spec.wanted(), *CHANGE_FIELDS))

    def read(self, split: bytes) -> Iterator[pa.RecordBatch]:
        reader = ChangeReader(self.spec, self.store.open(), outside=opener(self.store))
        versions = msgspec.msgpack.decode(split, type=list[VersionChanges])
        return for_spark((batch for version in versions for batch in reader.read(version)), reader.schema)


class _FileSplit(Struct, frozen=True, kw_only=True, array_like=True):
    files: bytes
    """Rows of `log/files.py`, as an Arrow stream."""
    start: int | None = None
    end: int | None = None

    def row_groups(self) -> Callable[[Footer], Iterable[int]] | None:
        if self.start is None:
            return None
        start, end = self.start, math.inf if self.end is None else self.end
        return lambda footer: [n for n in range(len(footer.rows)) if start <= _offset(footer, n) < end]


def _offset(footer: Footer, number: int) -> int:
    chunks = footer.groups[number]
    return chunks[0].start if chunks else 0


def file_splits(files: pa.Table, *, max_bytes: int = MAX_SPLIT_BYTES) -> list[bytes]:
    """Splits for `ScanTask` over files of the log."""
    if not files.num_rows:
        return []
    rows = _told(files)
    sizes = pc.fill_null(files["size"], 0).to_numpy().astype(np.int64)
    goal = split_goal(int(sizes.sum()) + _OPEN_BYTES * len(sizes), max_bytes)
    is_large = sizes > goal * _CUT_FROM
    splits = [part for n in np.flatnonzero(is_large) for part in _cut(rows.slice(n, 1), int(sizes[n]), goal)]
    small = rows.filter(pa.array(~is_large))
    for first, last in runs(sizes[~is_large] + _OPEN_BYTES, goal):
        splits.append(msgspec.msgpack.encode(_FileSplit(files=_stream(small.slice(first, last - first)))))
    return splits


def change_splits(versions: Iterable[VersionChanges], *, max_bytes: int = MAX_SPLIT_BYTES) -> list[bytes]:
    """Splits for `ChangeTask`: changed files are dealt out, each with its version."""
    single = [
        VersionChanges(version=v.version, timestamp_ms=v.timestamp_ms, changes=(change,))
        for v in versions
        for change in v.changes
    ]
    if not single:
        return []
    sizes = np.array([v.changes[0].file.size or 0 for v in single], np.int64) + _OPEN_BYTES
    return [msgspec.msgpack.encode(single[a:b]) for a, b in runs(sizes, split_goal(int(sizes.sum()), max_bytes))]


def split_goal(total: int, max_bytes: int) -> int:
    return max(1, min(max_bytes, max(_MIN_SPLIT_BYTES, total // _WANTED_SPLITS)))


def runs(sizes: np.ndarray, goal: int) -> Iterator[tuple[int, int]]:
    """Neighbours with about `goal` bytes together, as half-open ranges."""
    if not len(sizes):
        return
    group = (np.cumsum(sizes) - sizes) // goal
    edges = [0, *(np.flatnonzero(np.diff(group)) + 1).tolist(), len(sizes)]
    yield from pairwise(edges)


def _cut(file: pa.Table, size: int, goal: int) -> Iterator[bytes]:
    parts = math.ceil(size / goal)
    told = _stream(file)
    for n in range(parts):
        end = None if n == parts - 1 else size * (n + 1) // parts
        yield msgspec.msgpack.encode(_FileSplit(files=told, start=size * n // parts, end=end))


def _told(files: pa.Table) -> pa.Table:
    """What a task must know of files, without columns that say nothing."""
    has = set(files.column_names)
    told = files.select([name for name in _FILE_COLUMNS if name in has and files[name].null_count < files.num_rows])
    if "partitionValues" in told.column_names and not pc.any(pc.greater(_lengths(told["partitionValues"]), 0)).as_py():
        told = told.drop_columns(["partitionValues"])
    return told.combine_chunks()


def _lengths(maps: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([np.diff(chunk.offsets.to_numpy()) for chunk in maps.chunks], pa.int32())


def _stream(files: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, files.schema) as writer:
        writer.write_table(files)
    whole: bytes = sink.getvalue().to_pybytes()
    return whole


def opener(spec: StoreSpec) -> Callable[[str], Store]:
    """Opens the stores of files that the log names by absolute URIs outside of the table, as shallow clones do."""

    @lru_cache(maxsize=8)
    def opened(uri: str) -> Store:
        same_kind = uri.partition(":")[0] == spec.uri.partition(":")[0]
        return open_store(uri, spec.storage_options if same_kind else None)

    return opened
