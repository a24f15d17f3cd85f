"""What commands that change rows tell of themselves, under the names that Delta's history has for it."""

from __future__ import annotations

import time
from collections.abc import Iterable

from lakeseal.protocol.actions import Action, AddCDCFile, AddFile, RemoveFile

Metrics = dict[str, int | str]


class Stopwatch:
    """Milliseconds since it was made, and since it was last asked for a lap."""

    def __init__(self) -> None:
        self._start = self._lap = time.monotonic_ns()

    def lap(self) -> int:
        now = time.monotonic_ns()
        passed, self._lap = now - self._lap, now
        return passed // 1_000_000

    @property
    def total(self) -> int:
        return (time.monotonic_ns() - self._start) // 1_000_000


def file_metrics(actions: Iterable[Action]) -> Metrics:
    """Files and bytes added and removed. A file that only got another deletion vector is neither."""
    actions = list(actions)
    adds = {a.path: a for a in actions if isinstance(a, AddFile)}
    removes = {a.path: a for a in actions if isinstance(a, RemoveFile)}
    kept = adds.keys() & removes.keys()
    updated = sum(removes[path].deletion_vector is not None for path in kept)
    gone = sum(r.deletion_vector is not None for path, r in removes.items() if path not in kept)
    return {
        "numAddedFiles": len(adds.keys() - kept),
        "numAddedBytes": sum(a.size for path, a in adds.items() if path not in kept),
        "numRemovedFiles": len(removes.keys() - kept),
        "numRemovedBytes": sum(r.size or 0 for path, r in removes.items() if path not in kept),
        "numAddedChangeFiles": sum(isinstance(a, AddCDCFile) for a in actions),
        "numDeletionVectorsAdded": len(kept),
        "numDeletionVectorsRemoved": updated + gone,
        "numDeletionVectorsUpdated": updated,
    }


def known(**counts: int | None) -> Metrics:
    """Without those that nobody knows."""
    return {name: count for name, count in counts.items() if count is not None}
