from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from lakeseal.errors import (
    BrokenCheckpoint,
    BrokenCommit,
    CorruptTable,
    EmptyLog,
    LogGap,
    ObjectNotFound,
    StorageUnavailable,
    TableNotFound,
    VersionNotFound,
)
from lakeseal.log.checkpoint_writer import write_checkpoint
from lakeseal.log.checksum import ChecksumWarning
from lakeseal.log.compaction import compact
from lakeseal.log.delta_log import DeltaLog
from lakeseal.log.last_checkpoint import LastCheckpoint
from lakeseal.log.ratified_commit import RatifiedCommit, Told
from lakeseal.protocol import codec
from lakeseal.protocol.actions import Action, AddFile, CommitInfo, Metadata, Protocol, RemoveFile
from lakeseal.protocol.paths import (
    LAST_CHECKPOINT,
    LOG_DIR,
    checkpoint_path,
    checksum_path,
    commit_path,
    compacted_path,
    staged_commit_path,
    v2_checkpoint_path,
    version_prefix,
)
from lakeseal.storage import Store, open_store
from lakeseal.testing.faults import Fault, FaultyStore, How
from lakeseal.trust import Trust
from models.histories import schema, write_history

UUID = "3a0d65cd-4056-49b8-937b-95f9e3ee90e5"
NOW = 1_800_000_000_000


@pytest.fixture
def store() -> Store:
    return open_store(f"memory://{uuid.uuid4().hex}/table")


def add(n: int) -> AddFile:
    return AddFile(path=f"f{n}", partition_values={}, size=n, modification_time=n, data_change=True)


def history(commits: int, configuration: Mapping[str, str] | None = None) -> list[list[Action]]:
    """Version n adds file n, so the number of files tells the version."""
    protocol = Protocol(min_reader_version=1, min_writer_version=2)
    metadata = Metadata(id="m", schema_string=schema().to_json(), configuration=dict(configuration or {}))
    return [[protocol, metadata, add(0)], *([add(n)] for n in range(1, commits))]


def table(store: Store, commits: int, checkpoints: tuple[int, ...] = (), **more: Any) -> DeltaLog:
    write_history(store, history(commits, **more))
    for version in checkpoints:
        write_checkpoint(DeltaLog(store), version, now_ms=NOW)
    return DeltaLog(store)


def assert_reads(store: Store, latest: int) -> None:
    snapshot = DeltaLog(store).snapshot()
    assert (snapshot.version, snapshot.files.num_rows) == (latest, latest + 1)


class TestOpening:
    def test_nothing_there_is_no_table(self, store: Store) -> None:
        with pytest.raises(TableNotFound) as caught:
            DeltaLog(store).snapshot()
        assert caught.value.table == store.uri
        assert DeltaLog(store).update() is None

    def test_a_log_with_strange_files_only_is_empty(self, store: Store) -> None:
        store.put(f"{LOG_DIR}notes.txt", b"x")
        with pytest.raises(EmptyLog):
            DeltaLog(store).snapshot()

    def test_the_newest_or_a_named_version(self, store: Store) -> None:
        log = table(store, 5)
        assert log.snapshot().version == 4
        assert log.snapshot(2).files.num_rows == 3
        assert log.snapshot().version == 4

    @pytest.mark.parametrize("version", [-1, 5, 2**62])
    def test_versions_that_are_not_there(self, store: Store, version: int) -> None:
        with pytest.raises(VersionNotFound) as caught:
            table(store, 5).snapshot(version)
        assert caught.value.table == store.uri
        assert caught.value.hint

    def test_with_a_pointer_only_newer_names_are_listed(self, store: Store) -> None:
        table(store, 20, checkpoints=(10,))
        recording = FaultyStore(store)
        assert DeltaLog(recording).snapshot().version == 19
        read = [key for call in recording.calls if call.name in ("get", "get_many") for key in call.keys]
        assert read == [LAST_CHECKPOINT, *(commit_path(version) for version in range(11, 20))]
        assert [call.keys for call in recording.calls if call.name == "open_read"] == [(checkpoint_path(10),)]

    def test_a_newer_checkpoint_than_the_pointer_names_is_used(self, store: Store) -> None:
        table(store, 12, checkpoints=(10, 4))
        store.put(LAST_CHECKPOINT, LastCheckpoint(version=4, size=1).to_bytes())
        store.delete(commit_path(version) for version in range(5, 10))
        assert_reads(store, 11)

    @pytest.mark.parametrize(
        "pointer",
        [
            b"",
            b'{"version":10,"si',
            b'{"version":10,"size":1,"checksum":"0"}',
            LastCheckpoint(version=3, size=1).to_bytes(),
            LastCheckpoint(version=11, size=1).to_bytes(),
            LastCheckpoint(version=12, size=1).to_bytes(),
            LastCheckpoint(version=2**60, size=1).to_bytes(),
        ],
    )
    def test_field_bug_19_whatever_the_pointer_says_the_log_is_read(self, store: Store, pointer: bytes) -> None:
        table(store, 12, checkpoints=(10,))
        store.delete(commit_path(version) for version in range(3))
        store.put(LAST_CHECKPOINT, pointer)
        assert_reads(store, 11)


class TestBrokenFiles:
    @pytest.mark.parametrize("data", [b"", b"PAR1", b"\x00" * 5000, b"PAR1" + b"\x07" * 100 + b"PAR1"])
    def test_field_bug_21_a_corrupt_checkpoint_is_passed_over_while_the_commits_are_there(
        self, store: Store, data: bytes
    ) -> None:
        table(store, 12, checkpoints=(10,))
        store.put(checkpoint_path(10), data)
        assert_reads(store, 11)

    def test_field_bug_21_an_older_checkpoint_is_taken_instead(self, store: Store) -> None:
        table(store, 12, checkpoints=(5, 10))
        store.put(checkpoint_path(10), b"broken")
        store.delete(commit_path(version) for version in range(5))
        assert_reads(store, 11)

    def test_with_nothing_to_fall_back_on_the_checkpoint_is_named(self, store: Store) -> None:
        table(store, 12, checkpoints=(10,))
        store.put(checkpoint_path(10), b"broken")
        store.delete(commit_path(version) for version in range(10))
        for version in (None, 11, 10):
            with pytest.raises(BrokenCheckpoint) as caught:
                DeltaLog(store).snapshot(version)
            assert caught.value.file == checkpoint_path(10)
            assert caught.value.version == 10

    def test_another_form_of_the_same_checkpoint_is_taken_instead(self, store: Store) -> None:
        table(store, 12, checkpoints=(10,))
        store.put(v2_checkpoint_path(10, UUID, "parquet"), store.get(checkpoint_path(10)))
        store.put(checkpoint_path(10), b"broken")
        store.delete(commit_path(version) for version in range(10))
        assert_reads(store, 11)

    def test_a_broken_compaction_is_passed_over(self, store: Store) -> None:
        table(store, 12)
        store.put(compacted_path(2, 9), b'{"add":')
        assert_reads(store, 11)

    def test_a_broken_compaction_that_nothing_replaces_is_named(self, store: Store) -> None:
        table(store, 12)
        store.put(compacted_path(2, 9), b'{"add":')
        store.delete([commit_path(4)])
        with pytest.raises(BrokenCommit) as caught:
            DeltaLog(store).snapshot()
        assert caught.value.file == compacted_path(2, 9)

    @pytest.mark.parametrize("data", [b"", b"{", b'{"add":{}}\n'])
    def test_a_broken_commit_is_named(self, store: Store, data: bytes) -> None:
        table(store, 5)
        store.put(commit_path(3), data)
        with pytest.raises(BrokenCommit) as caught:
            DeltaLog(store).snapshot()
        assert (caught.value.version, caught.value.file, caught.value.table) == (3, commit_path(3), store.uri)

    def test_a_gap_is_named(self, store: Store) -> None:
        table(store, 5)
        store.delete([commit_path(2)])
        with pytest.raises(LogGap, match="Commit 2"):
            DeltaLog(store).snapshot()

    @pytest.mark.parametrize("hidden", [[(3,)], [(3,), (5,)], [(3, 5), (5,)], [(0,)]])
    def test_commits_that_came_while_the_log_was_listed_are_no_gap(self, store: Store, hidden) -> None:
        table(store, 7)

        class NoSnapshot(FaultyStore):
            """Its first listings lack a commit each, as those of a directory that is written to may."""

            def list_keys(self, prefix: str = "", *, after: str | None = None) -> list[str]:
                lacking = [commit_path(v) for v in hidden.pop(0)] if hidden else []
                return [key for key in super().list_keys(prefix, after=after) if key not in lacking]

        assert DeltaLog(NoSnapshot(store)).snapshot().version == 6

    def test_an_outage_is_not_taken_for_a_broken_checkpoint(self, store: Store) -> None:
        table(store, 12, checkpoints=(10,))
        faulty = FaultyStore(store, [Fault("open_read")])
        with pytest.raises(StorageUnavailable):
            DeltaLog(faulty).snapshot()


class TestRefresh:
    def calls(self, store: FaultyStore) -> list[tuple[str, str]]:
        found = [(call.name, key) for call in store.calls for key in call.keys]
        store.calls.clear()
        return found

    def test_a_newer_version_costs_its_commits_and_no_listing(self, store: Store) -> None:
        recording = FaultyStore(store)
        table(store, 30, checkpoints=(10, 20))
        log = DeltaLog(recording)
        log.snapshot()
        for version in (30, 31):
            write_history(store, [[add(version)]], start=version)
            self.calls(recording)
            assert log.snapshot().files.num_rows == version + 1
            assert self.calls(recording) == [
                ("get_range", commit_path(version - 1)),
                ("get", commit_path(version)),
                ("get", commit_path(version + 1)),
            ]

    def test_many_newer_versions_cost_one_listing_above_the_known_ones(self, store: Store) -> None:
        recording = FaultyStore(store)
        table(store, 5)
        log = DeltaLog(recording)
        log.snapshot()
        write_history(store, [[add(n)] for n in range(5, 40)], start=5)
        self.calls(recording)
        assert log.snapshot().files.num_rows == 40
        called = self.calls(recording)
        assert [key for name, key in called if name in ("get", "get_many")] == [commit_path(n) for n in range(5, 40)]
        assert [name for name, _ in called].count("list_keys") == 1

    def test_nothing_new_costs_three_questions_and_gives_the_same_snapshot(self, store: Store) -> None:
        recording = FaultyStore(store)
        table(store, 12, checkpoints=(10,))
        log = DeltaLog(recording)
        first = log.snapshot()
        self.calls(recording)
        assert log.snapshot() is first
        assert [name for name, _ in self.calls(recording)] == ["get_range", "get", "get"]

    def test_commits_that_were_cleaned_up_behind_a_checkpoint_are_not_missed(self, store: Store) -> None:
        log = table(store, 5)
        log.snapshot()
        write_history(store, [[add(n)] for n in range(5, 20)], start=5)
        write_checkpoint(DeltaLog(store), 15, now_ms=NOW)
        store.delete(commit_path(version) for version in range(15))
        snapshot = log.snapshot()
        assert (snapshot.version, snapshot.files.num_rows) == (19, 20)

    def test_also_when_only_the_next_commit_is_gone(self, store: Store) -> None:
        log = table(store, 5)
        log.snapshot()
        write_history(store, [[add(n)] for n in range(5, 20)], start=5)
        write_checkpoint(DeltaLog(store), 15, now_ms=NOW)
        store.delete([commit_path(5)])
        assert log.snapshot().version == 19

    def test_a_table_that_was_made_anew_is_read_anew(self, store: Store) -> None:
        """At once, and with commits of the same size, so that neither times nor sizes tell."""

        def made(name: str) -> list[list[Action]]:
            return [[CommitInfo(txn_id=f"{name}-{n}"), *actions] for n, actions in enumerate(history(3))]

        write_history(store, made("one"))
        log = DeltaLog(store)
        first = log.snapshot()
        store.delete(list(store.list_keys(LOG_DIR)))
        write_history(store, made("two"))
        assert log.snapshot() is not first
        write_history(store, [[add(n)] for n in range(3, 6)], start=3)
        assert log.snapshot().version == 5

    def test_a_table_that_was_dropped_is_gone(self, store: Store) -> None:
        log = table(store, 3)
        log.snapshot()
        store.delete(list(store.list_keys(LOG_DIR)))
        with pytest.raises(TableNotFound):
            log.snapshot()

    @pytest.mark.parametrize("data", [b"", b"{"])
    def test_a_broken_new_commit_is_an_error_and_the_next_try_reads_it_again(self, store: Store, data: bytes) -> None:
        log = table(store, 3)
        log.snapshot()
        store.put(commit_path(3), data)
        with pytest.raises(BrokenCommit) as caught:
            log.snapshot()
        assert caught.value.version == 3
        store.put(commit_path(3), codec.encode([add(3)]))
        assert log.snapshot().files.num_rows == 4

    def test_a_snapshot_does_not_change_when_the_log_goes_on(self, store: Store) -> None:
        log = table(store, 3)
        old = log.snapshot()
        write_history(store, [[RemoveFile(path="f0", data_change=True)], [add(9)]], start=3)
        log.snapshot()
        assert old.files["path"].to_pylist() == ["f0", "f1", "f2"]

    def test_threads_that_share_a_log_see_versions_that_only_grow(self, store: Store) -> None:
        log = table(store, 1)
        failures: list[BaseException] = []

        def reader() -> None:
            try:
                last = 0
                while last < 60:
                    snapshot = log.snapshot()
                    assert snapshot.version >= last
                    assert snapshot.files.num_rows == snapshot.version + 1
                    last = snapshot.version
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=reader) for _ in range(4)]
        for thread in threads:
            thread.start()
        write_history(store, [[add(n)] for n in range(1, 61)], start=1)
        for thread in threads:
            thread.join()
        assert not failures


class TestOwnCommits:
    def test_a_commit_of_our_own_is_not_read_back(self, store: Store) -> None:
        recording = FaultyStore(store)
        table(store, 2)
        log = DeltaLog(recording)
        before = log.snapshot()
        data = codec.encode([add(2)])
        store.put_if_absent(commit_path(2), data)
        recording.calls.clear()
        after = log.with_commit(before, 2, data)
        assert (after.version, after.files.num_rows) == (2, 3)
        assert not [call for call in recording.calls if call.name.startswith("get")]

    def test_the_first_commit_makes_the_table(self, store: Store) -> None:
        data = codec.encode(history(1)[0])
        store.put_if_absent(commit_path(0), data)
        log = DeltaLog(store)
        assert log.with_commit(None, 0, data).version == 0
        assert log.snapshot().files.num_rows == 1

    def test_an_older_one_does_not_take_the_place_of_the_newest(self, store: Store) -> None:
        log = table(store, 5)
        base = log.snapshot(1)
        log.snapshot()
        assert log.with_commit(base, 2, codec.encode([add(2)])).version == 2
        assert log.snapshot().version == 4


class Owner:
    """Commits that are ratified and not in the log under their own names."""

    def __init__(self) -> None:
        self.commits: dict[int, RatifiedCommit] = {}
        self.asked: list[int] = []
        self.then: Callable[[], None] = lambda: None
        self.up_to: int | None = None

    def unbackfilled(self, start_version: int) -> Told:
        self.asked.append(start_version)
        answer = {version: one for version, one in self.commits.items() if version >= start_version}
        self.then()
        return Told(commits=answer, up_to=self.up_to)

    def ratify(self, store: Store, version: int, actions: list[Action]) -> None:
        key = staged_commit_path(version, str(uuid.uuid4()))
        store.put(key, codec.encode(actions))
        self.commits[version] = RatifiedCommit(version=version, key=key)

    def backfill(self, store: Store, version: int) -> None:
        store.put_if_absent(commit_path(version), store.get(self.commits.pop(version).key))


class TestUnbackfilledCommits:
    def test_b5_what_was_ratified_is_read(self, store: Store) -> None:
        table(store, 3)
        owner = Owner()
        log = DeltaLog(store, commit_source=owner)
        for version in (3, 4):
            owner.ratify(store, version, [add(version)])
            assert log.snapshot().version == version
        assert DeltaLog(store, commit_source=owner).snapshot().files.num_rows == 5
        assert DeltaLog(store).snapshot().version == 2
        assert codec.decode(log.commit_bytes(4)) == [add(4)]

    def test_field_bug_14_a_commit_that_is_backfilled_while_we_look_is_not_missed(self, store: Store) -> None:
        table(store, 3)
        for opened in (True, False):
            owner = Owner()
            log = DeltaLog(store, commit_source=owner)
            latest = log.snapshot().version if opened else DeltaLog(store).snapshot().version
            owner.ratify(store, latest + 1, [add(latest + 1)])
            owner.then = lambda owner=owner, v=latest + 1: v in owner.commits and owner.backfill(store, v)  # type: ignore[misc]
            assert log.snapshot().version == latest + 1

    def test_m4_a_staged_file_that_the_owner_does_not_name_is_not_read(self, store: Store) -> None:
        table(store, 3)
        store.put(staged_commit_path(3, UUID), codec.encode([add(3)]))
        assert DeltaLog(store, commit_source=Owner()).snapshot().version == 2

    def test_what_is_above_a_catalogs_latest_version_is_ignored(self, store: Store) -> None:
        table(store, 3)
        owner = Owner()
        owner.ratify(store, 3, [add(3)])
        owner.up_to = 3
        opened = DeltaLog(store, commit_source=owner)
        assert opened.snapshot().version == 3
        # Somebody writes past the catalog: another version 3, a version 4, and what stands for it.
        store.put(commit_path(3), codec.encode([add(33)]))
        store.put(commit_path(4), codec.encode([add(4)]))
        write_checkpoint(DeltaLog(store), 4, now_ms=0)
        for log in (opened, DeltaLog(store, commit_source=owner)):
            assert log.snapshot().version == 3
            assert sorted(log.snapshot().files["path"].to_pylist()) == ["f0", "f1", "f2", "f3"]
            with pytest.raises(VersionNotFound):
                log.snapshot(4)
        owner.ratify(store, 4, [add(44)])
        owner.up_to = 4
        assert "f44" in opened.snapshot().files["path"].to_pylist()

    def test_a_table_whose_first_commit_is_not_backfilled_is_there(self, store: Store) -> None:
        owner = Owner()
        owner.ratify(store, 0, history(1)[0])
        assert DeltaLog(store, commit_source=owner).snapshot().version == 0


class TestTimestamps:
    CONFIGURATION = {"delta.enableInCommitTimestamps": "true"}  # noqa: RUF012

    def write(self, store: Store, commits: int) -> DeltaLog:
        write_history(
            store,
            [
                [CommitInfo(in_commit_timestamp=100 + n), *actions]
                for n, actions in enumerate(history(commits, self.CONFIGURATION))
            ],
        )
        return DeltaLog(store)

    def test_the_versions_own_is_known_with_and_without_a_checkpoint(self, store: Store) -> None:
        assert self.write(store, 4).snapshot().in_commit_timestamp == 103
        write_checkpoint(DeltaLog(store), 3, now_ms=NOW)
        assert DeltaLog(store).snapshot().in_commit_timestamp == 103

    def test_it_is_known_through_a_compaction(self, store: Store) -> None:
        compact(self.write(store, 4), 1, 3)
        assert DeltaLog(store).snapshot().in_commit_timestamp == 103

    def test_a_checkpoint_whose_commit_is_gone_is_still_read(self, store: Store) -> None:
        write_checkpoint(self.write(store, 4), 3, now_ms=NOW)
        store.delete(commit_path(version) for version in range(4))
        snapshot = DeltaLog(store).snapshot()
        assert (snapshot.version, snapshot.in_commit_timestamp) == (3, None)


class TestSingleCommits:
    def test_what_a_writer_recorded(self, store: Store) -> None:
        log = table(store, 2)
        info = CommitInfo(operation="WRITE", txn_id="t")
        write_history(store, [[info, add(2)], [add(3), info]], start=2)
        assert [log.commit_info(version) for version in range(4)] == [None, None, info, info]

    def test_their_actions(self, store: Store) -> None:
        assert table(store, 3).commit_actions(2) == [add(2)]

    def test_one_that_is_not_there(self, store: Store) -> None:
        with pytest.raises(VersionNotFound) as caught:
            table(store, 3).commit_bytes(3)
        assert caught.value.version == 3


class TestCleanedUpMeanwhile:
    def test_a_log_that_is_cleaned_up_between_listing_and_reading_is_listed_again(self, store: Store) -> None:
        table(store, 12, checkpoints=(10,))
        store.delete([LAST_CHECKPOINT])

        class Late(FaultyStore):
            def list_keys(self, prefix: str = "", *, after: str | None = None) -> list[str]:
                names = [name for name in store.list_keys(prefix, after=after) if name != checkpoint_path(10)]
                if store.list_keys(LOG_DIR, after=version_prefix(5))[0].startswith(version_prefix(5)):
                    store.delete(commit_path(version) for version in range(10))
                    return names
                return store.list_keys(prefix, after=after)

        snapshot = DeltaLog(Late(store)).snapshot()
        assert (snapshot.version, snapshot.files.num_rows) == (11, 12)

    def test_what_is_really_missing_is_an_error(self, store: Store) -> None:
        table(store, 3)

        class Lying(FaultyStore):
            def list_keys(self, prefix: str = "", *, after: str | None = None) -> list[str]:
                return [*store.list_keys(prefix, after=after), commit_path(3)]

        with pytest.raises(ObjectNotFound) as caught:
            DeltaLog(Lying(store)).snapshot()
        assert caught.value.file == commit_path(3)


def test_a_checksum_that_does_not_fit_stops_only_readers_that_insist(store: Store) -> None:
    table(store, 3)
    store.put(checksum_path(2), b'{"tableSizeBytes":3,"numFiles":2,"numMetadata":1,"numProtocol":1}')
    with pytest.raises(CorruptTable):
        DeltaLog(store, trust=Trust(insist_on_checksums=True)).snapshot()
    with pytest.warns(ChecksumWarning):
        assert DeltaLog(store).snapshot().version == 2
    assert DeltaLog(store).snapshot(1).version == 1


def test_an_outage_is_an_error_and_asking_again_is_fine(store: Store) -> None:
    table(store, 3)
    log = DeltaLog(FaultyStore(store, [Fault("get_many", how=How.LOSE_REPLY)]))
    with pytest.raises(StorageUnavailable):
        log.snapshot()
    assert log.snapshot().version == 2
