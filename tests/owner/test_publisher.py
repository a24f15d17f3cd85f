"""What an owner does by itself: backfill, recover, tidy up."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

import deltalake
import duckdb
import duckdb_extensions
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeseal import ledger
from lakeseal.commit.filesystem_owner import FilesystemOwner
from lakeseal.commit.transaction import OptimisticTransaction
from lakeseal.errors import BackfillMismatch, StorageError
from lakeseal.log.checkpoint_writer import write_checkpoint
from lakeseal.log.delta_log import DeltaLog
from lakeseal.owner import backfill
from lakeseal.owner.handover import release, take_over
from lakeseal.owner.ledger_owner import LedgerOwner, flush
from lakeseal.owner.ownership import State
from lakeseal.owner.publisher import Publisher, recover
from lakeseal.protocol.actions import CommitInfo
from lakeseal.protocol.codec import encode
from lakeseal.protocol.paths import COMMITS_DIR, LOG_DIR, commit_path
from lakeseal.storage import Store, open_store
from lakeseal.testing.faults import Fault, FaultyStore, How
from models.history import check_history
from oracles.chdb_process import Chdb
from support.crashes import CrashingLedger, Effects
from support.managed_tables import WRITE, add, append, create, managed_log, metadata, newest


@pytest.fixture
def serving(open_owner) -> LedgerOwner:
    """An owner as a service has it: it leaves backfilling to the publisher."""
    owner: LedgerOwner = open_owner(batch_size=10, backfills=False)
    return owner


def stores(count: int) -> list[Store]:
    return [open_store(f"memory://{uuid.uuid4().hex}/t{number}") for number in range(count)]


def wait_for(condition) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_publisher_backfills_every_table(serving: LedgerOwner) -> None:
    tables = stores(5)
    for store in tables:
        log, managed = create(store, serving)
        for name in "abc":
            append(log, managed, name)
    assert [newest(store) for store in tables] == [0] * 5
    done = Publisher(serving).run_once()
    assert (done.tables, done.failed) == (5, {})
    assert [newest(store) for store in tables] == [3] * 5
    assert Publisher(serving).run_once().tables == 0


def test_a_publisher_runs_beside_the_writers_and_stops_when_told(serving: LedgerOwner, memory: Store) -> None:
    log, managed = create(memory, serving)
    with Publisher(serving, every_s=0.01) as publisher:
        for number in range(30):
            append(log, managed, f"f{number}")
            publisher.notify()
        wait_for(lambda: newest(memory) == 30)
    append(log, managed, "after")
    time.sleep(0.05)
    assert newest(memory) == 30
    assert newest(memory, serving) == 31


def test_a_table_that_fails_does_not_stop_the_others_and_is_tried_less_and_less(serving: LedgerOwner) -> None:
    bad, good = stores(2)
    for store in (bad, good):
        log, managed = create(store, serving)
        append(log, managed, "a")
    bad.put(commit_path(1), encode([CommitInfo(txn_id="intruder"), add("x")]))
    publisher = Publisher(serving, every_s=60)
    first = publisher.run_once()
    assert isinstance(first.failed[bad.uri], BackfillMismatch)
    assert newest(good) == 1
    assert publisher.run_once().tables == 0, "it is left alone for a while"


def test_a_round_is_one_write_of_the_ledger_however_many_tables_there_are(any_url: str) -> None:
    effects = Effects()
    with ledger.open(any_url) as opened:
        owner = LedgerOwner(CrashingLedger(opened, effects), backfills=False)  # type: ignore[arg-type]
        tables = stores(6)
        for number, store in enumerate(tables):
            log, managed = create(store, owner)
            for name in "abc"[: number % 3 + 1]:
                append(log, managed, name)
        before = effects.count
        assert Publisher(owner, tidy_every_s=10**6).run_once().tables == 6
        assert effects.count == before + 1
        for number, store in enumerate(tables):
            told = owner.get_commits(store.uri)
            assert (told.latest, told.backfilled, told.commits) == (number % 3 + 1, number % 3 + 1, ())
            kept = owner.book.stored(store.uri, 0, limit=10)
            assert [(one.backfilled, one.commit.data) for one in kept] == [(True, None)] * len(kept)
            check_history(store)


def test_what_is_too_much_for_one_go_is_done_in_several(serving: LedgerOwner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backfill, "_PUBLISHED_AT_ONCE", 4)
    tables = stores(3)
    for number, store in enumerate(tables):
        log, managed = create(store, serving)
        for name in range(3 * number + 3):
            append(log, managed, str(name))
    assert serving.publish_all([store.uri for store in tables]) == {}
    assert [newest(store) for store in tables] == [3, 6, 9]
    assert [serving.get_commits(store.uri).backfilled for store in tables] == [3, 6, 9]


def test_a_table_that_another_thread_publishes_is_left_to_it(serving: LedgerOwner) -> None:
    slow, other = stores(2)
    for store in (slow, other):
        append(*create(store, serving), "a")
    serving.attach(FaultyStore(slow, [Fault("put_if_absent", commit_path(1), How.DELAY, seconds=0.5)]))
    elsewhere = threading.Thread(target=serving.publish, args=(slow.uri,))
    elsewhere.start()
    wait_for(lambda: serving._publishing[slow.uri].locked())
    assert serving.publish_all([slow.uri, other.uri]) == {}
    assert (newest(slow), newest(other)) == (0, 1)
    elsewhere.join()
    assert newest(slow) == 1


def test_of_two_publishers_one_has_the_lease(open_owner, shared_url: str, memory: Store) -> None:
    one, two = (open_owner(shared_url, backfills=False) for _ in range(2))
    log, managed = create(memory, one)
    first, second = Publisher(one), Publisher(two)
    assert first._has_lease()
    assert not second._has_lease()
    assert first._has_lease()
    append(log, managed, "a")
    assert first.run_once().tables == 1
    assert second.run_once().tables == 0


@pytest.mark.parametrize("batch_size", [1, 2, 10, 100])
def test_everything_that_was_interrupted_is_taken_up_at_the_next_start(open_owner, sqlite_url, batch_size) -> None:
    owner = open_owner(sqlite_url, batch_size=batch_size, backfills=False)
    waiting, releasing, pending = stores(3)
    for store in (waiting, releasing):
        log, managed = create(store, owner)
        for name in "abc":
            append(log, managed, name)
    owner.begin_release(releasing.uri, "r")
    create(pending)
    owner.attach(pending)
    owner.begin_takeover(pending.uri, "t", 1)
    again = open_owner(sqlite_url, batch_size=batch_size)
    assert recover(again).failed == {}
    assert newest(waiting) == 3
    assert newest(releasing) == 4
    assert again.get_commits(releasing.uri).state is State.NONE
    assert again.get_commits(pending.uri).state is State.PENDING, "the promise stands"
    for store in (waiting, releasing):
        check_history(store)


def test_a_copy_that_somebody_else_has_put_is_durable_before_the_ledger_lets_go_of_its_bytes(
    open_owner, local: Store
) -> None:
    owner = open_owner(backfills=False)
    watched = FaultyStore(local, [Fault("sync", commit_path(1), How.FAIL, times=1)])
    log, managed = create(watched, owner)
    append(log, managed, "a")
    (told,) = owner.get_commits(local.uri).commits
    assert told.data is not None
    assert local.put_if_absent(commit_path(1), told.data)
    with pytest.raises(StorageError, match="injected"):
        owner.backfill(local.uri)
    assert owner.get_commits(local.uri).commits == (told,)
    assert owner.backfill(local.uri).commits == ()
    assert [call.keys[0] for call in watched.calls if call.name == "sync"] == [commit_path(1)] * 2
    check_history(local)


def test_old_rows_and_files_go_after_the_grace_and_others_stay(open_owner) -> None:
    serving = open_owner(backfills=False, inline_bytes=0)
    old, fresh = stores(2)
    for store in (old, fresh):
        log, managed = create(store, serving)
        for name in "abc":
            append(log, managed, name)
    serving.backfill(old.uri)
    publisher = Publisher(serving, grace_ms=0, tidy_every_s=0)
    serving.backfill(fresh.uri, 1)
    append(*(log, managed), "d")
    tidied = publisher.run_once().tidied
    assert tidied == 7
    assert old.list_keys(COMMITS_DIR) == fresh.list_keys(COMMITS_DIR) == []
    patient = Publisher(serving, tidy_every_s=0)
    append(log, managed, "e")
    assert patient.run_once().tidied == 0
    assert len(fresh.list_keys(COMMITS_DIR)) == 1


def test_a_file_that_lost_its_race_is_tidied_with_its_version(serving: LedgerOwner, memory: Store) -> None:
    log, managed = create(memory, serving)
    append(log, managed, "a")
    loser = f"{COMMITS_DIR}{1:020d}.{uuid.uuid4()}.json"
    early = f"{COMMITS_DIR}{7:020d}.{uuid.uuid4()}.json"
    for key in (loser, early):
        memory.put(key, b"{}\n")
    serving.backfill(memory.uri)
    assert serving.forget(memory.uri, grace_ms=0) == 1
    assert memory.list_keys(COMMITS_DIR) == [early], "its outcome is not known yet"


def test_rows_of_a_released_table_go_too(serving: LedgerOwner, memory: Store) -> None:
    log, managed = create(memory, serving)
    append(log, managed, "a")
    release(serving, memory)
    Publisher(serving, grace_ms=0, tidy_every_s=0).run_once()
    assert serving.book.stored(memory.uri, 0, limit=10) == []


class Onlookers(FaultyStore):
    """After every single change of a file, readers that know nothing of owners read the table."""

    def __init__(self, store: Store, chdb: Chdb) -> None:
        super().__init__(store)
        self._path = store.uri.removeprefix("file://")
        self._chdb = chdb
        duckdb_extensions.import_extension("delta")
        self._duck = duckdb.connect()
        self._duck.execute("LOAD delta")
        self.moments: list[tuple[int, ...]] = []

    def put(self, key: str, data: bytes) -> None:
        super().put(key, data)
        self.look()

    def put_if_absent(self, key: str, data: bytes) -> bool:
        done = super().put_if_absent(key, data)
        self.look()
        return done

    def delete(self, keys: Iterable[str]) -> None:
        super().delete(keys)
        self.look()

    def look(self) -> None:
        if not self.list_keys(LOG_DIR):
            return
        version = deltalake.DeltaTable(self._path).version()
        ((by_duckdb,),) = self._duck.execute(f"SELECT count(*) FROM delta_scan('{self._path}')").fetchall()
        by_chdb = int(self._chdb.query(f"SELECT count(*) FROM deltaLakeLocal('{self._path}')", "CSV"))
        self.moments.append((version, by_duckdb, by_chdb))


@pytest.fixture
def chdb(tmp_path: Path) -> Iterator[Chdb]:
    with Chdb(tmp_path) as found:
        yield found


def test_readers_that_know_nothing_of_owners_read_the_backfilled_part_at_every_moment(
    open_owner, local: Store, chdb: Chdb
) -> None:
    serving = open_owner(backfills=False, inline_bytes=0)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"x": pa.array([1], pa.int64())}), sink)
    data = sink.getvalue().to_pybytes()
    store = Onlookers(local, chdb)
    rows_at: list[int] = []

    def write(log, owner) -> None:
        name = f"f{len(rows_at)}.parquet"
        local.put(name, data)
        txn = OptimisticTransaction.begin(log, owner)
        if txn.snapshot is None:
            txn.update_metadata(metadata())
        txn.commit([add(name, size=len(data))], WRITE)
        rows_at.append((rows_at[-1] if rows_at else 0) + 1)

    write(DeltaLog(store), FilesystemOwner(store))
    assert take_over(serving, store) == 1
    rows_at.append(rows_at[-1])
    log, managed = managed_log(serving, store)
    for number in range(6):
        write(log, managed)
        if number % 2:
            serving.backfill(local.uri, len(rows_at) - 2)
    write_checkpoint(log, serving.get_commits(local.uri).backfilled, now_ms=0)
    write(log, managed)
    serving.backfill(local.uri)
    serving.forget(local.uri, grace_ms=0)
    write(log, managed)
    assert release(serving, store) == len(rows_at)
    rows_at.append(rows_at[-1])
    write(DeltaLog(store), FilesystemOwner(store))
    versions = [version for version, *_ in store.moments]
    assert versions == sorted(versions)
    assert set(versions) == set(range(len(rows_at))), "each version was the newest for a moment"
    assert store.moments == [(version, rows_at[version], rows_at[version]) for version in versions]
    assert len(versions) > len(rows_at) + 8, "and there were moments in between"


def test_an_owner_in_process_backfills_in_the_background_and_writers_help_when_it_falls_behind(
    open_owner, memory: Store
) -> None:
    owner = open_owner(batch_size=4, in_background=True)
    log, managed = create(memory, owner)
    for number in range(41):
        append(log, managed, f"f{number}")
        told = owner.get_commits(memory.uri)
        assert told.latest - told.backfilled < 5 * 4
    assert flush(timeout=20)
    # A round publishes what it finds, so where the batches end is a matter of time: less than a full one may be left.
    assert owner.get_commits(memory.uri).latest - newest(memory) < 4
    check_history(memory)
