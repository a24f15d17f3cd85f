"""Trees: which ranges make up a commit, and their files.

A tree is a list of rows in the order of their keys. In a small tree each row is a range; in a large one each is a
*node*, a file with the rows of some ranges, so that a commit writes the nodes it touched and not the whole list. Like
ranges, nodes are cut by content: equal entries give equal rows.

Files lie below `_lakeseal/` of the repository, named by content and writer (see `ranges`), and are never replaced.
`TreeFiles` keeps those that were read or written last, so what a commit wrote is not read again for its merge.
"""

from __future__ import annotations

import hashlib
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ClassVar, Generic, TypeVar

import msgspec
import pyarrow as pa
from msgspec import Struct

from lakeseal import typed_json
from lakeseal.branches import ranges
from lakeseal.branches.paths import META
from lakeseal.branches.ranges import Shape
from lakeseal.errors import BrokenTree, ObjectNotFound
from lakeseal.storage import Store

RANGES = f"{META}ranges/"
TREES = f"{META}trees/"

LOOK_AHEAD = 8
_CACHED_ROWS = 100_000
_CACHED_RANGE_BYTES = 128 << 20

K = TypeVar("K")
V = TypeVar("V")


class Row(Struct, frozen=True, kw_only=True, array_like=True):
    """A range, or a node of them."""

    first: str
    last: str
    id: str
    writer: str
    entries: int
    ranges: int = 1
    node: bool = False

    @property
    def key(self) -> str:
        stem = f"{self.id}-{self.writer}"
        return f"{TREES}{stem}.json" if self.node else f"{RANGES}{stem}.arrow"


Rows = tuple[Row, ...]


class _File(Struct, frozen=True, kw_only=True):
    format: int
    rows: Rows


def rows_id(rows: Sequence[Row]) -> str:
    """Who wrote the files of a tree is not part of what it is."""
    named = [(row.first, row.last, row.id, row.entries, row.ranges, row.node) for row in rows]
    return hashlib.sha256(b"lakeseal tree 1\n" + msgspec.json.encode(named)).hexdigest()


def key(tree: str) -> str:
    """The file of a tree."""
    return f"{TREES}{tree}.json"


def same(tree: str, other: str) -> bool:
    """Whether two trees hold the same entries, by name."""
    return tree.partition("-")[0] == other.partition("-")[0]


def entries_in(rows: Iterable[Row]) -> int:
    return sum(row.entries for row in rows)


class TreeFiles:
    """Reading. May be shared by threads."""

    def __init__(self, store: Store, shape: Shape) -> None:
        self._store = store
        self.shape = shape
        self._rows: Kept[str, Rows] = Kept(_CACHED_ROWS, lambda rows: 1 + len(rows))
        self._ranges: Kept[str, pa.Table] = Kept(_CACHED_RANGE_BYTES, lambda table: int(table.nbytes))

    def root(self, tree: str) -> Rows:
        return self._rows_of([key(tree)], [tree.partition("-")[0]])[0]

    def expand(self, rows: Iterable[Row]) -> Iterator[Row]:
        """With nodes replaced by their ranges."""
        wanted = list(rows)
        nodes = [row for row in wanted if row.node]
        inner = dict(zip(nodes, self._rows_of([n.key for n in nodes], [n.id for n in nodes]), strict=True))
        for row in wanted:
            yield from inner[row] if row.node else (row,)

    def entries(self, row: Row) -> pa.Table:
        return self.fetch([row])[0]

    def tables(self, rows: Sequence[Row]) -> Iterator[pa.Table]:
        """The entries of ranges, one after the other, fetched some at a time."""
        for start in range(0, len(rows), LOOK_AHEAD):
            yield from self.fetch(rows[start : start + LOOK_AHEAD])

    def has(self, row: Row) -> bool:
        return self._ranges.get(row.key) is not None

    def fetch(self, rows: Sequence[Row]) -> list[pa.Table]:
        """The entries of ranges, read side by side and kept for a while."""
        found = [self._ranges.get(row.key) for row in rows]
        missing = [row for row, table in zip(rows, found, strict=True) if table is None]
        read = iter(self._read(missing) if missing else ())
        tables = []
        for row, table in zip(rows, found, strict=True):
            if table is None:
                table = next(read)
                self._ranges.put(row.key, table)
            tables.append(table)
        return tables

    def remember(self, row: Row, entries: pa.Table) -> None:
        self._ranges.put(row.key, entries)

    def remember_rows(self, key: str, rows: Rows) -> None:
        """Of a tree or node, under the name of its file."""
        self._rows.put(key, rows)

    def forget(self) -> None:
        """What is kept in memory: files may have been removed."""
        self._rows.clear()
        self._ranges.clear()

    def _read(self, rows: Sequence[Row]) -> list[pa.Table]:
        blobs = self._get([row.key for row in rows])
        return [ranges.decode(blob, row.id, row.key) for row, blob in zip(rows, blobs, strict=True)]

    def _rows_of(self, keys: Sequence[str], ids: Sequence[str]) -> list[Rows]:
        found = {key: self._rows.get(key) for key in keys}
        missing = [(key, id_) for key, id_ in zip(keys, ids, strict=True) if found[key] is None]
        for (key, id_), blob in zip(missing, self._get([key for key, _ in missing]), strict=True):
            found[key] = _decode_rows(blob, id_, key)
            self._rows.put(key, found[key] or ())
        return [found[key] or () for key in keys]

    def _get(self, keys: Sequence[str]) -> list[bytes]:
        try:
            return self._store.get_many(keys) if len(keys) > 1 else [self._store.get(key) for key in keys]
        except ObjectNotFound as error:
            raise BrokenTree(f"a file of a tree is missing: {error.message}", file=error.file) from error


class TreeWriter:
    """Writing, for one operation. Files count only when a commit refers to them, so nothing is ever undone: what is
    left over is collected as garbage."""

    at_once: ClassVar[int] = LOOK_AHEAD
    """Files that are put side by side."""

    def __init__(self, store: Store, files: TreeFiles, there: Mapping[str, Rows] | None = None) -> None:
        """`there` are trees by name whose files will stay, as branches lead to them: what comes out as it is in one of
        them is not written again."""
        self.id = uuid.uuid4().hex[:16]
        self._store = store
        self._files = files
        self._there = there or {}
        self._ranges = {row.id: row for rows in self._there.values() for row in rows if not row.node}
        self._pool: ThreadPoolExecutor | None = None
        self._pending: list[Future[None]] = []
        self._held: Callable[[], None] | None = None

    def put_range(self, entries: pa.Table) -> Row:
        id_ = ranges.range_id(entries)
        if id_ in self._ranges:
            return self._ranges[id_]
        row = Row(
            first=entries["path"][0].as_py(),
            last=entries["path"][-1].as_py(),
            id=id_,
            writer=self.id,
            entries=len(entries),
        )
        self._files.remember(row, entries)
        self._put(row.key, lambda: ranges.encode(entries, row.id))
        return row

    def put_tree(self, items: Iterable[Row]) -> str:
        """The name of the tree that these ranges and nodes, in order, make. All of its files are durable."""
        rows = self._assembled(list(items))
        own = f"{rows_id(rows)}-{self.id}"
        name = next((other for other in self._there if same(other, own)), own)
        if name == own:
            self._put_rows(key(name), rows)
        self.finish()
        return name

    def finish(self) -> None:
        """Waits for what is on its way; raises what went wrong with it."""
        try:
            if self._held is not None:
                self._held()
            for pending in self._pending:
                pending.result()
        finally:
            self.close()

    def close(self) -> None:
        """Gives up what is not on its way yet."""
        self._pending, self._held = [], None
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def _put(self, key: str, data: Callable[[], bytes]) -> None:
        # Names are our own, so a plain put is as good as put-if-absent, and may be repeated after a lost reply.
        held, self._held = self._held, lambda: self._store.put(key, data())
        if held is None:
            return
        if self.at_once == 1:
            held()
            return
        # All but the last go to threads.
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.at_once, thread_name_prefix="lakeseal-tree")
        while len(self._pending) > 2 * self.at_once:
            self._pending.pop(0).result()
        self._pending.append(self._pool.submit(held))

    def _assembled(self, items: list[Row]) -> Rows:
        shape = self._files.shape
        if sum(item.ranges for item in items) <= shape.node_longest:
            return tuple(self._files.expand(items))
        rows: list[Row] = []
        held: list[Row] = []
        for item in items:
            if item.node and not held:
                rows.append(item)
                continue
            for row in self._files.expand([item]):
                held.append(row)
                if int(row.id[:12], 16) % shape.node_cut == 0 or len(held) >= shape.node_longest:
                    rows.append(self._put_node(held))
                    held = []
        if held:
            rows.append(self._put_node(held))
        return tuple(rows)

    def _put_node(self, rows: list[Row]) -> Row:
        node = Row(
            first=rows[0].first,
            last=rows[-1].last,
            id=rows_id(rows),
            writer=self.id,
            entries=entries_in(rows),
            ranges=len(rows),
            node=True,
        )
        self._put_rows(node.key, tuple(rows))
        return node

    def _put_rows(self, key: str, rows: Rows) -> None:
        self._files.remember_rows(key, rows)
        self._put(key, lambda: _encode_rows(rows))


def _encode_rows(rows: Rows) -> bytes:
    return msgspec.json.encode(_File(format=1, rows=rows))


def _decode_rows(data: bytes, expected_id: str, file: str) -> Rows:
    try:
        found = typed_json.decode(data, _File)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BrokenTree(f"a tree can't be read: {error}", file=file) from error
    if rows_id(found.rows) != expected_id:
        raise BrokenTree("a tree does not hold the rows that its name says", file=file)
    return found.rows


class Kept(Generic[K, V]):
    """The values that were used last, up to a total size."""

    def __init__(self, limit: int, size: Callable[[V], int]) -> None:
        self._limit = limit
        self._size = size
        self._values: OrderedDict[K, V] = OrderedDict()
        self._total = 0
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def put(self, key: K, value: V) -> None:
        with self._lock:
            if key in self._values:
                return
            self._values[key] = value
            self._total += self._size(value)
            while self._total > self._limit and len(self._values) > 1:
                _, dropped = self._values.popitem(last=False)
                self._total -= self._size(dropped)

    def clear(self) -> None:
        with self._lock:
            self._values.clear()
            self._total = 0
