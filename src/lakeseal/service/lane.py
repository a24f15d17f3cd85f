"""A thread that does together whatever came while it was busy. Nobody waits for company: a request that comes alone is
done alone, at once.

`ask` is for the event loop and gives None where the request has to be done by itself: its turn found it unusual, or the
group before it takes so long that something it met must be stuck, and what stands still for one shall not for all.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

_log = logging.getLogger(__name__)

_MOST_AT_ONCE = 64
_STUCK_S = 1.0

A = TypeVar("A")
R = TypeVar("R")


class Lane(Generic[A, R]):
    def __init__(self, do: Callable[[Sequence[A]], Sequence[R | Exception | None]]) -> None:
        """`do` gives for each what it came to, in their order; it raises nothing."""
        self._do = do
        self._waiting: list[tuple[A, asyncio.Future[R | None]]] = []
        self._changed = threading.Condition()
        self._since: float | None = None
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="lakeseal-lane", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """After what is waiting."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify()
        self._thread.join()

    async def ask(self, asked: A) -> R | None:
        future: asyncio.Future[R | None] = asyncio.get_running_loop().create_future()
        with self._changed:
            if self._is_stopping or (self._since is not None and time.monotonic() - self._since > _STUCK_S):
                return None
            self._waiting.append((asked, future))
            self._changed.notify()
        return await future

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    if self._is_stopping:
                        return
                    self._changed.wait()
                taken, self._waiting = self._waiting[:_MOST_AT_ONCE], self._waiting[_MOST_AT_ONCE:]
                self._since = time.monotonic()
            try:
                done = self._do([asked for asked, _ in taken])
            except Exception:
                _log.exception("a group failed unexpectedly, and its requests are done one by one")
                done = [None] * len(taken)
            self._since = None
            taken[0][1].get_loop().call_soon_threadsafe(_tell, [future for _, future in taken], done)


def _tell(futures: Sequence[asyncio.Future[R | None]], done: Sequence[R | Exception | None]) -> None:
    for future, one in zip(futures, done, strict=True):
        if future.done():
            continue
        if isinstance(one, Exception):
            future.set_exception(one)
        else:
            future.set_result(one)
