"""Where a stream stands in its table, and how far a micro-batch may go. Pure.

An offset names the next file to read: its place in the initial snapshot of a version, or among the files that a version
added. Everything before it has been read. It carries the table's id, so that a table that was dropped and made anew
under the same location is not mistaken for the one that was read, and whether it counts in rows or in changes.

A query without a checkpoint starts at the beginning, an offset that stands for what the options say and is the same
whenever it is asked for. The first batch that leaves it decides where the beginning was, and its end says so
(`origin`): Spark keeps the ends of batches only, and asks for the beginning again when it runs that batch, or runs it
once more after a crash.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from lakeseal import typed_json
from lakeseal.errors import InvalidArgument

_BEGINNING = -1


class Origin(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Where a stream's beginning turned out to be."""

    version: int
    is_initial: bool


class StreamOffset(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    table_id: str
    version: int
    index: int = 0
    is_initial: bool = False
    """Whether `index` counts the files of the snapshot at `version`, not those that it added."""
    is_feed: bool = False
    """Whether `index` counts changes, not files."""
    origin: Origin | None = None
    """Only in the end of a batch that starts at the beginning."""

    @classmethod
    def beginning(cls, table_id: str, *, is_feed: bool) -> StreamOffset:
        return cls(table_id=table_id, version=_BEGINNING, is_feed=is_feed)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> StreamOffset:
        try:
            return typed_json.convert(value, cls)
        except msgspec.ValidationError as error:
            raise InvalidArgument(
                f"The checkpoint holds an offset that is not of this source: {error}",
                hint="Use the checkpoint with the source that made it, or start with a new one",
            ) from error

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = msgspec.to_builtins(self)
        if self.origin is None:
            del value["origin"]
        return value

    def behind(self, index: int, count: int) -> StreamOffset:
        """The offset after `index` of the `count` files of this page; the next version's, if these are all."""
        if index < count:
            return msgspec.structs.replace(self, index=index, origin=None)
        return self.at(self.version + 1)

    def at(self, version: int, *, is_initial: bool = False) -> StreamOffset:
        """The first of a page of the same stream."""
        return StreamOffset(table_id=self.table_id, version=version, is_initial=is_initial, is_feed=self.is_feed)

    def from_beginning(self, origin: StreamOffset) -> StreamOffset:
        """The same as the end of a batch that starts at the beginning, which was `origin`."""
        found = Origin(version=origin.version, is_initial=origin.is_initial)
        return msgspec.structs.replace(self, origin=found)

    def start(self, end: StreamOffset) -> StreamOffset:
        """Where a batch that starts here, and ends there, has its first file; refused if there is no such batch."""
        if not self.is_beginning or end.is_beginning:
            start = self
        elif end.origin is not None:
            start = end.at(end.origin.version, is_initial=end.origin.is_initial)
        elif end.is_initial:
            start = end.at(end.version, is_initial=True)
        else:
            raise InvalidArgument(
                f"The checkpoint does not say where its first batch, up to version {end.version}, starts",
                hint="Start with a new checkpoint",
            )
        enters_snapshot = end.is_initial and start.page != end.page
        if start.table_id != end.table_id or start.place > end.place or enters_snapshot:
            raise InvalidArgument(
                f"The checkpoint has a batch that starts behind its end: from {self.to_json()} to {end.to_json()}",
                hint="Start with a new checkpoint",
            )
        return start

    @property
    def is_beginning(self) -> bool:
        return self.version == _BEGINNING

    @property
    def place(self) -> tuple[int, bool, int]:
        """In the order in which a stream comes by."""
        return self.version, self.is_initial, self.index

    @property
    def page(self) -> tuple[int, bool]:
        """What the index counts in: a version's own files, or the snapshot at it."""
        return self.version, self.is_initial


class ReadLimits(Struct, frozen=True, kw_only=True):
    """How much one micro-batch may read; None is no limit. The first file is read whatever its size."""

    max_files: int | None = None
    max_bytes: int | None = None

    def admitted(self, sizes: np.ndarray, files_before: int, bytes_before: int) -> int:
        """How many of the next files go into a batch that has some already."""
        count = len(sizes)
        if self.max_files is not None:
            count = min(count, max(0, self.max_files - files_before))
        if self.max_bytes is not None:
            below = int(np.searchsorted(np.cumsum(sizes), self.max_bytes - bytes_before, side="right"))
            count = min(count, below if files_before else max(1, below))
        return count
