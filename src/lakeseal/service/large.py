"""`LargeWork`: requests that are much work are worked on by one thread at a time, the others wait in their order.

Threads share one interpreter. Of many that are busy with large messages each would keep the event loop waiting for a
few milliseconds, so together for as long as they like; and all that they made of their messages would be in memory at
once. Small requests pass by, and do not wait for any of this.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread

FEW_VALUES = 1_000
"""A message of so many is small."""
FEW_BYTES = 65_536
"""One of so many too: it is read at once; to hand it to a thread would take longer."""

_AT_A_TIME = 1

T = TypeVar("T")


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
