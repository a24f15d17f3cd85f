"""Writers of one table take turns, so that those who lose do not write files for nothing.

A version has one winner. If each of n writers makes its file durable first and asks then, n - 1 files were in vain, and
syncing them is most of the work. So within a process one request per table is under way at a time. Between processes
nobody knows of the others, except by losing: where this process lost lately, files are written only once the table's
row is locked and the version is known to be free. Elsewhere they are written before, so that no lock is held meanwhile.

None of this decides anything: it only saves work.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

from lakeseal.owner.messages import Batch, BatchAnswer, CommitRequest, Ratified, Taken

_WINS_TO_FORGET = 16


class Traffic:
    """May be shared by threads."""

    def __init__(self) -> None:
        self._turns: dict[str, threading.Lock] = {}
        self._latest: dict[str, int] = {}
        self._contended: dict[str, int] = {}

    @contextmanager
    def turn(self, batch: Batch) -> Iterator[bool]:
        """Whether others are likely to be faster."""
        with ExitStack() as held:
            for table in sorted(request.table for request in batch.commits):
                held.enter_context(self._turns.setdefault(table, threading.Lock()))
            yield any(request.table in self._contended or self.is_late(request) for request in batch.commits)

    def is_late(self, request: CommitRequest) -> bool:
        """Whether this process knows that the version is taken, perhaps by this very request."""
        return request.version <= self._latest.get(request.table, -1)

    def is_contended(self, table: str) -> bool:
        return table in self._contended

    def note_overtaken(self, tables: Iterable[str]) -> None:
        """Another process was faster there."""
        self._contended |= dict.fromkeys(tables, _WINS_TO_FORGET)

    def note(self, answer: BatchAnswer) -> None:
        """To be called within the turn."""
        for one in answer.commits:
            match one:
                case Taken():
                    self._contended[one.table] = _WINS_TO_FORGET
                case Ratified():
                    left = self._contended.pop(one.table, 0) - 1
                    if left > 0:
                        self._contended[one.table] = left
            if isinstance(one, Ratified | Taken):
                self._latest[one.table] = max(one.version, self._latest.get(one.table, -1))
