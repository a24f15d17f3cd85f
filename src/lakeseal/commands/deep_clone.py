"""Deep CLONE: a table of its own with the rows of another, whose files are copied.

Run again, it copies what the source has got since, and takes out what the source has lost: afterwards the clone has the
source's rows and metadata again, whatever was written to it meanwhile. Files keep their names, which are used once, so
a file that is there is not copied twice, neither by the next run nor by one that goes on after a crash. Nothing is
visible before all is copied.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import msgspec
from msgspec import Struct

from lakeseal.clock import now_ms
from lakeseal.commands.clone import clone_metadata, clone_protocol
from lakeseal.commands.command import CommandContext, PlannedChange
from lakeseal.commands.file_changes import file_key, removal
from lakeseal.commit.alter import with_properties
from lakeseal.commit.proposal import Operation
from lakeseal.errors import AlreadyExists, ObjectNotFound, UnsupportedFeature
from lakeseal.log.clone_source import CLONE_SOURCES
from lakeseal.log.data import DataReader, ReadSpec
from lakeseal.log.files import add_actions
from lakeseal.log.snapshot import Snapshot
from lakeseal.protocol.actions import Action, AddFile, DeletionVectorDescriptor, Metadata, RemoveFile
from lakeseal.protocol.data_paths import encode_path, resolve_data_path
from lakeseal.protocol.deletion_vectors import ABSOLUTE, RELATIVE, relative_path
from lakeseal.protocol.features import enable, required_features
from lakeseal.protocol.identity import keeping_marks
from lakeseal.storage.base import Store

CLONE_OF = "lakeseal.cloneOf"
"""The property in which a deep clone keeps its source's id."""

_AT_ONCE = 8
_CHUNK_BYTES = 8 * 2**20


class DeepCloneCommand(Struct, frozen=True, kw_only=True):
    """To be run where the clone is to be, or is."""

    shown: ClassVar[str | None] = "clone"
    times: ClassVar[tuple[str, ...]] = ()

    source: Snapshot
    store: Store
    """The source's."""
    outside: Callable[[str], Store]
    properties: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """That the clone has beside the source's, or in place of them, until it is run again with others."""
    user_metadata: str | None = None

    def decide(self, context: CommandContext) -> PlannedChange:
        txn, source, before = context.txn, self.source, context.txn.snapshot
        if before is not None:
            if before.metadata.configuration.get(CLONE_OF) != source.metadata.id:
                raise AlreadyExists(
                    "There is a table already where the clone should go, and it is none of this source",
                    hint="Clone to another place",
                )
            txn.read_whole_table()
        txn.update_metadata(with_properties(_metadata(source, before), self.properties))
        txn.update_protocol(enable(clone_protocol(source.protocol), *required_features(txn.metadata)))
        pairs = [(add, _copied(add, source.table)) for add in add_actions(source.files)]
        wanted = {file_key(ours): ours for _, ours in pairs}
        there = {file_key(add): add for add in (() if before is None else add_actions(before.files))}
        new = [add for key, add in wanted.items() if key not in there]
        gone = [add for key, add in there.items() if key not in wanted]
        copies = list(_copies([(theirs, ours) for theirs, ours in pairs if file_key(ours) not in there], source.table))
        target = context.store.open()
        context.progress.stage("copying", len(copies))

        def copy(one: tuple[str, str]) -> int:
            copied = _copy(*self._locate(one[0]), target, one[1])
            context.progress.advance()
            return copied

        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="lakeseal-clone") as pool:
            sizes = list(pool.map(copy, copies))
        removed: list[RemoveFile] = [removal(add, now_ms=now_ms()) for add in gone]
        operation = Operation(
            name="CLONE",
            parameters={"source": source.table, "sourceVersion": source.version, "isShallow": False},
            metrics={
                "sourceTableSize": source.size_in_bytes,
                "sourceNumOfFiles": source.files.num_rows,
                "numRemovedFiles": len(removed),
                "removedFilesSize": sum(remove.size or 0 for remove in removed),
                "numCopiedFiles": sum(size > 0 for size in sizes),
                "copiedFilesSize": sum(sizes),
            },
            user_metadata=self.user_metadata,
        )
        actions: list[Action] = [*new, *removed]
        return PlannedChange(finish=lambda _: (actions, operation), nothing="the clone is as its source")

    def _locate(self, path: str) -> tuple[Store, str]:
        spec = ReadSpec(schema=self.source.schema, places=self.source.places)
        return DataReader(self.store, spec, outside=self.outside).locate(path)


def _copies(files: Iterable[tuple[AddFile, AddFile]], table: str) -> Iterable[tuple[str, str]]:
    """Paths of the source, and the keys that they are copied to, each once."""
    pairs: dict[str, str] = {}
    for theirs, ours in files:
        pairs[theirs.path] = resolve_data_path(table, ours.path).key
        if ours.deletion_vector is not None and ours.deletion_vector.storage_type == RELATIVE:
            vector = relative_path(ours.deletion_vector)
            pairs[encode_path(vector)] = vector
    return pairs.items()


def _copied(add: AddFile, table: str) -> AddFile:
    """A file of the source as the clone has it. Pure."""
    found = resolve_data_path(table, add.path, allow_outside=True)
    key = found.key if found.root is None else f"{_digest(add.path)}.parquet"
    return msgspec.structs.replace(
        add,
        path=encode_path(key),
        deletion_vector=_vector(add.deletion_vector),
        data_change=True,
        base_row_id=None,
        default_row_commit_version=None,
    )


def _vector(vector: DeletionVectorDescriptor | None) -> DeletionVectorDescriptor | None:
    if vector is not None and vector.storage_type == ABSOLUTE:
        raise UnsupportedFeature(
            "The source names a deletion vector of another table, as shallow clones do",
            hint="Run optimize() on the source first, or clone the table that it is a clone of",
        )
    return vector


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _metadata(source: Snapshot, before: Snapshot | None) -> Metadata:
    metadata = clone_metadata(source)
    configuration = {key: text for key, text in metadata.configuration.items() if key != CLONE_SOURCES}
    configuration[CLONE_OF] = source.metadata.id
    metadata = msgspec.structs.replace(metadata, configuration=configuration)
    if before is None:
        return metadata
    own = msgspec.structs.replace(metadata, id=before.metadata.id, created_time=before.metadata.created_time)
    return keeping_marks(own, before.metadata)


def _copy(source: Store, key: str, target: Store, new_key: str) -> int:
    """How many bytes were copied: none of a file that is there."""
    with source.open_read(key) as opened:
        size = opened.size()
        try:
            if target.head(new_key).size == size:
                return 0
        except ObjectNotFound:
            pass
        with target.open_write(new_key) as written:
            while chunk := opened.read(_CHUNK_BYTES):
                written.write(chunk)
        return int(size)
