"""Requests that come at about the same time are done together: each is admitted by itself, and those that were are
decided on as a group, one group at a time: without a thread where that can be, otherwise by one. Meanwhile, which is
mostly waiting for a disk, what the next group will be made of is admitted.

**Company.** A group costs about as much as a few of its requests, and whoever was just answered is likely to ask again
at once. So the next group begins when as many are there as the last one answered and left waiting (`_ENOUGH` of them
will do), or when for as long as a decision takes nobody else came. Whoever asks alone never waits, and where waiting
was in vain it is left for a while, longer each time.

**Admission** is done on the event loop where it waits for nothing, since to hand it over to a thread takes longer than
to do it; otherwise by a thread. If it did take long on the event loop, the thread does it for a while, the longer the
longer it took. Once may be chance, as a disk that others use too stands still at times; the while grows when it happens
again before it is forgotten.

`ask`, `join` and `stop` are for the event loop. `ask` gives None where a request has to be done by itself: it was not
admitted, its group found it unusual, or what is under way takes so long that something it met must be stuck, and what
stands still for one shall not for all.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from typing import Generic, TypeVar

_log = logging.getLogger(__name__)

_MOST_AT_ONCE = 64
_ENOUGH = 8
_LONGEST_PAUSE_S = 0.01
_MOST_IN_VAIN = 64
_MOMENT_S = 0.005
_STUCK_S = 1.0
_LONG_S = 0.02
_FIRST_CALM = 8
_MOST_CALM = 512
"""How many times as long as it took: so that the event loop stands still for about a five-hundredth of the time."""

A = TypeVar("A")
B = TypeVar("B")
R = TypeVar("R")
_Waiting = tuple[B, Callable[[R | None], None]]


class Lane(Generic[A, B, R]):
    def __init__(
        self,
        admit: Callable[[A], B | None],
        decide: Callable[[Sequence[B]], Sequence[R | None]],
        at_once: Callable[[A], bool] = lambda _: False,
        decide_soon: Callable[[Sequence[B], Callable[[Sequence[R | None]], None]], bool] = lambda *_: False,
    ) -> None:
        """`admit` raises what its caller shall be told. `decide` gives for each what it came to, in their order; it
        raises nothing. None is for those that have to be done by themselves. `at_once` says whether to admit something
        should take no time. `decide_soon` is for the event loop: it tells later what `decide` would give, or says False
        and has done nothing."""
        self._admit = admit
        self._decide = decide
        self._at_once = at_once
        self._decide_soon = decide_soon
        self._by_thread_until = 0.0
        self._calm = _FIRST_CALM
        self._forgotten_at = 0.0
        self._admits = ThreadPoolExecutor(1, thread_name_prefix="lakeseal-lane")
        self._admits_since: float | None = None
        self._decides = threading.Thread(target=self._run, name="lakeseal-lane-decides", daemon=True)
        self._decides_since: float | None = None
        self._groups: SimpleQueue[tuple[asyncio.AbstractEventLoop, Sequence[_Waiting[B, R]]] | None] = SimpleQueue()
        self._waiting: list[_Waiting[B, R]] = []
        self._company = _Company()
        self._is_calm = threading.Event()
        self._is_calm.set()
        self._timer: asyncio.TimerHandle | None = None
        self._asking = 0
        self._is_stopping = False

    def start(self) -> None:
        self._decides.start()

    async def stop(self) -> None:
        """After what is under way."""
        self._is_stopping = True
        self._consider()
        while self._asking:
            await asyncio.sleep(0.001)
        self._groups.put(None)
        await asyncio.to_thread(self._decides.join)
        await asyncio.to_thread(self._admits.shutdown)

    async def ask(self, asked: A) -> R | None:
        now = time.monotonic()
        if self._is_closed(now):
            return None
        self._asking += 1
        try:
            if self._admits_here(asked, now):
                admitted = self._admit_here(asked)
            else:
                admitted = await asyncio.get_running_loop().run_in_executor(self._admits, self._admit_there, asked)
            if admitted is None:
                return None
            future: asyncio.Future[R | None] = asyncio.get_running_loop().create_future()
            self._enter(admitted, lambda told: None if future.done() else future.set_result(told))
            return await future
        finally:
            self._asking -= 1

    def join(self, asked: A, tell: Callable[[R | None], None]) -> bool:
        """As `ask`, for what can be admitted at once; False if it can not. `tell` is called on the event loop, later.
        Raises what `admit` raises."""
        now = time.monotonic()
        if self._is_closed(now) or not self._admits_here(asked, now):
            return False
        admitted = self._admit_here(asked)
        if admitted is None:
            return False
        self._asking += 1

        def told(answer: R | None) -> None:
            self._asking -= 1
            tell(answer)

        self._enter(admitted, told)
        return True

    def _is_closed(self, now: float) -> bool:
        return self._is_stopping or _is_stuck(self._admits_since, now) or _is_stuck(self._decides_since, now)

    def _admits_here(self, asked: A, now: float) -> bool:
        return now >= self._by_thread_until and self._at_once(asked)

    def _enter(self, admitted: B, tell: Callable[[R | None], None]) -> None:
        self._waiting.append((admitted, tell))
        self._consider()

    def pace(self) -> None:
        """For other threads that have much to do in small steps, each of which would take the interpreter away from
        requests: returns while a group is decided on and the next one is not there yet, or after a moment."""
        self._is_calm.wait(_MOMENT_S)

    def _admit_here(self, asked: A) -> B | None:
        start = time.monotonic()
        try:
            return self._admit(asked)
        finally:
            took = time.monotonic() - start
            if took > _LONG_S:
                self._calm = _FIRST_CALM if start >= self._forgotten_at else min(4 * self._calm, _MOST_CALM)
                self._by_thread_until = start + took * self._calm
                self._forgotten_at = max(self._forgotten_at, start + 2 * took * _MOST_CALM)

    def _admit_there(self, asked: A) -> B | None:
        self._admits_since = time.monotonic()
        try:
            return self._admit(asked)
        finally:
            self._admits_since = None

    def _consider(self) -> None:
        """Begins the next group, if it is time to."""
        if self._decides_since is not None or not self._waiting:
            return
        if self._is_stopping or self._company.is_there(len(self._waiting)):
            self._begin()
        elif self._timer is None:
            self._wait()

    def _wait(self) -> None:
        pause, there = self._company.pause_s, len(self._waiting)
        self._timer = asyncio.get_running_loop().call_later(pause, self._waited, there)

    def _waited(self, there: int) -> None:
        if len(self._waiting) > there:
            self._wait()
        else:
            self._begin()

    def _begin(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        group, self._waiting = self._waiting[:_MOST_AT_ONCE], self._waiting[_MOST_AT_ONCE:]
        self._company.began(len(group))
        self._decides_since = time.monotonic()
        self._is_calm.set()
        try:
            if self._decide_soon([admitted for admitted, _ in group], partial(self._answer, group)):
                return
        except Exception:
            _log.exception("a group could not be begun, and a thread decides on it")
        self._groups.put((asyncio.get_running_loop(), group))

    def _run(self) -> None:
        while (taken := self._groups.get()) is not None:
            loop, group = taken
            done: Sequence[R | None]
            try:
                done = self._decide([admitted for admitted, _ in group])
            except Exception:
                _log.exception("a group failed unexpectedly, and its requests are done one by one")
                done = [None] * len(group)
            loop.call_soon_threadsafe(self._answer, group, done)

    def _answer(self, group: Sequence[_Waiting[B, R]], done: Sequence[R | None]) -> None:
        assert self._decides_since is not None
        took, self._decides_since = time.monotonic() - self._decides_since, None
        self._is_calm.clear()
        self._company.answered(len(group), left=len(self._waiting), took_s=took)
        self._consider()
        for (_, tell), one in zip(group, done, strict=True):
            try:
                tell(one)
            except Exception:
                _log.exception("a request could not be answered")


class _Company:
    """How many are worth waiting for, and how long."""

    def __init__(self) -> None:
        self.pause_s = 0.0
        self._expected = 1
        self._had = 0
        """How many were there when it began to be waited for more; 0 where it was not."""
        self._in_vain = 0
        self._left_out = 0
        """For how many groups more it is not waited."""

    def is_there(self, waiting: int) -> bool:
        if waiting >= self._expected or self._left_out:
            return True
        self._had = self._had or waiting
        return False

    def began(self, count: int) -> None:
        if self._left_out:
            self._left_out -= 1
        elif self._had:
            self._in_vain = 0 if count > self._had else min(2 * self._in_vain + 1, _MOST_IN_VAIN)
            self._left_out = self._in_vain
        self._had = 0

    def answered(self, count: int, *, left: int, took_s: float) -> None:
        self._expected = min(count + left, _ENOUGH)
        self.pause_s = min(took_s, _LONGEST_PAUSE_S)


def _is_stuck(since: float | None, now: float) -> bool:
    return since is not None and now - since > _STUCK_S
