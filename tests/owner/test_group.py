"""Commits of clients that know nothing of each other, ratified together."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from lakeseal.commit.owner import Committed
from lakeseal.commit.transaction import now_ms
from lakeseal.errors import AlreadyExists, InvalidArgument, PolicyRefused, VersionNotFound
from lakeseal.owner.group import Admitted
from lakeseal.owner.handover import release
from lakeseal.owner.ledger_owner import LedgerOwner
from lakeseal.owner.managed_owner import ManagedOwner
from lakeseal.owner.messages import Batch, CommitRequest, Ratified, Taken
from lakeseal.owner.policies import AppendOnly
from lakeseal.protocol.actions import Action, CommitInfo
from lakeseal.protocol.codec import encode
from lakeseal.protocol.paths import COMMITS_DIR, commit_path
from lakeseal.storage import Store, open_store
from lakeseal.testing.faults import Fault, FaultyStore, How
from lakeseal.testing.history import check_history
from lakeseal.testing.managed_tables import add, append, create, managed_log, paths, remove

FUTURE = now_ms() + 3_000_000


@pytest.fixture
def stores(tmp_path: Path) -> list[Store]:
    return [open_store(tmp_path / name) for name in "abc"]


@pytest.fixture
def owner(any_url: str, open_owner, stores: list[Store]) -> LedgerOwner:
    found: LedgerOwner = open_owner(any_url, backfills=False, trusting=False, batch_size=3)
    for store in stores:
        create(store, found)
    return found


def ask(owner: LedgerOwner, store: Store, version: int, txn: str, *actions: Action) -> CommitRequest:
    info = CommitInfo(operation="WRITE", txn_id=txn, in_commit_timestamp=FUTURE + version)
    data = encode([info, *(actions or (add(txn),))])
    return ManagedOwner(owner, store).request(version, data, txn_id=txn, in_commit_timestamp=FUTURE + version)


def together(owner: LedgerOwner, *requests: CommitRequest) -> list[str | None]:
    admitted = [one for request in requests if (one := owner.admit(request)) is not None]
    assert len(admitted) == len(requests)
    return ["ratified" if isinstance(a, Ratified) else a and "taken" for a in owner.ratify_together(admitted)]


def check(owner: LedgerOwner, stores: Sequence[Store], *names: list[str]) -> None:
    for store, expected in zip(stores, names, strict=True):
        log, _ = managed_log(owner, open_store(store.uri))
        assert paths(log) == expected
        owner.backfill(store.uri)
        check_history(store)


def test_commits_of_several_tables_and_two_that_follow_each_other_are_all_ratified(
    owner: LedgerOwner, stores: list[Store]
) -> None:
    a, b, c = stores
    requests = [ask(owner, a, 1, "a1"), ask(owner, b, 1, "b1"), ask(owner, a, 2, "a2"), ask(owner, c, 1, "c1")]
    assert together(owner, *requests) == ["ratified"] * 4
    assert together(owner, ask(owner, a, 3, "a3")) == ["ratified"]
    check(owner, stores, ["a1", "a2", "a3"], ["b1"], ["c1"])


def test_of_two_for_one_version_the_first_wins_and_the_other_is_told(owner: LedgerOwner, stores: list[Store]) -> None:
    a, b, _ = stores
    requests = [ask(owner, a, 1, "first"), ask(owner, a, 1, "second"), ask(owner, b, 1, "b1"), ask(owner, a, 2, "next")]
    assert together(owner, *requests) == ["ratified", "taken", "ratified", "ratified"]
    assert len(a.list_keys(COMMITS_DIR)) == 2, "the loser's file was never written"
    check(owner, stores, ["first", "next"], ["b1"], [])


def test_what_is_unusual_is_left_to_be_asked_for_alone_and_harms_no_other(
    owner: LedgerOwner, stores: list[Store]
) -> None:
    a, b, c = stores
    append(*managed_log(owner, a), "before")
    release(owner, c)
    gap, late = ask(owner, b, 5, "gap"), ask(owner, a, 1, "late")
    backwards = replace(ask(owner, b, 1, "b"), in_commit_timestamp=1)
    released, good = ask(owner, c, 2, "c"), ask(owner, a, 2, "good")
    group = [Admitted(request, is_placed=False) for request in (gap, late, backwards, released, good)]
    assert owner.ratify_together(group)[:4] == (None,) * 4
    assert isinstance(owner.ratify(Batch(commits=(late,))).commits[0], Taken)
    assert isinstance(owner.ratify(Batch(commits=(good,))).commits[0], Ratified)
    with pytest.raises(VersionNotFound):
        owner.ratify(Batch(commits=(gap,)))
    assert owner.get_commits(a.uri).latest == 2


def test_what_may_not_be_ratified_is_refused_before_it_meets_the_others(
    any_url: str, open_owner, stores: list[Store]
) -> None:
    owner: LedgerOwner = open_owner(any_url, backfills=False, trusting=False, policies=(AppendOnly(),))
    append(*create(stores[0], owner), "x")
    with pytest.raises(PolicyRefused, match="append-only"):
        owner.admit(ask(owner, stores[0], 2, "t", remove("x")))
    with pytest.raises(InvalidArgument, match="txnId"):
        owner.admit(replace(ask(owner, stores[0], 2, "t"), txn_id="another"))


def test_a_request_that_comes_again_gets_its_first_answer(owner: LedgerOwner, stores: list[Store]) -> None:
    a, b, _ = stores
    first, other = ask(owner, a, 1, "mine"), ask(owner, b, 1, "b1")
    # Twice in one group, and once more in the next.
    assert together(owner, first, first, other) == ["ratified", None, "ratified"]
    assert together(owner, first, ask(owner, b, 2, "b2")) == [None, "ratified"]
    answer = owner.ratify(Batch(commits=(first,))).commits[0]
    assert isinstance(answer, Ratified)
    check(owner, stores, ["mine"], ["b1", "b2"], [])


def test_a_transaction_that_has_a_version_gets_no_second_one_and_the_others_are_done_alone(
    owner: LedgerOwner, stores: list[Store]
) -> None:
    a, b, _ = stores
    assert together(owner, ask(owner, a, 1, "mine")) == ["ratified"]
    again, other = ask(owner, a, 2, "mine"), ask(owner, b, 1, "b1")
    assert together(owner, again, other) == [None, None]
    with pytest.raises(AlreadyExists):
        owner.ratify(Batch(commits=(again,)))
    assert isinstance(owner.ratify(Batch(commits=(other,))).commits[0], Ratified)
    check(owner, stores, ["mine"], ["b1"], [])


def test_a_table_that_another_process_moved_is_seen_anew(shared_url: str, open_owner, stores: list[Store]) -> None:
    ours, theirs = (open_owner(shared_url, backfills=False, batch_size=3) for _ in range(2))
    a, b = stores[:2]
    create(a, ours)
    create(b, ours)
    assert together(ours, ask(ours, a, 1, "a1"), ask(ours, b, 1, "b1")) == ["ratified"] * 2
    append(*managed_log(theirs, a), "theirs")
    # What is remembered of `a` is old: its commit is not ratified on that, and the other is.
    assert together(ours, ask(ours, a, 2, "lost"), ask(ours, b, 2, "b2")) == [None, "ratified"]
    assert not ours.admit(ask(ours, a, 3, "a3")), "where others were faster, files are written under the table's lock"
    assert isinstance(ours.ratify(Batch(commits=(ask(ours, a, 3, "a3"),))).commits[0], Ratified)
    release(theirs, b)
    assert together(ours, ask(ours, b, 4, "late")) == [None]
    check(ours, stores[:1], ["a1", "a3", "theirs"])


def test_a_file_that_cannot_be_written_keeps_no_other_from_being_ratified(
    owner: LedgerOwner, stores: list[Store]
) -> None:
    a, b, _ = stores
    owner.attach(FaultyStore(a, [Fault("put_if_absent", f"{COMMITS_DIR}*", How.FAIL)]))
    bad, good = ask(owner, a, 1, "a1"), ask(owner, b, 1, "b1")
    owner.attach(FaultyStore(a, [Fault("put_if_absent", f"{COMMITS_DIR}*", How.FAIL)]))
    assert together(owner, bad, good) == [None, "ratified"]
    assert isinstance(owner.ratify(Batch(commits=(bad,))).commits[0], Ratified)
    check(owner, stores, ["a1"], ["b1"], [])


def test_a_full_batch_calls_for_the_publisher_and_a_full_backlog_is_left_alone(
    any_url: str, open_owner, stores: list[Store]
) -> None:
    owner: LedgerOwner = open_owner(any_url, backfills=False, batch_size=2, most_unbackfilled=3)
    create(stores[0], owner)
    called: list[int] = []
    owner.when_full = lambda: called.append(1)
    assert together(owner, ask(owner, stores[0], 1, "1")) == ["ratified"]
    assert called == []
    assert together(owner, *(ask(owner, stores[0], v, str(v)) for v in (2, 3, 4))) == ["ratified", "ratified", None]
    assert called == [1]
    owner.backfill(stores[0].uri)
    assert together(owner, ask(owner, stores[0], 4, "4")) in (["ratified"], [None])
    assert together(owner, ask(owner, stores[0], 5, "5")) in (["ratified"], [None])


def test_files_that_a_power_cut_took_before_their_backfill_are_put_back_for_readers_and_for_the_log(
    shared_url: str, open_owner, stores: list[Store]
) -> None:
    owner: LedgerOwner = open_owner(shared_url, backfills=False, batch_size=100)
    a = stores[0]
    create(a, owner)
    managed = ManagedOwner(owner, a)
    for version in range(1, 5):
        request = ask(owner, a, version, f"t{version}")
        assert request.data is not None
        done = managed.commit(version, request.data, txn_id=f"t{version}", in_commit_timestamp=FUTURE + version)
        assert isinstance(done, Committed)
    staged = {int(key.removeprefix(COMMITS_DIR)[:20]): key for key in a.list_keys(COMMITS_DIR)}
    a.delete([staged[1]])
    size = a.head(staged[2]).size
    a.put(staged[2], b"")
    a.put(staged[3], bytes(size))

    after = open_owner(shared_url, backfills=False)
    assert paths(managed_log(after, open_store(a.uri))[0]) == ["t1", "t2", "t3", "t4"]

    a.put(staged[3], bytes(size))
    a.delete([staged[4]])
    assert open_owner(shared_url, backfills=False).backfill(a.uri).backfilled == 4
    assert os.path.exists(a.path(commit_path(4)))  # type: ignore[attr-defined]
    check_history(a)


def test_a_file_is_placed_once_its_commit_seems_to_be_next_and_a_loser_of_it_leaves_the_table_whole(
    owner: LedgerOwner, stores: list[Store]
) -> None:
    a, b, _ = stores
    assert together(owner, ask(owner, a, 1, "a1")) == ["ratified"]
    first, second, gap = ask(owner, a, 2, "first"), ask(owner, a, 2, "second"), ask(owner, a, 4, "gap")
    admitted = [owner.admit(request) for request in (first, second, gap, ask(owner, b, 1, "b1"))]
    assert [one and one.is_placed for one in admitted] == [True, False, False, False]
    assert first.key in a.list_keys(COMMITS_DIR)

    # Another one is ratified meanwhile, by itself.
    assert isinstance(owner.ratify(Batch(commits=(second,))).commits[0], Ratified)
    assert owner.ratify_together([one for one in admitted[:1] if one]) == (None,)
    assert isinstance(owner.ratify(Batch(commits=(first,))).commits[0], Taken)
    check(owner, stores[:1], ["a1", "second"])
    owner.forget(a.uri, grace_ms=-1)
    assert a.list_keys(COMMITS_DIR) == [], "the file of the one that lost goes with the others"
