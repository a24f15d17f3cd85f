from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeseal.errors import Fenced, InvalidArgument, LeaseHeld, WatermarkMoved
from lakeseal.ledger import Ledger
from lakeseal.ledger.schema import leases as lease_table
from lakeseal.steps import StepContext, Turn, leases
from lakeseal.steps.high_watermark import HighWatermarkCommitStep
from lakeseal.steps.leases import Leases
from lakeseal.steps.watermarks import Value, WatermarkChange, Watermarks, compare

P, D = "clicks", "urn:événements"


def change(partition: str, expected: Value | None, value: Value) -> WatermarkChange:
    return WatermarkChange(partition=partition, expected=expected, value=value)


def test_watermarks_advance_from_where_they_were_expected(book: Ledger) -> None:
    marks = Watermarks(book)
    marks.advance(P, D, [change("0", None, 100), change("1", None, 200)])
    marks.advance(P, D, [change("0", 100, 150)])

    assert marks.read(P, D) == {"0": 150, "1": 200}
    assert marks.read(P, "another") == {}
    assert [(mark.dataset, mark.partition, mark.value) for mark in marks.of_pipeline(P)] == [
        (D, "0", 150),
        (D, "1", 200),
    ]


@pytest.mark.parametrize("value", [0, 5, "2026-01-01T00:00:00Z", [1, 2], {"file": "a", "size": 3}, 1.5, True, ""])
def test_any_json_is_a_watermark(book: Ledger, value: Any) -> None:
    Watermarks(book).advance(P, D, [change("p", None, value)])

    assert Watermarks(book).read(P, D) == {"p": value}


def test_advancing_again_is_fine(book: Ledger) -> None:
    marks = Watermarks(book)
    marks.advance(P, D, [change("0", None, 100), change("1", None, 1)])
    marks.advance(P, D, [change("0", None, 100), change("1", None, 1)])
    marks.advance(P, D, [change("0", 100, 200)])
    marks.advance(P, D, [change("0", 100, 200)])

    assert marks.read(P, D)["0"] == 200


def test_w4_a_replay_never_takes_a_watermark_back(book: Ledger) -> None:
    marks = Watermarks(book)
    marks.advance(P, D, [change("0", None, 100), change("1", None, 100)])
    marks.advance(P, D, [change("0", 100, 200), change("1", 100, 200)])

    for old in ([change("0", None, 100)], [change("1", 100, 150), change("0", 100, 150)], [change("0", None, 300)]):
        with pytest.raises(WatermarkMoved):
            marks.advance(P, D, old)

    assert marks.read(P, D) == {"0": 200, "1": 200}


def test_all_watermarks_of_a_dataset_advance_or_none_does(book: Ledger) -> None:
    marks = Watermarks(book)
    marks.advance(P, D, [change("1", None, 100)])

    with pytest.raises(WatermarkMoved):
        marks.advance(P, D, [change("0", None, 50), change("1", 99, 150)])

    assert marks.read(P, D) == {"1": 100}


def test_w4_a_step_that_would_go_back_can_not_even_be_made() -> None:
    with pytest.raises(InvalidArgument, match="go back"):
        HighWatermarkCommitStep.of(P, D, [change("0", 10, 9)])
    with pytest.raises(InvalidArgument, match="two new"):
        HighWatermarkCommitStep.of(P, D, [change("0", 10, 11), change("0", 10, 12)])
    with pytest.raises(InvalidArgument, match="null"):
        HighWatermarkCommitStep.of(P, D, [change("0", 10, None)])


def test_a_step_knows_by_the_value_whether_it_was_done(book: Ledger) -> None:
    context = StepContext(ledger=book, owners={})
    step = HighWatermarkCommitStep.of(P, D, [change("0", None, 100), change("1", None, 0)])

    assert not step.verify(context)
    step.execute(context)
    assert step.verify(context)
    Watermarks(book).advance(P, D, [change("0", 100, 101)])
    assert not step.verify(context)


def test_bug_40_a_zombie_does_not_rewind_a_watermark(book: Ledger) -> None:
    """W8: even where the values would match, whoever lost its turn moves nothing."""
    zombie = Leases(book).acquire(P, holder="zombie").turn
    book.write(lambda tx: tx.update(lease_table, {"name": P}, {"expires": 0}))
    living = Leases(book).acquire(P, holder="living").turn
    marks = Watermarks(book)

    with pytest.raises(Fenced):
        marks.advance(P, D, [change("0", None, 100)], turn=zombie)
    assert marks.read(P, D) == {}
    marks.advance(P, D, [change("0", None, 100)], turn=living)
    with pytest.raises(Fenced):
        marks.advance(P, D, [change("0", 100, 200)], turn=zombie)

    assert marks.read(P, D) == {"0": 100}


def test_a_reset_sets_back_on_purpose(book: Ledger) -> None:
    marks = Watermarks(book)
    marks.advance(P, D, [change("0", None, 100), change("1", None, 100)])

    marks.reset(P, D, {"0": 7})

    assert marks.read(P, D) == {"0": 7}
    marks.advance(P, D, [change("0", 7, 8), change("1", None, 1)])


def test_a_lease_has_one_holder_and_a_new_epoch_for_each(book: Ledger) -> None:
    one = Leases(book).acquire("p", holder="one", seconds=60)
    assert Leases(book).acquire("p", holder="one").epoch == one.epoch
    with pytest.raises(LeaseHeld, match="held by one"):
        Leases(book).acquire("p", holder="two")
    assert Leases(book).renew(one).expires_ms >= one.expires_ms

    Leases(book).release(one)
    two = Leases(book).acquire("p", holder="two")

    assert (one.epoch, two.epoch) == (1, 2)
    with pytest.raises(Fenced):
        Leases(book).renew(one)
    Leases(book).release(one)
    with pytest.raises(LeaseHeld):
        Leases(book).acquire("p", holder="three")


def test_bug_37_the_lease_of_a_dead_writer_runs_out(book: Ledger) -> None:
    dead = Leases(book).acquire("p", holder="dead", seconds=60)
    book.write(lambda tx: tx.update(lease_table, {"name": "p"}, {"expires": tx.now() - 1}))

    living = Leases(book).acquire("p", holder="living")

    assert living.epoch == dead.epoch + 1
    with pytest.raises(Fenced):
        book.write(lambda tx: leases.check(tx, dead.turn))
    book.write(lambda tx: leases.check(tx, living.turn))


def test_a_holder_whose_lease_ran_out_goes_on_while_nobody_else_has_it(book: Ledger) -> None:
    slow = Leases(book).acquire("p", holder="slow", seconds=60)
    book.write(lambda tx: tx.update(lease_table, {"name": "p"}, {"expires": tx.now() - 1}))

    book.write(lambda tx: leases.check(tx, slow.turn))
    assert Leases(book).renew(slow).epoch == slow.epoch


def test_a_turn_at_a_lease_that_never_was_is_refused(book: Ledger) -> None:
    with pytest.raises(Fenced):
        Watermarks(book).advance(P, D, [change("0", None, 1)], turn=Turn(name="never", epoch=1))


@pytest.mark.parametrize(
    ("one", "other", "order"),
    [
        (1, 2, -1),
        (2, 1.5, 1),
        ("a", "b", -1),
        ("2026-01-02", "2026-01-01", 1),
        ([1, 2], [1, 3], -1),
        ([1, 3], [2, 2], None),
        ([1], [1, 2], None),
        ({"a": 1}, {"a": 1, "b": 1}, -1),
        ({"a": 2}, {"a": 1, "b": 1}, None),
        (1, "1", None),
        (True, 1, None),
        (True, True, 0),
        (None, None, 0),
        (None, 1, None),
    ],
)
def test_values_of_one_kind_have_an_order(one: Any, other: Any, order: int | None) -> None:
    assert compare(one, other) == order
    assert compare(other, one) == (None if order is None else -order)


values = st.recursive(
    st.integers() | st.text() | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=5,
)


@given(values, values)
def test_the_order_is_the_same_from_both_sides(one: Any, other: Any) -> None:
    forward, back = compare(one, other), compare(other, one)
    assert back == (None if forward is None else -forward)
    assert compare(one, one) == 0
