"""What versions of a table mean to a stream that reads it.

A page is what one version has for a stream, in an order that never changes: the files of the snapshot that the stream
starts with, the files that a commit added, or the changes that it made to rows. A commit that only moves rows around
(`dataChange=false`) has an empty page. One that deletes or changes rows stops a stream of rows, which could not take
back what it has given, unless the user said what to do about it; a stream of changes has a page for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from lakeseal.errors import InvalidArgument, SourceChanged
from lakeseal.log.changes import FileChange, VersionChanges
from lakeseal.log.data import data_files
from lakeseal.log.files import ADDS, adds_from_actions
from lakeseal.log.snapshot import Snapshot
from lakeseal.protocol.actions import Action, AddFile, Metadata, RemoveFile
from lakeseal.protocol.properties import TableProperties
from lakeseal.spark.read_options import ReadOptions
from lakeseal.spark.read_task import change_splits, file_splits

Part: TypeAlias = Any
"""A table of files, or a list of `VersionChanges`."""


class StreamPage(Struct, frozen=True, kw_only=True):
    sizes: np.ndarray
    take: Callable[[int, int], Part]
    """The things from one index to another."""


def snapshot_page(snapshot: Snapshot, timestamp_ms: int | None) -> StreamPage:
    """The files of a snapshot, oldest first; as inserts, if there is a timestamp to give them."""
    order = pc.sort_indices(snapshot.files, sort_keys=[("modificationTime", "ascending"), ("path", "ascending")])
    files = snapshot.files.take(order)
    if timestamp_ms is None:
        return _page_of_files(files)

    def take(first: int, last: int) -> Part:
        inserted = (FileChange(file=file, kind="insert") for file in data_files(files.slice(first, last - first)))
        return [VersionChanges(version=snapshot.version, timestamp_ms=timestamp_ms, changes=tuple(inserted))]

    return StreamPage(sizes=_sizes(files), take=take)


def added_page(actions: Sequence[Action], options: ReadOptions) -> StreamPage:
    """The files that a commit added."""
    added = [a for a in actions if isinstance(a, AddFile) and a.data_change]
    if any(isinstance(a, RemoveFile) and a.data_change for a in actions):
        if options.skip_change_commits:
            added = []
        elif added and not options.ignore_changes:
            raise SourceChanged(
                "Rows of the source were changed or replaced, and a stream cannot take back what it has given",
                hint="Set skipChangeCommits=true to pass such commits over, ignoreChanges=true to be given all rows of "
                "the files that they wrote, or readChangeFeed=true to be told of them",
            )
        elif not added and not (options.ignore_deletes or options.ignore_changes):
            raise SourceChanged(
                "Rows of the source were deleted, and a stream cannot take back what it has given",
                hint="Set ignoreDeletes=true to go on without noticing, or readChangeFeed=true to be told of them",
            )
    return _page_of_files(adds_from_actions(added) if added else ADDS.empty_table())


def changes_page(
    version: int, timestamp_ms: int, changes: Callable[[], tuple[FileChange, ...]], metadata: Metadata
) -> StreamPage:
    """The changes that a commit made, where the feed is on."""
    if not TableProperties.of(metadata).change_data_feed:
        raise InvalidArgument(
            "The change feed was not on in this version",
            hint="Set delta.enableChangeDataFeed=true, and start the stream at a version since then",
        )
    found = changes()

    def take(first: int, last: int) -> Part:
        return [VersionChanges(version=version, timestamp_ms=timestamp_ms, changes=found[first:last])]

    return StreamPage(sizes=np.array([change.file.size or 0 for change in found], np.int64), take=take)


def splits(parts: Sequence[Part]) -> list[bytes]:
    """Splits for the tasks of a micro-batch."""
    files = [part for part in parts if isinstance(part, pa.Table)]
    if files:
        return file_splits(pa.concat_tables(files, promote_options="permissive"))
    return change_splits(version for part in parts for version in part)


def _page_of_files(files: pa.Table) -> StreamPage:
    return StreamPage(sizes=_sizes(files), take=lambda first, last: files.slice(first, last - first))


def _sizes(files: pa.Table) -> np.ndarray:
    sizes: np.ndarray = pc.fill_null(files["size"], 0).to_numpy().astype(np.int64)
    return sizes
