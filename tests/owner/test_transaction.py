"""Several tables at once: all of them get their version or none does, and readers see all of it or nothing."""

from __future__ import annotations

import threading
import uuid

import pytest

from lakeseal.commit.attempts import Retry
from lakeseal.commit.filesystem_owner import FilesystemOwner
from lakeseal.commit.isolation import IsolationLevel
from lakeseal.commit.proposal import Operation
from lakeseal.errors import (
    CommitOutcomeUnknown,
    ConcurrentAppendException,
    ConcurrentDeleteReadException,
    ConcurrentWriteException,
    InvalidArgument,
    NotAuthenticated,
    OwnedElsewhere,
    PolicyRefused,
    StorageUnavailable,
    TableNotFound,
    UnknownOutcome,
)
from lakeseal.ledger.schema import watermarks
from lakeseal.log.delta_log import DeltaLog
from lakeseal.owner.handover import release
from lakeseal.owner.ledger_owner import LedgerOwner
from lakeseal.owner.messages import Batch, BatchAnswer, LedgerRecord, TableCommits
from lakeseal.owner.ownership import State
from lakeseal.owner.policies import MaxFiles
from lakeseal.owner.snapshots import snapshots
from lakeseal.owner.transaction import Transaction
from lakeseal.protocol.paths import COMMITS_DIR
from lakeseal.storage import Store, open_store
from models.history import check_history
from support.managed_tables import WRITE, add, append, create, managed_log, newest, paths, remove


@pytest.fixture
def stores() -> list[Store]:
    return [open_store(f"memory://{uuid.uuid4().hex}/{name}") for name in "abc"]


@pytest.fixture
def owned(owner: LedgerOwner, stores: list[Store]) -> list[Store]:
    for store in stores:
        create(store, owner)
    return stores


def write(txn: Transaction, stores: list[Store], name: str) -> None:
    for store in stores:
        txn.table(store).commit([add(name)], WRITE)


def test_all_tables_get_their_version(any_url: str, open_owner, stores: list[Store]) -> None:
    owner = open_owner(any_url, batch_size=100)
    for store in stores:
        create(store, owner)
    append(*managed_log(owner, stores[1]), "earlier")
    txn = Transaction(owner)
    write(txn, stores, "x")
    assert [newest(store, owner) for store in stores] == [0, 1, 0], "nothing is asked before the commit"
    result = txn.commit()
    assert {table: one.version for table, one in result.tables.items()} == {
        stores[0].uri: 1,
        stores[1].uri: 2,
        stores[2].uri: 1,
    }
    assert [paths(managed_log(owner, store)[0])[-1] for store in stores] == ["x", "x", "x"]


def test_none_gets_its_version_if_one_cannot(open_owner, stores: list[Store]) -> None:
    owner = open_owner(policies=[MaxFiles(limit=1, tables=stores[1].uri)])
    for store in stores:
        create(store, owner)
    txn = Transaction(owner)
    txn.table(stores[0]).commit([add("x")], WRITE)
    txn.table(stores[1]).commit([add("x"), add("y")], WRITE)
    with pytest.raises(PolicyRefused):
        txn.commit()
    assert [newest(store, owner) for store in stores] == [0, 0, 0]


def test_a_part_that_lost_its_version_is_rebased_and_the_others_keep_theirs(open_owner, stores: list[Store]) -> None:
    owner, owned = open_owner(batch_size=100, inline_bytes=0), stores
    for store in stores:
        create(store, owner)
    txn = Transaction(owner)
    write(txn, owned, "x")
    for number in range(3):
        append(*managed_log(owner, owned[2]), f"faster{number}")
    result = txn.commit()
    assert [result.tables[store.uri].version for store in owned] == [1, 1, 4]
    assert result.tables[owned[0].uri].attempts == 2
    assert len(owned[0].list_keys(COMMITS_DIR)) == 1, "its file was written once"


def test_a_conflict_in_one_table_stops_all(owner: LedgerOwner, owned: list[Store]) -> None:
    append(*managed_log(owner, owned[0]), "old")
    txn = Transaction(owner)
    part = txn.table(owned[0])
    part.read_whole_table()
    part.commit([remove("old"), add("new")], Operation(name="DELETE"))
    txn.table(owned[1]).commit([add("x")], WRITE)
    other = Transaction(owner)
    rival = other.table(owned[0])
    rival.read_whole_table()
    rival.commit([remove("old")], Operation(name="DELETE"))
    other.commit()
    with pytest.raises(ConcurrentDeleteReadException):
        txn.commit()
    assert newest(owned[1], owner) == 0


def test_a_table_that_was_only_read_must_not_have_changed(owner: LedgerOwner, owned: list[Store]) -> None:
    txn = Transaction(owner, isolation_level=IsolationLevel.SERIALIZABLE)
    txn.table(owned[0]).read_whole_table()
    txn.table(owned[1]).commit([add("derived")], WRITE)
    append(*managed_log(owner, owned[0]), "new")
    with pytest.raises(ConcurrentAppendException):
        txn.commit()
    assert newest(owned[1], owner) == 0


def test_write_skew_over_two_tables_is_not_possible(owner: LedgerOwner, owned: list[Store]) -> None:
    one, two = (Transaction(owner, isolation_level=IsolationLevel.SERIALIZABLE) for _ in range(2))
    one.table(owned[0]).read_whole_table()
    one.table(owned[1]).commit([add("from-a")], WRITE)
    two.table(owned[1]).read_whole_table()
    two.table(owned[0]).commit([add("from-b")], WRITE)
    one.commit()
    with pytest.raises(ConcurrentAppendException):
        two.commit()


def test_a_table_that_was_only_read_may_change_in_ways_that_do_not_matter(
    owner: LedgerOwner, owned: list[Store]
) -> None:
    txn = Transaction(owner)
    txn.table(owned[0]).read_whole_table()
    txn.table(owned[1]).commit([add("derived")], WRITE)
    append(*managed_log(owner, owned[0]), "a blind append counts as coming later")
    result = txn.commit()
    assert (result.tables[owned[1].uri].version, result.tables[owned[1].uri].attempts) == (1, 2)


def test_watermarks_ride_along_and_only_if_everything_is_ratified(owner: LedgerOwner, owned: list[Store]) -> None:
    key = {"pipeline": "p", "dataset": "d", "partition": "0"}

    def mark(value: int, **how: object) -> LedgerRecord:
        return LedgerRecord(table="watermarks", key=key, values={"value": value, "epoch": 1, "updated": 1}, **how)  # type: ignore[arg-type]

    def stored() -> int | None:
        row = owner.ledger.read(lambda tx: tx.get(watermarks, **key))
        return None if row is None else row.value

    for value, expected in ((10, {"insert": True}), (20, {"expected": {"epoch": 1}})):
        txn = Transaction(owner)
        write(txn, owned[:2], f"x{value}")
        txn.commit(records=[mark(value, **expected)])
        assert stored() == value
    for wrong in ({"insert": True}, {"expected": {"epoch": 7}}):
        txn = Transaction(owner)
        write(txn, owned[:2], "never")
        with pytest.raises(ConcurrentWriteException, match="not as it was expected"):
            txn.commit(records=[mark(30, **wrong)])
    assert stored() == 20
    assert newest(owned[0], owner) == 2
    txn = Transaction(owner)
    write(txn, owned[:1], "y")
    with pytest.raises(InvalidArgument, match="cannot ride along"):
        txn.commit(records=[LedgerRecord(table="tokens", key={"token_id": "t"}, values={})])


def test_records_ride_along_once_even_if_the_answer_is_asked_for_twice(owner: LedgerOwner, owned: list[Store]) -> None:
    class Forgetful:
        """Loses the first reply of every ratification."""

        def __init__(self) -> None:
            self.lost = False

        def ratify(self, batch: Batch, **more: object) -> BatchAnswer:
            answer = LedgerOwner.ratify(owner, batch, **more)  # type: ignore[arg-type]
            if not self.lost:
                self.lost = True
                raise UnknownOutcome("the reply was lost")
            return answer

    owner.ratify = Forgetful().ratify  # type: ignore[method-assign]

    key = {"pipeline": "p", "dataset": "d", "partition": "0"}
    record = LedgerRecord(table="watermarks", key=key, values={"value": 1, "epoch": 1, "updated": 1}, insert=True)
    txn = Transaction(owner, retry=Retry(first_doubt_s=0.001))
    write(txn, owned, "x")
    result = txn.commit(records=[record])
    assert [one.version for one in result.tables.values()] == [1, 1, 1]
    assert [newest(store, owner) for store in owned] == [1, 1, 1]


def test_an_outcome_that_stays_unknown_is_said_to_be_unknown(owner: LedgerOwner, owned: list[Store]) -> None:
    def lost(batch: Batch, **more: object) -> BatchAnswer:
        LedgerOwner.ratify(owner, batch)
        raise UnknownOutcome("the reply was lost")

    owner.ratify = lost  # type: ignore[method-assign]
    txn = Transaction(owner, retry=Retry(deadline_s=0.05, first_doubt_s=0.001))
    part = txn.table(owned[0])
    write(txn, owned, "x")
    with pytest.raises(CommitOutcomeUnknown) as raised:
        txn.commit()
    assert raised.value.txn_id == part.txn_id
    assert [newest(store, owner) for store in owned] == [1, 1, 1]


def test_who_is_not_let_in_any_more_does_not_learn_that_nothing_was_committed(
    owner: LedgerOwner, owned: list[Store]
) -> None:
    asked: list[Batch] = []

    def lost_and_then_closed(batch: Batch, **more: object) -> BatchAnswer:
        asked.append(batch)
        if len(asked) > 1:
            raise NotAuthenticated("The token has expired")
        LedgerOwner.ratify(owner, batch)
        raise UnknownOutcome("the reply was lost")

    owner.ratify = lost_and_then_closed  # type: ignore[method-assign]
    txn = Transaction(owner, retry=Retry(first_doubt_s=0.001))
    write(txn, owned, "x")
    with pytest.raises(CommitOutcomeUnknown):
        txn.commit()
    assert [newest(store, owner) for store in owned] == [1, 1, 1]


def test_what_cannot_be_part_of_a_transaction_is_said(owner: LedgerOwner, open_owner, owned: list[Store]) -> None:
    txn = Transaction(owner)
    missing = open_store(f"memory://{uuid.uuid4().hex}/t")
    with pytest.raises(TableNotFound):
        txn.table(missing)
    create(missing)
    with pytest.raises(OwnedElsewhere, match="not to an owner"):
        txn.table(missing)
    txn.table(owned[0]).commit([add("x")], WRITE)
    txn.commit()
    with pytest.raises(InvalidArgument, match="only once"):
        txn.commit()
    with pytest.raises(InvalidArgument, match="is over"):
        txn.table(owned[1])
    again = Transaction(owner)
    part = again.table(owned[0])
    assert again.table(owned[0]) is part
    part.commit([add("x")], WRITE)
    with pytest.raises(InvalidArgument, match="same file twice"):
        part.commit([add("x")], WRITE)
    part.commit([add("y")], WRITE)
    other = managed_log(open_owner(), owned[1])
    with pytest.raises(InvalidArgument, match="same owner"):
        again.join(*other)
    assert Transaction(owner).commit().tables == {}


def test_a_release_in_between_stops_the_transaction(owner: LedgerOwner, owned: list[Store]) -> None:
    txn = Transaction(owner)
    write(txn, owned, "x")
    release(owner, owned[1])
    with pytest.raises(OwnedElsewhere):
        txn.commit()
    assert [newest(store) for store in owned] == [0, 1, 0]


def test_snapshots_of_several_tables_are_of_one_moment(owner: LedgerOwner, owned: list[Store]) -> None:
    txn = Transaction(owner)
    write(txn, owned, "x")
    txn.commit()
    assert [one.version for one in snapshots(owner, owned)] == [1, 1, 1]
    with pytest.raises(OwnedElsewhere):
        files = open_store(f"memory://{uuid.uuid4().hex}/t")
        create(files)
        snapshots(owner, [owned[0], files])
    with pytest.raises(TableNotFound):
        snapshots(owner, [open_store(f"memory://{uuid.uuid4().hex}/t")])


def test_who_reads_several_tables_sees_a_release_that_its_owner_was_not_told_of(
    owner: LedgerOwner, owned: list[Store]
) -> None:
    class Deaf(LedgerOwner):
        def finish_release(self, table: str) -> TableCommits:
            raise StorageUnavailable("the message is lost")

    with pytest.raises(StorageUnavailable):
        release(Deaf(owner.ledger, name=owner.name), owned[1], retry=Retry(deadline_s=0))
    assert owner.get_commits(owned[1].uri).state is State.RELEASING
    append(DeltaLog(owned[1]), FilesystemOwner(owned[1]), "later")
    with pytest.raises(OwnedElsewhere):
        snapshots(owner, owned)
    assert owner.get_commits(owned[1].uri).state is State.NONE


def test_a_release_that_is_not_in_the_log_yet_is_in_nobodys_way(owner: LedgerOwner, owned: list[Store]) -> None:
    append(*managed_log(owner, owned[1]), "earlier")
    owner.begin_release(owned[1].uri, "a release")
    assert [one.version for one in snapshots(owner, owned)] == [0, 1, 0]


def test_readers_see_all_of_a_transaction_or_nothing_while_writers_and_backfill_run(
    open_owner, shared_url: str, stores: list[Store]
) -> None:
    owner = open_owner(shared_url, batch_size=3)
    for store in stores:
        create(store, owner)
    done = threading.Event()
    errors: list[BaseException] = []
    counts: list[tuple[int, ...]] = []

    def writer(name: str) -> None:
        try:
            for number in range(12):
                txn = Transaction(owner)
                write(txn, stores, f"{name}-{number}")
                txn.commit()
        except BaseException as error:
            errors.append(error)

    def read() -> None:
        try:
            while not done.is_set():
                counts.append(tuple(one.files.num_rows for one in snapshots(owner, stores)))
        except BaseException as error:
            errors.append(error)

    reading = threading.Thread(target=read)
    reading.start()
    writers = [threading.Thread(target=writer, args=(name,)) for name in "pqr"]
    for thread in writers:
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    reading.join()
    assert not errors, errors[0]
    assert len(counts) > 3
    assert all(len(set(count)) == 1 for count in counts), "T2"
    assert counts == sorted(counts)
    for store in stores:
        owner.backfill(store.uri)
        check_history(store)
        assert newest(store) == 36
        assert len(paths(DeltaLog(store))) == 36


def both(owner: LedgerOwner, stores: list[Store], name: str) -> None:
    """Another transaction over two tables, made meanwhile."""
    txn = Transaction(owner)
    write(txn, stores, name)
    txn.commit()


def seen(txn: Transaction, store: Store) -> list[str]:
    files = txn.table(store).filter_files()
    return sorted(files["path"].to_pylist())


LEVELS = [None, *IsolationLevel]


@pytest.mark.parametrize("level", LEVELS)
def test_tables_that_join_one_after_the_other_are_seen_as_of_one_moment(
    owner: LedgerOwner, owned: list[Store], level: IsolationLevel | None
) -> None:
    txn = Transaction(owner, isolation_level=level)
    first = txn.table(owned[0])
    both(owner, owned[:2], "x")
    txn.table(owned[1])
    assert seen(txn, owned[1]) == ["x"]
    assert sorted(first.filter_files()["path"].to_pylist()) == ["x"], "a table that nobody has looked at yet moves on"
    assert txn.commit().tables == {}


@pytest.mark.parametrize("level", LEVELS)
def test_a_table_cannot_join_once_what_was_read_of_another_has_changed(
    owner: LedgerOwner, owned: list[Store], level: IsolationLevel | None
) -> None:
    txn = Transaction(owner, isolation_level=level)
    assert seen(txn, owned[0]) == []
    both(owner, owned[:2], "x")
    for _ in range(2):
        with pytest.raises(ConcurrentAppendException, match="Begin again"):
            seen(txn, owned[1])
    assert seen(txn, owned[0]) == [], "what was seen once is not seen otherwise"


@pytest.mark.parametrize("level", LEVELS)
def test_tables_that_joined_before_are_read_as_of_then_however_late(
    owner: LedgerOwner, owned: list[Store], level: IsolationLevel | None
) -> None:
    txn = Transaction(owner, isolation_level=level)
    parts = [txn.table(store) for store in owned]
    both(owner, owned[:2], "x")
    assert [part.filter_files().num_rows for part in parts] == [0, 0, 0]


def test_a_move_that_fails_for_one_table_moves_none(owner: LedgerOwner, owned: list[Store]) -> None:
    txn = Transaction(owner)
    unread, read = txn.table(owned[0]), txn.table(owned[1])
    assert read.filter_files().num_rows == 0
    both(owner, owned[:2], "x")
    with pytest.raises(ConcurrentAppendException):
        txn.table(owned[2])
    assert unread.filter_files().num_rows == 0


def test_a_table_that_was_written_first_and_read_later_is_read_at_the_moment_of_the_others(
    owner: LedgerOwner, owned: list[Store]
) -> None:
    txn = Transaction(owner)
    txn.table(owned[0]).commit([add("mine")], WRITE)
    both(owner, owned[:2], "x")
    assert seen(txn, owned[1]) == ["x"]
    assert seen(txn, owned[0]) == ["mine", "x"], "with what this transaction writes itself"
    assert txn.commit().tables[owned[0].uri].version == 2


def test_what_is_read_of_a_table_after_it_was_written_is_checked_too(owner: LedgerOwner, owned: list[Store]) -> None:
    txn = Transaction(owner, isolation_level=IsolationLevel.SERIALIZABLE)
    part = txn.table(owned[0])
    part.commit([add("mine")], WRITE)
    part.filter_files()
    append(*managed_log(owner, owned[0]), "other")
    with pytest.raises(ConcurrentAppendException):
        txn.commit()
    assert newest(owned[0], owner) == 1


def test_a_transaction_that_only_read_is_checked_at_its_end(owner: LedgerOwner, owned: list[Store]) -> None:
    def reader(level: IsolationLevel | None) -> Transaction:
        txn = Transaction(owner, isolation_level=level)
        for store in owned[:2]:
            seen(txn, store)
        return txn

    strict, loose, untouched = reader(IsolationLevel.SERIALIZABLE), reader(None), Transaction(owner)
    seen(untouched, owned[2])
    append(*managed_log(owner, owned[1]), "blind")
    with pytest.raises(ConcurrentAppendException):
        strict.commit()
    assert loose.commit().tables == {}, "a blind append counts as coming later"
    assert untouched.commit().tables == {}
    loose = reader(None)
    derived = Transaction(owner)
    derived.table(owned[2]).read_whole_table()
    derived.table(owned[0]).commit([add("derived")], WRITE)
    derived.commit()
    with pytest.raises(ConcurrentAppendException):
        loose.commit()


def test_who_read_one_table_has_not_appended_blindly_to_another(owner: LedgerOwner, owned: list[Store]) -> None:
    txn = Transaction(owner)
    txn.table(owned[0]).read_whole_table()
    txn.table(owned[1]).commit([add("derived")], WRITE)
    txn.commit()
    both(owner, owned[1:], "blind")
    log = managed_log(owner, owned[1])[0]
    infos = [log.commit_info(version) for version in (1, 2)]
    assert [info is not None and info.is_blind_append for info in infos] == [False, True]


def test_write_skew_over_two_tables_is_not_possible_at_the_default_level(
    owner: LedgerOwner, owned: list[Store]
) -> None:
    one, two = Transaction(owner), Transaction(owner)
    one.table(owned[0]).read_whole_table()
    one.table(owned[1]).commit([add("from-a")], WRITE)
    two.table(owned[1]).read_whole_table()
    two.table(owned[0]).commit([add("from-b")], WRITE)
    one.commit()
    with pytest.raises(ConcurrentAppendException):
        two.commit()


def test_the_strictest_of_the_tables_says_the_level_of_all(owner: LedgerOwner, stores: list[Store]) -> None:
    create(stores[0], owner)
    create(stores[1], owner, isolationLevel="Serializable")
    txn = Transaction(owner)
    txn.table(stores[0]).read_whole_table()
    txn.table(stores[1]).commit([add("derived")], WRITE)
    append(*managed_log(owner, stores[0]), "blind")
    with pytest.raises(ConcurrentAppendException):
        txn.commit()


def test_a_table_that_was_released_meanwhile_is_not_joined_with_others(owner: LedgerOwner, owned: list[Store]) -> None:
    txn = Transaction(owner)
    seen(txn, owned[0])
    release(owner, owned[0])
    with pytest.raises(OwnedElsewhere):
        txn.table(owned[1])
    with pytest.raises(OwnedElsewhere):
        txn.commit()
