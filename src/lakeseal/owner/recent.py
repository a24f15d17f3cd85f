"""Commits that were ratified a moment ago, as the ledger has them: who backfills them need not read them back.

A table, an epoch and a version name one ratified commit for ever: an epoch ends where the table is released or dropped,
and within it a version is ratified once. So what is here may be too little, and is never wrong.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from lakeseal.owner.messages import CommitRequest

_MOST_BYTES = 32 * 1024 * 1024
_OVERHEAD = 1024
"""What a commit takes here beside its bytes."""


class Recent:
    """For any thread."""

    def __init__(self, *, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._commits: dict[tuple[str, int], dict[int, CommitRequest]] = {}
        self._bytes = 0

    def add(self, ratified: Sequence[CommitRequest]) -> None:
        """The commits of one table. Those before them that are not here are not needed any more, or are read."""
        with self._lock:
            for one in ratified:
                self._commits.setdefault((one.table, one.epoch), {})[one.version] = one
                self._bytes += _bytes(one)
            if self._bytes > self._most_bytes:
                # Nobody backfills here, or not fast enough: the ledger has them all.
                self._commits.clear()
                self._bytes = 0

    def found(self, table: str, epoch: int, versions: range) -> list[CommitRequest] | None:
        """All of them, or None."""
        with self._lock:
            kept = self._commits.get((table, epoch), {})
            there = [one for version in versions if (one := kept.get(version)) is not None]
        return there if len(there) == len(versions) else None

    def forget(self, table: str, epoch: int, up_to: int) -> None:
        """They are backfilled."""
        with self._lock:
            kept = self._commits.pop((table, epoch), {})
            left = {version: one for version, one in kept.items() if version > up_to}
            self._bytes -= sum(_bytes(one) for version, one in kept.items() if version <= up_to)
            if left:
                self._commits[table, epoch] = left


def _bytes(request: CommitRequest) -> int:
    return _OVERHEAD + (0 if request.data is None else len(request.data))
