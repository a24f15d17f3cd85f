"""One queue, one group at a time: who asks while a group is decided on is in the next one.

There is no thread for it. Whoever comes when nothing is under way decides at once, alone; the first of those who came
meanwhile decides on all of them next. So a single caller waits for nobody, and of many the ledger sees one transaction
for as many as came while the last one was written.

For any thread, and for a process that was forked.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from copy import copy
from typing import Generic, TypeVar, cast

from lakeseal.errors import UnknownOutcome

A = TypeVar("A")
R = TypeVar("R")

_MOST_AT_ONCE = 64


class Queue(Generic[A, R]):
    def __init__(self, decide: Callable[[Sequence[A]], Sequence[R | Exception]], *, most: int = _MOST_AT_ONCE) -> None:
        """`decide` gives for each, in their order, what it came to, or what its caller is to be told; what it raises
        is told to all of them. `most` of 1 turns groups off."""
        self._decide = decide
        self._most = most
        self._reset()

    def _reset(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._waiting: deque[_Waiting[A, R]] = deque()
        self._is_deciding = False

    def ask(self, asked: A) -> R:
        if self._process != os.getpid():
            # Who was asking when the process was forked goes on asking in the parent.
            self._reset()
        mine = _Waiting[A, R](asked)
        with self._lock:
            self._waiting.append(mine)
            mine.decides, self._is_deciding = not self._is_deciding, True
        try:
            if not mine.decides:
                mine.turn.acquire()
        except BaseException:
            self._leave(mine)
            raise
        if mine.decides:
            self._decide_next()
        if isinstance(mine.came_to, Exception):
            raise mine.came_to
        return cast(R, mine.came_to)

    def _decide_next(self) -> None:
        """The caller's own is the first of the group."""
        with self._lock:
            group = [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]
        came_to: Sequence[R | Exception] = [_interrupted() for _ in group]
        try:
            came_to = self._decide([one.asked for one in group])
        except Exception as error:
            # Each its own: whoever tells of it adds where it happened.
            came_to = [copy(error) for _ in group]
        finally:
            for one, result in zip(group, came_to, strict=True):
                one.came_to = result
            with self._lock:
                self._pass_on()
            for one in group[1:]:
                one.turn.release()

    def _pass_on(self) -> None:
        """The first of those who wait decides next. The caller holds the lock."""
        self._is_deciding = bool(self._waiting)
        if self._waiting:
            self._waiting[0].decides = True
            self._waiting[0].turn.release()

    def _leave(self, mine: _Waiting[A, R]) -> None:
        """Its caller is interrupted. If it is among those who are decided on, that goes on without it."""
        with self._lock:
            if mine in self._waiting:
                self._waiting.remove(mine)
                if mine.decides:
                    self._pass_on()


class _Waiting(Generic[A, R]):
    __slots__ = ("asked", "came_to", "decides", "turn")

    def __init__(self, asked: A) -> None:
        self.asked = asked
        self.came_to: R | Exception | None = None
        self.decides = False
        self.turn = threading.Lock()
        """Released when it is decided on, or when its caller is to decide."""
        self.turn.acquire()


def _interrupted() -> UnknownOutcome:
    return UnknownOutcome("Whoever decided on the commit was interrupted", hint="Ask for the same again")
