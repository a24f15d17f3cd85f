"""Work that a thread does behind its caller's back: one piece at a time, in the order given.

Whoever makes rows goes on making them while those before are encoded, which needs no Python. There is never more than
one piece waiting or under way, so memory stays bounded by two pieces: that one, and the one that the caller collects.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec

P = ParamSpec("P")


class WriteBehind:
    """No thread is started before the first piece. Ends by `close`."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None
        self._pending: Future[None] | None = None

    def submit(self, work: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Returns once the piece before is done, and raises what that one raised."""
        self.settle()
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="lakeseal-write")
        self._pending = self._executor.submit(work, *args, **kwargs)

    def settle(self) -> None:
        """Wait until nothing is under way; raises what the last piece raised."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def close(self) -> None:
        """Wait likewise, whatever the last piece raised. May be called twice."""
        self._pending = None
        if self._executor is not None:
            self._executor.shutdown()
            self._executor = None
