from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from lakeseal.commit import post_commit
from lakeseal.commit.filesystem_owner import FilesystemOwner
from lakeseal.commit.isolation import IsolationLevel
from lakeseal.commit.post_commit import FreshCommit, Maintenance
from lakeseal.commit.proposal import Operation
from lakeseal.commit.transaction import AlreadyApplied, OptimisticTransaction
from lakeseal.errors import AppendOnlyTable, ConcurrentTransactionException, InvalidArgument, OwnedElsewhere
from lakeseal.log.delta_log import DeltaLog
from lakeseal.protocol.actions import AddFile, CommitInfo, Metadata, RemoveFile
from lakeseal.protocol.paths import LOG_DIR, parse
from lakeseal.storage import Store

SCHEMA = (
    '{"type":"struct","fields":[{"name":"p","type":"integer","nullable":true,"metadata":{}},'
    '{"name":"x","type":"long","nullable":true,"metadata":{}}]}'
)
WRITE = Operation(name="WRITE")


def metadata(**configuration: str) -> Metadata:
    named = {f"delta.{name}": value for name, value in configuration.items()}
    return Metadata(id="t", schema_string=SCHEMA, partition_columns=("p",), configuration=named)


def begin(store: Store, **parts: Any) -> OptimisticTransaction:
    return OptimisticTransaction.begin(DeltaLog(store), FilesystemOwner(store), **parts)


def create(store: Store, **configuration: str) -> None:
    txn = begin(store)
    txn.update_metadata(metadata(**configuration))
    txn.commit([], Operation(name="CREATE TABLE"))


def add(path: str, p: int = 1, *, data_change: bool = True) -> AddFile:
    return AddFile(
        path=path,
        partition_values={"p": str(p)},
        size=1,
        modification_time=0,
        data_change=data_change,
        stats='{"numRecords":1,"minValues":{"x":0},"maxValues":{"x":9},"nullCount":{"x":0}}',
    )


def info(store: Store, version: int) -> CommitInfo:
    first = DeltaLog(store).commit_actions(version)[0]
    assert isinstance(first, CommitInfo)
    return first


def test_metadata_can_change_until_files_are_written(memory: Store) -> None:
    txn = begin(memory)
    txn.update_metadata(metadata())
    txn.update_metadata(metadata(appendOnly="true"))
    assert not txn.has_written
    txn.mark_written()
    assert txn.has_written
    with pytest.raises(InvalidArgument, match="after files have been written") as caught:
        txn.update_metadata(metadata())
    assert caught.value.table == memory.uri
    assert txn.commit([add("a")], WRITE).snapshot.metadata == metadata(appendOnly="true")


def test_metadata_brings_the_features_that_it_needs(memory: Store) -> None:
    create(memory)
    txn = begin(memory)
    txn.update_metadata(metadata(enableInCommitTimestamps="true", enableDeletionVectors="true"))
    snapshot = txn.commit([], Operation(name="SET TBLPROPERTIES")).snapshot
    assert {"inCommitTimestamp", "deletionVectors"} <= set(snapshot.protocol.writer_features or ())
    assert snapshot.in_commit_timestamp is not None
    assert snapshot.properties.in_commit_timestamp_enablement_version == 1


def test_a_new_table_needs_metadata(memory: Store) -> None:
    txn = begin(memory)
    assert (txn.read_version, txn.snapshot) == (-1, None)
    with pytest.raises(InvalidArgument, match="metadata"):
        _ = txn.metadata
    with pytest.raises(InvalidArgument, match="metadata"):
        txn.commit([add("a")], WRITE)


def test_filter_files_gives_what_may_match_and_notes_it_as_read(memory: Store) -> None:
    create(memory)
    begin(memory).commit([add("a", 1), add("b", 2)], WRITE)
    txn = begin(memory)
    assert not txn.reads.depends_on_data
    assert txn.filter_files("p = 1")["path"].to_pylist() == ["a"]
    assert txn.reads.predicates == ("p = 1",)
    assert txn.reads.paths().to_pylist() == ["a"]
    assert sorted(txn.filter_files()["path"].to_pylist()) == ["a", "b"]
    assert txn.reads.whole_table


def test_reading_makes_an_append_no_longer_blind(memory: Store) -> None:
    create(memory)
    begin(memory).commit([add("a")], WRITE)
    reads: list[Any] = [
        lambda txn: txn.read_predicate("p = 1"),
        lambda txn: txn.read_whole_table(),
        lambda txn: txn.read_files(txn.snapshot.files),
    ]
    for version, read in enumerate(reads, start=2):
        txn = begin(memory)
        read(txn)
        txn.commit([add(f"f{version}")], WRITE)
        assert info(memory, version).is_blind_append is False
    assert info(memory, 1).is_blind_append is True


def test_a_batch_that_the_table_has_seen_is_not_applied_again(memory: Store) -> None:
    create(memory)
    txn = begin(memory)
    assert txn.set_transaction("stream", 3) is None
    txn.commit([add("a")], WRITE)
    for version in (2, 3):
        assert begin(memory).set_transaction("stream", version) == AlreadyApplied(
            app_id="stream", version=version, seen=3
        )
    assert begin(memory).set_transaction("stream", 4) is None
    assert begin(memory).set_transaction("other", 1) is None
    assert begin(memory).txn_version("stream") == 3


def test_two_writers_of_the_same_batch_leave_one(memory: Store) -> None:
    create(memory)
    first, second = begin(memory), begin(memory)
    for txn in (first, second):
        assert txn.set_transaction("stream", 1) is None
    first.commit([add("a")], WRITE)
    with pytest.raises(ConcurrentTransactionException, match="stream"):
        second.commit([add("b")], WRITE)


def test_domains_are_set_and_removed(memory: Store) -> None:
    txn = begin(memory)
    txn.update_metadata(metadata(enableRowTracking="true"))  # brings domainMetadata
    txn.set_domain("app", '{"a":1}')
    result = txn.commit([], WRITE)
    assert result.snapshot.domains["app"].configuration == '{"a":1}'
    txn = begin(memory)
    txn.remove_domain("app")
    txn.remove_domain("never there")
    assert "app" not in txn.commit([], WRITE).snapshot.domains


def test_a_transaction_commits_once(memory: Store) -> None:
    create(memory)
    txn = begin(memory)
    txn.commit([add("a")], WRITE)
    with pytest.raises(InvalidArgument, match="only once"):
        txn.commit([add("b")], WRITE)


def test_a_proposal_that_was_refused_may_be_mended(memory: Store) -> None:
    create(memory)
    txn = begin(memory)
    with pytest.raises(InvalidArgument, match="twice"):
        txn.commit([add("a"), add("a")], WRITE)
    assert txn.commit([add("a")], WRITE).version == 1


@pytest.mark.parametrize(
    ("asked", "table", "data_change", "recorded"),
    [
        (None, None, True, "WriteSerializable"),
        (None, "Serializable", True, "Serializable"),
        (IsolationLevel.SNAPSHOT_ISOLATION, "Serializable", True, "SnapshotIsolation"),
        (None, "Serializable", False, "SnapshotIsolation"),
        (IsolationLevel.SERIALIZABLE, None, False, "Serializable"),
    ],
)
def test_the_isolation_level_is_chosen_and_recorded(
    memory: Store, asked: IsolationLevel | None, table: str | None, data_change: bool, recorded: str
) -> None:
    create(memory, **({} if table is None else {"isolationLevel": table}))
    begin(memory, isolation_level=asked).commit([add("a", data_change=data_change)], WRITE)
    assert info(memory, 1).isolation_level == recorded


def test_an_append_only_table_refuses_to_lose_rows(memory: Store) -> None:
    create(memory, appendOnly="true")
    begin(memory).commit([add("a")], WRITE)
    with pytest.raises(AppendOnlyTable) as caught:
        begin(memory).commit([RemoveFile(path="a", data_change=True)], Operation(name="DELETE"))
    assert (caught.value.file, caught.value.table) == ("a", memory.uri)
    begin(memory).commit([RemoveFile(path="a", data_change=False), add("b", data_change=False)], WRITE)


def test_a_managed_table_is_not_committed_to_by_the_file_system(memory: Store) -> None:
    create(memory, managedCommitOwnerName="owner-1", enableInCommitTimestamps="true")
    with pytest.raises(OwnedElsewhere, match="owner-1"):
        begin(memory)


def test_row_tracking_is_not_switched_on_over_files_without_row_ids(memory: Store) -> None:
    create(memory)
    begin(memory).commit([add("a")], WRITE)
    with pytest.raises(InvalidArgument, match="row ids"):
        begin(memory).update_metadata(metadata(enableRowTracking="true"))


class Recorder:
    name = "recorder"

    def __init__(self, fail: bool = False) -> None:
        self.seen: list[tuple[int, str]] = []
        self.fail = fail

    def wants(self, commit: FreshCommit) -> bool:
        return commit.version != 2

    def run(self, commit: FreshCommit) -> None:
        self.seen.append((commit.version, threading.current_thread().name))
        if self.fail:
            raise OSError("disk on fire")


def test_hooks_run_after_the_commits_that_they_want_on_another_thread(memory: Store) -> None:
    create(memory)
    hook = Recorder()
    for name in "abc":
        begin(memory, hooks=[hook]).commit([add(name)], WRITE)
        assert post_commit.flush(timeout=10)
    assert [version for version, _ in hook.seen] == [1, 3]
    assert threading.current_thread().name not in {thread for _, thread in hook.seen}


def test_a_hook_that_fails_is_logged_and_the_commit_stands(memory: Store, caplog: pytest.LogCaptureFixture) -> None:
    create(memory)
    with caplog.at_level(logging.WARNING):
        assert begin(memory, hooks=[Recorder(fail=True)]).commit([add("a")], WRITE).version == 1
        assert post_commit.flush(timeout=10)
    assert "disk on fire" in caplog.text
    assert memory.uri in caplog.text


def test_work_that_has_not_started_is_replaced_by_newer_work(memory: Store) -> None:
    create(memory)
    started, go_on = threading.Event(), threading.Event()
    seen: list[int] = []

    class Slow:
        name = "slow"

        def wants(self, commit: FreshCommit) -> bool:
            return True

        def run(self, commit: FreshCommit) -> None:
            seen.append(commit.version)
            started.set()
            assert go_on.wait(10)

    hooks = [Slow()]
    begin(memory, hooks=hooks).commit([add("f1")], WRITE)
    assert started.wait(10)
    for number in (2, 3, 4):
        begin(memory, hooks=hooks).commit([add(f"f{number}")], WRITE)
    assert not post_commit.flush(timeout=0.01)
    go_on.set()
    assert post_commit.flush(timeout=10)
    assert seen == [1, 4]


def test_checkpoints_come_at_the_tables_interval(memory: Store) -> None:
    create(memory, checkpointInterval="3")
    for number in range(1, 8):
        begin(memory, hooks=[Maintenance()]).commit([add(f"f{number}")], WRITE)
        assert post_commit.flush(timeout=10)
    written = [file for key in memory.list_keys(LOG_DIR) if (file := parse(key)) is not None and file.is_checkpoint]
    assert [file.version for file in written] == [3, 6]
