"""Ranges: sorted runs of entries, each an immutable block of a file.

- The *id* of a range is the SHA-256 of its entries, so equal ids mean equal entries. It does not depend on how they
  are compressed, nor on who wrote them. A block that holds anything else than its id says is `BrokenTree`.
- Runs are cut after a path whose hash is 0 modulo `cut`, and otherwise at `longest` entries. So the same entries give
  the same ranges whatever their history, and a change touches only the ranges that it falls into.
- A block is an Arrow stream with zstd, sealed with a checksum; `blocks` tells which files they lie in.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Annotated

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta, Struct

from lakeseal.branches.values import ENTRIES
from lakeseal.errors import BrokenTree

# A range is too short for several threads to gain more than they cost.
_OPTIONS = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
_READING = pa.ipc.IpcReadOptions(use_threads=False)


_AtLeastOne = Annotated[int, Meta(ge=1)]


class TreeShape(Struct, frozen=True, kw_only=True):
    """Where trees are cut. Part of a repository's format: it never changes once there are trees."""

    cut: _AtLeastOne = 512
    """Of paths, every so many-th ends a range, by its hash."""
    longest: _AtLeastOne = 2_560
    """Entries in a range at most."""
    node_cut: _AtLeastOne = 128
    """The same for ranges in a node of a large tree."""
    node_longest: _AtLeastOne = 1_024
    """Also: a tree of no more ranges than this has no nodes."""


def cut_paths(paths: Sequence[str], shape: TreeShape) -> list[str]:
    """Those of the paths that end a range."""
    blake2b, every = hashlib.blake2b, shape.cut
    return [path for path in paths if int.from_bytes(blake2b(path.encode(), digest_size=8).digest()) % every == 0]


def range_id(entries: pa.Table) -> str:
    """Of entries in order."""
    digest = hashlib.sha256(b"lakeseal range 1\n")
    digest.update(len(entries).to_bytes(8, "little"))
    for field in ENTRIES:
        column = entries[field.name]
        if field.nullable:
            # No entry has "" for its metadata.
            column = pc.fill_null(column, "")
        for part in _canonical(column):
            digest.update(part)
    return digest.hexdigest()


def encode(entries: pa.Table, id_: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, ENTRIES, options=_OPTIONS) as writer:
        writer.write_table(entries.combine_chunks())  # one batch, so that it is one chunk when it is read
    data: bytes = sink.getvalue().to_pybytes()
    return data + _seal(data, id_)


def decode(data: bytes, id_: str, file: str) -> pa.Table:
    body = memoryview(data)[: -len(_seal(b"", ""))]
    if _seal(body, id_) != data[len(body) :]:
        raise BrokenTree("a range does not hold the entries that its name says", file=file)
    try:
        table = pa.ipc.open_stream(pa.py_buffer(body), options=_READING).read_all()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BrokenTree(f"a range can't be read: {error}", file=file) from error
    if table.schema != ENTRIES:
        raise BrokenTree("a range has other columns than entries have", file=file)
    return table


def _seal(data: bytes | memoryview, id_: str) -> bytes:
    """Stands after the end of the Arrow stream, where readers of Arrow do not look. Cheaper to check than the id, which
    is made of the entries as they are before they are compressed."""
    digest = hashlib.sha256(id_.encode())
    digest.update(data)
    return digest.digest()


def sorted_by_path(entries: pa.Table) -> pa.Table:
    return entries.take(pc.sort_indices(entries["path"]))


def row_of(paths: pa.ChunkedArray | pa.Array, path: str) -> int | None:
    """Where a path is among these sorted ones."""
    at = count_below(paths, path)
    return at if at < len(paths) and paths[at].as_py() == path else None


def count_below(paths: pa.ChunkedArray | pa.Array, key: str | None, *, or_equal: bool = False) -> int:
    """How many of these sorted paths are less than `key` (or equal to it); all, if it is None."""
    if key is None:
        return len(paths)
    low, high = 0, len(paths)
    while low < high:
        middle = (low + high) // 2
        path = paths[middle].as_py()
        if path < key or (or_equal and path == key):
            low = middle + 1
        else:
            high = middle
    return low


def counts_below(paths: pa.ChunkedArray | pa.Array, keys: Sequence[str]) -> list[int]:
    """The same for each of several sorted keys, of which many may lie between the same two paths."""
    counts: list[int] = []
    at, bound = 0, paths[0].as_py() if len(paths) else None
    for key in keys:
        if bound is not None and bound < key:
            at = count_below(paths, key)
            bound = paths[at].as_py() if at < len(paths) else None
        counts.append(at)
    return counts


def within(entries: pa.Table, low: str, high: str | None) -> pa.Table:
    """The rows of a table sorted by path with `low` ≤ path < `high`."""
    if not len(entries):
        return entries
    start = count_below(entries["path"], low)
    return entries.slice(start, count_below(entries["path"], high) - start)


class RangeCutter:
    """Turns sorted entries, fed part by part, into ranges."""

    def __init__(self, shape: TreeShape) -> None:
        self._longest = shape.longest
        self._held: list[pa.Table] = []
        self._count = 0

    @property
    def is_fresh(self) -> bool:
        """Whether the next entry begins a range, so that an old range that follows may stay as it is."""
        return self._count == 0

    def feed(self, entries: pa.Table, cuts: Sequence[int]) -> Iterator[pa.Table]:
        """`cuts` are the rows after which there is a cut by hash, ascending."""
        start = 0
        for number, stop in enumerate((*(cut + 1 for cut in cuts), len(entries))):
            while self._count + stop - start >= self._longest:
                middle = start + self._longest - self._count
                yield self._take(entries.slice(start, middle - start))
                start = middle
            if stop > start:
                self._held.append(entries.slice(start, stop - start))
                self._count += stop - start
                start = stop
            if number < len(cuts) and self._count:
                yield self._take()

    def flush(self) -> Iterator[pa.Table]:
        if self._count:
            yield self._take()

    def _take(self, *block: pa.Table) -> pa.Table:
        whole = pa.concat_tables([*self._held, *block]).combine_chunks()
        self._held, self._count = [], 0
        return whole


def _canonical(column: pa.ChunkedArray) -> Iterator[bytes | memoryview]:
    array = column.combine_chunks()
    if array.type == pa.string():
        yield pc.binary_length(array).to_numpy(zero_copy_only=False).astype("<i4").tobytes()
        _, offsets, text = array.buffers()
        if len(array) and text is not None:
            ends = np.frombuffer(offsets, np.int32)
            yield memoryview(text)[int(ends[array.offset]) : int(ends[array.offset + len(array)])]
    else:
        yield array.to_numpy(zero_copy_only=False).astype("<i8").tobytes()
