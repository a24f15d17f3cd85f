from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeseal.errors import BrokenCommit, InvalidArgument, NotBackfilled, VersionNotFound
from lakeseal.log.checkpoint_writer import write_checkpoint
from lakeseal.log.compaction import compact
from lakeseal.log.delta_log import DeltaLog
from lakeseal.log.ratified_commit import RatifiedCommit, Told
from lakeseal.protocol import codec
from lakeseal.protocol.actions import (
    Action,
    AddCDCFile,
    AddFile,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    UnknownAction,
)
from lakeseal.protocol.paths import commit_path, compacted_path, staged_commit_path
from lakeseal.storage import Store, open_store
from lakeseal.testing.faults import FaultyStore
from models.histories import START_MS, Commits, histories, schema, write_history
from models.reference import described, replayed
from support.examples import examples

PROTOCOL = Protocol(min_reader_version=1, min_writer_version=2)
METADATA = Metadata(id="m", schema_string=schema().to_json())


@pytest.fixture
def store() -> Store:
    return open_store(f"memory://{uuid.uuid4().hex}/table")


def add(path: str, size: int = 1) -> AddFile:
    return AddFile(path=path, partition_values={}, size=size, modification_time=2, data_change=True)


def remove(path: str, at: int = 1) -> RemoveFile:
    return RemoveFile(path=path, data_change=True, deletion_timestamp=at)


def compacted(store: Store, *commits: list[Action]) -> list[Action]:
    """What the compaction of these commits holds, which come after a first one."""
    write_history(store, [[PROTOCOL, METADATA, add("base")], *commits])
    key = compact(DeltaLog(store), 1, len(commits))
    assert key == compacted_path(1, len(commits))
    return codec.decode(store.get(key))


class TestContent:
    def test_the_last_action_per_file(self, store: Store) -> None:
        assert compacted(store, [add("a"), add("b")], [remove("a"), add("c")], [add("b", 7)]) == [
            remove("a"),
            add("c"),
            add("b", 7),
        ]

    def test_a_tombstone_stays_however_old_it_is(self, store: Store) -> None:
        """It takes away a file that the range itself does not add."""
        assert compacted(store, [remove("base", at=0)], [add("a")]) == [remove("base", at=0), add("a")]
        assert DeltaLog(store).snapshot().files["path"].to_pylist() == ["a"]

    def test_the_last_of_everything_else_and_that_a_domain_was_removed(self, store: Store) -> None:
        newer = Protocol(min_reader_version=1, min_writer_version=4)
        gone = DomainMetadata(domain="d", configuration="", removed=True)
        other = DomainMetadata(domain="c", configuration="x", removed=False)
        assert compacted(
            store,
            [
                newer,
                METADATA,
                SetTransaction(app_id="b", version=1),
                DomainMetadata(domain="d", configuration="", removed=False),
            ],
            [SetTransaction(app_id="a", version=3), SetTransaction(app_id="b", version=2), gone, other],
        ) == [
            newer,
            METADATA,
            SetTransaction(app_id="a", version=3),
            SetTransaction(app_id="b", version=2),
            other,
            gone,
        ]

    def test_nothing_that_is_about_single_commits(self, store: Store) -> None:
        change = AddCDCFile(path="c", partition_values={}, size=1, data_change=False)
        assert compacted(store, [CommitInfo(operation="WRITE"), add("a")], [CommitInfo(operation="WRITE"), change]) == [
            add("a")
        ]

    def test_unknown_fields_and_actions_are_kept(self, store: Store) -> None:
        known = AddFile.from_json({**add("a").to_json(), "later": [1]})
        unknown = UnknownAction(name="fromTheFuture", value={"x": 1})
        assert compacted(store, [unknown, known], [add("b")]) == [known, add("b"), unknown]

    def test_a_range_of_which_nothing_is_left_gets_no_file(self, store: Store) -> None:
        write_history(store, [[PROTOCOL, METADATA], [CommitInfo()], [CommitInfo()]])
        assert compact(DeltaLog(store), 1, 2) is None
        assert DeltaLog(store).snapshot().version == 2


class TestWriting:
    def test_it_is_never_replaced(self, store: Store) -> None:
        write_history(store, [[PROTOCOL, METADATA], [add("a")], [add("b")]])
        store.put(compacted_path(0, 2), b"first")
        assert compact(DeltaLog(store), 0, 2) == compacted_path(0, 2)
        assert store.get(compacted_path(0, 2)) == b"first"

    def test_commits_are_read_from_the_log_and_not_through_other_compactions(self, store: Store) -> None:
        write_history(store, [[PROTOCOL, METADATA], [add("a")], [add("b")], [add("c")]])
        compact(DeltaLog(store), 1, 2)
        recording = FaultyStore(store)
        compact(DeltaLog(recording), 0, 3)
        read = [key for call in recording.calls if call.name == "get_many" for key in call.keys]
        assert read == [commit_path(version) for version in range(4)]

    def test_readers_use_it(self, store: Store) -> None:
        write_history(store, [[PROTOCOL, METADATA], *([add(f"f{n}")] for n in range(9))])
        compact(DeltaLog(store), 1, 8)
        recording = FaultyStore(store)
        assert DeltaLog(recording).snapshot().files.num_rows == 9
        read = [key for call in recording.calls if call.name == "get_many" for key in call.keys]
        assert read == [commit_path(0), compacted_path(1, 8), commit_path(9)]

    @pytest.mark.parametrize(("start", "end"), [(1, 1), (2, 1), (-1, 2)])
    def test_what_is_no_range(self, store: Store, start: int, end: int) -> None:
        write_history(store, [[PROTOCOL, METADATA], [add("a")], [add("b")]])
        with pytest.raises(InvalidArgument):
            compact(DeltaLog(store), start, end)

    def test_versions_that_are_not_there(self, store: Store) -> None:
        write_history(store, [[PROTOCOL, METADATA], [add("a")]])
        with pytest.raises(VersionNotFound) as caught:
            compact(DeltaLog(store), 0, 2)
        assert (caught.value.version, caught.value.table) == (2, store.uri)

    def test_b4_versions_that_are_not_backfilled(self, store: Store) -> None:
        write_history(store, [[PROTOCOL, METADATA], [add("a")]])
        key = staged_commit_path(2, "3a0d65cd-4056-49b8-937b-95f9e3ee90e5")
        store.put(key, codec.encode([add("b")]))

        class Owner:
            def unbackfilled(self, start_version: int) -> Told:
                return Told(commits={2: RatifiedCommit(version=2, key=key)})

        with pytest.raises(NotBackfilled) as caught:
            compact(DeltaLog(store, commit_source=Owner()), 0, 2)
        assert caught.value.version == 2

    def test_a_broken_commit_is_named_and_nothing_is_written(self, store: Store) -> None:
        write_history(store, [[PROTOCOL, METADATA], [add("a")]])
        store.put(commit_path(2), b"{")
        with pytest.raises(BrokenCommit) as caught:
            compact(DeltaLog(store), 0, 2)
        assert caught.value.file == commit_path(2)
        assert compacted_path(0, 2) not in store.list_keys("_delta_log/")


@examples(15, 150)
@given(histories(commits=15), st.data())
def test_f5_reading_through_compactions_equals_reading_without_them(commits: Commits, data: st.DataObject) -> None:
    store = open_store(f"memory://{uuid.uuid4().hex}/table")
    write_history(store, commits)
    last = len(commits) - 1
    if data.draw(st.booleans()):
        write_checkpoint(DeltaLog(store), data.draw(st.integers(0, last)), now_ms=START_MS)
    versions = st.integers(0, last)
    for first, end in data.draw(st.lists(st.tuples(versions, versions), max_size=4)):
        if first < end:
            compact(DeltaLog(store), first, end)
    for version in range(len(commits)):
        assert described(DeltaLog(store).state(version, with_removes=True)) == replayed(commits[: version + 1])
