"""Two threads that do together whatever came while they were busy. Nobody waits for company: a request that comes alone
is done alone, at once.

Each request is admitted by itself, and those that were are decided on as a group, one group at a time. While one thread
decides, which is mostly waiting for a disk, what the next group will be made of is admitted: on the event loop, where
that waits for nothing, since to hand it over to a thread takes longer than to do it; otherwise by the other thread. If
it did take long on the event loop, the threads do it for a while, and the longer the longer it took.

`ask` is for the event loop and gives None where the request has to be done by itself: it was not admitted, its group
found it unusual, or what is under way takes so long that something it met must be stuck, and what stands still for one
shall not for all.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

_log = logging.getLogger(__name__)

_THREADS = 2
_MOST_AT_ONCE = 64
_STUCK_S = 1.0
_LONG_S = 0.02
_CALM_FACTOR = 500
"""So that the event loop stands still for at most a five-hundredth of the time."""

A = TypeVar("A")
B = TypeVar("B")
R = TypeVar("R")


class Lane(Generic[A, B, R]):
    def __init__(
        self,
        admit: Callable[[A], B | None],
        decide: Callable[[Sequence[B]], Sequence[R | None]],
        at_once: Callable[[A], bool] = lambda _: False,
    ) -> None:
        """`admit` raises what its caller shall be told. `decide` gives for each what it came to, in their order; it
        raises nothing. None is for those that have to be done by themselves. `at_once` says whether to admit something
        should take no time."""
        self._admit = admit
        self._decide = decide
        self._at_once = at_once
        self._by_threads_until = 0.0
        self._came: list[tuple[A, asyncio.Future[R | None]]] = []
        self._admitted: list[tuple[B, asyncio.Future[R | None]]] = []
        self._changed = threading.Condition()
        self._is_deciding = False
        self._since: dict[int, float] = {}
        """When each thread that is at work began."""
        self._is_stopping = False
        self._threads = [
            threading.Thread(target=self._run, name="lakeseal-lane", daemon=True, args=(number,))
            for number in range(_THREADS)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """After what is waiting."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    async def ask(self, asked: A) -> R | None:
        now = time.monotonic()
        with self._changed:
            if self._since and now - min(self._since.values()) > _STUCK_S:
                return None
        admitted = None
        if now >= self._by_threads_until and self._at_once(asked):
            admitted = self._admit_here(asked)
            if admitted is None:
                return None
        future: asyncio.Future[R | None] = asyncio.get_running_loop().create_future()
        with self._changed:
            if self._is_stopping:
                return None
            if admitted is None:
                self._came.append((asked, future))
            else:
                self._admitted.append((admitted, future))
            if admitted is None or not self._is_deciding:
                self._changed.notify()
        return await future

    def _admit_here(self, asked: A) -> B | None:
        start = time.monotonic()
        try:
            return self._admit(asked)
        finally:
            took = time.monotonic() - start
            if took > _LONG_S:
                self._by_threads_until = start + took * _CALM_FACTOR

    def _run(self, number: int) -> None:
        while True:
            with self._changed:
                self._since.pop(number, None)
                while not (step := self._next_step()):
                    if self._is_stopping and not self._is_deciding:
                        self._changed.notify_all()
                        return
                    self._changed.wait()
                self._since[number] = time.monotonic()
            step()

    def _next_step(self) -> Callable[[], None] | None:
        """Takes what is to be done next; called with the lock held."""
        if self._admitted and not self._is_deciding:
            self._is_deciding = True
            group, self._admitted = self._admitted[:_MOST_AT_ONCE], self._admitted[_MOST_AT_ONCE:]
            return lambda: self._decide_on(group)
        if self._came:
            came, self._came = self._came, []
            return lambda: self._admit_each(came)
        return None

    def _admit_each(self, came: Sequence[tuple[A, asyncio.Future[R | None]]]) -> None:
        admitted: list[tuple[B, asyncio.Future[R | None]]] = []
        others: list[tuple[asyncio.Future[R | None], Exception | None]] = []
        for asked, future in came:
            try:
                request = self._admit(asked)
            except Exception as error:
                others.append((future, error))
            else:
                if request is None:
                    others.append((future, None))
                else:
                    admitted.append((request, future))
        if others:
            _tell(others)
        with self._changed:
            self._admitted += admitted

    def _decide_on(self, group: Sequence[tuple[B, asyncio.Future[R | None]]]) -> None:
        done: Sequence[R | None]
        try:
            done = self._decide([request for request, _ in group])
        except Exception:
            _log.exception("a group failed unexpectedly, and its requests are done one by one")
            done = [None] * len(group)
        with self._changed:
            self._is_deciding = False
        _tell([(future, one) for (_, future), one in zip(group, done, strict=True)])


def _tell(answers: Sequence[tuple[asyncio.Future[R | None], R | Exception | None]]) -> None:
    answers[0][0].get_loop().call_soon_threadsafe(_set, answers)


def _set(answers: Sequence[tuple[asyncio.Future[R | None], R | Exception | None]]) -> None:
    for future, one in answers:
        if future.done():
            continue
        if isinstance(one, Exception):
            future.set_exception(one)
        else:
            future.set_result(one)
