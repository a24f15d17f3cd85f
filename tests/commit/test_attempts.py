from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest

from lakeseal.commit.attempts import Retry
from lakeseal.commit.filesystem_owner import FilesystemOwner
from lakeseal.commit.owner import Commits, Conflict, Outcome, Unresolved
from lakeseal.commit.proposal import Operation
from lakeseal.commit.transaction import CommitResult, OptimisticTransaction
from lakeseal.errors import (
    CommitOutcomeUnknown,
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentModification,
    ConcurrentWriteException,
    LakesealError,
    MetadataChangedException,
    NotAllowed,
    NotAuthenticated,
    OutOfSpace,
    PermissionDenied,
    ProtocolChangedException,
    Refused,
    StorageError,
    StorageUnavailable,
)
from lakeseal.log.delta_log import DeltaLog
from lakeseal.log.files import add_actions
from lakeseal.protocol.actions import AddFile, Metadata, RemoveFile
from lakeseal.protocol.paths import commit_path
from lakeseal.storage import Store
from lakeseal.testing.faults import Fault, FaultyStore, How
from models.history import check_history

SCHEMA = (
    '{"type":"struct","fields":[{"name":"p","type":"integer","nullable":true,"metadata":{}},'
    '{"name":"x","type":"long","nullable":true,"metadata":{}}]}'
)
WRITE = Operation(name="WRITE", parameters={"mode": "Append"})
QUICK = Retry(first_delay_s=0.0005, longest_delay_s=0.01, first_doubt_s=0.0005, longest_doubt_s=0.005, deadline_s=60)
IMPATIENT = Retry(first_delay_s=0.0005, first_doubt_s=0.0005, longest_doubt_s=0.005, deadline_s=0.05)


def metadata(**configuration: str) -> Metadata:
    named = {f"delta.{name}": value for name, value in configuration.items()}
    return Metadata(id="t", schema_string=SCHEMA, partition_columns=("p",), configuration=named)


def begin(store: Store, retry: Retry = QUICK, **parts: Any) -> OptimisticTransaction:
    return OptimisticTransaction.begin(DeltaLog(store), FilesystemOwner(store), retry=retry, **parts)


def create(store: Store, **configuration: str) -> CommitResult:
    txn = begin(store)
    txn.update_metadata(metadata(**configuration))
    return txn.commit([], Operation(name="CREATE TABLE"))


def add(path: str, p: int = 1, *, x: tuple[int, int] = (0, 9), data_change: bool = True) -> AddFile:
    return AddFile(
        path=path,
        partition_values={"p": str(p)},
        size=1,
        modification_time=0,
        data_change=data_change,
        stats=f'{{"numRecords":1,"minValues":{{"x":{x[0]}}},"maxValues":{{"x":{x[1]}}},"nullCount":{{"x":0}}}}',
    )


def append(store: Store, path: str, p: int = 1, retry: Retry = QUICK, **parts: Any) -> CommitResult:
    return begin(store, retry, **parts).commit([add(path, p)], WRITE)


def removes(txn: OptimisticTransaction, where: str | None) -> list[RemoveFile]:
    return [
        RemoveFile(path=f.path, data_change=True, deletion_vector=f.deletion_vector)
        for f in add_actions(txn.filter_files(where))
    ]


def live(store: Store) -> set[str]:
    snapshot = DeltaLog(store).update()
    assert snapshot is not None
    return set(snapshot.files["path"].to_pylist())


def test_commits_follow_each_other_and_the_result_is_the_table_after_it(any_store: Store) -> None:
    assert create(any_store).version == 0
    first = append(any_store, "a")
    second = append(any_store, "b")
    assert (first.version, second.version, second.attempts) == (1, 2, 1)
    assert set(second.snapshot.files["path"].to_pylist()) == {"a", "b"} == live(any_store)
    check_history(any_store, {first.txn_id: 1, second.txn_id: 2})


def test_an_append_rebases_over_what_won(store: Store) -> None:
    create(store)
    late = begin(store)
    winners = [append(store, name) for name in ("a", "b", "c")]
    result = late.commit([add("late")], WRITE)
    assert (result.version, result.attempts) == (4, 2)
    assert set(result.snapshot.files["path"].to_pylist()) == {"a", "b", "c", "late"}
    check_history(store, {r.txn_id: r.version for r in (*winners, result)})


def test_many_conflicts_in_a_row_are_each_rebased(store: Store) -> None:
    create(store)
    rivals = iter(range(5))

    class Raced(FilesystemOwner):
        def commit(self, version: int, data: bytes, **rest: Any) -> Outcome:
            if (number := next(rivals, None)) is not None:
                append(store, f"rival{number}")
            return super().commit(version, data, **rest)

    txn = OptimisticTransaction.begin(DeltaLog(store), Raced(store), retry=QUICK)
    result = txn.commit([add("late")], WRITE)
    assert (result.version, result.attempts) == (6, 6)
    check_history(store, {txn.txn_id: 6})


class TestConflictsThatCannotBeRebased:
    def test_delete_against_delete_of_the_same_file(self, store: Store) -> None:
        create(store)
        append(store, "a")
        ours, theirs = begin(store), begin(store)
        theirs.commit(removes(theirs, None), Operation(name="DELETE"))
        with pytest.raises(ConcurrentDeleteDeleteException) as caught:
            ours.commit([RemoveFile(path="a", data_change=True)], Operation(name="DELETE"))
        assert (caught.value.version, caught.value.file, caught.value.table) == (2, "a", store.uri)
        assert "DELETE" in str(caught.value)
        check_history(store, {theirs.txn_id: 2}, failed=[ours.txn_id])

    def test_overwrite_against_overwrite_leaves_one_of_them(self, store: Store) -> None:
        create(store)
        append(store, "old")
        ours, theirs = begin(store), begin(store)
        gone = removes(ours, None)
        theirs.commit([*removes(theirs, None), add("theirs")], WRITE)
        with pytest.raises(ConcurrentAppendException):
            ours.commit([*gone, add("ours")], WRITE)
        assert live(store) == {"theirs"}

    def test_schema_change(self, store: Store) -> None:
        create(store)
        ours, theirs = begin(store), begin(store)
        theirs.update_metadata(metadata(appendOnly="true"))
        theirs.commit([], Operation(name="SET TBLPROPERTIES"))
        with pytest.raises(MetadataChangedException):
            ours.commit([add("a")], WRITE)

    def test_creating_a_table_that_somebody_else_created(self, store: Store) -> None:
        ours = begin(store)
        ours.update_metadata(metadata())
        create(store)
        with pytest.raises(ProtocolChangedException, match="open the table"):
            ours.commit([], Operation(name="CREATE TABLE"))
        check_history(store, failed=[ours.txn_id])

    def test_a_table_that_was_replaced_meanwhile(self, store: Store) -> None:
        create(store)
        append(store, "a")
        ours = begin(store)
        ours.filter_files("x = 3")
        store.delete([commit_path(version) for version in range(2)])
        txn = begin(store)
        txn.update_metadata(Metadata(id="another", schema_string=SCHEMA, partition_columns=("p",)))
        txn.commit([], Operation(name="CREATE TABLE"))
        for name in "bcd":
            append(store, name, p=7)
        with pytest.raises(MetadataChangedException, match="replaced"):
            ours.commit([add("late", 2)], WRITE)


class TestPartitionsAndStatistics:
    @pytest.mark.parametrize(
        ("where", "conflicts"),
        [
            ("p = 1", True),
            ("p = 2", False),
            ("p = 1 AND x = 105", True),
            ("p = 1 AND x = 50", False),
            ("x BETWEEN 90 AND 100", True),
            ("x < 100", False),
            ("p = 1 OR x = 5000", True),
        ],
    )
    def test_a_file_that_cannot_match_what_was_read_does_not_conflict(
        self, store: Store, where: str, conflicts: bool
    ) -> None:
        create(store, isolationLevel="Serializable")
        append(store, "old", 3)
        ours = begin(store)
        ours.filter_files(where)
        begin(store).commit([add("theirs", 1, x=(100, 110))], WRITE)
        if conflicts:
            with pytest.raises(ConcurrentAppendException) as caught:
                ours.commit([add("ours", 4)], WRITE)
            assert caught.value.file == "theirs"
            assert where in str(caught.value)
        else:
            assert ours.commit([add("ours", 4)], WRITE).version == 3

    def test_a_file_without_statistics_may_match_anything(self, store: Store) -> None:
        create(store, isolationLevel="Serializable")
        ours = begin(store)
        ours.filter_files("x = 5")
        bare = AddFile(path="bare", partition_values={"p": "1"}, size=1, modification_time=0, data_change=True)
        begin(store).commit([bare], WRITE)
        with pytest.raises(ConcurrentAppendException):
            ours.commit([add("ours")], WRITE)

    @pytest.mark.parametrize(
        "where", ["rand() < 2", "x < unix_timestamp()", "current_timestamp() IS NOT NULL AND x = 777"]
    )
    def test_a_condition_that_only_spark_or_the_moment_can_judge_may_match_anything(
        self, memory: Store, where: str
    ) -> None:
        create(memory, isolationLevel="Serializable")
        append(memory, "old")
        ours = begin(memory)
        assert ours.filter_files(where)["path"].to_pylist() in (["old"], [])
        bare = AddFile(path="bare", partition_values={"p": "1"}, size=1, modification_time=0, data_change=True)
        begin(memory).commit([bare], WRITE)
        with pytest.raises(ConcurrentAppendException):
            ours.commit([add("ours")], WRITE)

    def test_field_bug_11_a_delete_misses_what_was_appended_only_where_the_level_allows_it(self, store: Store) -> None:
        create(store)
        append(store, "old")
        ours = begin(store)
        gone = removes(ours, "p = 1")
        append(store, "new")
        ours.commit(gone, Operation(name="DELETE"))
        assert live(store) == {"new"}


LOST = [How.FAIL, How.LOSE_REPLY, How.LAND_LATE]


def struck(store: Store, how: How, nth: int, times: int = 1) -> FaultyStore:
    return FaultyStore(store, [Fault(how=how, nth=nth, times=times, later=2)])


@pytest.mark.parametrize("how", LOST, ids=lambda how: how.name)
def test_field_bug_1_a_lost_reply_at_any_call_of_a_commit_gives_one_copy_or_a_certain_no(
    store: Store, how: How
) -> None:
    create(store)
    acknowledged: dict[str, int] = {}
    failed: list[str] = []
    reached_the_end = False
    for nth in range(1, 40):
        faulty = struck(store, how, nth)
        try:
            txn = begin(faulty)
            late = begin(store)
            rival = late.commit([add(f"rival{nth}")], WRITE)
            acknowledged[rival.txn_id] = rival.version
        except StorageError:
            continue  # the outage hit the reading before the transaction had begun
        try:
            result = txn.commit([add(f"f{nth}")], WRITE)
            acknowledged[result.txn_id] = result.version
        except StorageError:
            failed.append(txn.txn_id)
        faulty.settle()
        check_history(store, acknowledged, failed=failed)
        if not any(call.struck for call in faulty.calls):
            reached_the_end = True
            break
    assert reached_the_end
    assert not failed, "one lost reply is no reason to give up"


@pytest.mark.parametrize("how", LOST, ids=lambda how: how.name)
def test_a_store_that_loses_every_second_reply_still_gives_every_commit_once(store: Store, how: How) -> None:
    create(store)
    faulty = FaultyStore(store, [Fault("put_if_absent", how=how, nth=n, later=1) for n in range(1, 60, 2)])
    results = [append(faulty, f"f{n}") for n in range(20)]
    faulty.settle()
    check_history(store, {r.txn_id: r.version for r in results})
    assert len(live(store)) == 20


def test_field_bug_2_a_commit_that_landed_while_nobody_answered_is_reported_as_landed(memory: Store) -> None:
    create(memory)
    faulty = FaultyStore(
        memory,
        [Fault("put_if_absent", how=How.LOSE_REPLY), Fault("get", commit_path(1), times=3), Fault("head", times=0)],
    )
    result = append(faulty, "a")
    assert result.version == 1
    check_history(memory, {result.txn_id: 1})


@pytest.mark.field_bug(4)
def test_an_outcome_that_stays_unknown_is_an_error_that_says_how_to_find_out(memory: Store) -> None:
    create(memory)
    faulty = FaultyStore(
        memory,
        [
            Fault("put_if_absent", how=How.LAND_LATE, later=10**6, times=10**6),
            Fault("get", commit_path(1), times=10**6),
        ],
    )
    txn = begin(faulty, IMPATIENT)
    with pytest.raises(CommitOutcomeUnknown) as caught:
        txn.commit([add("a")], WRITE)
    assert caught.value.txn_id == txn.txn_id
    assert txn.txn_id in caught.value.hint
    assert caught.value.version == 1
    assert not any(call.name == "delete" for call in faulty.calls)
    faulty.settle()
    assert live(memory) == {"a"}, "what nobody could know came true"
    check_history(memory, {txn.txn_id: 1})


@pytest.mark.parametrize("error", [PermissionDenied, OutOfSpace])
def test_a_certain_failure_after_a_lost_reply_is_still_an_unknown_outcome(
    memory: Store, error: type[StorageError]
) -> None:
    create(memory)
    faulty = FaultyStore(
        memory,
        [
            Fault("put_if_absent", how=How.LAND_LATE, later=10**6),
            Fault("put_if_absent", nth=2, times=99, error=error),
        ],
    )
    with pytest.raises(CommitOutcomeUnknown):
        append(faulty, "a")


def test_a_certain_failure_at_first_is_what_it_is(memory: Store) -> None:
    create(memory)
    for error in (PermissionDenied, OutOfSpace):
        with pytest.raises(error):
            append(FaultyStore(memory, [Fault("put_if_absent", error=error)]), "a")
    check_history(memory)
    assert live(memory) == set()


def test_an_outage_before_anything_was_sent_is_no_unknown_outcome(memory: Store) -> None:
    create(memory)
    txn = OptimisticTransaction(
        DeltaLog(memory),
        FilesystemOwner(FaultyStore(memory, [Fault("head", times=10**6)])),
        DeltaLog(memory).update(),
        retry=IMPATIENT,
    )
    with pytest.raises(StorageUnavailable):
        txn.commit([add("a")], WRITE)
    check_history(memory, failed=[txn.txn_id])


def test_field_bug_3_a_writer_that_got_an_error_has_no_data_in_the_table(store: Store) -> None:
    create(store)
    append(store, "old")
    writers = [begin(store) for _ in range(6)]
    gone = [removes(txn, "p = 1") for txn in writers]
    acknowledged, failed = {}, []
    for number, (txn, removed) in enumerate(zip(writers, gone, strict=True)):
        try:
            acknowledged[txn.txn_id] = txn.commit([*removed, add(f"f{number}")], WRITE).version
        except ConcurrentModification:
            failed.append(txn.txn_id)
    assert (len(acknowledged), len(failed)) == (1, 5)
    check_history(store, acknowledged, failed=failed)


@pytest.mark.parametrize("how", LOST, ids=lambda how: how.name)
def test_field_bug_5_nothing_is_deleted_when_the_store_fails(memory: Store, how: How) -> None:
    create(memory)
    memory.put("a.parquet", b"data")
    faulty = FaultyStore(memory, [Fault("put_if_absent", how=how, times=10**6, later=10**6)])
    with contextlib.suppress(CommitOutcomeUnknown):
        append(faulty, "a.parquet", retry=IMPATIENT)
    assert memory.get("a.parquet") == b"data"
    assert not any(call.name == "delete" for call in faulty.calls)


class Scripted:
    """An owner that answers as told, then as the file system does."""

    def __init__(self, store: Store, *answers: Callable[[int], Outcome]) -> None:
        self._answers = list(answers)
        self._owner = FilesystemOwner(store)
        self.asked: list[tuple[int, bytes, str]] = []

    def commit(self, version: int, data: bytes, *, txn_id: str, in_commit_timestamp: int | None = None) -> Outcome:
        self.asked.append((version, data, txn_id))
        if self._answers:
            return self._answers.pop(0)(version)
        return self._owner.commit(version, data, txn_id=txn_id, in_commit_timestamp=in_commit_timestamp)

    def get_commits(self, start_version: int) -> Commits:
        return self._owner.get_commits(start_version)

    def backfill_to_version(self, version: int) -> None:
        self._owner.backfill_to_version(version)


def unresolved(version: int) -> Outcome:
    return Unresolved(version=version, reason="the line went dead")


def conflict(version: int) -> Outcome:
    return Conflict(version=version)


def refused(version: int) -> Outcome:
    raise Refused(f"Policy append-only refuses version {version}")


def with_owner(store: Store, *answers: Callable[[int], Outcome], retry: Retry = QUICK) -> tuple[Any, Scripted]:
    owner = Scripted(store, *answers)
    return OptimisticTransaction.begin(DeltaLog(store), owner, retry=retry), owner


def test_doubt_is_ended_by_asking_the_same_again(memory: Store) -> None:
    create(memory)
    txn, owner = with_owner(memory, unresolved, unresolved)
    assert txn.commit([add("a")], WRITE).attempts == 1
    assert len(owner.asked) == 3
    assert len(set(owner.asked)) == 1, "version, bytes and txnId must not change while in doubt"


def test_a_refusal_is_final(memory: Store) -> None:
    create(memory)
    for answers in ((refused,), (unresolved, refused)):
        txn, owner = with_owner(memory, *answers)
        with pytest.raises(Refused, match="append-only"):
            txn.commit([add("a")], WRITE)
        assert len(owner.asked) == len(answers)
    check_history(memory)
    assert live(memory) == set()


@pytest.mark.parametrize("error", [NotAuthenticated, NotAllowed])
def test_field_bug_3_who_is_not_let_in_any_more_does_not_learn_that_nothing_was_committed(
    memory: Store, error: type[LakesealError]
) -> None:
    create(memory)

    def done_and_lost(version: int) -> Outcome:
        _, data, txn_id = owner.asked[-1]
        FilesystemOwner(memory).commit(version, data, txn_id=txn_id)
        return unresolved(version)

    def not_let_in(version: int) -> Outcome:
        raise error("The token has expired")

    txn, owner = with_owner(memory, done_and_lost, not_let_in)
    with pytest.raises(CommitOutcomeUnknown) as raised:
        txn.commit([add("a")], WRITE)
    assert raised.value.txn_id == txn.txn_id
    txn, owner = with_owner(memory, not_let_in)
    with pytest.raises(error):
        txn.commit([add("b")], WRITE)
    assert live(memory) == {"a"}


def test_field_bug_6_a_conflict_with_a_winner_that_is_not_visible_yet_is_waited_for(memory: Store) -> None:
    create(memory)
    txn, _ = with_owner(memory, conflict)
    timer = threading.Timer(0.05, append, args=(memory, "winner"))
    timer.start()
    result = txn.commit([add("a")], WRITE)
    timer.join()
    assert result.version == 2
    assert live(memory) == {"winner", "a"}


def test_a_winner_that_never_becomes_visible_is_a_conflict_in_the_end(memory: Store) -> None:
    create(memory)
    txn, _ = with_owner(memory, conflict, retry=IMPATIENT)
    with pytest.raises(ConcurrentWriteException, match="cannot be read yet"):
        txn.commit([add("a")], WRITE)


def test_attempts_are_bounded_and_counted(memory: Store) -> None:
    create(memory)
    number = iter(range(100))

    class AlwaysRaced(FilesystemOwner):
        def commit(self, version: int, data: bytes, **rest: Any) -> Outcome:
            append(memory, f"rival{next(number)}")
            return super().commit(version, data, **rest)

    retry = Retry(attempts=4, first_delay_s=0.0001)
    txn = OptimisticTransaction.begin(DeltaLog(memory), AlwaysRaced(memory), retry=retry)
    with pytest.raises(ConcurrentWriteException, match="all 4 attempts"):
        txn.commit([add("a")], WRITE)
    check_history(memory, failed=[txn.txn_id])


def test_in_commit_timestamps_increase_over_clocks_that_jump(store: Store) -> None:
    create(store, enableInCommitTimestamps="true")
    day = 86_400_000
    clocks = [10**12, 10**12 + day, 10**12 - day, 0, 10**12 + 2 * day, 10**12, 10**12]
    results = []
    for number, now in enumerate(clocks):
        late = begin(store, clock=lambda now=now: now)
        if number % 2:
            results.append(append(store, f"rival{number}", clock=lambda now=now: now))
        results.append(late.commit([add(f"f{number}")], WRITE))
    check_history(store, {r.txn_id: r.version for r in results})
    snapshot = DeltaLog(store).update()
    assert snapshot is not None
    assert snapshot.in_commit_timestamp == results[-1].timestamp_ms


def test_timestamps_switched_on_meanwhile_are_kept_up_by_a_transaction_that_began_before(store: Store) -> None:
    create(store)
    ours, theirs = begin(store, clock=lambda: 5), begin(store)
    theirs.update_metadata(metadata(enableInCommitTimestamps="true"))
    theirs.commit([], Operation(name="SET TBLPROPERTIES"))
    result = ours.commit([add("a")], WRITE)
    assert result.version == 2
    assert result.snapshot.in_commit_timestamp == result.timestamp_ms
    check_history(store, {ours.txn_id: 2, theirs.txn_id: 1})


def test_row_ids_never_overlap_over_a_rebase(store: Store) -> None:
    create(store, enableRowTracking="true")
    ours = begin(store)
    append(store, "theirs")
    result = ours.commit([add("ours"), add("ours2")], WRITE)
    files = result.snapshot.files.sort_by("baseRowId")
    assert files["path"].to_pylist() == ["theirs", "ours", "ours2"]
    assert files["baseRowId"].to_pylist() == [0, 1, 2]
    assert files["defaultRowCommitVersion"].to_pylist() == [1, 2, 2]
