"""The seam with an owner whose commits are not in the log under their own names until they are backfilled."""

from __future__ import annotations

import threading
import uuid

import pytest

from contracts.owner_contract import CommitOwnerContract, OwnedTable
from lakeseal.commit.owner import Commits, Committed, Conflict, Outcome, OwnedCommits
from lakeseal.commit.post_commit import Maintenance, flush
from lakeseal.commit.proposal import Operation
from lakeseal.commit.transaction import OptimisticTransaction
from lakeseal.errors import VersionNotFound
from lakeseal.log.delta_log import DeltaLog
from lakeseal.log.ratified_commit import RatifiedCommit
from lakeseal.protocol.actions import AddFile, Metadata
from lakeseal.protocol.paths import checkpoint_path, commit_path, staged_commit_path
from lakeseal.storage import Store
from models.history import check_history

SCHEMA = '{"type":"struct","fields":[{"name":"x","type":"long","nullable":true,"metadata":{}}]}'
WRITE = Operation(name="WRITE")


class StagedOwner:
    """Ratifies in memory."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._commits: list[RatifiedCommit] = []
        self._backfilled = 0

    def commit(self, version: int, data: bytes, *, txn_id: str, in_commit_timestamp: int | None = None) -> Outcome:
        key = staged_commit_path(version, str(uuid.uuid4()))
        self._store.put(key, data)
        with self._lock:
            if version < len(self._commits):
                taken = self._commits[version]
                return Committed(commit=taken) if taken.txn_id == txn_id else Conflict(version=version)
            if version > len(self._commits):
                raise VersionNotFound(f"Version {version - 1} is not ratified", version=version - 1)
            commit = RatifiedCommit(version=version, key=key, txn_id=txn_id, in_commit_timestamp=in_commit_timestamp)
            self._commits.append(commit)
            return Committed(commit=commit)

    def get_commits(self, start_version: int) -> Commits:
        with self._lock:
            tracked = tuple(self._commits[max(start_version, self._backfilled) :])
            return Commits(commits=tracked, latest=len(self._commits) - 1)

    def backfill_to_version(self, version: int) -> None:
        with self._lock:
            if version >= len(self._commits):
                raise VersionNotFound(f"Version {version} is not ratified", version=version)
            for commit in self._commits[self._backfilled : version + 1]:
                self._store.put_if_absent(commit_path(commit.version), self._store.get(commit.key))
                self._backfilled = commit.version + 1


class TestStagedOwner(CommitOwnerContract):
    @pytest.fixture
    def owned(self, memory: Store) -> OwnedTable:
        return OwnedTable(StagedOwner(memory), memory)


def add(path: str) -> AddFile:
    return AddFile(path=path, partition_values={}, size=1, modification_time=0, data_change=True)


def create(store: Store, owner: StagedOwner, **configuration: str) -> DeltaLog:
    log = DeltaLog(store, commit_source=OwnedCommits(owner))
    txn = OptimisticTransaction.begin(log, owner)
    named = {f"delta.{name}": value for name, value in configuration.items()}
    txn.update_metadata(Metadata(id="t", schema_string=SCHEMA, configuration=named))
    txn.commit([], Operation(name="CREATE TABLE"))
    return log


def test_commits_are_seen_before_and_after_backfill(store: Store) -> None:
    owner = StagedOwner(store)
    log = create(store, owner)
    acknowledged = {}
    for number in range(6):
        txn = OptimisticTransaction.begin(log, owner)
        acknowledged[txn.txn_id] = txn.commit([add(f"f{number}")], WRITE).version
        fresh = DeltaLog(store, commit_source=OwnedCommits(owner)).update()
        assert fresh is not None
        assert (fresh.version, fresh.files.num_rows) == (number + 1, number + 1)
        if number == 3:
            owner.backfill_to_version(2)
    owner.backfill_to_version(6)
    check_history(store, acknowledged)


def test_field_bug_6_a_conflict_with_a_winner_that_is_not_backfilled_is_rebased(store: Store) -> None:
    owner = StagedOwner(store)
    log = create(store, owner)
    late = OptimisticTransaction.begin(log, owner)
    other = DeltaLog(store, commit_source=OwnedCommits(owner))
    for number in range(5):
        OptimisticTransaction.begin(other, owner).commit([add(f"winner{number}")], WRITE)
    result = late.commit([add("late")], WRITE)
    assert (result.version, result.snapshot.files.num_rows) == (6, 6)
    owner.backfill_to_version(6)
    check_history(store, {late.txn_id: 6})


def test_a_checkpoint_is_written_only_of_what_is_backfilled(memory: Store) -> None:
    owner = StagedOwner(memory)
    log = create(memory, owner, checkpointInterval="2")
    for number in range(4):
        OptimisticTransaction.begin(log, owner, hooks=[Maintenance()]).commit([add(f"f{number}")], WRITE)
        assert flush(timeout=10)
    for version in (2, 4):
        assert memory.head(commit_path(version))
        assert memory.head(checkpoint_path(version))
