"""Every "must" of managed commits' specification, in its order: one test each, named after the sentence.

Elsewhere the same is shown under races, crashes and lost replies; here it is shown that the sentence holds at all.
"""

from __future__ import annotations

import re
import uuid
from typing import Any

import msgspec
import pytest

from lakeseal.commit.filesystem_owner import FilesystemOwner, txn_id_of
from lakeseal.commit.owner import Committed, Conflict
from lakeseal.commit.transaction import OptimisticTransaction
from lakeseal.errors import (
    InvalidArgument,
    InvalidMetadata,
    NotBackfilled,
    OwnedElsewhere,
    PolicyRefused,
    ReleaseUnderway,
    VersionNotFound,
)
from lakeseal.log.checkpoint_writer import write_checkpoint
from lakeseal.log.cleanup import clean_up_expired_logs
from lakeseal.log.compaction import compact
from lakeseal.log.delta_log import DeltaLog
from lakeseal.owner.handover import finish_release, release, take_over
from lakeseal.owner.ledger_owner import LedgerOwner
from lakeseal.owner.managed_owner import ManagedOwner
from lakeseal.owner.messages import Batch, file_name
from lakeseal.owner.ownership import State
from lakeseal.protocol.actions import CommitInfo, Metadata, Protocol
from lakeseal.protocol.codec import encode
from lakeseal.protocol.paths import COMMITS_DIR, LOG_DIR, commit_path
from lakeseal.storage import Store
from lakeseal.testing.faults import Fault, FaultyStore, How
from support.managed_tables import SCHEMA, WRITE, add, append, create, managed_log, metadata, newest, paths

STAGED = re.compile(r"_delta_log/_commits/\d{20}\.[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.json")
BACKFILLED = re.compile(r"_delta_log/\d{20}\.json")
LATER = 10**13
YEAR_MS = 366 * 86_400_000


@pytest.fixture
def owner(open_owner) -> LedgerOwner:
    """The seed speaks of commits in files, as large ones are."""
    return open_owner(batch_size=100, inline_bytes=0)


@pytest.fixture
def table(owner: LedgerOwner, memory: Store) -> tuple[Any, Any]:
    """Versions 0 to 3; only the first is backfilled."""
    log, managed = create(memory, owner)
    for name in "abc":
        append(log, managed, name)
    return log, managed


def commit(owner: LedgerOwner, store: Store, version: int) -> Any:
    txn_id, timestamp = str(uuid.uuid4()), LATER + version
    data = encode([CommitInfo(txn_id=txn_id, in_commit_timestamp=timestamp), add(txn_id)])
    return ManagedOwner(owner, store).commit(version, data, txn_id=txn_id, in_commit_timestamp=timestamp)


class TestCommitFiles:
    def test_the_name_of_an_unbackfilled_commit_must_be_its_version_and_a_random_uuid(self, table, memory) -> None:
        staged = memory.list_keys(COMMITS_DIR)
        assert len(staged) == 3
        assert all(STAGED.fullmatch(key) for key in staged)
        assert [int(key.removeprefix(COMMITS_DIR)[:20]) for key in staged] == [1, 2, 3]
        assert len({key[-41:] for key in staged}) == 3

    def test_the_owner_must_track_unbackfilled_commits_until_they_are_backfilled(self, table, owner, memory) -> None:
        def tracked() -> list[int]:
            return [one.version for one in owner.get_commits(memory.uri).commits]

        assert tracked() == [1, 2, 3]
        owner.forget(memory.uri, grace_ms=0)
        assert tracked() == [1, 2, 3], "they are not backfilled, so nothing makes the owner forget them"
        owner.backfill(memory.uri, 2)
        assert tracked() == [3]

    def test_the_mere_existence_of_a_file_must_not_make_it_a_commit(self, table, owner, memory) -> None:
        for version in (2, 4):
            memory.put(COMMITS_DIR + file_name(version, str(uuid.uuid4())), encode([add("forged")]))
        assert newest(memory, owner) == 3
        assert paths(table[0]) == ["a", "b", "c"]

    def test_the_name_of_a_backfilled_commit_must_be_its_version(self, table, owner, memory) -> None:
        owner.backfill(memory.uri)
        names = memory.list_keys(LOG_DIR)
        assert [key for key in names if key.endswith(".json")] == [commit_path(version) for version in range(4)]
        assert all(BACKFILLED.fullmatch(key) for key in names if key.endswith(".json"))

    def test_the_existence_of_a_backfilled_file_proves_that_its_version_is_committed(
        self, table, owner, memory
    ) -> None:
        for version in range(4):
            owner.backfill(memory.uri, version)
            assert newest(memory) == version
            told = owner.get_commits(memory.uri)
            assert told.latest >= version

    def test_without_managed_commits_a_client_must_write_backfilled_files_directly(self, memory) -> None:
        log, files = create(memory)
        append(log, files, "a")
        assert memory.list_keys(LOG_DIR)[:2] == [commit_path(0), commit_path(1)]
        assert memory.list_keys(COMMITS_DIR) == []


class TestCommitProtocol:
    def test_the_owner_must_verify_that_the_version_before_exists(self, table, owner, memory) -> None:
        with pytest.raises(VersionNotFound) as missing:
            commit(owner, memory, 5)
        assert missing.value.version == 4
        assert owner.get_commits(memory.uri).latest == 3

    def test_the_owner_must_verify_that_the_version_does_not_exist_yet(self, table, owner, memory) -> None:
        before = owner.get_commits(memory.uri)
        for version in (1, 2, 3):
            assert commit(owner, memory, version) == Conflict(version=version)
        assert owner.get_commits(memory.uri) == before

    def test_the_owner_must_record_atomically_which_file_is_the_version(self, table, owner, memory) -> None:
        outcome = commit(owner, memory, 4)
        assert isinstance(outcome, Committed)
        (told,) = owner.get_commits(memory.uri, 4).commits
        assert told.key == outcome.commit.key
        assert txn_id_of(memory.get(told.key)) == told.txn_id == outcome.commit.txn_id

    def test_a_backfilled_commit_must_not_be_written_before_the_previous_one(self, table, owner, memory) -> None:
        owner.attach(FaultyStore(memory, [Fault("put_if_absent", commit_path(2), How.FAIL, times=10**9)]))
        with pytest.raises(Exception, match="injected"):
            owner.backfill(memory.uri)
        assert newest(memory) == 1
        assert commit_path(3) not in memory.list_keys(LOG_DIR)

    def test_commits_must_be_told_contiguous_and_ascending(self, table, owner, memory) -> None:
        for backfilled in range(4):
            owner.backfill(memory.uri, backfilled)
            for start in range(5):
                versions = [one.version for one in owner.get_commits(memory.uri, start).commits]
                assert versions == list(range(max(start, backfilled + 1), 4))


class TestBackfill:
    def test_backfill_must_be_sequential(self, table, owner, memory) -> None:
        watched = FaultyStore(memory)
        owner.attach(watched)
        owner.backfill(memory.uri)
        put = [call.keys[0] for call in watched.calls if call.name == "put_if_absent"]
        assert put == [commit_path(version) for version in (1, 2, 3)]

    def test_backfill_must_copy_the_commit_as_it_is(self, table, owner, memory) -> None:
        staged = {one.version: memory.get(one.key) for one in owner.get_commits(memory.uri).commits}
        owner.backfill(memory.uri)
        assert {version: memory.get(commit_path(version)) for version in staged} == staged


class TestTakeOver:
    def test_the_owner_must_agree_before_the_table_is_its_own(self, open_owner, memory) -> None:
        create(memory)
        promised: list[State] = []

        class Watched(FaultyStore):
            def put_if_absent(self, key: str, data: bytes) -> bool:
                if key == commit_path(1):
                    promised.append(owner.get_commits(memory.uri).state)
                return super().put_if_absent(key, data)

        owner = open_owner()
        take_over(owner, Watched(memory))
        assert promised == [State.PENDING]

    def test_ownership_must_take_effect_only_when_the_change_is_backfilled(self, owner, memory) -> None:
        create(memory)
        owner.attach(memory)
        owner.begin_takeover(memory.uri, "promised", 1)
        with pytest.raises((OwnedElsewhere, VersionNotFound)):
            commit(owner, memory, 2)
        append(DeltaLog(memory), FilesystemOwner(memory), "the file system still decides")
        assert owner.confirm_takeover(memory.uri, "promised").state is State.NONE

    def test_the_backfill_of_an_ownership_change_must_be_atomic(self, owner, memory) -> None:
        create(memory)
        rival = encode([CommitInfo(txn_id="rival"), add("rival")])

        class Raced(FaultyStore):
            def put_if_absent(self, key: str, data: bytes) -> bool:
                if key == commit_path(1):
                    memory.put_if_absent(key, rival)
                return super().put_if_absent(key, data)

        assert take_over(owner, Raced(memory)) == 2
        assert memory.get(commit_path(1)) == rival, "whoever was first keeps the version"

    def test_the_owner_must_not_refuse_ownership_after_the_backfill_succeeded(self, owner, memory) -> None:
        create(memory)

        class Silent:
            """Never hears that its take-over landed."""

            def __getattr__(self, name: str) -> Any:
                if name == "confirm_takeover":
                    return lambda table, _txn_id: owner.get_commits(table)
                return getattr(owner, name)

        take_over(Silent(), memory)  # type: ignore[arg-type]
        assert owner.get_commits(memory.uri).state is State.PENDING
        assert append(*managed_log(owner, memory), "a").version == 2
        assert release(owner, memory) == 3

    def test_a_promise_must_be_forgotten_if_somebody_else_gets_there_first(self, owner, memory) -> None:
        create(memory)
        owner.attach(memory)
        owner.begin_takeover(memory.uri, "late", 1)
        append(DeltaLog(memory), FilesystemOwner(memory), "first")
        assert owner.settle(memory.uri).state is State.NONE

    def test_a_file_system_writer_must_meet_the_change_and_abort_or_be_routed(self, owner, memory) -> None:
        log, files = create(memory)
        late = OptimisticTransaction.begin(log, files)
        take_over(owner, memory)
        with pytest.raises(OwnedElsewhere):
            late.commit([add("late")], WRITE)
        assert newest(memory) == 1

    def test_a_new_managed_table_must_be_created_by_one_client_only(self, owner, memory) -> None:
        txns = [OptimisticTransaction(*managed_log(owner, memory), None) for _ in range(2)]
        for txn in txns:
            txn.update_metadata(metadata())
        txns[0].commit([], WRITE)
        with pytest.raises(Exception, match="0"):
            txns[1].commit([], WRITE)
        assert txn_id_of(memory.get(commit_path(0))) == txns[0].txn_id


class TestRelease:
    def test_all_prior_commits_must_be_backfilled(self, table, owner, memory) -> None:
        staged = [memory.get(one.key) for one in owner.get_commits(memory.uri).commits]
        assert release(owner, memory) == 4
        assert [memory.get(commit_path(version)) for version in (1, 2, 3)] == staged

    def test_no_new_commit_must_be_accepted(self, table, owner, memory) -> None:
        managed = ManagedOwner(owner, memory)
        managed.get_commits(0)
        owner.begin_release(memory.uri, "release")
        with pytest.raises(ReleaseUnderway):
            owner.ratify(_asked(managed, 4))
        finish_release(owner, memory)
        with pytest.raises(OwnedElsewhere):
            owner.ratify(_asked(managed, 5))
        assert newest(memory) == 4

    def test_the_commit_that_removes_the_owner_must_be_backfilled(self, table, owner, memory) -> None:
        version = release(owner, memory)
        snapshot = DeltaLog(memory).update()
        assert snapshot is not None
        assert snapshot.version == version
        assert snapshot.properties.managed_commit_owner_name is None
        assert "delta.managedCommitOwnerConf" not in snapshot.metadata.configuration
        assert "managedCommits" not in (snapshot.protocol.writer_features or ())

    def test_until_then_nobody_must_write_and_a_client_can_finish_it(self, table, owner, memory) -> None:
        owner.begin_release(memory.uri, "release")
        with pytest.raises(OwnedElsewhere):
            OptimisticTransaction.begin(DeltaLog(memory), FilesystemOwner(memory)).commit([add("x")], WRITE)
        with pytest.raises(OwnedElsewhere):
            append(*table, "x")  # which finishes the release on its way
        assert owner.get_commits(memory.uri).state is State.NONE
        assert append(DeltaLog(memory), FilesystemOwner(memory), "x").version == 5


def _asked(managed: ManagedOwner, version: int) -> Batch:
    data = encode([CommitInfo(txn_id="t", in_commit_timestamp=LATER)])
    return Batch(commits=(managed.request(version, data, txn_id="t", in_commit_timestamp=LATER),))


class TestMaintenance:
    def test_a_checkpoint_must_be_of_a_backfilled_version(self, table, owner, memory) -> None:
        owner.backfill(memory.uri, 2)
        with pytest.raises(NotBackfilled):
            write_checkpoint(table[0], 3, now_ms=0)
        write_checkpoint(table[0], 2, now_ms=0)
        assert newest(memory, owner) == 3

    def test_a_compaction_must_end_at_a_backfilled_version(self, table, owner, memory) -> None:
        owner.backfill(memory.uri, 2)
        with pytest.raises(NotBackfilled):
            compact(table[0], 1, 3)
        compact(table[0], 1, 2)
        assert newest(memory, owner) == 3

    @pytest.mark.parametrize("backfilled", [1, 2, 3])
    def test_cleanup_must_preserve_the_newest_backfilled_commits(self, table, owner, memory, backfilled: int) -> None:
        log = table[0]
        owner.backfill(memory.uri, backfilled)
        write_checkpoint(log, backfilled, now_ms=0)
        expired = clean_up_expired_logs(log, now_ms=_time_of(memory, 0) + YEAR_MS)
        assert expired.oldest_version == backfilled
        assert commit_path(backfilled) in memory.list_keys(LOG_DIR)
        assert newest(memory) == backfilled, "a reader that only lists still finds the table"
        assert newest(memory, owner) == 3
        assert paths(managed_log(owner, memory)[0]) == ["a", "b", "c"]

    def test_cleanup_must_choose_a_backfilled_checkpoint(self, table, owner, memory) -> None:
        owner.backfill(memory.uri)
        write_checkpoint(table[0], 2, now_ms=0)
        write_checkpoint(table[0], 3, now_ms=0)
        memory.delete([commit_path(3)])  # as if a checkpoint had been written too early
        clean_up_expired_logs(table[0], now_ms=_time_of(memory, 0) + YEAR_MS)
        assert commit_path(2) in memory.list_keys(LOG_DIR)
        assert f"{LOG_DIR}{2:020d}.checkpoint.parquet" in memory.list_keys(LOG_DIR)


def _time_of(store: Store, version: int) -> int:
    return store.head(commit_path(version)).modified_ms


class TestEnablement:
    def test_the_table_must_be_on_writer_version_7(self, table, memory) -> None:
        snapshot = DeltaLog(memory).snapshot()
        assert snapshot.protocol.min_writer_version == 7
        assert "managedCommits" in (snapshot.protocol.writer_features or ())

    def test_in_commit_timestamps_must_be_supported_and_active(self, table, memory, owner) -> None:
        snapshot = DeltaLog(memory).snapshot()
        assert "inCommitTimestamp" in (snapshot.protocol.writer_features or ())
        assert snapshot.properties.in_commit_timestamps
        stamps = [_stamp(memory.get(one.key)) for one in owner.get_commits(memory.uri).commits]
        assert stamps == sorted(set(stamps))

    @pytest.mark.parametrize("missing", ["feature", "property"])
    def test_a_managed_table_without_in_commit_timestamps_must_be_refused(self, memory, owner, missing) -> None:
        features = ("managedCommits",) if missing == "feature" else ("managedCommits", "inCommitTimestamp")
        protocol = Protocol(min_reader_version=1, min_writer_version=7, writer_features=features)
        stated = {"delta.managedCommitOwnerName": owner.name}
        broken = Metadata(id="t", schema_string=SCHEMA, configuration=stated)
        memory.put(commit_path(0), encode([CommitInfo(txn_id="x"), protocol, broken]))
        with pytest.raises((InvalidMetadata, OwnedElsewhere, PolicyRefused, InvalidArgument)) as refused:
            append(*managed_log(owner, memory), "a")
        assert "inCommitTimestamp" in str(refused.value) or "InCommitTimestamps" in str(refused.value)
        assert newest(memory) == 0

    def test_the_owner_s_name_must_be_there_and_its_conf_be_a_map_of_strings(self, table, memory, owner) -> None:
        stated = DeltaLog(memory).snapshot().metadata.configuration
        assert stated["delta.managedCommitOwnerName"] == owner.name
        conf = msgspec.json.decode(stated["delta.managedCommitOwnerConf"] or "", type=dict[str, str])
        assert conf == {"batchSize": "100", "ledgerId": owner.identity()}


class TestWriters:
    def test_a_writer_must_commit_via_the_owner_and_not_write_backfilled_files(self, table, memory) -> None:
        with pytest.raises(OwnedElsewhere):
            append(DeltaLog(memory), FilesystemOwner(memory), "past the owner")
        watched = FaultyStore(memory)
        log, managed = managed_log(table[1].endpoint, watched)
        append(log, managed, "d")
        written = [call.keys[0] for call in watched.calls if call.name in ("put", "put_if_absent")]
        assert len(written) == 1
        assert STAGED.fullmatch(written[0])


class TestReaders:
    def test_a_reader_need_not_know_the_feature(self, table, memory) -> None:
        snapshot = DeltaLog(memory).snapshot()
        assert snapshot.protocol.min_reader_version == 1
        assert snapshot.version == 0

    def test_an_aware_reader_sees_the_unbackfilled_commits_too(self, table, memory, owner) -> None:
        assert newest(memory) == 0
        assert newest(memory, owner) == 3


def _stamp(data: bytes) -> int:
    line = msgspec.json.decode(data.partition(b"\n")[0])
    return int(line["commitInfo"]["inCommitTimestamp"])
