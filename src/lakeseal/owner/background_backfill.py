"""Backfill right behind the commits of an owner in this process, and off their path.

A commit is noted; a moment later, or as soon as there is a whole batch, everything that its table has is backfilled, on
a thread that goes away when there has been nothing to do for a while. So a commit that comes alone is in the log after
`DELAY_S`, and of many that come together each batch is one piece of work. `flush` waits for all of it, and the end of
the process does so too, for a while. A backfill that fails is logged; the commits stand, and the next one tries again.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakeseal.owner.ledger_owner import LedgerOwner

_log = logging.getLogger(__name__)

DELAY_S = 0.1
_IDLE_S = 2.0
_EXIT_TIMEOUT_S = 60.0


class BackgroundBackfill:
    """For any thread."""

    def __init__(self) -> None:
        self._reset()
        os.register_at_fork(after_in_child=self._reset)
        atexit.register(self.flush, timeout=_EXIT_TIMEOUT_S)

    def _reset(self) -> None:
        # In a forked child the thread is gone, the lock may be held by nobody, and the parent does what is left.
        self._changed = threading.Condition()
        self._waiting: dict[LedgerOwner, set[str]] = {}
        self._is_urgent = False
        self._is_running = False
        self._has_thread = False
        self._is_registered = False

    def note(self, owner: LedgerOwner, table: str, *, at_once: bool = False) -> None:
        """`table` has a commit that is not in its log yet."""
        with self._changed:
            is_first = not self._waiting
            self._waiting.setdefault(owner, set()).add(table)
            if is_first or (at_once and not self._is_urgent):
                self._is_urgent = self._is_urgent or at_once
                self._changed.notify_all()
            if self._has_thread:
                return
            self._has_thread = True
            self._end_with_a_worker()
        threading.Thread(target=self._work, name="lakeseal-backfill", daemon=True).start()

    def flush(self, *, timeout: float | None = None) -> bool:
        """Waits until nothing is left to do; False if that took longer than `timeout` seconds."""
        with self._changed:
            self._is_urgent = True
            self._changed.notify_all()
            return self._changed.wait_for(lambda: not self._waiting and not self._is_running, timeout)

    def _work(self) -> None:
        while (found := self._next()) is not None:
            for owner, tables in found.items():
                failed: Mapping[str, Exception]
                try:
                    failed = owner.backfill_tables(tables)
                except Exception as error:
                    failed = dict.fromkeys(tables, error)
                for table, reason in failed.items():
                    _log.warning("backfill of %s failed; its commits stand: %s", table, reason)
            # Held no longer: an owner that nobody else uses is let go.
            found = owner = None  # type: ignore[assignment]

    def _next(self) -> dict[LedgerOwner, set[str]] | None:
        with self._changed:
            self._is_running = False
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: self._waiting, timeout=_IDLE_S):
                self._has_thread = False
                return None
            self._changed.wait_for(lambda: self._is_urgent, timeout=DELAY_S)
            self._is_running = True
            self._is_urgent = False
            found, self._waiting = self._waiting, {}
            return found

    def _end_with_a_worker(self) -> None:
        """Processes of `multiprocessing` end without what was registered at `atexit`."""
        process = sys.modules.get("multiprocessing.process")
        if self._is_registered or process is None or process.parent_process() is None:
            return
        from multiprocessing.util import Finalize  # only there

        self._is_registered = True
        Finalize(None, self.flush, kwargs={"timeout": _EXIT_TIMEOUT_S}, exitpriority=0)


background_backfill = BackgroundBackfill()
