"""Batches of clients that know nothing of each other, decided on in one transaction: each as if it had come alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from lakeseal.clock import now_ms
from lakeseal.errors import AlreadyExists, ConcurrentWriteException, LakesealError
from lakeseal.ledger.schema import watermarks
from lakeseal.owner.handover import release
from lakeseal.owner.ledger_owner import LedgerOwner
from lakeseal.owner.managed_owner import ManagedOwner
from lakeseal.owner.messages import Batch, CommitRequest, Guard, LedgerRecord, Ratified, Taken, Undecided
from lakeseal.owner.ownership import StepRefusal
from lakeseal.owner.ratification import Asked, Decided, Decision, Denied
from lakeseal.protocol.actions import CommitInfo
from lakeseal.protocol.codec import encode
from lakeseal.storage import Store, open_store
from models.history import check_history
from support.crashes import CrashingLedger, Effects
from support.managed_tables import add, append, create, managed_log, paths

FUTURE = now_ms() + 3_000_000


@pytest.fixture
def stores(tmp_path: Path) -> list[Store]:
    return [open_store(tmp_path / name) for name in "abc"]


@pytest.fixture
def owner(any_url: str, open_owner, stores: list[Store]) -> LedgerOwner:
    found: LedgerOwner = open_owner(any_url, backfills=False, batch_size=3, most_unbackfilled=5)
    for store in stores:
        create(store, found)
    return found


def ask(owner: LedgerOwner, store: Store, version: int, txn: str) -> CommitRequest:
    info = CommitInfo(operation="WRITE", txn_id=txn, in_commit_timestamp=FUTURE + version)
    data = encode([info, add(txn)])
    return ManagedOwner(owner, store).request(version, data, txn_id=txn, in_commit_timestamp=FUTURE + version)


def together(owner: LedgerOwner, *asked: CommitRequest | Batch) -> list[Decision | LakesealError]:
    batches = [one if isinstance(one, Batch) else Batch(commits=(one,)) for one in asked]
    return owner.ratification.decide([Asked(batch=batch) for batch in batches])


def said(decisions: Sequence[Decision | LakesealError]) -> list[object]:
    return [
        tuple(type(answer).__name__ for answer in one.answer.commits)
        if isinstance(one, Decided)
        else one.verdict
        if isinstance(one, Denied)
        else type(one).__name__
        for one in decisions
    ]


WON, LOST = ("Ratified",), ("Taken",)


def check(owner: LedgerOwner, stores: Sequence[Store], *names: list[str]) -> None:
    for store, expected in zip(stores, names, strict=True):
        assert paths(managed_log(owner, open_store(store.uri))[0]) == expected
        owner.backfill(store.uri)
        check_history(store)


def test_commits_of_several_tables_and_two_that_follow_each_other_are_one_transaction(
    any_url: str, open_owner, stores: list[Store]
) -> None:
    a, b, c = stores
    effects = Effects()
    plain = open_owner(any_url, backfills=False)
    owner = LedgerOwner(CrashingLedger(plain.ledger, effects), backfills=False)  # type: ignore[arg-type]
    for store in stores:
        create(store, owner)
    requests = [ask(owner, a, 1, "a1"), ask(owner, b, 1, "b1"), ask(owner, a, 2, "a2"), ask(owner, c, 1, "c1")]
    before = effects.count
    assert said(together(owner, *requests)) == [WON] * 4
    assert effects.count == before + 1
    check(owner, stores, ["a1", "a2"], ["b1"], ["c1"])


def test_of_two_for_one_version_the_first_wins_and_the_other_is_told(owner: LedgerOwner, stores: list[Store]) -> None:
    a, b, _ = stores
    requests = [ask(owner, a, 1, "first"), ask(owner, a, 1, "second"), ask(owner, b, 1, "b1"), ask(owner, a, 2, "next")]
    assert said(together(owner, *requests)) == [WON, LOST, WON, WON]
    check(owner, stores, ["first", "next"], ["b1"], [])


def test_what_stands_in_the_way_of_one_harms_no_other(owner: LedgerOwner, stores: list[Store]) -> None:
    a, b, c = stores
    append(*managed_log(owner, a), "before")
    late_for_c = ask(owner, c, 2, "c")
    release(owner, c)
    decisions = together(
        owner,
        ask(owner, b, 5, "gap"),
        ask(owner, a, 1, "late"),
        replace(ask(owner, b, 1, "b"), in_commit_timestamp=1),
        late_for_c,
        ask(owner, a, 2, "good"),
    )
    assert said(decisions) == [StepRefusal.GAP, LOST, StepRefusal.BACKWARDS, StepRefusal.NOT_OWNED, WON]
    assert paths(managed_log(owner, a)[0]) == ["before", "good"]


def test_a_request_that_comes_again_gets_its_first_answer(owner: LedgerOwner, stores: list[Store]) -> None:
    a, b, _ = stores
    first, other = ask(owner, a, 1, "mine"), ask(owner, b, 1, "b1")
    decisions = together(owner, first, first, other)
    assert said(decisions) == [WON] * 3
    (again, _) = together(owner, first, ask(owner, b, 2, "b2"))
    assert isinstance(again, Decided)
    assert isinstance(decisions[0], Decided)
    assert again.answer == decisions[0].answer
    check(owner, stores, ["mine"], ["b1", "b2"], [])


def test_a_transaction_that_has_a_version_gets_no_second_one_and_the_others_get_theirs(
    owner: LedgerOwner, stores: list[Store]
) -> None:
    a, b, _ = stores
    together(owner, ask(owner, a, 1, "mine"))
    decisions = together(owner, ask(owner, a, 2, "mine"), ask(owner, b, 1, "b1"))
    assert said(decisions) == ["AlreadyExists", WON]
    assert isinstance(decisions[0], AlreadyExists)
    assert "is version 1 already" in decisions[0].message
    assert said(together(owner, ask(owner, b, 2, "b2"), ask(owner, b, 3, "b2"))) == [WON, "AlreadyExists"]
    check(owner, stores, ["mine"], ["b1", "b2"], [])


def test_batches_of_several_tables_are_whole_or_not_there_among_single_ones(
    owner: LedgerOwner, stores: list[Store]
) -> None:
    a, b, c = stores
    pair = Batch(commits=(ask(owner, a, 2, "pair"), ask(owner, b, 1, "pair")))
    clash = Batch(commits=(ask(owner, b, 1, "clash"), ask(owner, c, 1, "clash")))
    decisions = together(owner, ask(owner, a, 1, "a1"), pair, clash, ask(owner, c, 1, "c1"))
    assert said(decisions) == [WON, ("Ratified", "Ratified"), ("Taken", "Undecided"), WON]
    check(owner, stores, ["a1", "pair"], ["pair"], ["c1"])


def test_a_guard_sees_what_those_before_it_in_the_group_have_done(owner: LedgerOwner, stores: list[Store]) -> None:
    a, b, c = stores
    epoch = owner.get_commits(a.uri).epoch
    held = Batch(commits=(ask(owner, b, 1, "held"),), guards=(Guard(table=a.uri, version=0, epoch=epoch),))
    broken = Batch(commits=(ask(owner, c, 1, "broken"),), guards=(Guard(table=a.uri, version=0, epoch=epoch),))
    decisions = together(owner, held, ask(owner, a, 1, "a1"), broken)
    assert said(decisions) == [WON, WON, ("Undecided",)]
    assert isinstance(decisions[2], Decided)
    assert decisions[2].answer.guards == (Taken(table=a.uri, version=1),)
    assert isinstance(decisions[2].answer.commits[0], Undecided)
    check(owner, stores, ["a1"], ["held"], [])


def test_a_record_that_is_not_as_expected_takes_only_its_own_batch_along(
    owner: LedgerOwner, stores: list[Store]
) -> None:
    a, b, c = stores

    def moving(request: CommitRequest, expected: int | None, to: int) -> Batch:
        record = LedgerRecord(
            table=watermarks.name,
            key={"pipeline": "p", "dataset": "d", "partition": "0"},
            values={"value": to, "epoch": 1, "updated": 1},
            expected=None if expected is None else {"value": expected},
            insert=expected is None,
        )
        return Batch(commits=(request,), records=(record,))

    first, wrong = moving(ask(owner, a, 1, "a1"), None, 1), moving(ask(owner, b, 1, "b1"), 7, 8)
    decisions = together(owner, first, wrong, ask(owner, c, 1, "c1"))
    assert said(decisions) == [WON, "ConcurrentWriteException", WON]
    assert isinstance(decisions[1], ConcurrentWriteException)
    assert said(together(owner, moving(ask(owner, b, 1, "b1"), 1, 2))) == [WON]
    check(owner, stores, ["a1"], ["b1"], ["c1"])


def test_a_full_backlog_stands_in_the_way_of_those_that_come_on_top_of_it(
    owner: LedgerOwner, stores: list[Store]
) -> None:
    a, b, _ = stores
    asked = [ask(owner, a, version, str(version)) for version in range(1, 8)]
    decisions = together(owner, *asked, ask(owner, b, 1, "b1"))
    assert said(decisions) == [WON] * 5 + [StepRefusal.NOT_BACKFILLED, StepRefusal.GAP, WON]
    check(owner, stores[:1], list("12345"))


def test_a_group_that_another_process_was_faster_than_is_decided_on_what_is(
    shared_url: str, open_owner, stores: list[Store]
) -> None:
    ours, theirs = (open_owner(shared_url, backfills=False) for _ in range(2))
    a, b = stores[:2]
    create(a, ours)
    create(b, ours)
    append(*managed_log(theirs, a), "theirs")
    assert said(together(ours, ask(ours, a, 1, "lost"), ask(ours, b, 1, "b1"))) == [LOST, WON]
    assert said(together(ours, ask(ours, a, 2, "a2"))) == [WON]
    check(ours, stores[:2], ["a2", "theirs"], ["b1"])


def test_a_full_batch_calls_for_the_publisher(owner: LedgerOwner, stores: list[Store]) -> None:
    called: list[int] = []
    owner.when_full = lambda: called.append(1)
    for version in (1, 2, 3):
        answer = owner.ratify(Batch(commits=(ask(owner, stores[0], version, str(version)),))).commits[0]
        assert isinstance(answer, Ratified)
    assert called == [1]
