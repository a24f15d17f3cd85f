"""One queue, one group at a time: who asks while a group is decided on is in the next one, and who lost goes first.

Whoever comes when nothing is under way is decided on at once, alone; those who came meanwhile are decided on next, all
of them together. So a single caller waits for nobody, and of many the ledger sees one transaction for as many as came
while the last one was written.

Whom the last group answered comes back at about the same time. So of several callers, the first to be back waits half
a millisecond at most for the others: one transaction for all of them, where there would be one for it and one for them.
A single caller never waits.

Callers in threads decide themselves, the first of a group on all of it. Callers on an event loop (`ask_async`) have one
thread for it that the queue keeps: a thread is woken once for a group, and the loop once when the group is answered.

Of many writers on one table each version has one winner. If all of the others asked again at once, most of it would be
in vain, and whoever is a little slower would lose again and again. So callers on an event loop take turns at a table
(`Turns`), in the order in which they came; and whoever lost keeps its turn for a moment, in which it can read what came
before it and ask for the next version. Then the next one in the line is decided on. Turns decide nothing: one that is
not used in time is passed on, whoever has waited for `longest_s` goes on without one, and other processes have lines of
their own.

For any thread and any event loop, but for turns, and for a process that was forked.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from typing import Generic, TypeVar, cast

from lakeseal.errors import UnknownOutcome

A = TypeVar("A")
R = TypeVar("R")

_MOST_AT_ONCE = 64
GATHERS_S = 0.0005
"""Less than a database takes to commit."""
KEEPS_S = 0.2
"""How long a turn is kept for whoever lost. A large commit on a store that is far away takes longer, and may lose."""
LONGEST_S = 10.0


class Queue(Generic[A, R]):
    def __init__(
        self,
        decide: Callable[[Sequence[A]], Sequence[R | Exception]],
        *,
        most: int = _MOST_AT_ONCE,
        gathers_s: float = GATHERS_S,
    ) -> None:
        """`decide` gives for each, in their order, what it came to, or what its caller is to be told; what it raises
        is told to all of them. `most` of 1 turns groups off, `gathers_s` of 0 the wait for others."""
        self._decide = decide
        self._most = most
        self._gathers_s = gathers_s
        self.turns = Turns()
        self._reset()

    def _reset(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._gathered = threading.Condition(self._lock)
        self._expected = 1
        """How many may come back together."""
        self._waiting: deque[_Waiting[A, R]] = deque()
        self._is_deciding = False
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="lakeseal-queue")
        """For those who have none of their own."""

    def ask(self, asked: A) -> R:
        mine = _Waiting[A, R](asked)
        self._enter(mine)
        try:
            if not mine.decides:
                mine.turn.acquire()
            if mine.decides:
                self._gather()
        except BaseException:
            self._leave(mine)
            raise
        if mine.decides:
            self._decide_next()
        if isinstance(mine.came_to, Exception):
            raise mine.came_to
        return cast(R, mine.came_to)

    async def ask_async(self, asked: A) -> R:
        mine = _WaitingTask[A, R](asked, asyncio.get_running_loop())
        self._enter(mine)
        if mine.decides:
            self._threads.submit(self._gather_and_decide)
        try:
            return await mine.future
        except asyncio.CancelledError:
            self._leave(mine)
            raise

    async def ask_in_turn(self, asked: A, table: str, name: str, *, lost: Callable[[R], bool]) -> tuple[R, bool]:
        """As `ask_async`, when it is the turn of whoever has this name at the table; and whether it keeps its turn,
        since it `lost`."""
        await self.turns.enter(table, name)
        has_lost = False
        try:
            came_to = await self.ask_async(asked)
            has_lost = lost(came_to)
        finally:
            is_kept = self.turns.leave(table, name, lost=has_lost)
        return came_to, is_kept

    def _enter(self, mine: _Waiting[A, R]) -> None:
        if self._process != os.getpid():
            # Who was asking when the process was forked goes on asking in the parent.
            self._reset()
        with self._lock:
            self._waiting.append(mine)
            mine.decides, self._is_deciding = not self._is_deciding, True
            if self._expected > 1 and self._has_gathered():
                self._gathered.notify()

    def _has_gathered(self) -> bool:
        return len(self._waiting) >= self._expected

    def _gather(self) -> None:
        with self._lock:
            if self._expected > 1:
                self._gathered.wait_for(self._has_gathered, self._gathers_s)

    def _gather_and_decide(self) -> None:
        self._gather()
        self._decide_next()

    def _decide_next(self) -> None:
        """The caller's own is the first of the group."""
        with self._lock:
            group = [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]
            # Who does not come back any more is forgotten one by one.
            self._expected = max(len(group), self._expected - 1)
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
            _tell(group)

    def _pass_on(self) -> None:
        """The first of those who wait decides next. The caller holds the lock."""
        self._is_deciding = bool(self._waiting)
        if self._waiting:
            self._waiting[0].decides = True
            if isinstance(self._waiting[0], _WaitingTask):
                self._threads.submit(self._gather_and_decide)
            else:
                self._waiting[0].turn.release()

    def _leave(self, mine: _Waiting[A, R]) -> None:
        """Its caller is interrupted. If it is among those who are decided on, that goes on without it; and so it does
        where a thread is on its way for it."""
        with self._lock:
            if mine in self._waiting and not (mine.decides and isinstance(mine, _WaitingTask)):
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


class _WaitingTask(_Waiting[A, R]):
    __slots__ = ("future", "loop")

    def __init__(self, asked: A, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(asked)
        self.loop = loop
        self.future: asyncio.Future[R] = loop.create_future()

    def tell(self) -> None:
        """On its loop."""
        if self.future.done():
            return
        if isinstance(self.came_to, Exception):
            self.future.set_exception(self.came_to)
        else:
            self.future.set_result(cast(R, self.came_to))


def _tell(group: Sequence[_Waiting[A, R]]) -> None:
    """A group that was decided on. The first in it, if it is a thread's, decided."""
    tasks: dict[asyncio.AbstractEventLoop, list[_WaitingTask[A, R]]] = {}
    for place, one in enumerate(group):
        if isinstance(one, _WaitingTask):
            tasks.setdefault(one.loop, []).append(one)
        elif place > 0:
            one.turn.release()
    for loop, ours in tasks.items():
        # One that is closed has nobody who waits.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_tell_tasks, ours)


def _tell_tasks(tasks: Sequence[_WaitingTask[A, R]]) -> None:
    for one in tasks:
        one.tell()


def _interrupted() -> UnknownOutcome:
    return UnknownOutcome("Whoever decided on the commit was interrupted", hint="Ask for the same again")


class Turns:
    """Whose turn it is at each table. For one event loop."""

    def __init__(self, *, keeps_s: float = KEEPS_S, longest_s: float = LONGEST_S) -> None:
        """With `keeps_s` of 0 nobody keeps a turn."""
        self._keeps_s = keeps_s
        self._longest_s = longest_s
        self._lines: dict[str, _Line] = {}

    async def enter(self, table: str, name: str) -> None:
        """Returns when it is the transaction's turn at the table."""
        line = self._lines.get(table)
        if line is None:
            self._lines[table] = _Line(name)
        elif line.holder == name:
            line.stop_timer()
        else:
            turn = asyncio.get_running_loop().create_future()
            line.waiting.append((name, turn))
            try:
                # A turn that comes at the very end of the wait is passed on by `leave`, as any other.
                await asyncio.wait([turn], timeout=self._longest_s)
            except asyncio.CancelledError:
                if turn.done():
                    # It came, and whoever is interrupted here does not leave any more.
                    self.leave(table, name, lost=False)
                raise
            finally:
                turn.cancel()

    def leave(self, table: str, name: str, *, lost: bool) -> bool:
        """Whether it keeps its turn, since it `lost`."""
        line = self._lines.get(table)
        if line is None or line.holder != name:
            return False
        line.stop_timer()
        if lost and self._keeps_s > 0:
            loop = asyncio.get_running_loop()
            line.timer = loop.call_later(self._keeps_s, self._pass_on, table, line)
            return True
        self._pass_on(table, line)
        return False

    @contextlib.contextmanager
    def kept(self, table: str, name: str) -> Iterator[None]:
        """While what is asked for next is looked at, however long that takes, whoever has the turn keeps it."""
        line = self._lines.get(table)
        if line is None or line.holder != name:
            yield
            return
        line.stop_timer()
        try:
            yield
        finally:
            # It need not come after that.
            self.leave(table, name, lost=True)

    def _pass_on(self, table: str, line: _Line) -> None:
        line.stop_timer()
        while line.waiting:
            name, turn = line.waiting.popleft()
            if not turn.done():
                line.holder = name
                turn.set_result(None)
                return
        del self._lines[table]


class _Line:
    __slots__ = ("holder", "timer", "waiting")

    def __init__(self, holder: str) -> None:
        self.holder = holder
        self.timer: asyncio.TimerHandle | None = None
        """Runs while the holder is not here."""
        self.waiting: deque[tuple[str, asyncio.Future[None]]] = deque()

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
