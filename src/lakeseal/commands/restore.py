"""RESTORE: the table as it was at an earlier version, as a new version.

Files that were live then and are not now come back, those that are live now and were not then go; files that are in
both stay untouched. Schema, partitioning and properties come back too, but for what cannot be undone: who commits to
the table, the record of in-commit timestamps, and column ids that were given out. The protocol never goes back.

All files that come back must still be there; one that was vacuumed is `DataFileMissing`, and nothing is changed.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct

from lakeseal.clock import now_ms
from lakeseal.commands.command import CommandContext, NothingToDo, PlannedChange
from lakeseal.commands.file_changes import removals
from lakeseal.commands.touched_files import changeable
from lakeseal.commit.clustering import refuse_lost_columns
from lakeseal.commit.proposal import Operation
from lakeseal.errors import DataFileMissing, ObjectNotFound
from lakeseal.log.data import DataReader
from lakeseal.log.files import add_actions, keys, without_keys
from lakeseal.log.scan import Outside, read_spec
from lakeseal.log.snapshot import Snapshot
from lakeseal.protocol.actions import AddFile, Metadata
from lakeseal.protocol.deletion_vectors import ABSOLUTE, RELATIVE, relative_path
from lakeseal.protocol.features import enable
from lakeseal.protocol.identity import keeping_marks
from lakeseal.protocol.properties import OWNER_KEYS, TableProperties
from lakeseal.storage.base import Store

_KEPT = tuple(
    key.lower()
    for key in (
        *OWNER_KEYS,
        TableProperties.in_commit_timestamps.key,
        TableProperties.in_commit_timestamp_enablement_version.key,
        TableProperties.in_commit_timestamp_enablement_timestamp.key,
    )
)
_ASKED_AT_ONCE = 16


class RestoreCommand(Struct, frozen=True, kw_only=True):
    shown: ClassVar[str | None] = "restore"
    times: ClassVar[tuple[str, ...]] = ()

    target: Snapshot
    """The table as it is to be again."""
    outside: Outside | None = None
    user_metadata: str | None = None

    def decide(self, context: CommandContext) -> PlannedChange | NothingToDo:
        txn, target = context.txn, self.target
        snapshot = changeable(txn)
        back, gone = difference(target.files, snapshot.files), difference(snapshot.files, target.files)
        txn.read_whole_table()
        metadata = restored_metadata(target.metadata, snapshot.metadata)
        adds = [msgspec.structs.replace(add, data_change=True) for add in add_actions(back)]
        if adds:
            txn.bring_back()
        context.progress.stage("looking for files", len(adds))
        _check_there(adds, target, context.store.open(), self.outside)
        metrics = {
            "tableSizeAfterRestore": target.size_in_bytes,
            "numOfFilesAfterRestore": target.files.num_rows,
            "numRemovedFiles": gone.num_rows,
            "removedFilesSize": int(np.sum(gone["size"].to_numpy())),
            "numRestoredFiles": back.num_rows,
            "restoredFilesSize": sum(add.size for add in adds),
        }
        if metadata == snapshot.metadata and not adds and not gone.num_rows:
            return NothingToDo(version=snapshot.version, reason="the table is as it was", metrics=metrics)
        if metadata != snapshot.metadata:
            refuse_lost_columns(snapshot, metadata)
            txn.update_metadata(metadata)
        if any(add.deletion_vector is not None for add in adds):
            txn.update_protocol(enable(txn.protocol, "deletionVectors"))
        operation = Operation(
            name="RESTORE",
            parameters={"version": target.version},
            metrics=metrics,
            user_metadata=self.user_metadata,
        )
        return PlannedChange(finish=lambda _: ([*removals(gone, now_ms=now_ms()), *adds], operation))


def difference(files: pa.Table, others: pa.Table) -> pa.Table:
    """The files that are not among the others; another deletion vector makes another file."""
    return without_keys(files, keys(others))


def restored_metadata(target: Metadata, now: Metadata) -> Metadata:
    """The metadata of then, with what cannot be undone of now. Pure."""
    configuration = {key: value for key, value in target.configuration.items() if key.lower() not in _KEPT}
    configuration |= {key: value for key, value in now.configuration.items() if key.lower() in _KEPT}
    max_id = TableProperties.column_mapping_max_id.key
    ids = max(TableProperties.of(target).column_mapping_max_id, TableProperties.of(now).column_mapping_max_id)
    if ids:
        configuration[max_id] = str(ids)
    return msgspec.structs.replace(
        keeping_marks(target, now), id=now.id, created_time=now.created_time, configuration=configuration
    )


def _check_there(adds: list[AddFile], target: Snapshot, store: Store, outside: Outside | None) -> None:
    reader = DataReader(store, read_spec(target), outside=outside)

    def look(add: AddFile) -> None:
        places = [reader.locate(add.path)]
        vector = add.deletion_vector
        if vector is not None and vector.storage_type == RELATIVE:
            places.append((store, relative_path(vector)))
        elif vector is not None and vector.storage_type == ABSOLUTE:
            places.append(reader.locate(vector.path_or_inline_dv))
        for where, key in places:
            try:
                where.head(key)
            except ObjectNotFound as error:
                raise DataFileMissing(
                    f"A file of version {target.version} is not there any more",
                    file=key,
                    hint="It was vacuumed or deleted: restore a newer version, or the file from a backup",
                ) from error

    with ThreadPoolExecutor(_ASKED_AT_ONCE, thread_name_prefix="lakeseal-look") as pool:
        for _ in pool.map(look, adds):
            pass
