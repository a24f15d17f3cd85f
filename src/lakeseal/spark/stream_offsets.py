"""Where a stream stands in its table, and how far a micro-batch may go. Pure.

An offset names the next file to read: its place in the initial snapshot of a version, or among the files that a version
added. Everything before it has been read. It carries the table's id, so that a table that was dropped and made anew
under the same location is not mistaken for the one that was read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from lakeseal import typed_json
from lakeseal.errors import InvalidArgument


class StreamOffset(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    table_id: str
    version: int
    index: int = 0
    is_initial: bool = False
    """Whether `index` counts the files of the snapshot at `version`, not those that it added."""

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
        return value

    def behind(self, index: int, count: int) -> StreamOffset:
        """The offset after `index` of the `count` files of this page; the next version's, if these are all."""
        if index < count:
            return msgspec.structs.replace(self, index=index)
        return StreamOffset(table_id=self.table_id, version=self.version + 1)

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
