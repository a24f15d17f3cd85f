"""What is remembered of ratified commits is what the ledger has of them, and never more than it may be."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from lakeseal import ledger
from lakeseal.ledger import Ledger
from lakeseal.owner import rows
from lakeseal.owner.group import Admitted
from lakeseal.owner.ledger_owner import LedgerOwner
from lakeseal.owner.messages import CommitRequest, Ratified, file_name
from lakeseal.owner.recent import Recent
from lakeseal.storage import open_store
from lakeseal.testing.managed_tables import create


def request(version: int, *, table: str = "memory://t", epoch: int = 0, data: bytes = b"{}\n") -> CommitRequest:
    return CommitRequest(
        table=table,
        version=version,
        txn_id=uuid.uuid4().hex,
        file=file_name(version, str(uuid.uuid4())),
        size=len(data),
        in_commit_timestamp=10**13 + version,
        epoch=epoch,
        data=data,
    )


def test_what_was_added_is_found_whole_or_not_at_all() -> None:
    recent = Recent()
    first, second, other = request(1), request(2), request(4)
    recent.add([first, second])
    recent.add([other])
    assert recent.found("memory://t", 0, range(1, 3)) == [first, second]
    assert recent.found("memory://t", 0, range(2, 3)) == [second]
    assert recent.found("memory://t", 0, range(1, 5)) is None  # 3 is not here
    assert recent.found("memory://t", 1, range(1, 3)) is None  # another life of the table
    assert recent.found("memory://u", 0, range(1, 3)) is None


def test_what_is_backfilled_is_forgotten() -> None:
    recent = Recent()
    recent.add([request(version) for version in range(1, 5)])
    recent.forget("memory://t", 0, 2)
    recent.forget("memory://t", 1, 4)
    assert recent.found("memory://t", 0, range(2, 5)) is None
    assert len(recent.found("memory://t", 0, range(3, 5)) or ()) == 2


def test_it_stays_small_where_nobody_backfills() -> None:
    recent = Recent(most_bytes=100_000)
    for version in range(1, 1000):
        recent.add([request(version, data=b"x" * 1000)])
        assert sum(len(kept) for kept in recent._commits.values()) <= 50
    newest = recent.found("memory://t", 0, range(999, 1000))
    assert newest is not None
    # What was forgotten is no longer counted.
    recent.forget("memory://t", 0, 999)
    assert recent._bytes == 0
    assert not recent._commits


def test_it_is_what_the_ledger_has(tmp_path: Path) -> None:
    owner = LedgerOwner(ledger.open("sqlite://"), backfills=False)
    store = open_store(tmp_path / "t")
    create(store, owner)
    table = store.uri
    asked = [request(version, table=table) for version in range(1, 4)]
    assert all(isinstance(one, Ratified) for one in owner.ratify_together([Admitted(one, False) for one in asked]))

    def stored(opened: Ledger) -> object:
        return opened.read(lambda tx: rows.stored_from(tx, table, 1, limit=10))

    found = owner.book.recent.found(table, 0, range(1, 4))
    assert found == asked
    assert [rows.StoredCommit.of(one) for one in found] == stored(owner.ledger)
    owner.publish(table)
    assert owner.get_commits(table).backfilled == 3
    assert owner.book.recent.found(table, 0, range(3, 4)) is None


@pytest.mark.parametrize("remembered", [True, False])
def test_a_backfill_needs_only_what_is_missing_from_it(tmp_path: Path, remembered: bool) -> None:
    owner = LedgerOwner(ledger.open("sqlite://"), backfills=False)
    store = open_store(tmp_path / "t")
    create(store, owner)
    table = store.uri
    for version in range(1, 6):
        owner.ratify_together([Admitted(request(version, table=table), False)])
    if not remembered:
        owner.book.recent.forget(table, 0, 3)
    owner.publish(table)
    assert owner.get_commits(table).backfilled == 5
    log = [f"_delta_log/{version:020d}.json" for version in range(6)]
    assert [key for key in owner.store(table).list_keys("_delta_log/") if key in log] == log
