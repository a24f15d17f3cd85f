"""`LargeWork`: requests that are much work are worked on by one thread at a time, the others wait in their order.

Threads share one interpreter. Of many that are busy with large messages each would keep the event loop waiting for a
few milliseconds, so together for as long as they like; and all that they made of their messages would be in memory at
once. Small requests pass by, and do not wait for any of this.

`prompt_turns`: whoever waits for the interpreter asks for it after a millisecond, and not after Python's own five. The
event loop takes it several times for one turn, and waited so long each time while a large message was worked on: 63 and
79 ms in all, on a machine with nothing else to do, where it is 32 to 39 now.
"""

from __future__ import annotations

import sys
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
