"""Rows that move on together: each by itself, all of it whole, on every database."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lakeseal import ledger
from lakeseal.errors import AlreadyExists, InvalidArgument, UnknownOutcome
from lakeseal.ledger import Advance, Ledger
from lakeseal.ledger.schema import commits, tables

NAMES = ("file:///b", "file:///a", "file:///ü")


def row(name: str, latest: int = 0) -> dict[str, Any]:
    values = {"state": "active", "epoch": 0, "latest_version": latest, "latest_timestamp": None, "conf": {}}
    return {"table_id": name, **values, "backfilled_version": 7, "updated": 0}


def to(version: int, name: str, *txns: str, **expected: Any) -> Advance:
    """From `version` on by as many commits as there are transactions."""
    return Advance(
        name=name,
        expected={"state": "active", "latest_version": version, "latest_timestamp": None, **expected},
        values={"latest_version": version + len(txns), "updated": 5},
        rows=[
            {
                "version": version + number,
                "txn_id": txn,
                "file": "f",
                "size": 3,
                "in_commit_timestamp": 2**62,
                "inline": b"\x00\xff'" if number == 1 else None,
                "ratified": 1,
                "backfilled": False,
            }
            for number, txn in enumerate(txns, 1)
        ],
    )


def go(book: Ledger, *advances: Advance) -> dict[str, Any]:
    return book.advance(tables, commits, advances, tell="backfilled_version")


def latest(book: Ledger, name: str) -> int:
    found = book.read(lambda tx: tx.get(tables, table_id=name))
    assert found is not None
    return int(found.latest_version)


@pytest.fixture
def filled(book: Ledger) -> Ledger:
    book.write(lambda tx: tx.insert_many(tables, map(row, NAMES)))
    return book


def test_those_that_are_as_expected_move_with_their_rows_and_the_others_stay(filled: Ledger) -> None:
    told = go(filled, to(0, NAMES[0], "x", "y"), to(3, NAMES[1], "x"), to(0, NAMES[2], "x"), to(0, "file:///no", "x"))
    assert told == {NAMES[0]: 7, NAMES[2]: 7}
    assert [latest(filled, name) for name in NAMES] == [2, 0, 1]
    first = filled.read(lambda tx: tx.get(commits, table_id=NAMES[0], version=1))
    second = filled.read(lambda tx: tx.get(commits, table_id=NAMES[0], version=2))
    assert first is not None
    assert second is not None
    assert (first.txn_id, first.inline, first.in_commit_timestamp) == ("x", b"\x00\xff'", 2**62)
    assert (second.txn_id, second.inline, second.backfilled) == ("y", None, False)
    assert filled.read(lambda tx: tx.get(commits, table_id=NAMES[1], version=4)) is None


def test_a_row_that_is_there_already_leaves_all_of_it_undone(filled: Ledger) -> None:
    go(filled, to(0, NAMES[0], "x"))
    with pytest.raises(AlreadyExists):
        go(filled, to(0, NAMES[1], "x"), to(1, NAMES[0], "x"))
    assert [latest(filled, name) for name in NAMES] == [1, 0, 0]


@pytest.mark.parametrize("wrong", ["nul \0", "half \ud800", "x" * 256])
def test_a_value_that_no_ledger_holds_is_refused(filled: Ledger, wrong: str) -> None:
    with pytest.raises(InvalidArgument):
        go(filled, to(0, NAMES[0], wrong))
    assert latest(filled, NAMES[0]) == 0


def test_of_writers_that_meet_one_moves_each_row_at_a_time_whatever_their_order(filled: Ledger) -> None:
    barrier = threading.Barrier(4)

    def write(number: int) -> int:
        moved = 0
        barrier.wait()
        for turn in range(15):
            order = NAMES if number % 2 else NAMES[::-1]
            moved += len(go(filled, *(to(latest(filled, name), name, f"{number}-{turn}") for name in order)))
        return moved

    with ThreadPoolExecutor(4) as pool:
        moved = sum(pool.map(write, range(4)))
    assert moved == sum(latest(filled, name) for name in NAMES)
    assert moved >= 15


@pytest.mark.parametrize(("when", "happened"), [("before", 0), ("after", 1)])
def test_a_lost_answer_leaves_the_outcome_unknown(proxy: Any, postgres_url: str, when: str, happened: int) -> None:
    with ledger.open(postgres_url) as book, ledger.open(proxy.url) as cut_off:
        book.write(lambda tx: tx.insert_many(tables, map(row, NAMES)))
        proxy.cut(when, at=b"json_to_recordset")
        with pytest.raises(UnknownOutcome):
            go(cut_off, to(0, NAMES[0], "x"))
        # Asking for the same waits for the first attempt where that is still on its way.
        assert len(go(cut_off, to(0, NAMES[0], "y"))) == 1 - happened
        assert latest(book, NAMES[0]) == 1
