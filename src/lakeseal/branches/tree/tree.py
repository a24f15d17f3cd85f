"""Trees: which ranges make up a commit.

A tree is a list of rows in the order of their keys. In a small tree each row is a range; in a large one each is a
*node*, a block with the rows of some ranges, so that a commit writes the nodes it touched and not the whole list. Like
ranges, nodes are cut by content: equal entries give equal rows.

The *name* of a tree is the hash of its rows and the place of its root. `TreeFiles` keeps what was read or written last,
so what a commit wrote is not read again for its merge.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import ClassVar

import msgspec
import pyarrow as pa
from msgspec import Struct

from lakeseal import typed_json
from lakeseal.branches.tree import ranges
from lakeseal.branches.tree.blocks import BlockPlace, Blocks, key_of
from lakeseal.branches.tree.lru_cache import LruCache
from lakeseal.branches.tree.ranges import TreeShape
from lakeseal.errors import BrokenTree

_NODES_AT_ONCE = 64
_CACHED_ROWS = 100_000
_CACHED_RANGE_BYTES = 128 << 20


class Row(Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """A range, or a node of them. There are many, and nothing in them leads back, so Python's collector has no need to
    go through them."""

    first: str
    last: str
    id: str
    file: str
    start: int
    length: int
    entries: int
    ranges: int = 1
    node: bool = False

    @property
    def place(self) -> BlockPlace:
        return BlockPlace(file=self.file, start=self.start, length=self.length)


Rows = tuple[Row, ...]


def rows_id(rows: Sequence[Row]) -> str:
    """Where the blocks of a tree lie is not part of what it is."""
    named = [(row.first, row.last, row.id, row.entries, row.ranges, row.node) for row in rows]
    return hashlib.sha256(b"lakeseal tree 2\n" + msgspec.json.encode(named)).hexdigest()


def name_of(id_: str, place: BlockPlace) -> str:
    return f"{id_}-{place.file}-{place.start}-{place.length}"


def place_of(tree: str) -> BlockPlace:
    """Of the root, by the tree's name."""
    try:
        _, file, start, length = tree.split("-")
        return BlockPlace(file=file, start=int(start), length=int(length))
    except ValueError:
        raise BrokenTree(f"{tree!r} is no tree's name") from None


def same(tree: str, other: str) -> bool:
    """Whether two trees hold the same entries, by name."""
    return tree.partition("-")[0] == other.partition("-")[0]


def entries_in(rows: Iterable[Row]) -> int:
    return sum(row.entries for row in rows)


class TreeFiles:
    """Reading. May be shared by threads."""

    at_once: ClassVar[int] = 65_536
    """Entries that are read and looked at together."""

    def __init__(self, blocks: Blocks, shape: TreeShape) -> None:
        self.blocks = blocks
        self.shape = shape
        self._rows: LruCache[BlockPlace, Rows] = LruCache(_CACHED_ROWS, lambda rows: 1 + len(rows))
        self._ranges: LruCache[BlockPlace, pa.Table] = LruCache(_CACHED_RANGE_BYTES, lambda table: int(table.nbytes))

    def root(self, tree: str) -> Rows:
        place = place_of(tree)
        found = self._rows.get(place)
        if found is None:
            found = self._decoded(tree.partition("-")[0], place, self.blocks.root(place))
        return found

    def expand(self, rows: Iterable[Row]) -> Iterator[Row]:
        """With nodes replaced by their ranges; some nodes are read at a time."""
        wanted = iter(rows)
        while some := list(islice(wanted, _NODES_AT_ONCE)):
            inner = iter(self._rows_at([(row.id, row.place) for row in some if row.node]))
            for row in some:
                yield from next(inner) if row.node else (row,)

    def entries(self, row: Row) -> pa.Table:
        return self.fetch([row])[0]

    def tables(self, rows: Iterable[Row]) -> Iterator[tuple[Row, pa.Table]]:
        """The entries of ranges in order, those of several in one table, with the last range of each."""
        for some in self.groups(rows):
            tables = self.fetch(some)
            yield some[-1], tables[0] if len(tables) == 1 else pa.concat_tables(tables).combine_chunks()

    def groups(self, rows: Iterable[Row]) -> Iterator[list[Row]]:
        """As many ranges together as are read at once."""
        held: list[Row] = []
        count = 0
        for row in rows:
            held.append(row)
            count += row.entries
            if count >= self.at_once:
                yield held
                held, count = [], 0
        if held:
            yield held

    def has(self, row: Row) -> bool:
        return self._ranges.get(row.place) is not None

    def fetch(self, rows: Sequence[Row]) -> list[pa.Table]:
        """The entries of ranges, read together and kept for a while."""
        tables = {row.place: self._ranges.get(row.place) for row in rows}
        missing = [row for row in rows if tables[row.place] is None]
        for row, blob in zip(missing, self.blocks.get([row.place for row in missing]), strict=True):
            tables[row.place] = ranges.decode(blob, row.id, key_of(row.file))
            self._ranges.put(row.place, tables[row.place])
        return [tables[row.place] for row in rows]

    def remember(self, row: Row, entries: pa.Table) -> None:
        self._ranges.put(row.place, entries)

    def remember_rows(self, place: BlockPlace, rows: Rows) -> None:
        """Of a tree or node."""
        self._rows.put(place, rows)

    def forget(self) -> None:
        """What is kept in memory: files may have been removed."""
        self._rows.clear()
        self._ranges.clear()
        self.blocks.forget()

    def _rows_at(self, wanted: Sequence[tuple[str, BlockPlace]]) -> list[Rows]:
        """Of trees or nodes, by their ids and places."""
        found = {place: self._rows.get(place) for _, place in wanted}
        missing = [(id_, place) for id_, place in wanted if found[place] is None]
        blobs = self.blocks.get([place for _, place in missing])
        for (id_, place), blob in zip(missing, blobs, strict=True):
            found[place] = self._decoded(id_, place, blob)
        return [found[place] or () for _, place in wanted]

    def _decoded(self, id_: str, place: BlockPlace, blob: bytes) -> Rows:
        rows = decode_rows(blob, id_, key_of(place.file))
        self._rows.put(place, rows)
        return rows


def encode_rows(rows: Rows) -> bytes:
    return msgspec.json.encode(rows)


def decode_rows(data: bytes, expected_id: str, file: str) -> Rows:
    try:
        rows: Rows = typed_json.decode(data, Rows)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BrokenTree(f"a tree can't be read: {error}", file=file) from error
    if rows_id(rows) != expected_id:
        raise BrokenTree("a tree does not hold the rows that its name says", file=file)
    return rows
