"""The ownership protocol, walked through to its end; and each way of getting it wrong, caught."""

from __future__ import annotations

import pytest

from models.ownership_exploration import Violation, explore
from models.ownership_model import (
    CATALOG_DEVIATIONS,
    DEVIATIONS,
    DOUBLED_DEVIATIONS,
    Process,
    backfiller,
    guest,
    post,
    reader,
    releaser,
    small_writer,
    taker,
    writer,
)

CASTS: dict[str, list[Process]] = {
    "a writer, a take-over, a release, a backfiller and a reader": [
        writer("w1"),
        taker("t"),
        releaser("r"),
        backfiller(),
        reader(),
    ],
    "a small writer, a take-over, a release, a backfiller and a reader": [
        small_writer("w1"),
        taker("t"),
        releaser("r"),
        backfiller(),
        reader(),
    ],
    "two writers, a take-over and a release": [writer("w1"), small_writer("w2"), taker("t"), releaser("r")],
    "a writer, two take-overs and a release": [small_writer("w1"), taker("t"), taker("u"), releaser("r")],
    "two writers, a take-over and a backfiller": [writer("w1"), small_writer("w2"), taker("t"), backfiller()],
}
CATALOGS: dict[str, list[Process]] = {
    "a guest, a take-over, a release, a backfiller and a reader": [
        guest("g1"),
        taker("t"),
        releaser("r"),
        backfiller(),
        reader(),
    ],
    "a guest, a writer, a take-over and a release": [guest("g1"), small_writer("w1"), taker("t"), releaser("r")],
    "a writer, a take-over, a release and a reader": [small_writer("w1"), taker("t"), releaser("r"), reader()],
}
DOUBLED: dict[str, list[Process]] = {
    "two take-overs and a release": [taker("t"), taker("u"), releaser("r"), post()],
    "a writer, a take-over, a release and a backfiller": [
        small_writer("w1"),
        taker("t"),
        releaser("r"),
        backfiller(),
        post(),
    ],
}
"""Messages of take-overs and releases come once more, however late."""
LARGE: dict[str, list[Process]] = {
    "two writers, a take-over, a release and a backfiller": [
        writer("w1"),
        small_writer("w2"),
        taker("t"),
        releaser("r"),
        backfiller(),
    ],
    "a writer, a take-over, two releases, a backfiller and a reader": [
        small_writer("w1"),
        taker("t"),
        releaser("r"),
        releaser("s"),
        backfiller(),
        reader(),
    ],
}


@pytest.mark.parametrize("cast", CASTS)
def test_no_interleaving_with_crashes_and_lost_replies_breaks_an_invariant(cast: str) -> None:
    assert explore(CASTS[cast]) > 5_000


@pytest.mark.parametrize("cast", CATALOGS)
def test_no_interleaving_breaks_an_invariant_of_a_table_that_is_a_catalogs(cast: str) -> None:
    assert explore(CATALOGS[cast], is_catalogs=True) > 2_000


@pytest.mark.parametrize("deviation", CATALOG_DEVIATIONS)
def test_every_way_of_getting_a_catalogs_table_wrong_is_caught(deviation: str) -> None:
    with pytest.raises(Violation):
        for cast in CATALOGS.values():
            explore(cast, deviation=deviation, is_catalogs=True)


@pytest.mark.parametrize("cast", DOUBLED)
def test_no_message_that_comes_again_breaks_an_invariant(cast: str) -> None:
    assert explore(DOUBLED[cast], is_doubled=True) > 2_000


@pytest.mark.parametrize("deviation", DOUBLED_DEVIATIONS)
def test_every_way_of_believing_an_old_message_is_caught(deviation: str) -> None:
    with pytest.raises(Violation):
        for cast in DOUBLED.values():
            explore(cast, deviation=deviation, is_doubled=True)


@pytest.mark.stress
@pytest.mark.parametrize("cast", LARGE)
def test_no_interleaving_of_a_larger_cast_breaks_an_invariant(cast: str) -> None:
    assert explore(LARGE[cast], most_states=20_000_000) > 100_000


@pytest.mark.parametrize("deviation", DEVIATIONS)
def test_every_known_way_of_getting_it_wrong_is_caught(deviation: str) -> None:
    caught = []
    for cast in CASTS.values():
        try:
            explore(cast, deviation=deviation)
        except Violation as violation:
            caught.append(str(violation))
            break
    assert caught, "the exploration would not have noticed"
