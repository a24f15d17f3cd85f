"""The seed's commit protocol, sentence by sentence, on every ledger where that matters."""

from __future__ import annotations

import json
import os
import re
import threading
import uuid
from contextlib import nullcontext

import deltalake
import pytest

from lakeseal.commit.attempts import Retry
from lakeseal.commit.filesystem_owner import FilesystemOwner, txn_id_of
from lakeseal.commit.owner import Committed, Conflict, OwnedCommits
from lakeseal.commit.proposal import Operation
from lakeseal.commit.transaction import OptimisticTransaction
from lakeseal.errors import (
    AlreadyExists,
    BackfillMismatch,
    CommitOutcomeUnknown,
    InvalidArgument,
    InvalidMetadata,
    OwnedElsewhere,
    OwnerBusy,
    PolicyRefused,
    ProtocolChangedException,
    StorageUnavailable,
    TableVanished,
    TamperedCommit,
    UnknownOutcome,
    VersionNotFound,
)
from lakeseal.log.checkpoint_writer import write_checkpoint
from lakeseal.log.compaction import compact
from lakeseal.log.delta_log import DeltaLog
from lakeseal.owner.handover import release
from lakeseal.owner.ledger_owner import LedgerOwner
from lakeseal.owner.managed_owner import ManagedOwner
from lakeseal.owner.messages import Batch, CommitRequest, Ratified, Taken, file_name
from lakeseal.owner.routing import Router, StaleReadWarning, warn_stale
from lakeseal.protocol.actions import CommitInfo, Metadata, Protocol
from lakeseal.protocol.codec import encode
from lakeseal.protocol.paths import COMMITS_DIR, LOG_DIR, commit_path
from lakeseal.storage import LocalStore, Store, open_store
from lakeseal.testing.faults import Fault, FaultyStore, How
from models.history import check_history
from support.managed_tables import SCHEMA, WRITE, add, append, create, managed_log, metadata, newest, paths

ON_S3 = True


def commit_data(txn_id: str, timestamp: int, *more: Metadata | Protocol) -> bytes:
    return encode([CommitInfo(operation="T", txn_id=txn_id, in_commit_timestamp=timestamp), *more])


def request(owner: LedgerOwner, store: Store, version: int, txn_id: str = "", timestamp: int = 0) -> CommitRequest:
    txn_id = txn_id or str(uuid.uuid4())
    told = owner.get_commits(store.uri)
    timestamp = timestamp or 10**15 + version
    data = commit_data(txn_id, timestamp)
    return CommitRequest(
        table=store.uri,
        version=version,
        txn_id=txn_id,
        size=len(data),
        in_commit_timestamp=timestamp,
        epoch=told.epoch,
        data=data,
    )


def test_a_commit_must_follow_the_version_before_it_and_must_not_exist_yet(
    any_url: str, open_owner, memory: Store
) -> None:
    owner = open_owner(any_url, batch_size=100)
    create(memory, owner)
    owner.attach(memory)
    assert isinstance(owner.ratify(Batch(commits=(request(owner, memory, 1),))).commits[0], Ratified)
    with pytest.raises(VersionNotFound) as raised:
        owner.ratify(Batch(commits=(request(owner, memory, 3),)))
    assert raised.value.version == 2
    assert owner.ratify(Batch(commits=(request(owner, memory, 1),))).commits == (Taken(table=memory.uri, version=1),)
    assert owner.get_commits(memory.uri).latest == 1


def test_a_small_commit_is_told_with_its_bytes_and_has_no_file(owner: LedgerOwner, store: Store) -> None:
    log, managed = create(store, owner)
    append(log, managed, "a")
    (commit,) = managed.get_commits(0).commits
    assert commit.data is not None
    assert (txn_id_of(commit.data), commit.key) == (commit.txn_id, commit_path(1))
    assert store.list_keys(COMMITS_DIR) == []
    owner.backfill(store.uri)
    assert store.get(commit_path(1)) == commit.data
    assert [one.commit.data for one in owner.book.stored(store.uri, 0, limit=10)] == [None], "the log has it now"


def test_any_number_of_tables_is_told_of_in_one_answer_each_with_what_waits_and_no_more(
    owner: LedgerOwner, memory: Store
) -> None:
    log, files = create(memory, owner)
    for name in "abc":
        append(log, files, name)
    owner.backfill(memory.uri, 1)
    others = [f"memory://not-there/{number}" for number in range(2500)]
    told = owner.get_commits_of([*others, memory.uri])
    assert [one.table for one in told] == [*others, memory.uri]
    assert all(one.latest == -1 and not one.commits for one in told[:-1])
    assert told[-1].latest == 3
    assert [one.version for one in told[-1].commits] == [2, 3]
    assert [one.version for one in owner.get_commits(memory.uri, 3).commits] == [3]
    assert owner.get_commits(memory.uri, 4).commits == ()


def test_the_file_of_a_large_commit_is_durable_in_commits_and_named_by_version_and_uuid(
    open_owner, store: Store
) -> None:
    owner = open_owner(batch_size=100, inline_bytes=0)
    log, managed = create(store, owner)
    append(log, managed, "a")
    (commit,) = managed.get_commits(0).commits
    assert re.fullmatch(r"_delta_log/_commits/00000000000000000001\.[0-9a-f-]{36}\.json", commit.key)
    assert txn_id_of(store.get(commit.key)) == commit.txn_id


def test_the_file_is_there_before_the_ledger_says_so(open_owner, memory: Store) -> None:
    owner = open_owner(inline_bytes=0)
    create(memory, owner)
    broken = FaultyStore(memory, [Fault("put_if_absent", f"{COMMITS_DIR}*", How.FAIL, times=10**9)])
    _, managed = managed_log(owner, broken)
    before = owner.get_commits(memory.uri)
    with pytest.raises(Exception, match="injected"):
        managed.commit(1, commit_data("t", 10**15), txn_id="t", in_commit_timestamp=10**15)
    assert owner.get_commits(memory.uri) == before


def test_a_file_that_is_not_there_is_not_ratified(open_owner, memory: Store) -> None:
    owner = open_owner(inline_bytes=0)
    create(memory, owner)
    owner.attach(memory)
    asked = request(owner, memory, 1)
    fields = {f: getattr(asked, f) for f in asked.__struct_fields__}
    without = CommitRequest(**{**fields, "data": None, "file": file_name(1, str(uuid.uuid4()))})
    with pytest.raises(Exception, match="no such object"):
        owner.ratify(Batch(commits=(without,)))
    assert owner.get_commits(memory.uri).latest == 0


def test_what_is_asked_for_must_be_what_the_file_says(owner: LedgerOwner, memory: Store) -> None:
    create(memory, owner)
    owner.attach(memory)
    asked = request(owner, memory, 1)
    fields = {f: getattr(asked, f) for f in asked.__struct_fields__}
    with pytest.raises(InvalidArgument, match="txnId"):
        owner.ratify(Batch(commits=(CommitRequest(**{**fields, "txn_id": "another"}),)))
    with pytest.raises(InvalidArgument, match="inCommitTimestamp"):
        owner.ratify(Batch(commits=(CommitRequest(**{**fields, "in_commit_timestamp": 7}),)))
    with pytest.raises(InvalidArgument, match="size"):
        CommitRequest(**{**fields, "size": 7})
    for name in ("../../x", "00000000000000000002." + str(uuid.uuid4()) + ".json", "1.json", "a/b.json"):
        with pytest.raises(InvalidArgument, match="does not name a commit file"):
            CommitRequest(**{**fields, "data": None, "file": name})
    for both in ({"file": file_name(1, str(uuid.uuid4()))}, {"data": None}):
        with pytest.raises(InvalidArgument, match="either its bytes"):
            CommitRequest(**{**fields, **both})


def test_in_commit_timestamps_of_ratified_commits_strictly_increase(owner: LedgerOwner, memory: Store) -> None:
    create(memory, owner)
    owner.attach(memory)
    latest = owner.book.row(memory.uri).latest_timestamp
    assert latest is not None
    for timestamp in (latest, latest - 1, 1):
        with pytest.raises(InvalidArgument, match="not after"):
            owner.ratify(Batch(commits=(request(owner, memory, 1, timestamp=timestamp),)))
    owner.ratify(Batch(commits=(request(owner, memory, 1, timestamp=latest + 1),)))


@pytest.mark.field_bug(7)
@pytest.mark.parametrize("state", ["fresh", "backfilled", "forgotten", "released"])
def test_field_bug_18_asking_again_gives_the_first_answer_however_late(
    any_url: str, open_owner, memory: Store, state: str
) -> None:
    owner = open_owner(any_url, batch_size=100)
    create(memory, owner)
    owner.attach(memory)
    asked = request(owner, memory, 1)
    other = request(owner, memory, 1)
    owner.ratify(Batch(commits=(asked,)))
    owner.ratify(Batch(commits=(request(owner, memory, 2),)))
    if state in ("backfilled", "forgotten"):
        owner.backfill(memory.uri)
    if state == "forgotten":
        owner.forget(memory.uri, grace_ms=0)
        assert owner.book.stored(memory.uri, 0, limit=10) == []
        assert memory.list_keys(COMMITS_DIR) == []
    if state == "released":
        release(owner, memory)
    for _ in range(2):
        assert isinstance(owner.ratify(Batch(commits=(asked,))).commits[0], Ratified)
        assert owner.ratify(Batch(commits=(other,))).commits == (Taken(table=memory.uri, version=1),)


@pytest.mark.field_bug(4)
@pytest.mark.parametrize("limit", [10**6, 0], ids=["inline", "staged"])
def test_nothing_of_a_ratified_commit_is_deleted_while_its_client_does_not_know_the_outcome(
    owner: LedgerOwner, memory: Store, limit: int
) -> None:
    class Silent:
        """Does what it is asked, and nobody ever hears of it."""

        inline_bytes = limit

        def ratify(self, batch: Batch) -> None:
            owner.ratify(batch)
            raise UnknownOutcome("the reply was lost")

        def __getattr__(self, name: str) -> object:
            return getattr(owner, name)

    create(memory, owner)
    log, managed = managed_log(Silent(), memory)  # type: ignore[arg-type]
    memory.put("a.parquet", b"data")
    impatient = Retry(first_delay_s=0.0005, first_doubt_s=0.0005, longest_doubt_s=0.005, deadline_s=0.05)
    txn = OptimisticTransaction.begin(log, managed, retry=impatient)
    with pytest.raises(CommitOutcomeUnknown) as raised:
        txn.commit([add("a.parquet")], WRITE)
    assert raised.value.txn_id == txn.txn_id
    assert len(memory.list_keys(COMMITS_DIR)) == (limit == 0)
    (told,) = owner.get_commits(memory.uri).commits
    assert told.ratified().read(memory)
    assert memory.get("a.parquet") == b"data"
    owner.backfill(memory.uri)
    assert paths(DeltaLog(memory)) == ["a.parquet"]


def test_a_transaction_that_is_ratified_cannot_get_a_second_version(owner: LedgerOwner, memory: Store) -> None:
    create(memory, owner)
    owner.attach(memory)
    owner.ratify(Batch(commits=(request(owner, memory, 1, "t1"),)))
    with pytest.raises(Exception, match="is version 1 already"):
        owner.ratify(Batch(commits=(request(owner, memory, 2, "t1"),)))
    assert owner.get_commits(memory.uri).latest == 1


def test_a_file_in_commits_that_is_not_ratified_is_never_read(owner: LedgerOwner, store: Store) -> None:
    log, managed = create(store, owner)
    append(log, managed, "a")
    store.put(f"{COMMITS_DIR}{file_name(1, str(uuid.uuid4()))}", encode([add("forged")]))
    store.put(f"{COMMITS_DIR}{file_name(2, str(uuid.uuid4()))}", encode([add("forged")]))
    assert newest(store, owner) == 1
    assert paths(managed_log(owner, store)[0]) == ["a"]
    owner.backfill(store.uri)
    assert newest(store) == 1
    assert paths(DeltaLog(store)) == ["a"]


def test_readers_ask_the_owner_before_they_list(owner: LedgerOwner, memory: Store) -> None:
    log, managed = create(memory, owner)
    for number in range(3):
        append(log, managed, f"f{number}")
    moments: list[str] = []

    class Spy:
        def unbackfilled(self, start_version: int):
            moments.append("asked")
            answer = OwnedCommits(managed).unbackfilled(start_version)
            # All is backfilled and forgotten between the answer and the listing.
            owner.backfill(memory.uri)
            owner.book.forget(memory.uri, grace_ms=0)
            return answer

    class Listing(FaultyStore):
        def list_keys(self, prefix: str = "", *, after: str | None = None) -> list[str]:
            moments.append("listed")
            return super().list_keys(prefix, after=after)

    snapshot = DeltaLog(Listing(memory), commit_source=Spy()).update()
    assert moments[0] == "asked"
    assert "listed" in moments
    assert snapshot is not None
    assert snapshot.version == 3


def test_field_bug_14_no_commit_is_missed_while_backfill_runs(open_owner, memory: Store) -> None:
    owner = open_owner(batch_size=1)
    log, managed = create(memory, owner)
    seen: list[tuple[int, int]] = []
    acknowledged = [0]
    done = threading.Event()

    def read() -> None:
        reader = managed_log(owner, memory)[0]
        while not done.is_set():
            least = acknowledged[0]
            fresh = managed_log(owner, memory)[0]
            for one in (reader, fresh):
                snapshot = one.update()
                assert snapshot is not None
                seen.append((least, snapshot.version))

    thread = threading.Thread(target=read)
    thread.start()
    for number in range(25):
        acknowledged[0] = append(log, managed, f"f{number}").version
        owner.book.forget(memory.uri, grace_ms=0)
    done.set()
    thread.join()
    assert seen
    assert all(version >= least for least, version in seen)


@pytest.mark.parametrize("batch_size", [1, 2, 10, 100])
def test_backfill_is_sequential_byte_identical_and_in_batches(open_owner, memory: Store, batch_size: int) -> None:
    owner = open_owner(batch_size=batch_size)
    watched = FaultyStore(memory)
    log, managed = create(watched, owner)
    acknowledged = {}
    staged: dict[int, bytes] = {}
    for number in range(12):
        result = append(log, managed, f"f{number}")
        acknowledged[result.txn_id] = result.version
        for commit in managed.get_commits(0).commits:
            assert commit.data is not None
            staged[commit.version] = commit.data
        told = owner.get_commits(memory.uri)
        assert told.latest - told.backfilled < batch_size
        assert [c.version for c in told.commits] == list(range(told.backfilled + 1, told.latest + 1))
        assert newest(memory) == told.backfilled
    owner.backfill(memory.uri)
    put = [call.keys[0] for call in watched.calls if call.name == "put_if_absent" and "_commits" not in call.keys[0]]
    assert put == [commit_path(version) for version in range(13)]
    assert all(memory.get(commit_path(version)) == data for version, data in staged.items())
    check_history(memory, acknowledged)


def test_backfill_never_overwrites_and_stops_where_the_log_has_something_else(
    owner: LedgerOwner, memory: Store
) -> None:
    log, managed = create(memory, owner)
    for number in range(3):
        append(log, managed, f"f{number}")
    intruder = encode([CommitInfo(txn_id="intruder"), add("x")])
    memory.put(commit_path(2), intruder)
    with pytest.raises(Exception, match="other content than the owner ratified") as raised:
        owner.backfill(memory.uri)
    assert raised.value.version == 2
    assert memory.get(commit_path(2)) == intruder
    told = owner.get_commits(memory.uri)
    assert told.backfilled < 2
    assert told.latest == 3
    assert commit_path(3) not in memory.list_keys(LOG_DIR)


def test_field_bug_17_a_backfill_counts_only_when_the_file_is_there(owner: LedgerOwner, memory: Store) -> None:
    log, managed = create(memory, owner)
    append(log, managed, "a")
    owner.attach(FaultyStore(memory, [Fault("put_if_absent", f"{LOG_DIR}0*", How.FAIL, times=10**9)]))
    with pytest.raises(Exception, match="injected"):
        owner.backfill(memory.uri)
    assert owner.get_commits(memory.uri).backfilled == 0
    owner.attach(memory)
    assert owner.backfill(memory.uri).backfilled == 1


@pytest.mark.parametrize("how", [How.LOSE_REPLY, How.LAND_LATE, How.FAIL])
def test_a_backfill_whose_reply_is_lost_is_done_again_without_harm(owner: LedgerOwner, memory: Store, how: How) -> None:
    log, managed = create(memory, owner)
    for number in range(4):
        append(log, managed, f"f{number}")
    faulty = FaultyStore(memory, [Fault("put_if_absent", f"{LOG_DIR}0*", how, nth=2, later=2)])
    owner.attach(faulty)
    with nullcontext() if how is How.LOSE_REPLY else pytest.raises(StorageUnavailable, match="injected"):
        owner.backfill(memory.uri)
    assert owner.backfill(memory.uri).backfilled == 4
    faulty.settle()
    check_history(memory)


def test_on_local_disk_backfill_goes_on_behind_what_a_publisher_had_put_before_it_died(
    open_owner, local: LocalStore
) -> None:
    owner = open_owner(batch_size=100, inline_bytes=0)
    log, managed = create(local, owner)
    for number in range(4):
        append(log, managed, f"f{number}")
    staged = {key: local.get(key) for key in local.list_keys(COMMITS_DIR)}
    # The ledger does not know of it.
    assert local.put_if_absent(commit_path(1), staged[min(staged)])
    assert owner.get_commits(local.uri).backfilled == 0

    assert owner.backfill(local.uri).backfilled == 4

    assert [local.get(commit_path(version)) for version in range(1, 5)] == [staged[key] for key in sorted(staged)]
    assert {os.stat(local.path(commit_path(version))).st_nlink for version in range(1, 5)} == {1}
    local.delete(staged)
    check_history(local)


def test_on_local_disk_backfill_stops_where_the_log_has_something_else(owner: LedgerOwner, local: Store) -> None:
    log, managed = create(local, owner)
    for number in range(3):
        append(log, managed, f"f{number}")
    local.put(commit_path(2), b"{}")
    with pytest.raises(BackfillMismatch):
        owner.backfill(local.uri)
    assert local.get(commit_path(2)) == b"{}"
    assert commit_path(3) not in local.list_keys(LOG_DIR)
    assert owner.get_commits(local.uri).backfilled < 2


def test_a_backfill_that_fails_does_not_fail_the_commit(open_owner, memory: Store, caplog) -> None:
    owner = open_owner(batch_size=1)
    create(memory, owner)
    faulty = FaultyStore(memory, [Fault("put_if_absent", f"{LOG_DIR}0*", How.FAIL, times=3)])
    log, managed = managed_log(owner, faulty)
    assert [append(log, managed, f"f{n}").version for n in range(3)] == [1, 2, 3]
    assert "its commits stand" in caplog.text
    assert newest(memory) == 0
    append(log, managed, "f3")
    assert newest(memory) == 4


def test_field_bug_8_a_staged_file_that_was_deleted_is_published_from_the_ledger(
    owner: LedgerOwner, memory: Store
) -> None:
    log, managed = create(memory, owner)
    append(log, managed, "a")
    memory.delete(memory.list_keys(COMMITS_DIR))
    owner.backfill(memory.uri)
    assert paths(DeltaLog(memory)) == ["a"]


def test_a_staged_file_that_was_changed_is_not_published(open_owner, memory: Store) -> None:
    owner = open_owner(batch_size=100, inline_bytes=0)
    log, managed = create(memory, owner)
    append(log, managed, "a")
    (key,) = memory.list_keys(COMMITS_DIR)
    memory.put(key, memory.get(key) + encode([add("smuggled")]))
    with pytest.raises(TamperedCommit):
        owner.backfill(memory.uri)
    assert newest(memory) == 0


def test_field_bug_9_two_who_backfill_the_same_do_not_trouble_each_other(open_owner, sqlite_url: str, local) -> None:
    owners = [open_owner(sqlite_url, batch_size=100) for _ in range(4)]
    log, managed = create(local, owners[0])
    for number in range(20):
        append(log, managed, f"f{number}")
    errors: list[BaseException] = []

    def backfill(owner: LedgerOwner) -> None:
        try:
            owner.attach(local)
            owner.backfill(local.uri)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=backfill, args=(owner,)) for owner in owners]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    check_history(local)
    assert owners[0].get_commits(local.uri).backfilled == 20


def test_rows_are_forgotten_and_files_tidied_only_after_the_grace(open_owner, memory: Store) -> None:
    owner = open_owner(batch_size=100, inline_bytes=0)
    log, managed = create(memory, owner)
    for number in range(4):
        append(log, managed, f"f{number}")
    owner.backfill(memory.uri, 2)
    assert owner.forget(memory.uri, grace_ms=3_600_000) == 0
    assert len(memory.list_keys(COMMITS_DIR)) == 4
    assert owner.forget(memory.uri, grace_ms=0) == 2
    assert [c.version for c in owner.get_commits(memory.uri).commits] == [3, 4]
    assert newest(memory, owner) == 4
    append(log, managed, "more")
    owner.backfill(memory.uri)
    owner.forget(memory.uri, grace_ms=0)
    assert memory.list_keys(COMMITS_DIR) == []
    assert newest(memory, owner) == newest(memory) == 5


def test_field_bug_s8_unbackfilled_commits_are_bounded(open_owner, memory: Store) -> None:
    owner = open_owner(batch_size=10**6, most_unbackfilled=5, backfills=False)
    create(memory, owner)
    owner.attach(memory)
    for version in range(1, 6):
        owner.ratify(Batch(commits=(request(owner, memory, version),)))
    with pytest.raises(OwnerBusy, match="wait for their backfill"):
        owner.ratify(Batch(commits=(request(owner, memory, 6),)))
    owner.backfill(memory.uri, 1)
    owner.ratify(Batch(commits=(request(owner, memory, 6),)))
    by_itself = open_owner(batch_size=10**6, most_unbackfilled=5)
    other = memory.uri + "2"
    log, managed = create(open_store(other), by_itself)
    for number in range(20):
        append(log, managed, f"f{number}")
    assert newest(open_store(other), by_itself) == 20


def test_the_example_of_the_seed_an_aware_reader_sees_9_and_one_that_lists_sees_7(open_owner, local: Store) -> None:
    owner = open_owner(inline_bytes=0, batch_size=100)
    log, managed = create(local, owner)
    for version in range(1, 10):
        append(log, managed, f"f{version}.parquet")
        if version == 2:
            owner.backfill(local.uri)
            write_checkpoint(log, 2, now_ms=0)
    owner.backfill(local.uri, 7)
    compact(log, 3, 5)
    for version in (8, 10, 10):
        rival = encode([CommitInfo(txn_id="rival", in_commit_timestamp=1), add("rival")])
        local.put(COMMITS_DIR + file_name(version, str(uuid.uuid4())), rival)
    names = local.list_keys(LOG_DIR)
    assert [commit_path(v) in names for v in range(9)] == [True] * 8 + [False]
    assert f"{LOG_DIR}{2:020d}.checkpoint.parquet" in names
    assert f"{LOG_DIR}{3:020d}.{5:020d}.compacted.json" in names
    staged = [key.removeprefix(COMMITS_DIR)[18:20] for key in local.list_keys(COMMITS_DIR)]
    assert staged == ["01", "02", "03", "04", "05", "06", "07", "08", "08", "09", "10", "10"]
    assert newest(local, owner) == 9
    assert paths(managed_log(owner, local)[0]) == [f"f{v}.parquet" for v in range(1, 10)]
    assert newest(local) == 7
    assert paths(DeltaLog(local)) == [f"f{v}.parquet" for v in range(1, 8)]

    assert deltalake.DeltaTable(local.uri.removeprefix("file://")).version() == 7


def test_field_bug_16_a_reader_goes_on_where_its_last_snapshot_had_only_backfilled_commits(
    owner: LedgerOwner, memory: Store
) -> None:
    log, managed = create(memory, owner)
    append(log, managed, "a")
    owner.backfill(memory.uri)
    reader = managed_log(owner, memory)[0]
    assert paths(reader) == ["a"]
    for name in "bcdef":
        append(log, managed, name)
    assert paths(reader) == list("abcdef")
    owner.backfill(memory.uri, 4)
    append(log, managed, "g")
    assert paths(reader) == list("abcdefg")


def test_a_managed_table_is_read_without_its_owner_as_far_as_it_is_backfilled_with_a_warning(
    owner: LedgerOwner, memory: Store
) -> None:
    log, managed = create(memory, owner)
    append(log, managed, "a")
    owner.backfill(memory.uri)
    append(log, managed, "b")
    router = Router(memory, {})
    with pytest.warns(StaleReadWarning, match="'lakeseal', which is not configured"):
        snapshot = router.snapshot()
    assert snapshot is not None
    assert snapshot.version == 1
    assert router.snapshot() is not None, "warned once"
    with pytest.raises(OwnedElsewhere):
        OptimisticTransaction.begin(router.route().log, router.route().owner)
    with pytest.warns(StaleReadWarning):
        warn_stale(snapshot)


def test_a_new_managed_table_has_writer_7_the_features_and_the_properties(open_owner, memory: Store) -> None:
    owner = open_owner(name="commit-owner-1", batch_size=2)
    create(memory, owner)
    snapshot = DeltaLog(memory).update()
    assert snapshot is not None
    assert snapshot.protocol.min_writer_version == 7
    assert {"managedCommits", "inCommitTimestamp"} <= set(snapshot.protocol.writer_features or ())
    assert snapshot.protocol.min_reader_version == 1, "it is a writer feature: readers need not know it"
    configuration = snapshot.metadata.configuration
    assert configuration["delta.managedCommitOwnerName"] == "commit-owner-1"
    assert json.loads(configuration["delta.managedCommitOwnerConf"] or "") == {
        "batchSize": "2",
        "ledgerId": owner.identity(),
    }
    assert configuration["delta.enableInCommitTimestamps"] == "true"
    assert snapshot.in_commit_timestamp is not None


HALVES = {
    "an owner without the feature": (
        Protocol(min_reader_version=1, min_writer_version=7, writer_features=("inCommitTimestamp",)),
        {"delta.managedCommitOwnerName": "o", "delta.enableInCommitTimestamps": "true"},
        "lacks managedCommits",
    ),
    "the feature without an owner": (
        Protocol(min_reader_version=1, min_writer_version=7, writer_features=("managedCommits", "inCommitTimestamp")),
        {"delta.enableInCommitTimestamps": "true"},
        "names no owner",
    ),
}


@pytest.mark.parametrize("half", HALVES)
def test_a_table_with_one_half_of_the_enablement_is_refused_by_name(owner: LedgerOwner, memory: Store, half) -> None:
    protocol, configuration, words = HALVES[half]
    broken = Metadata(id="t", schema_string=SCHEMA, configuration=configuration)
    memory.put(commit_path(0), encode([CommitInfo(txn_id="x", in_commit_timestamp=1), protocol, broken]))
    log = DeltaLog(memory)
    assert log.update() is not None, "it can be read"
    for committer in (FilesystemOwner(memory), ManagedOwner(owner, memory)):
        with pytest.raises(InvalidMetadata, match=words):
            OptimisticTransaction.begin(log, committer).commit([add("a")], WRITE)
    assert newest(memory) == 0


@pytest.mark.field_bug("S3")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"delta.managedCommitOwnerName": None}, "no owner"),
        ({"delta.managedCommitOwnerName": "somebody-else"}, "somebody-else"),
        ({"delta.enableInCommitTimestamps": "false"}, "switches"),
    ],
)
def test_an_ordinary_commit_cannot_change_the_owner(owner: LedgerOwner, memory: Store, change, words: str) -> None:
    create(memory, owner)
    owner.attach(memory)
    snapshot = DeltaLog(memory).update()
    assert snapshot is not None
    configuration = {k: v for k, v in {**snapshot.metadata.configuration, **change}.items() if v is not None}
    changed = Metadata(id="t", schema_string=SCHEMA, configuration=configuration)
    data = commit_data("t1", 10**15, changed)
    managed = ManagedOwner(owner, memory)
    with pytest.raises(PolicyRefused, match=words) as raised:
        managed.commit(1, data, txn_id="t1", in_commit_timestamp=10**15)
    assert raised.value.policy == "ownership"
    asked = request(owner, memory, 1, "t1")
    smuggled = {**{f: getattr(asked, f) for f in asked.__struct_fields__}, "data": data, "size": len(data)}
    with pytest.raises(PolicyRefused, match=words):
        owner.ratify(Batch(commits=(CommitRequest(**{**smuggled, "in_commit_timestamp": 10**15}),)))
    assert newest(memory, owner) == 0


def test_a_change_of_metadata_keeps_the_owner_without_being_told(owner: LedgerOwner, memory: Store) -> None:
    log, managed = create(memory, owner)
    txn = OptimisticTransaction.begin(log, managed)
    txn.update_metadata(metadata(appendOnly="true"))
    snapshot = txn.commit([], Operation(name="RESTORE")).snapshot
    assert snapshot.properties.managed_commit_owner_name == "lakeseal"
    assert snapshot.properties.append_only


def test_field_bug_6_a_conflict_with_a_winner_that_is_not_backfilled_is_rebased(
    owner: LedgerOwner, memory: Store
) -> None:
    log, managed = create(memory, owner)
    late = OptimisticTransaction.begin(*managed_log(owner, memory))
    for number in range(5):
        append(log, managed, f"winner{number}")
    result = late.commit([add("late")], WRITE)
    assert (result.version, result.attempts) == (6, 2)


def test_of_64_who_create_a_managed_table_one_wins(open_owner, sqlite_url: str, local: Store) -> None:
    owners = [open_owner(sqlite_url) for _ in range(4)]
    outcomes: list[object] = []
    start = threading.Barrier(64)

    def race(number: int) -> None:
        log, managed = managed_log(owners[number % 4], local)
        txn = OptimisticTransaction(log, managed, None)
        txn.update_metadata(metadata())
        start.wait()
        try:
            outcomes.append(txn.commit([add(f"f{number}")], Operation(name="CREATE TABLE")).txn_id)
        except BaseException as error:
            outcomes.append(error)

    threads = [threading.Thread(target=race, args=(number,)) for number in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [outcome for outcome in outcomes if isinstance(outcome, str)]
    losers = [outcome for outcome in outcomes if not isinstance(outcome, str)]
    assert len(winners) == 1
    assert all(isinstance(loser, ProtocolChangedException) for loser in losers), losers
    assert txn_id_of(local.get(commit_path(0))) == winners[0]
    told = owners[0].get_commits(local.uri)
    assert (told.state, told.latest, told.change_id) == ("active", 0, None)
    log, managed = managed_log(owners[0], local)
    assert append(log, managed, "next").version == 1


def test_creating_where_a_file_system_writer_is_faster_leaves_that_table_alone(
    owner: LedgerOwner, memory: Store
) -> None:
    log, managed = managed_log(owner, memory)
    txn = OptimisticTransaction(log, managed, None)
    txn.update_metadata(metadata())
    create(memory)
    with pytest.raises(ProtocolChangedException):
        txn.commit([], Operation(name="CREATE TABLE"))
    assert owner.get_commits(memory.uri).state == "none"
    append(DeltaLog(memory), FilesystemOwner(memory), "a")


@pytest.mark.parametrize("call", ["put_if_absent", "get"])
def test_a_creation_whose_reply_is_lost_is_known_and_done_once(owner: LedgerOwner, memory: Store, call: str) -> None:
    faulty = FaultyStore(memory, [Fault("put_if_absent", commit_path(0), How.LOSE_REPLY)])
    create(faulty, owner)
    assert newest(memory, owner) == 0
    assert owner.get_commits(memory.uri).state == "active"


def test_a_table_that_was_deleted_can_be_created_again_once_an_admin_says_so(owner: LedgerOwner, memory: Store) -> None:
    log, managed = create(memory, owner)
    for name in "abc":
        append(log, managed, name)
    owner.backfill(memory.uri)
    memory.delete([meta.key for meta in memory.list("", recursive=True)])
    for attempt in (Router(memory, {}, creator=owner).snapshot, lambda: create(memory, owner)):
        with pytest.raises(TableVanished, match="up to version 3"):
            attempt()
    owner.drop(memory.uri)
    assert Router(memory, {}, creator=owner).snapshot() is None
    log, managed = create(memory, owner)
    assert append(log, managed, "new").version == 1
    assert paths(managed_log(owner, memory)[0]) == ["new"]


def test_a_client_that_knows_a_former_table_is_refused(owner: LedgerOwner, memory: Store) -> None:
    log, managed = create(memory, owner)
    append(log, managed, "a")
    stale = OptimisticTransaction.begin(log, managed)
    with pytest.raises(AlreadyExists):
        owner.drop(memory.uri)
    owner.backfill(memory.uri)
    memory.delete([meta.key for meta in memory.list("", recursive=True)])
    owner.drop(memory.uri)
    again, managed_again = create(memory, owner)
    append(again, managed_again, "b")
    with pytest.raises(OwnedElsewhere):
        stale.commit([add("ghost")], WRITE)
    assert paths(managed_log(owner, memory)[0]) == ["b"]


def test_a_loser_and_a_winner_in_one_process_spare_the_file_of_the_loser(owner: LedgerOwner, memory: Store) -> None:
    log, managed = create(memory, owner)
    append(log, managed, "a")
    files = len(memory.list_keys(COMMITS_DIR))
    outcome = managed.commit(1, commit_data("late", 10**15), txn_id="late", in_commit_timestamp=10**15)
    assert outcome == Conflict(version=1)
    assert len(memory.list_keys(COMMITS_DIR)) == files


def test_a_commit_without_in_commit_timestamp_is_refused(owner: LedgerOwner, memory: Store) -> None:
    _, managed = create(memory, owner)
    with pytest.raises(PolicyRefused, match="inCommitTimestamp"):
        managed.commit(1, encode([CommitInfo(txn_id="t")]), txn_id="t")


def test_large_commits_are_written_by_the_client_and_ratified_by_name(owner: LedgerOwner, memory: Store) -> None:
    log, managed = create(memory, owner)
    result = append(log, managed, *(f"file-{number}" for number in range(500)))
    stored = owner.book.stored(memory.uri, 0, limit=10)
    assert [(one.commit.data, one.commit.key) for one in stored] == [(None, *memory.list_keys(COMMITS_DIR))]
    owner.backfill(memory.uri)
    assert len(paths(DeltaLog(memory))) == 500
    assert isinstance(managed.commit(result.version, memory.get(commit_path(1)), txn_id=result.txn_id), Committed)
