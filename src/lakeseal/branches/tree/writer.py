"""`TreeWriter`: the file of one commit, from its first range to its record.

What is written counts only when a branch leads to it, so nothing is ever undone: what is left over is collected as
garbage. Until `finish` everything is in memory and can be read from there, so a merge that is refused has written
nothing. Only what goes beyond `LARGEST` bytes is put before, in files of its own.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import ClassVar

import pyarrow as pa

from lakeseal.branches.tree import blocks, ranges
from lakeseal.branches.tree.blocks import BlockPlace, key_of
from lakeseal.branches.tree.tree import Row, Rows, TreeFiles, encode_rows, entries_in, name_of, rows_id, same


class TreeWriter(AbstractContextManager["TreeWriter"]):
    """For one attempt to move a branch; what is not finished when it is left is given up."""

    largest: ClassVar[int] = blocks.LARGEST

    def __init__(self, files: TreeFiles) -> None:
        self.file = uuid.uuid4().hex
        self._files = files
        self._blocks = files.blocks
        self._body = bytearray()
        self._blocks.hold(self.file, self._body)
        self._more = bytearray()
        self._parts = 0
        self._trees: Mapping[str, Rows] = {}
        self._known: dict[str, Row] = {}

    def __exit__(self, *_: object) -> None:
        self._blocks.drop(self.file)
        self._blocks.drop(self._part)

    def leans_on(self, trees: Mapping[str, Rows]) -> None:
        """Trees by name whose files will stay, as branches lead to them: what comes out as it is in one of them is not
        written again."""
        self._trees = trees
        self._known = {row.id: row for rows in trees.values() for row in rows}

    def put_range(self, entries: pa.Table) -> Row:
        id_ = ranges.range_id(entries)
        if id_ in self._known:
            return self._known[id_]
        place = self._placed(ranges.encode(entries, id_))
        row = Row(
            first=entries["path"][0].as_py(),
            last=entries["path"][-1].as_py(),
            id=id_,
            file=place.file,
            start=place.start,
            length=place.length,
            entries=len(entries),
        )
        self._files.remember(row, entries)
        return row

    def put_tree(self, items: Iterable[Row]) -> str:
        """The name of the tree that these ranges and nodes, in order, make."""
        rows = self._assembled(list(items))
        id_ = rows_id(rows)
        there = next((name for name in self._trees if same(name, id_)), None)
        return there or name_of(id_, self._put_rows(rows))

    def finish(self, record: bytes) -> None:
        """All of it is durable, with the commit's record at the end."""
        if self._more:
            self._put_part()
        self._blocks.store.put(key_of(self.file), bytes(self._body) + record)
        self._blocks.drop(self.file)

    @property
    def _part(self) -> str:
        return f"{self.file}.{self._parts}"

    def _placed(self, block: bytes) -> BlockPlace:
        if len(self._body) + len(block) <= self.largest:
            self._body += block
            return BlockPlace(file=self.file, start=len(self._body) - len(block), length=len(block))
        if self._more and len(self._more) + len(block) > self.largest:
            self._put_part()
        self._blocks.hold(self._part, self._more)
        self._more += block
        return BlockPlace(file=self._part, start=len(self._more) - len(block), length=len(block))

    def _put_part(self) -> None:
        # Names are our own, so a plain put is as good as put-if-absent, and may be repeated after a lost reply.
        self._blocks.store.put(key_of(self._part), bytes(self._more))
        self._blocks.drop(self._part)
        self._more = bytearray()
        self._parts += 1

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
            for row in self._files.expand([item]) if item.node else (item,):
                held.append(row)
                if int(row.id[:12], 16) % shape.node_cut == 0 or len(held) >= shape.node_longest:
                    rows.append(self._put_node(tuple(held)))
                    held = []
        if held:
            rows.append(self._put_node(tuple(held)))
        return tuple(rows)

    def _put_node(self, rows: Rows) -> Row:
        id_ = rows_id(rows)
        if id_ in self._known:
            return self._known[id_]
        place = self._put_rows(rows)
        return Row(
            first=rows[0].first,
            last=rows[-1].last,
            id=id_,
            file=place.file,
            start=place.start,
            length=place.length,
            entries=entries_in(rows),
            ranges=len(rows),
            node=True,
        )

    def _put_rows(self, rows: Rows) -> BlockPlace:
        # Always in the commit's own file, near its end, where they are read along with the record.
        block = encode_rows(rows)
        place = BlockPlace(file=self.file, start=len(self._body), length=len(block))
        self._body += block
        self._files.remember_rows(place, rows)
        return place
