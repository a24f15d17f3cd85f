"""Where a lane admits and decides: on the event loop as long as that takes no time, and otherwise by threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest

from lakeseal.service import lane as lanes
from lakeseal.service.lane import Lane


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(lanes, "time", SimpleNamespace(monotonic=clock))
    return clock


def where(clock: Clock, steps: Sequence[tuple[float, float]]) -> list[str]:
    """For each step, which is how much later it is and how long its admission takes: where it was admitted."""
    found: list[str] = []

    def admit(took: float) -> float:
        is_here = threading.current_thread() is threading.main_thread()
        found.append("loop" if is_here else "thread")
        clock.now += took
        return took

    async def go() -> None:
        lane: Lane[float, float, float] = Lane(admit, list, at_once=lambda _: True)
        lane.start()
        for later, took in steps:
            clock.now += later
            assert await lane.ask(took) == took
        await lane.stop()

    asyncio.run(go())
    return found


def test_what_takes_no_time_is_admitted_on_the_event_loop(clock: Clock) -> None:
    assert where(clock, [(0, 0.001)] * 3) == ["loop"] * 3


def test_one_stall_makes_the_threads_admit_for_a_moment(clock: Clock) -> None:
    assert where(clock, [(0, 0.5), (0, 0), (3.4, 0), (0.2, 0)]) == ["loop", "thread", "thread", "loop"]


def test_a_disk_that_stalls_again_and_again_is_left_to_the_threads_for_longer_each_time(clock: Clock) -> None:
    stalls = [(0, 0.1), (0.8, 0.1), (3.2, 0.1), (12.8, 0.1)]
    assert where(clock, stalls) == ["loop"] * 4
    # The fourth one in a row counts 512 times, and so does the fifth.
    assert where(clock, [*stalls, (50, 0), (1.1, 0.1), (50, 0), (1.2, 0)]) == [
        *["loop"] * 4,
        *["thread", "loop"],
        *["thread", "loop"],
    ]


def test_a_stall_is_forgotten_when_none_followed_for_long(clock: Clock) -> None:
    assert where(clock, [(0, 0.1), (103, 0.1), (0.9, 0)]) == ["loop", "loop", "loop"]


class Soon:
    """Decides on groups later, on the event loop, if it is told to."""

    def __init__(self) -> None:
        self.takes = True
        self.fails = False
        self.groups: list[tuple[list[int], Callable[[Sequence[str | None]], None]]] = []

    def __call__(self, group: Sequence[int], tell: Callable[[Sequence[str | None]], None]) -> bool:
        if self.fails:
            raise ValueError("by mistake")
        if self.takes:
            self.groups.append((list(group), tell))
        return self.takes


def test_a_group_is_decided_on_without_a_thread_where_it_can_be(caplog: pytest.LogCaptureFixture) -> None:
    soon = Soon()

    def by_thread(group: Sequence[int]) -> list[str | None]:
        return [f"{one} by a thread" for one in group]

    async def go() -> None:
        lane: Lane[int, int, str] = Lane(lambda asked: asked, by_thread, at_once=lambda _: True, decide_soon=soon)
        lane.start()
        first = asyncio.ensure_future(lane.ask(1))
        await asyncio.sleep(0)
        others = [asyncio.ensure_future(lane.ask(number)) for number in (2, 3)]
        await asyncio.sleep(0.05)
        # One group at a time: the others wait for the first.
        assert [group for group, _ in soon.groups] == [[1]]
        soon.groups[0][1](["1 soon"])
        assert await first == "1 soon"
        while len(soon.groups) == 1:  # a fourth one might come
            await asyncio.sleep(0.001)
        assert [group for group, _ in soon.groups] == [[1], [2, 3]]
        soon.groups[1][1]([None, "3 soon"])
        assert await asyncio.gather(*others) == [None, "3 soon"]
        soon.takes = False
        assert await lane.ask(4) == "4 by a thread"
        soon.fails = True
        assert await lane.ask(5) == "5 by a thread"
        await lane.stop()

    asyncio.run(go())
    assert "by mistake" in caplog.text
