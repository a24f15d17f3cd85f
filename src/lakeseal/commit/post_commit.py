"""What happens after a commit, off the path of its answer: checkpoints, checksums, whatever is plugged in.

Hooks run in the background, one at a time. They come after the fact: the commit stands whatever they do, so their
failures are logged and never raised, and a hook that has not started yet is dropped when the same hook of the same
table has newer work. `flush` waits for all of it; the end of the interpreter does so too, for a while.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from msgspec import Struct

from lakeseal.clock import now_ms
from lakeseal.commit.owner import CommitOwner
from lakeseal.log.delta_log import DeltaLog
from lakeseal.log.maintenance import checkpoint_is_due, maintain
from lakeseal.log.snapshot import Snapshot

_log = logging.getLogger(__name__)
_EXIT_TIMEOUT_S = 60.0
_IDLE_S = 2.0


class FreshCommit(Struct, frozen=True, kw_only=True):
    """A commit of ours that has just been ratified. `snapshot` is the table right after it."""

    version: int
    data: bytes
    snapshot: Snapshot
    log: DeltaLog
    owner: CommitOwner


class PostCommit(Protocol):
    @property
    def name(self) -> str: ...

    def wants(self, commit: FreshCommit) -> bool:
        """Asked on the committing thread, so without I/O. What a commit must not miss because of newer ones needs a
        hook of its own that wants only such commits."""

    def run(self, commit: FreshCommit) -> None: ...


class Maintenance:
    """The hook that keeps a log short to read: a checksum, a checkpoint and a clean-up.

    It runs where the table's checkpoint interval says, not at every commit: each of the three has to know all live
    files, and a commit must not cost more the more files there are."""

    name = "maintenance"

    def wants(self, commit: FreshCommit) -> bool:
        return checkpoint_is_due(commit.snapshot)

    def run(self, commit: FreshCommit) -> None:
        # Only what is in the log under its own name may be checkpointed (B4).
        commit.owner.backfill_to_version(commit.version)
        maintain(commit.log, commit.snapshot, now_ms=now_ms())


class Background:
    """Jobs one after the other, on a thread that goes away when there has been no work for a while."""

    def __init__(self) -> None:
        self._reset()
        os.register_at_fork(after_in_child=self._reset)
        atexit.register(self.flush, timeout=_EXIT_TIMEOUT_S)

    def _reset(self) -> None:
        # In a forked child the thread is gone and the lock may be held by nobody.
        self._changed = threading.Condition()
        self._waiting: dict[tuple[str, str], Callable[[], object]] = {}
        self._is_running = False
        self._has_thread = False

    def submit(self, key: tuple[str, str], job: Callable[[], object]) -> None:
        with self._changed:
            self._waiting.pop(key, None)
            self._waiting[key] = job
            if self._has_thread:
                self._changed.notify_all()
                return
            self._has_thread = True
        threading.Thread(target=self._work, name="lakeseal-post-commit", daemon=True).start()

    def flush(self, *, timeout: float | None = None) -> bool:
        """Waits until nothing is left to do; False if that took longer than `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._is_running, timeout)

    def _work(self) -> None:
        while (found := self._next()) is not None:
            (table, name), job = found
            try:
                job()
            except Exception as error:
                _log.warning("%s after a commit to %s failed; the commit stands: %s", name, table, error)

    def _next(self) -> tuple[tuple[str, str], Callable[[], object]] | None:
        with self._changed:
            self._is_running = False
            self._changed.notify_all()
            # Starting a thread for every commit would cost the committing thread more than waking one.
            if not self._changed.wait_for(lambda: self._waiting, timeout=_IDLE_S):
                self._has_thread = False
                return None
            self._is_running = True
            key = next(iter(self._waiting))
            return key, self._waiting.pop(key)


_background = Background()


def run_after(commit: FreshCommit, hooks: Sequence[PostCommit]) -> None:
    table = commit.log.table
    for hook in hooks:
        try:
            wanted = hook.wants(commit)
        except Exception as error:
            _log.warning("%s after a commit to %s failed; the commit stands: %s", hook.name, table, error)
            continue
        if wanted:
            _background.submit((table, hook.name), partial(hook.run, commit))


def flush(*, timeout: float | None = None) -> bool:
    """Waits for all that runs after commits of this process; False if that took longer than `timeout` seconds."""
    return _background.flush(timeout=timeout)
