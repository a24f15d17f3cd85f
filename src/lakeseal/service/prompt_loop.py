"""What keeps the event loop of a service prompt, while its threads are busy: three things that Python leaves to chance.

`LargeWork`: requests that are much work are worked on by one thread at a time, the others wait in their order. Threads
share one interpreter. Of many that are busy with large messages each would keep the event loop waiting for a few
milliseconds, so together for as long as they like; and all that they made of their messages would be in memory at once.
Small requests pass by, and do not wait for any of this.

`prompt_turns`: whoever waits for the interpreter asks for it after a millisecond, and not after Python's own five. The
event loop takes it several times for one turn, and waited so long each time while a large message was worked on: 63 and
79 ms in all, on a machine with nothing else to do, where it is 32 to 39 now.

`collected_by_hand`, `collect_when_quiet`: garbage is collected when that holds up nobody. Python looks for it whenever
enough objects were made, on whatever thread made them, and until it is done no other thread runs, the event loop
neither. To look through all objects takes the longer the more there are, and there are most just while a large message
is worked on. So in the process of a service

- what is there once it has started stays, and is never looked through;
- young objects alone are collected by Python itself: some thousands at a time;
- all of them are looked through by the service, when enough was made since the last time, and while nothing large is
  worked on.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread

FEW_VALUES = 1_000
"""A message of so many is small."""
FEW_BYTES = 65_536
"""One of so many too: it is read at once; to hand it to a thread would take longer."""

_AT_A_TIME = 1
_TURN_S = 0.001

_EVERY_S = 0.5
_SHARE = 50
"""Of the time between two collections one takes at most a part of so many."""
_ENOUGH = 10
"""Collections of young objects that one of all of them follows: Python's own number."""
_NEVER = 2**31 - 1

T = TypeVar("T")


@contextmanager
def prompt_turns() -> Iterator[None]:
    """For a process that does nothing but serve."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_TURN_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


class LargeWork:
    """For the event loop."""

    def __init__(self) -> None:
        self._limiter = CapacityLimiter(_AT_A_TIME)

    async def run(self, do: Callable[..., T], *args: Any) -> T:
        """In a thread, when there is room for it."""
        return await to_thread.run_sync(do, *args, limiter=self._limiter)

    @asynccontextmanager
    async def none(self) -> AsyncIterator[None]:
        """While nothing large is worked on, nor begins."""
        async with AsyncExitStack() as stack:
            for _ in range(_AT_A_TIME):
                place = object()
                await self._limiter.acquire_on_behalf_of(place)
                stack.callback(self._limiter.release_on_behalf_of, place)
            yield


@contextmanager
def collected_by_hand() -> Iterator[None]:
    """For a process that does nothing but serve, once it has started."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*before[:2], _NEVER)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


async def collect_when_quiet(large: LargeWork) -> None:
    """Goes on until it is cancelled."""
    pause = _EVERY_S
    while True:
        await asyncio.sleep(pause)
        pause = _EVERY_S
        if gc.get_count()[2] >= _ENOUGH:
            async with large.none():
                start = time.thread_time()
                gc.collect()
                pause = max(_EVERY_S, _SHARE * (time.thread_time() - start))
