"""Small tables for tests of owners: files by name only, no data."""

from __future__ import annotations

from lakeseal.commit.filesystem_owner import FilesystemOwner
from lakeseal.commit.owner import CommitOwner, OwnedCommits
from lakeseal.commit.proposal import Operation
from lakeseal.commit.transaction import CommitResult, OptimisticTransaction
from lakeseal.log.delta_log import DeltaLog
from lakeseal.owner.endpoint import OwnerEndpoint
from lakeseal.owner.managed_owner import ManagedOwner
from lakeseal.protocol.actions import AddFile, Metadata, RemoveFile
from lakeseal.storage import Store

SCHEMA = '{"type":"struct","fields":[{"name":"x","type":"long","nullable":true,"metadata":{}}]}'
WRITE = Operation(name="WRITE")


def add(path: str, *, size: int = 1) -> AddFile:
    return AddFile(path=path, partition_values={}, size=size, modification_time=0, data_change=True)


def remove(path: str) -> RemoveFile:
    return RemoveFile(path=path, data_change=True, deletion_timestamp=1)


def metadata(**configuration: str) -> Metadata:
    named: dict[str, str | None] = {f"delta.{name}": value for name, value in configuration.items()}
    return Metadata(id="t", schema_string=SCHEMA, configuration=named)


def managed_log(endpoint: OwnerEndpoint, store: Store) -> tuple[DeltaLog, ManagedOwner]:
    owner = ManagedOwner(endpoint, store)
    return DeltaLog(store, commit_source=OwnedCommits(owner)), owner


def create(store: Store, endpoint: OwnerEndpoint | None = None, **configuration: str) -> tuple[DeltaLog, CommitOwner]:
    """A new table, managed if an owner is given."""
    log: DeltaLog
    owner: CommitOwner
    if endpoint is None:
        log, owner = DeltaLog(store), FilesystemOwner(store)
    else:
        log, owner = managed_log(endpoint, store)
    txn = OptimisticTransaction.begin(log, owner)
    txn.update_metadata(metadata(**configuration))
    txn.commit([], Operation(name="CREATE TABLE"))
    return log, owner


def append(log: DeltaLog, owner: CommitOwner, *paths: str) -> CommitResult:
    return OptimisticTransaction.begin(log, owner).commit([add(path) for path in paths], WRITE)


def paths(log: DeltaLog) -> list[str]:
    snapshot = log.update()
    assert snapshot is not None
    return sorted(snapshot.files["path"].to_pylist())


def newest(store: Store, endpoint: OwnerEndpoint | None = None) -> int:
    """The version that a reader sees who opens the table now."""
    log = DeltaLog(store) if endpoint is None else managed_log(endpoint, store)[0]
    snapshot = log.update()
    return -1 if snapshot is None else snapshot.version
