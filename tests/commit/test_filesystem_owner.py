from __future__ import annotations

import pytest

from contracts.owner_contract import Candidate, CommitOwnerContract, OwnedTable, fill
from lakeseal.commit.filesystem_owner import FilesystemOwner, txn_id_of
from lakeseal.commit.owner import Committed, Conflict, Unresolved
from lakeseal.errors import PermissionDenied, StorageUnavailable, VersionNotFound
from lakeseal.protocol.paths import checkpoint_path, commit_path
from lakeseal.storage import LocalStore, Store
from lakeseal.testing.faults import Fault, FaultyStore, How


class TestFilesystemOwner(CommitOwnerContract):
    @pytest.fixture
    def owned(self, any_store: Store) -> OwnedTable:
        return OwnedTable(FilesystemOwner(any_store), any_store)


PUT = "put_if_absent"


def test_lost_reply_of_a_put_that_landed_is_committed(memory: Store) -> None:
    owner = FilesystemOwner(FaultyStore(memory, [Fault(PUT, how=How.LOSE_REPLY)]))
    assert isinstance(Candidate.new().ask(owner, 0), Committed)


def test_lost_reply_of_a_put_that_lost_is_a_conflict(memory: Store) -> None:
    Candidate.new().ask(FilesystemOwner(memory), 0)
    owner = FilesystemOwner(FaultyStore(memory, [Fault(PUT, how=How.LOSE_REPLY)]))
    assert Candidate.new().ask(owner, 0) == Conflict(version=0)


def test_a_put_that_neither_answered_nor_landed_is_unresolved_until_it_is_asked_again(memory: Store) -> None:
    owner = FilesystemOwner(FaultyStore(memory, [Fault(PUT, how=How.FAIL)]))
    candidate = Candidate.new()
    assert isinstance(candidate.ask(owner, 0), Unresolved)
    assert isinstance(candidate.ask(owner, 0), Committed)


def test_a_put_that_lands_late_is_ours_when_it_is_asked_again(memory: Store) -> None:
    faulty = FaultyStore(memory, [Fault(PUT, how=How.LAND_LATE, later=2)])
    candidate = Candidate.new()
    assert isinstance(candidate.ask(FilesystemOwner(faulty), 0), Unresolved)
    faulty.settle()
    assert isinstance(candidate.ask(FilesystemOwner(faulty), 0), Committed)
    assert memory.get(commit_path(0)) == candidate.data


def test_a_put_that_lands_too_late_changes_nothing(memory: Store) -> None:
    faulty = FaultyStore(memory, [Fault(PUT, how=How.LAND_LATE, later=9)])
    late, other = Candidate.new(), Candidate.new()
    assert isinstance(late.ask(FilesystemOwner(faulty), 0), Unresolved)
    assert isinstance(other.ask(FilesystemOwner(memory), 0), Committed)
    faulty.settle()
    assert late.ask(FilesystemOwner(faulty), 0) == Conflict(version=0)
    assert memory.get(commit_path(0)) == other.data


def test_nothing_can_be_read_back_so_nothing_is_claimed(memory: Store) -> None:
    faults = [Fault(PUT, how=How.LOSE_REPLY), Fault("get", times=99)]
    outcome = Candidate.new().ask(FilesystemOwner(FaultyStore(memory, faults)), 0)
    assert isinstance(outcome, Unresolved)


def test_an_outage_before_the_put_raises_and_nothing_is_put(memory: Store) -> None:
    fill(OwnedTable(FilesystemOwner(memory), memory), 1)
    faulty = FaultyStore(memory, [Fault("head")])
    with pytest.raises(StorageUnavailable):
        Candidate.new().ask(FilesystemOwner(faulty), 1)
    assert FilesystemOwner(memory).get_commits(0).latest == 0


def test_a_put_that_is_not_allowed_raises(memory: Store) -> None:
    owner = FilesystemOwner(FaultyStore(memory, [Fault(PUT, error=PermissionDenied)]))
    with pytest.raises(PermissionDenied):
        Candidate.new().ask(owner, 0)


@pytest.mark.field_bug(7)
def test_a_writer_that_slept_through_a_cleanup_does_not_fill_an_old_version(store: Store) -> None:
    owner = FilesystemOwner(store)
    fill(OwnedTable(owner, store), 6)
    store.put(checkpoint_path(4), b"checkpoint")
    store.delete([commit_path(version) for version in range(4)])
    for version in (1, 2, 3):
        with pytest.raises(VersionNotFound):
            Candidate.new().ask(owner, version)
    assert Candidate.new().ask(owner, 4) == Conflict(version=4)
    assert owner.get_commits(0).commits[0].version == 4


def test_a_version_may_follow_one_of_which_only_the_checkpoint_is_left(store: Store) -> None:
    owner = FilesystemOwner(store)
    fill(OwnedTable(owner, store), 3)
    store.put(checkpoint_path(2), b"checkpoint")
    store.delete([commit_path(version) for version in range(3)])
    assert isinstance(Candidate.new().ask(owner, 3), Committed)


def test_a_dropped_table_is_not_continued(store: Store) -> None:
    owner = FilesystemOwner(store)
    fill(OwnedTable(owner, store), 3)
    store.delete([commit_path(version) for version in range(3)])
    with pytest.raises(VersionNotFound, match="dropped"):
        Candidate.new().ask(owner, 3)


@pytest.mark.parametrize("unnamed", [True, False])
def test_field_bug_10_a_local_commit_never_overwrites_another(tmp_path: object, unnamed: bool) -> None:
    owner = FilesystemOwner(LocalStore(f"{tmp_path}/t", unnamed=unnamed))
    winner, loser = Candidate.new(), Candidate.new()
    assert isinstance(winner.ask(owner, 0), Committed)
    assert loser.ask(owner, 0) == Conflict(version=0)
    assert LocalStore(f"{tmp_path}/t").get(commit_path(0)) == winner.data


@pytest.mark.parametrize(
    ("data", "txn_id"),
    [
        (b"", None),
        (b"not json", None),
        (b'{"commitInfo":{"txnId":"a"}}', "a"),
        (b'{"add":{"path":"x"}}\n{"commitInfo":{"operation":"WRITE","txnId":"b"}}\n', "b"),
        (b'{"commitInfo":{"operation":"WRITE"}}', None),
        (b'{"add":{"path":"\\"commitInfo\\""}}\n{"commitInfo":{"txnId":"c"}}', "c"),
        (b'{"commitInfo":[1]}\n{"commitInfo":{"txnId":7}}', None),
        (b"\xff\xfe", None),
    ],
)
def test_txn_id_of_a_commit_file(data: bytes, txn_id: str | None) -> None:
    assert txn_id_of(data) == txn_id
