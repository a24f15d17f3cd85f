"""One group at a time, each caller its own answer, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from lakeseal.errors import LakesealError, StorageUnavailable, UnknownOutcome
from lakeseal.owner.queue import Queue, _Waiting


class Decider:
    """Notes what came together, and waits in each group until it is let go."""

    def __init__(self, *, most: int = 64, gathers_s: float = 0) -> None:
        self.groups: list[list[int]] = []
        self.running = 0
        self.go = threading.Semaphore(0)
        self.began = threading.Semaphore(0)
        self.fails: BaseException | None = None
        self.queue: Queue[int, int] = Queue(self.decide, most=most, gathers_s=gathers_s)

    def decide(self, group: Sequence[int]) -> list[int | Exception]:
        self.running += 1
        assert self.running == 1
        self.groups.append(list(group))
        self.began.release()
        assert self.go.acquire(timeout=30)
        self.running -= 1
        if self.fails is not None:
            raise self.fails
        return [LakesealError(f"no {one}") if one < 0 else 10 * one for one in group]


def begin(pool: ThreadPoolExecutor, decider: Decider, *asked: int):
    """Futures of callers that are all waiting when this returns."""
    futures = []
    for one in asked:
        before = len(decider.queue._waiting)
        futures.append(pool.submit(decider.queue.ask, one))
        while len(decider.queue._waiting) <= before and not futures[-1].done():
            pass
    return futures


def test_who_comes_while_a_group_is_decided_on_is_in_the_next_one_and_each_gets_its_own_answer() -> None:
    decider = Decider()
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(decider.queue.ask, 1)
        assert decider.began.acquire(timeout=30)
        others = begin(pool, decider, 2, -3, 4)
        decider.go.release()
        assert first.result(30) == 10
        assert decider.began.acquire(timeout=30)
        decider.go.release()
        assert others[0].result(30) == 20
        with pytest.raises(LakesealError, match="no -3"):
            others[1].result(30)
        assert others[2].result(30) == 40
    assert decider.groups == [[1], [2, -3, 4]]


def test_a_group_has_its_bound_and_of_one_there_are_no_groups() -> None:
    decider = Decider(most=1)
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(decider.queue.ask, 1)
        assert decider.began.acquire(timeout=30)
        others = begin(pool, decider, 2, 3)
        for _ in range(3):
            decider.go.release()
        assert [one.result(30) for one in (first, *others)] == [10, 20, 30]
    assert decider.groups == [[1], [2], [3]]


def test_what_a_group_fails_by_is_told_to_each_of_it_and_to_nobody_else() -> None:
    decider = Decider()
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(decider.queue.ask, 1)
        assert decider.began.acquire(timeout=30)
        others = begin(pool, decider, 2, 3)
        decider.go.release()
        assert first.result(30) == 10
        assert decider.began.acquire(timeout=30)
        decider.fails = StorageUnavailable("the ledger is away")
        decider.go.release()
        errors = [one.exception(30) for one in others]
        assert [str(error) for error in errors] == [str(decider.fails)] * 2
        assert len({id(error) for error in errors}) == 2, "each has its own, to add to"
        decider.fails = None
        decider.go.release()
        assert decider.queue.ask(7) == 70


def test_a_decider_that_is_interrupted_leaves_the_outcome_of_the_others_unknown_and_the_queue_goes_on() -> None:
    decider = Decider()
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(decider.queue.ask, 1)
        assert decider.began.acquire(timeout=30)
        others = begin(pool, decider, 2, 3)
        decider.go.release()
        assert first.result(30) == 10
        assert decider.began.acquire(timeout=30)
        decider.fails = KeyboardInterrupt()
        decider.go.release()
        assert isinstance(others[0].exception(30), KeyboardInterrupt)
        assert isinstance(others[1].exception(30), UnknownOutcome)
        decider.fails = None
        decider.go.release()
        assert decider.queue.ask(7) == 70


@pytest.mark.parametrize("is_next", [True, False])
def test_a_caller_that_is_interrupted_while_it_waits_holds_up_nobody(is_next: bool) -> None:
    decider = Decider()
    queue = decider.queue
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(queue.ask, 1)
        assert decider.began.acquire(timeout=30)
        others = begin(pool, decider, 2, 3)
        leaver = queue._waiting[0 if is_next else 1]
        queue._leave(leaver)  # as its caller does
        decider.go.release()
        decider.go.release()
        assert first.result(30) == 10
        assert others[1 if is_next else 0].result(30) == (30 if is_next else 20)
        leaver.came_to = 0
        leaver.turn.release()
    assert decider.groups == [[1], [3 if is_next else 2]]


def test_a_caller_that_was_to_decide_next_and_leaves_passes_it_on() -> None:
    decider = Decider()
    queue = decider.queue
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(queue.ask, 1)
        assert decider.began.acquire(timeout=30)
        absent: _Waiting[int, int] = _Waiting(9)
        queue._waiting.append(absent)
        (other,) = begin(pool, decider, 3)
        decider.go.release()
        assert first.result(30) == 10
        assert absent.decides
        queue._leave(absent)
        decider.go.release()
        assert other.result(30) == 30


def test_callers_on_an_event_loop_and_in_threads_meet_and_each_gets_its_own_answer() -> None:
    decider = Decider()
    queue = decider.queue

    async def ask_all(pool: ThreadPoolExecutor) -> list[object]:
        loop = asyncio.get_running_loop()
        first = asyncio.create_task(queue.ask_async(1))
        assert await loop.run_in_executor(None, decider.began.acquire, True, 30)
        others = [asyncio.create_task(queue.ask_async(one)) for one in (2, -3, 4, 5)]
        await asyncio.sleep(0)
        (thread,) = begin(pool, decider, 6)
        others[3].cancel()
        await asyncio.wait([others[3]])
        decider.go.release()
        decider.go.release()
        found = await asyncio.gather(first, *others, return_exceptions=True)
        return [*found, await asyncio.wrap_future(thread)]

    with ThreadPoolExecutor(2) as pool:
        one, two, three, four, five, six = asyncio.run(ask_all(pool))
    assert (one, two, four, six) == (10, 20, 40, 60)
    assert isinstance(three, LakesealError)
    assert isinstance(five, asyncio.CancelledError)
    assert decider.groups == [[1], [2, -3, 4, 6]]


def test_a_task_that_waits_behind_a_thread_is_decided_on_without_that_thread() -> None:
    decider = Decider()

    async def ask(pool: ThreadPoolExecutor) -> tuple[int, int]:
        first = pool.submit(decider.queue.ask, 1)
        assert decider.began.acquire(timeout=30)
        second = asyncio.create_task(decider.queue.ask_async(2))
        await asyncio.sleep(0)
        decider.go.release()
        assert first.result(30) == 10
        second.cancel()
        third = asyncio.create_task(decider.queue.ask_async(3))
        await asyncio.sleep(0)
        decider.go.release()
        decider.go.release()
        return first.result(), await third

    with ThreadPoolExecutor(2) as pool:
        assert asyncio.run(ask(pool)) == (10, 30)
    assert [one for group in decider.groups for one in group] == [1, 2, 3], "it was on its way when its caller left"


def test_many_callers_are_each_answered_once() -> None:
    dice = random.Random(5)
    seen: list[int] = []

    def decide(group: Sequence[int]) -> list[int | Exception]:
        seen.extend(group)
        if dice.random() < 0.1:
            raise StorageUnavailable("away")
        return [one + 1 for one in group]

    queue: Queue[int, int] = Queue(decide, most=5)

    def ask(number: int) -> int:
        try:
            return queue.ask(number)
        except StorageUnavailable:
            return -1

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(ask, range(2000)))
    assert sorted(seen) == list(range(2000))
    assert all(answer in (number + 1, -1) for number, answer in enumerate(answers))


def test_a_child_that_was_forked_while_somebody_asked_asks_for_itself() -> None:
    decider = Decider()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(decider.queue.ask, 1)
        assert decider.began.acquire(timeout=30)
        child = os.fork()
        if child == 0:
            decider.running = 0
            decider.go.release()
            os._exit(0 if decider.queue.ask(5) == 50 else 1)
        assert os.waitpid(child, 0)[1] == 0
        decider.go.release()
        assert first.result(30) == 10


def test_those_whom_a_group_answered_are_waited_for_and_the_next_group_has_all_of_them() -> None:
    decider = Decider(gathers_s=30)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(decider.queue.ask, 1)
        assert decider.began.acquire(timeout=30)
        others = begin(pool, decider, 2, 3, 4)
        decider.go.release(2)
        assert [one.result(30) for one in (first, *others)] == [10, 20, 30, 40]
        decider.go.release()
        again = [pool.submit(decider.queue.ask, one) for one in (5, 6, 7)]
        assert [one.result(30) for one in again] == [50, 60, 70]
    assert [sorted(group) for group in decider.groups] == [[1], [2, 3, 4], [5, 6, 7]]


def test_who_does_not_come_back_is_forgotten_and_a_single_caller_waits_for_nobody() -> None:
    decider = Decider(gathers_s=0.001)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(decider.queue.ask, 1)
        assert decider.began.acquire(timeout=30)
        others = begin(pool, decider, 2, 3, 4)
        decider.go.release(2)
        assert [one.result(30) for one in (first, *others)] == [10, 20, 30, 40]
    decider.go.release(100)
    assert [decider.queue.ask(one) for one in (5, 6, 7)] == [50, 60, 70]
    decider.queue._gathers_s = 3600
    assert decider.queue.ask(8) == 80
    assert decider.groups[2:] == [[5], [6], [7], [8]]


def test_a_caller_that_is_interrupted_while_it_waits_for_others_passes_its_place_on() -> None:
    decider = Decider(gathers_s=3600)
    decider.queue._expected = 3
    with ThreadPoolExecutor(2) as pool:
        interrupted = _Waiting[int, int](1)
        decider.queue._enter(interrupted)
        assert interrupted.decides
        others = begin(pool, decider, 2)
        decider.queue._leave(interrupted)
        decider.queue._expected = 1
        with decider.queue._lock:
            decider.queue._gathered.notify_all()
        decider.go.release()
        assert [one.result(30) for one in others] == [20]
    assert decider.groups == [[2]]
