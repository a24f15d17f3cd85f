"""Shallow CLONE: a new table that starts with the rows of another, without copying them.

The new table's log names the other table's files by absolute URIs; whatever is changed in one table afterwards is not
seen in the other. Vacuuming the *source* can take files that the clone still reads; vacuuming the clone never touches
the source.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar
from uuid import uuid4

import msgspec
from msgspec import Struct

from lakeseal.clock import now_ms
from lakeseal.commands.cluster import set_clustering
from lakeseal.commands.command import CommandContext, PlannedChange
from lakeseal.commands.file_changes import file_key, removal
from lakeseal.commit.alter import with_properties
from lakeseal.commit.clustering import clustering_columns
from lakeseal.commit.proposal import Operation
from lakeseal.errors import AlreadyExists, InvalidArgument
from lakeseal.log.clone_source import CLONE_SOURCES
from lakeseal.log.files import add_actions
from lakeseal.log.snapshot import Snapshot
from lakeseal.protocol.actions import AddFile, DeletionVectorDescriptor, Metadata, Protocol
from lakeseal.protocol.data_paths import encode_path, resolve_data_path
from lakeseal.protocol.deletion_vectors import ABSOLUTE, RELATIVE, relative_path
from lakeseal.protocol.features import disable, enable, required_features, writer_features
from lakeseal.protocol.identity import keeping_marks
from lakeseal.protocol.properties import OWNER_KEYS, TableProperties

_OF_THE_SOURCE = tuple(
    key.lower()
    for key in (
        *OWNER_KEYS,
        TableProperties.in_commit_timestamp_enablement_version.key,
        TableProperties.in_commit_timestamp_enablement_timestamp.key,
        # A clone gives out its own row ids; what the source's files carry must not be taken for them.
        TableProperties.row_id_column.key,
        TableProperties.row_commit_version_column.key,
    )
)


_OF_THE_TABLE = frozenset(
    key.lower()
    for key in (
        *OWNER_KEYS,
        TableProperties.in_commit_timestamps.key,
        TableProperties.in_commit_timestamp_enablement_version.key,
        TableProperties.in_commit_timestamp_enablement_timestamp.key,
    )
)


class CloneCommand(Struct, frozen=True, kw_only=True):
    """To be run where the new table is to be, which must be empty, unless it `replaces` what is there: then it stays
    the same table, with the source's rows, columns and properties."""

    shown: ClassVar[str | None] = None
    times: ClassVar[tuple[str, ...]] = ()

    source: Snapshot
    replaces: bool = False
    properties: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """That the clone has beside the source's, or in place of them."""
    user_metadata: str | None = None

    def decide(self, context: CommandContext) -> PlannedChange:
        txn, source = context.txn, self.source
        there = txn.snapshot
        if there is not None and not self.replaces:
            raise AlreadyExists("There is a table already where the clone should go")
        adds = [cloned(add, source.table) for add in add_actions(source.files)]
        before: list[AddFile] = []
        if there is None:
            txn.update_metadata(self._metadata())
            txn.update_protocol(enable(clone_protocol(source.protocol), *required_features(txn.metadata)))
        else:
            if there.metadata.id == source.metadata.id:
                raise InvalidArgument("A table cannot be replaced by a clone of itself", hint="Restore it")
            before = list(add_actions(txn.filter_files()))
            txn.update_metadata(_in_place_of(there, self._metadata()))
            features = writer_features(clone_protocol(source.protocol))
            txn.update_protocol(enable(txn.protocol, *features, *required_features(txn.metadata)))
            if clustering_columns(there.domains):
                set_clustering(txn, ())
        # A clone of the same table has some of its files already.
        held, wanted = ({file_key(add) for add in files} for files in (before, adds))
        gone = [removal(add, now_ms=now_ms()) for add in before if file_key(add) not in wanted]
        new = [add for add in adds if file_key(add) not in held]
        operation = Operation(
            name="CLONE",
            parameters={"source": source.table, "sourceVersion": source.version, "isShallow": True},
            metrics={
                "sourceTableSize": source.size_in_bytes,
                "sourceNumOfFiles": len(adds),
                "numRemovedFiles": len(gone),
                "numCopiedFiles": 0,
                "removedFilesSize": sum(remove.size or 0 for remove in gone),
                "copiedFilesSize": 0,
            },
            user_metadata=self.user_metadata,
        )
        return PlannedChange(finish=lambda _: ([*gone, *new], operation))

    def _metadata(self) -> Metadata:
        return with_properties(clone_metadata(self.source), self.properties)


def cloned(add: AddFile, source: str) -> AddFile:
    """The same file, named from anywhere. Pure."""
    return msgspec.structs.replace(
        add,
        path=_absolute(source, add.path),
        deletion_vector=_vector(add.deletion_vector, source),
        data_change=True,
        base_row_id=None,
        default_row_commit_version=None,
    )


def _vector(vector: DeletionVectorDescriptor | None, source: str) -> DeletionVectorDescriptor | None:
    if vector is None or vector.storage_type != RELATIVE:
        return vector
    path = _absolute(source, encode_path(relative_path(vector)))
    return msgspec.structs.replace(vector, storage_type=ABSOLUTE, path_or_inline_dv=path)


def _absolute(table: str, path: str) -> str:
    found = resolve_data_path(table, path, allow_outside=True)
    if found.root is not None:
        return path
    scheme, _, root = table.rstrip("/").partition("://")
    # Only local roots are spelled as URIs already; in a log everything is.
    return f"{scheme}://{root if scheme == 'file' else encode_path(root)}/{encode_path(found.key)}"


def clone_protocol(source: Protocol) -> Protocol:
    for feature in ("managedCommits", "catalogManaged", "coordinatedCommits-preview"):
        source = disable(source, feature)
    return source


def _in_place_of(there: Snapshot, cloned: Metadata) -> Metadata:
    """The clone's metadata in a table that is there. Its columns are the source's, as their files have them."""
    before = there.metadata
    kept = {key: value for key, value in before.configuration.items() if key.lower() in _OF_THE_TABLE}
    last = max(TableProperties.of(one).column_mapping_max_id for one in (before, cloned))
    ids = {TableProperties.column_mapping_max_id.key: str(last)} if last else {}
    made = msgspec.structs.replace(
        cloned, id=before.id, created_time=before.created_time, configuration={**cloned.configuration, **kept, **ids}
    )
    return keeping_marks(made, before)


def properties_of_a_copy(source: Snapshot) -> dict[str, str | None]:
    """The table's, without those that only it can have."""
    own = source.metadata.configuration
    return {key: value for key, value in own.items() if key.lower() not in _OF_THE_SOURCE}


def clone_metadata(source: Snapshot) -> Metadata:
    before = source.metadata
    configuration = properties_of_a_copy(source)
    places = dict.fromkeys([source.table, *source.places])
    configuration[CLONE_SOURCES] = msgspec.json.encode(list(places)).decode()
    # What the source is about is not said of the clone, as Delta has it.
    return msgspec.structs.replace(
        before, id=str(uuid4()), description=None, created_time=now_ms(), configuration=configuration
    )
