"""Take-over and release: each sentence of the seed, each step cut off, everything that races with it."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from lakeseal.commit.attempts import Retry
from lakeseal.commit.filesystem_owner import FilesystemOwner
from lakeseal.commit.transaction import OptimisticTransaction
from lakeseal.errors import (
    AlreadyExists,
    LakesealError,
    OwnedElsewhere,
    PolicyRefused,
    ReleaseUnderway,
    StorageUnavailable,
    TableNotFound,
)
from lakeseal.log.checkpoint_writer import write_checkpoint
from lakeseal.log.delta_log import DeltaLog
from lakeseal.owner.handover import finish_release, release, take_over
from lakeseal.owner.ledger_owner import LedgerOwner
from lakeseal.owner.managed_owner import ManagedOwner
from lakeseal.owner.messages import Batch
from lakeseal.owner.ownership import State
from lakeseal.owner.policies import AllowedPrincipals
from lakeseal.owner.publisher import advance, recover
from lakeseal.owner.routing import Router
from lakeseal.protocol.actions import CommitInfo
from lakeseal.protocol.codec import encode
from lakeseal.protocol.paths import LOG_DIR, commit_path
from lakeseal.storage import Store, open_store
from lakeseal.testing.faults import Fault, FaultyStore, How
from models.history import check_history
from support.managed_tables import WRITE, add, append, create, managed_log, newest, paths

ON_S3 = True

QUICK = Retry(deadline_s=20, first_doubt_s=0.001, longest_doubt_s=0.01)


def state(owner: LedgerOwner, store: Store) -> State:
    return owner.get_commits(store.uri).state


def test_a_table_goes_to_an_owner_and_back_with_everything_that_was_written(
    any_url: str, open_owner, memory: Store
) -> None:
    owner = open_owner(any_url, batch_size=100)
    log, files = create(memory)
    append(log, files, "before")
    assert take_over(owner, memory) == 2
    snapshot = DeltaLog(memory).update()
    assert snapshot is not None
    assert snapshot.properties.managed_commit_owner_name == "lakeseal"
    assert {"managedCommits", "inCommitTimestamp"} <= set(snapshot.protocol.writer_features or ())
    assert snapshot.properties.in_commit_timestamp_enablement_version == 2
    log, managed = managed_log(owner, memory)
    for name in ("one", "two"):
        append(log, managed, name)
    assert newest(memory) == 2
    assert release(owner, memory) == 5
    freed = DeltaLog(memory).update()
    assert freed is not None
    assert freed.properties.managed_commit_owner_name is None
    assert "managedCommits" not in (freed.protocol.writer_features or ())
    assert state(owner, memory) is State.NONE
    append(DeltaLog(memory), FilesystemOwner(memory), "after")
    assert paths(DeltaLog(memory)) == ["after", "before", "one", "two"]
    check_history(memory)


def test_the_take_over_takes_effect_only_by_put_if_absent_of_its_backfilled_file(
    owner: LedgerOwner, memory: Store
) -> None:
    create(memory)
    owner.attach(memory)
    told = owner.begin_takeover(memory.uri, "id-1", 1)
    assert told.state is State.PENDING
    assert owner.confirm_takeover(memory.uri, "id-1").state is State.PENDING, "a word is not a file"
    append(DeltaLog(memory), FilesystemOwner(memory), "still on the file system")
    assert owner.confirm_takeover(memory.uri, "id-1").state is State.NONE


def test_the_owner_must_not_refuse_after_the_backfill_succeeded(owner: LedgerOwner, memory: Store) -> None:
    create(memory)
    cut_off(owner, memory, "confirm_takeover", take_over)
    assert state(owner, memory) is State.PENDING
    log, managed = managed_log(owner, memory)
    assert append(log, managed, "a").version == 2
    assert state(owner, memory) is State.ACTIVE


class CutOff:
    """An owner that can be reached up to one call, and then no more."""

    def __init__(self, owner: LedgerOwner, call: str) -> None:
        self._owner, self._call = owner, call

    def __getattr__(self, name: str) -> object:
        if name == self._call:
            raise KeyboardInterrupt
        return getattr(self._owner, name)


def cut_off(owner: LedgerOwner, store: Store, call: str, do: Callable[..., object]) -> None:
    with pytest.raises(KeyboardInterrupt):
        do(CutOff(owner, call), store)


@pytest.mark.parametrize("who", ["recover", "first commit", "another take-over", "release"])
def test_a_crash_between_the_file_and_the_confirmation_is_settled_by_whoever_comes_next(
    owner: LedgerOwner, memory: Store, who: str
) -> None:
    create(memory)
    cut_off(owner, memory, "confirm_takeover", take_over)
    match who:
        case "recover":
            assert not recover(owner).failed
        case "first commit":
            append(*managed_log(owner, memory), "a")
        case "another take-over":
            with pytest.raises(AlreadyExists):
                take_over(owner, memory)
        case "release":
            assert release(owner, memory) == 2
            assert state(owner, memory) is State.NONE
            return
    assert state(owner, memory) is State.ACTIVE


def test_a_crash_before_the_file_leaves_a_promise_that_stops_nobody(owner: LedgerOwner, memory: Store) -> None:
    create(memory)
    owner.attach(memory)
    owner.begin_takeover(memory.uri, "dead", 1)
    assert recover(owner).tables == 1
    assert state(owner, memory) is State.PENDING, "its put may still be on its way"
    append(DeltaLog(memory), FilesystemOwner(memory), "a")
    assert take_over(owner, memory) == 2
    append(*managed_log(owner, memory), "b")


def test_a_promise_of_a_dead_client_is_kept_if_its_file_arrives_late(owner: LedgerOwner, memory: Store) -> None:
    create(memory)
    late = FaultyStore(memory, [Fault("put_if_absent", commit_path(1), How.LAND_LATE, later=10**9)])
    with pytest.raises(LakesealError):
        take_over(owner, late, retry=Retry(deadline_s=0))
    owner.attach(memory)
    owner.begin_takeover(memory.uri, "rival", 1)
    late.settle()
    assert recover(owner).failed == {}
    assert state(owner, memory) is State.ACTIVE
    append(*managed_log(owner, memory), "a")


def test_a_confirmation_that_comes_late_after_a_release_changes_nothing(owner: LedgerOwner, memory: Store) -> None:
    create(memory)
    seen: list[str] = []

    class Spy:
        def __getattr__(self, name: str) -> object:
            found = getattr(owner, name)
            if name == "confirm_takeover":
                return lambda table, takeover_id: seen.append(takeover_id) or found(table, takeover_id)
            return found

    take_over(Spy(), memory)  # type: ignore[arg-type]
    release(owner, memory)
    assert owner.confirm_takeover(memory.uri, seen[0]).state is State.NONE
    owner.begin_takeover(memory.uri, "new", 3)
    assert owner.confirm_takeover(memory.uri, seen[0]).state is State.PENDING
    assert owner.withdraw_takeover(memory.uri, seen[0]).state is State.PENDING
    assert owner.withdraw_takeover(memory.uri, "new").state is State.NONE


def test_a_file_system_writer_that_is_faster_wins_and_the_take_over_comes_after_it(
    owner: LedgerOwner, memory: Store
) -> None:
    create(memory)
    raced = []

    class Racing(FaultyStore):
        def put_if_absent(self, key: str, data: bytes) -> bool:
            if key == commit_path(1) and not raced:
                raced.append(append(DeltaLog(memory), FilesystemOwner(memory), "faster").version)
            return super().put_if_absent(key, data)

    assert take_over(owner, Racing(memory)) == 2
    assert raced == [1]
    assert state(owner, memory) is State.ACTIVE
    check_history(memory)


def test_a_file_system_writer_that_is_slower_sees_the_change_and_is_routed_to_the_owner(
    owner: LedgerOwner, memory: Store
) -> None:
    create(memory)
    slow = OptimisticTransaction.begin(DeltaLog(memory), FilesystemOwner(memory))
    take_over(owner, memory)
    with pytest.raises(OwnedElsewhere, match="the file system to lakeseal"):
        slow.commit([add("slow")], WRITE)
    assert paths(managed_log(owner, memory)[0]) == []

    fresh = open_store(memory.uri + "-2")
    create(fresh)
    router = Router(fresh, {owner.name: owner})
    taken = []

    def write(route) -> int:
        txn = OptimisticTransaction.begin(route.log, route.owner)
        if not taken:
            taken.append(take_over(owner, fresh))
        return txn.commit([add("routed")], WRITE).version

    assert router.run(write) == 2
    assert paths(managed_log(owner, fresh)[0]) == ["routed"]


def test_a_managed_writer_that_meets_a_release_is_routed_to_the_file_system(owner: LedgerOwner, memory: Store) -> None:
    create(memory, owner)
    router = Router(memory, {owner.name: owner})
    released = []

    def write(route) -> int:
        txn = OptimisticTransaction.begin(route.log, route.owner)
        if not released:
            released.append(release(owner, memory))
        return txn.commit([add("routed")], WRITE).version

    assert router.run(write) == 2
    assert newest(memory) == 2


def test_a_writer_follows_a_table_that_was_released_and_taken_over_again(owner: LedgerOwner, memory: Store) -> None:
    create(memory, owner)
    router = Router(memory, {owner.name: owner})
    moves = []

    def write(route) -> int:
        txn = OptimisticTransaction.begin(route.log, route.owner)
        if not moves:
            moves.extend([release(owner, memory), take_over(owner, memory)])
        return txn.commit([add("routed")], WRITE).version

    assert router.run(write) == 3
    assert paths(managed_log(owner, memory)[0]) == ["routed"]


def test_a_reader_follows_a_table_from_owner_to_owner(open_owner, memory: Store) -> None:
    one, two = open_owner(name="one", batch_size=100), open_owner(name="two", batch_size=100)
    create(memory)
    reader = Router(memory, {"one": one, "two": two})
    for owner in (one, two, one):
        take_over(owner, memory)
        append(*managed_log(owner, memory), f"by-{owner.name}-{newest(memory)}")
        snapshot = reader.snapshot()
        assert snapshot is not None
        assert snapshot.version == newest(memory, owner)
        release(owner, memory)
        snapshot = reader.snapshot()
        assert snapshot is not None
        assert snapshot.properties.managed_commit_owner_name is None
    assert len(paths(DeltaLog(memory))) == 3


def test_two_owners_that_want_one_table_one_gets_it(open_owner, memory: Store) -> None:
    one, two = open_owner(name="one"), open_owner(name="two")
    create(memory)
    owner_of_it: list[str] = []
    start = threading.Barrier(2)

    def race(owner: LedgerOwner) -> None:
        start.wait()
        try:
            take_over(owner, memory)
            owner_of_it.append(owner.name)
        except OwnedElsewhere:
            pass

    threads = [threading.Thread(target=race, args=(owner,)) for owner in (one, two)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    snapshot = DeltaLog(memory).update()
    assert snapshot is not None
    assert [snapshot.properties.managed_commit_owner_name] == owner_of_it
    assert sorted([state(one, memory), state(two, memory)]) == [State.ACTIVE, State.NONE]


def test_an_owner_cannot_take_what_is_not_there_or_another_has(open_owner, memory: Store) -> None:
    one, two = open_owner(name="one"), open_owner(name="two")
    with pytest.raises(TableNotFound):
        take_over(one, memory)
    create(memory, one)
    with pytest.raises(OwnedElsewhere, match="owned by 'one'"):
        take_over(two, memory)
    with pytest.raises(AlreadyExists):
        take_over(one, memory)
    with pytest.raises(OwnedElsewhere, match="cannot release"):
        release(two, memory)
    stranger = open_owner(name="one")
    with pytest.raises(OwnedElsewhere):
        append(*managed_log(stranger, memory), "x")
    with pytest.raises(OwnedElsewhere):
        take_over(stranger, memory)


def test_a_release_needs_everything_backfilled_and_accepts_nothing_new(owner: LedgerOwner, memory: Store) -> None:
    log, managed = create(memory, owner)
    for name in "abc":
        append(log, managed, name)
    owner.begin_release(memory.uri, "r1")
    with pytest.raises(ReleaseUnderway):
        owner.ratify(_next(owner, memory))
    told = owner.get_commits(memory.uri)
    assert (told.state, told.latest, told.change_version, told.change_id) == (State.RELEASING, 3, 4, "r1")
    assert owner.finish_release(memory.uri).state is State.RELEASING, "its commit is not there yet"
    assert owner.begin_release(memory.uri, "r2").change_id == "r1", "joined"
    finish_release(owner, memory)
    assert state(owner, memory) is State.NONE
    assert newest(memory) == 4
    check_history(memory)


def _next(owner: LedgerOwner, store: Store):
    told = owner.get_commits(store.uri)
    data = encode([CommitInfo(txn_id="t", in_commit_timestamp=10**15)])
    request = ManagedOwner(owner, store).request(told.latest + 1, data, txn_id="t", in_commit_timestamp=10**15)
    return Batch(commits=(request,))


def test_field_bug_15_a_client_can_finish_a_release_whose_backfill_failed(owner: LedgerOwner, memory: Store) -> None:
    log, managed = create(memory, owner)
    for name in "abc":
        append(log, managed, name)
    owner.attach(FaultyStore(memory, [Fault("put_if_absent", f"{LOG_DIR}0*", How.FAIL, times=10**9)]))
    owner.begin_release(memory.uri, "r1")
    with pytest.raises(StorageUnavailable):
        owner.finish_release(memory.uri)

    class Elsewhere:
        """The owner keeps its own way to the files, which is broken for writing."""

        def attach(self, store: Store) -> str:
            return store.uri

        def __getattr__(self, name: str) -> object:
            return getattr(owner, name)

    finish_release(Elsewhere(), memory)  # type: ignore[arg-type]
    assert state(owner, memory) is State.NONE
    append(DeltaLog(memory), FilesystemOwner(memory), "d")
    assert paths(DeltaLog(memory)) == list("abcd")
    check_history(memory)


@pytest.mark.parametrize("call", ["backfill", "finish_release"])
@pytest.mark.parametrize("who", ["recover", "a writer", "another release", "a take-over"])
def test_a_release_that_was_cut_off_is_finished_by_whoever_comes_next(
    owner: LedgerOwner, memory: Store, call: str, who: str
) -> None:
    log, managed = create(memory, owner)
    for name in "abc":
        append(log, managed, name)
    cut_off(owner, memory, call, release)
    assert state(owner, memory) is State.RELEASING
    match who:
        case "recover":
            assert not recover(owner).failed
        case "a writer":
            # Where the log already says that nobody owns the table, nobody asks the owner, who finds out by itself.
            with pytest.raises(OwnedElsewhere, match=r"has released this table|go to its log"):
                append(*managed_log(owner, memory), "d")
            assert not recover(owner).failed
        case "another release":
            assert release(owner, memory) == 4
        case "a take-over":
            if call == "backfill":
                with pytest.raises(ReleaseUnderway, match="is releasing"):
                    take_over(owner, memory)
                finish_release(owner, memory)
            assert take_over(owner, memory) == 5
            check_history(memory)
            return
    assert state(owner, memory) is State.NONE
    assert newest(memory) == 4
    check_history(memory)


def test_of_many_who_release_at_once_all_meet_the_same_release(open_owner, sqlite_url: str, local: Store) -> None:
    owners = [open_owner(sqlite_url, batch_size=100) for _ in range(4)]
    log, managed = create(local, owners[0])
    for name in "abc":
        append(log, managed, name)
    outcomes: list[object] = []

    def race(owner: LedgerOwner) -> None:
        try:
            outcomes.append(release(owner, local))
        except BaseException as error:
            outcomes.append(error)

    threads = [threading.Thread(target=race, args=(owner,)) for owner in owners]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 4 in outcomes
    assert all(outcome == 4 or isinstance(outcome, OwnedElsewhere) for outcome in outcomes), outcomes
    check_history(local)


@pytest.mark.parametrize("is_taken_again", [False, True])
def test_a_release_that_somebody_else_finishes_before_its_version_is_told(
    open_owner, sqlite_url: str, local: Store, monkeypatch: pytest.MonkeyPatch, is_taken_again: bool
) -> None:
    slow, quick = open_owner(sqlite_url), open_owner(sqlite_url)
    append(*create(local, slow), "a")
    step = slow.book.step

    def then_others(table: str, change: Any) -> Any:
        verdict = step(table, change)
        if quick.get_commits(table).state is State.RELEASING:
            monkeypatch.undo()
            assert release(quick, local) == 2
            if is_taken_again:
                take_over(quick, local)
        return verdict

    monkeypatch.setattr(slow.book, "step", then_others)
    if is_taken_again:
        with pytest.raises(OwnedElsewhere, match="has an owner again"):
            release(slow, local)
    else:
        assert release(slow, local) == 2
    check_history(local)


def test_an_owner_need_not_give_up_a_table(open_owner, memory: Store) -> None:
    owner = open_owner(policies=[AllowedPrincipals(principals=frozenset({"admin"}))], principal="admin")
    create(memory, owner)
    with pytest.raises(PolicyRefused, match="allowed-principals"):
        owner.begin_release(memory.uri, "r", principal="guest")
    assert state(owner, memory) is State.ACTIVE
    other = open_store(memory.uri + "-2")
    create(other)
    owner.attach(other)
    with pytest.raises(PolicyRefused, match="take-over"):
        owner.begin_takeover(other.uri, "t", 1, principal="guest")
    assert state(owner, other) is State.NONE


@pytest.mark.parametrize("trusting", [True, False])
def test_who_may_not_commit_creates_takes_over_and_releases_nothing_and_leaves_nothing(
    open_owner, memory: Store, trusting: bool
) -> None:
    policies = [AllowedPrincipals(principals=frozenset({"admin"}))]
    guest = open_owner(policies=policies, principal="guest", trusting=trusting)
    admin = LedgerOwner(guest.ledger, policies=policies, principal="admin", trusting=trusting)
    plain, owned, new = (open_store(f"{memory.uri}-{name}") for name in ("plain", "owned", "new"))
    create(plain)
    create(owned, admin)
    states = (State.NONE, State.ACTIVE, State.NONE)

    def seen() -> list[object]:
        stores = (plain, owned, new)
        return [([one.key for one in store.list("", recursive=True)], state(admin, store)) for store in stores]

    before = seen()
    assert tuple(one[1] for one in before) == states  # type: ignore[index]
    for doing in (lambda: create(new, guest), lambda: take_over(guest, plain), lambda: release(guest, owned)):
        with pytest.raises(PolicyRefused, match=r"allowed-principals refuses .*guest may not"):
            doing()
        assert seen() == before
    create(new, admin)
    assert state(admin, new) is State.ACTIVE


def test_a_commit_whose_reply_was_lost_before_a_release_is_still_answered(owner: LedgerOwner, memory: Store) -> None:
    create(memory, owner)
    batch = _next(owner, memory)
    owner.ratify(batch)
    release(owner, memory)
    assert owner.ratify(batch).commits[0].version == 1
    take_over(owner, memory)
    assert owner.ratify(batch).commits[0].version == 1


@pytest.mark.parametrize("how", [How.LOSE_REPLY, How.FAIL, How.LAND_LATE])
@pytest.mark.parametrize("nth", range(1, 5))
def test_lost_replies_of_the_store_do_not_harm_take_over_and_release(
    owner: LedgerOwner, memory: Store, how: How, nth: int
) -> None:
    create(memory)
    faulty = FaultyStore(memory, [Fault("put_if_absent", how=how, nth=nth, later=2)])
    take_over(owner, faulty, retry=QUICK)
    log, managed = managed_log(owner, memory)
    append(log, managed, "a")
    append(log, managed, "b")
    release(owner, faulty, retry=QUICK)
    faulty.settle()
    assert state(owner, memory) is State.NONE
    assert newest(memory) == 4
    check_history(memory)


class _Restless:
    """Writers that follow a table while it changes hands."""

    def __init__(self, store: Store, owners: dict[str, LedgerOwner], rest_s: float) -> None:
        self.store, self.owners, self.rest_s = store, owners, rest_s
        self.acknowledged: dict[str, int] = {}
        self.errors: list[BaseException] = []
        self.done = threading.Event()

    def write(self, name: str) -> None:
        router = Router(self.store, dict(self.owners))
        number = 0
        try:
            while not self.done.is_set():
                number += 1

                def once(route, path=f"{name}-{number}"):
                    return OptimisticTransaction.begin(route.log, route.owner).commit([add(path)], WRITE)

                result = router.run(once)
                self.acknowledged[result.txn_id] = result.version
                time.sleep(self.rest_s)
        except BaseException as error:
            self.errors.append(error)

    def change_hands(self, cycles: int) -> None:
        dice = random.Random(cycles)
        try:
            for cycle in range(cycles):
                owner = dice.choice(list(self.owners.values()))
                take_over(owner, self.store)
                if dice.random() < 0.5:
                    owner.backfill(self.store.uri)
                version = release(owner, self.store)
                if cycle % 10 == 0:
                    write_checkpoint(DeltaLog(self.store), version, now_ms=0)
        except BaseException as error:
            self.errors.append(error)
        finally:
            self.done.set()


def _cycles(store: Store, owners: dict[str, LedgerOwner], *, cycles: int, writers: int, rest_s: float = 0.005) -> None:
    create(store)
    game = _Restless(store, owners, rest_s)
    threads = [threading.Thread(target=game.write, args=(f"w{number}",)) for number in range(writers)]
    threads.append(threading.Thread(target=game.change_hands, args=(cycles,)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not game.errors, game.errors[0]
    assert game.acknowledged
    commits = check_history(store, game.acknowledged)
    assert len(commits) == 1 + 2 * cycles + len(game.acknowledged), "nothing was lost, nothing came twice"
    assert all(state(owner, store) is State.NONE for owner in owners.values())
    assert max(owner.book.row(store.uri).epoch for owner in owners.values()) > 0


def test_20_take_over_and_release_cycles_under_writers(open_owner, memory: Store) -> None:
    owners = {name: open_owner(name=name, batch_size=3) for name in ("one", "two")}
    # Calls over a network take their time.
    _cycles(memory, owners, cycles=20 if memory.uri.startswith("memory:") else 5, writers=3)


@pytest.mark.stress
@pytest.mark.timeout(3600)
def test_1000_take_over_and_release_cycles_under_writers(open_owner, url: str, memory: Store) -> None:
    owners = {"one": open_owner(url, name="one", batch_size=3), "two": open_owner(name="two", batch_size=3)}
    # With time to rest, so that the log does not grow to a hundred thousand commits meanwhile.
    _cycles(memory, owners, cycles=1000, writers=4, rest_s=0.05)


def test_row_tracking_and_other_features_survive_a_take_over_and_a_release(owner: LedgerOwner, memory: Store) -> None:
    log, files = create(memory, enableRowTracking="true", appendOnly="true")
    numbered = msgspec.structs.replace(add("a"), stats='{"numRecords":3}')
    OptimisticTransaction.begin(log, files).commit([numbered], WRITE)
    before = DeltaLog(memory).update()
    take_over(owner, memory)
    log, managed = managed_log(owner, memory)
    OptimisticTransaction.begin(log, managed).commit([msgspec.structs.replace(numbered, path="b")], WRITE)
    release(owner, memory)
    after = DeltaLog(memory).update()
    assert before is not None
    assert after is not None
    assert set(before.protocol.writer_features or ()) <= set(after.protocol.writer_features or ())
    assert after.files.sort_by("path")["baseRowId"].to_pylist() == [0, 3]
    assert {k: v for k, v in before.metadata.configuration.items() if k in after.metadata.configuration} == dict(
        before.metadata.configuration
    )


def test_advance_leaves_a_table_that_has_nothing_to_do_alone(owner: LedgerOwner, memory: Store) -> None:
    create(memory, owner)
    before = owner.get_commits(memory.uri)
    advance(owner, memory.uri)
    assert owner.get_commits(memory.uri) == before
