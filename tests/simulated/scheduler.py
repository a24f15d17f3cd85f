"""Actors that take turns in one thread: whoever runs goes on until it stops at a step, and the seed says who is next.

An actor is a function in a greenlet, so what it calls is the product's own code as it is. It gives up its turn in
`step` (before each thing that others could see), `sleep` and at locks; time is a number that goes on by a little with
each step, and by as much as is slept where nobody else has anything to do. The same seed gives the same run.

An actor belongs to a process. A process that is killed never has a turn again: what it is in the middle of ends where
it stands, and nothing that it still tries on its way out has an effect.
"""

from __future__ import annotations

import heapq
import random
import threading
from collections.abc import Callable
from types import TracebackType

from greenlet import GreenletExit, getcurrent, greenlet

_TICK_S = 0.002
_CHANGES_OF_MIND = 0.03


class Stuck(AssertionError):
    """Everybody waits for somebody."""


class Endless(AssertionError):
    """A run that does not come to its end."""


class Actor:
    __slots__ = ("error", "greenlet", "is_dead", "is_waiting", "name", "process", "rank")

    def __init__(self, name: str, process: str, do: Callable[[], object], hub: greenlet, rank: float) -> None:
        self.name, self.process, self.rank = name, process, rank
        self.is_dead = self.is_waiting = False
        self.error: BaseException | None = None

        def run() -> None:
            try:
                do()
            except Exception as error:
                self.error = error

        self.greenlet = greenlet(run, hub)


class Scheduler:
    def __init__(self, dice: random.Random, *, most_steps: int = 50_000) -> None:
        self.now_s = 1_000.0
        self.steps = 0
        self.trace: list[str] | None = None
        """Filled where it is a list: who did what at each step."""
        self._dice = dice
        self._hub = getcurrent()
        self._running: Actor | None = None
        self._ready: list[Actor] = []
        self._sleeping: list[tuple[float, int, Actor]] = []
        self._alive: list[Actor] = []
        self._count = 0
        self._most_steps = most_steps
        # A fair coin at each step seldom lets one actor run far ahead of the others; ranks do, and change now and then.
        self._by_rank = dice.random() < 0.5

    @property
    def running(self) -> Actor | None:
        """None outside of `run`: then nothing gives up its turn."""
        return self._running

    @property
    def running_name(self) -> str:
        return "nobody" if self._running is None else self._running.name

    def spawn(self, name: str, process: str, do: Callable[[], object], *, after_s: float = 0.0) -> Actor:
        actor = Actor(name, process, do, self._hub, self._dice.random())
        self._alive.append(actor)
        if after_s > 0:
            self._put_to_sleep(actor, after_s)
        else:
            self._ready.append(actor)
        return actor

    def step(self, label: str) -> None:
        actor = self._running
        if actor is None:
            return
        if not actor.is_dead:
            self._ready.append(actor)
            self._switch(actor)
        if self.trace is not None:
            self.trace.append(f"{self.steps:5} {self.now_s - 1000:9.3f}s  {actor.name}: {label}")

    def sleep(self, seconds: float) -> None:
        actor = self._running
        if actor is None:
            self.now_s += seconds
            return
        if not actor.is_dead:
            self._put_to_sleep(actor, max(seconds, 1e-6))
        self._switch(actor)

    def wait(self, timeout_s: float | None = None) -> None:
        """Until somebody calls `wake` for it, or for so long."""
        actor = self._running
        assert actor is not None, "whoever is no actor would wait for ever"
        actor.is_waiting = True
        if timeout_s is not None:
            self._put_to_sleep(actor, timeout_s)
        self._switch(actor)

    def wake(self, actor: Actor) -> None:
        if actor.is_waiting and not actor.is_dead:
            self._sleeping = [one for one in self._sleeping if one[2] is not actor]
            heapq.heapify(self._sleeping)
            actor.is_waiting = False
            self._ready.append(actor)

    def kill(self, process: str) -> None:
        mine = self._running
        gone = [one for one in self._alive if one.process == process and one is not mine]
        self._alive = [one for one in self._alive if one.process != process or one is mine]
        self._ready = [one for one in self._ready if one not in gone]
        self._sleeping = [one for one in self._sleeping if one[2] not in gone]
        heapq.heapify(self._sleeping)
        for one in gone:
            one.is_dead = True
        for one in gone:
            self._running = one
            one.greenlet.parent = getcurrent()
            one.greenlet.throw(GreenletExit)
        self._running = mine

    def run(self) -> None:
        """Until nobody has anything left to do."""
        while True:
            self.now_s += self._dice.random() * _TICK_S
            if not self._ready and self._sleeping:
                self.now_s = max(self.now_s, self._sleeping[0][0])
            while self._sleeping and self._sleeping[0][0] <= self.now_s:
                woken = heapq.heappop(self._sleeping)[2]
                woken.is_waiting = False
                self._ready.append(woken)
            if not self._ready:
                break
            self.steps += 1
            if self.steps > self._most_steps:
                raise Endless(f"{self.steps} steps, and {[one.name for one in self._alive]} still have something to do")
            self._running = self._next()
            self._running.greenlet.switch()
            done, self._running = self._running, None
            if done.greenlet.dead:
                self._alive.remove(done)
                if done.error is not None:
                    raise done.error
        waiting = [one.name for one in self._alive]
        if waiting:
            raise Stuck(f"{waiting} wait for ever")

    def close(self) -> None:
        for process in {one.process for one in self._alive}:
            self.kill(process)

    def _next(self) -> Actor:
        ready = self._ready
        if len(ready) == 1:
            return ready.pop()
        if not self._by_rank:
            return ready.pop(self._dice.randrange(len(ready)))
        place = max(range(len(ready)), key=lambda one: ready[one].rank)
        found = ready.pop(place)
        if self._dice.random() < _CHANGES_OF_MIND:
            found.rank = self._dice.random() - 1.0
        return found

    def _put_to_sleep(self, actor: Actor, seconds: float) -> None:
        self._count += 1
        heapq.heappush(self._sleeping, (self.now_s + seconds, self._count, actor))

    def _switch(self, actor: Actor) -> None:
        if actor.is_dead:
            raise GreenletExit
        self._hub.switch()


class Clocks:
    """What `time` is to the modules of the product that look at it, while they are in here."""

    def __init__(self, scheduler: Scheduler, start_ms: int) -> None:
        self._scheduler = scheduler
        self.start_ms = start_ms

    def monotonic(self) -> float:
        return self._scheduler.now_s

    def sleep(self, seconds: float) -> None:
        self._scheduler.sleep(seconds)

    def time_ns(self) -> int:
        return (self.start_ms + int(self._scheduler.now_s * 1000)) * 1_000_000


class Lock:
    """As `threading.Lock`; whoever waits lets others run."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._is_locked = False
        self._waiting: list[Actor] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        assert timeout < 0, "nobody here waits for a lock for some time only"
        while self._is_locked:
            if not blocking:
                return False
            assert self._scheduler.running is not None, "a lock that nobody will let go of"
            self._waiting.append(self._scheduler.running)
            self._scheduler.wait()
        self._is_locked = True
        return True

    def release(self) -> None:
        assert self._is_locked, "released twice"
        self._is_locked = False
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            self._scheduler.wake(one)

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class ReentrantLock(Lock):
    """As `threading.RLock`, for actors."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(scheduler)
        self._owner: Actor | None = None
        self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        mine = self._scheduler.running
        if not (self._is_locked and self._owner is mine):
            if not super().acquire(blocking, timeout):
                return False
            self._owner = mine
        self._depth += 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
            super().release()


class Condition:
    """As `threading.Condition`, for actors that wait for something for some time only."""

    def __init__(self, lock: Lock, scheduler: Scheduler) -> None:
        self._lock = lock
        self._scheduler = scheduler

    def wait_for(self, predicate: Callable[[], bool], timeout: float) -> bool:
        until = self._scheduler.now_s + timeout
        while not predicate() and self._scheduler.now_s < until:
            self._lock.release()
            self._scheduler.sleep(timeout / 4)
            self._lock.acquire()
        return predicate()

    def notify(self) -> None:
        """Whoever waits looks by itself."""


class Threading:
    """What `threading` is to the product's modules that wait for locks."""

    ThreadError = threading.ThreadError
    Event = threading.Event

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def Lock(self) -> Lock:  # noqa: N802  as threading calls it
        return Lock(self._scheduler)

    def Condition(self, lock: Lock) -> Condition:  # noqa: N802
        return Condition(lock, self._scheduler)
