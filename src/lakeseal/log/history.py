"""History: what each version did, newest first, as its writer recorded it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from lakeseal.log.delta_log import DeltaLog
from lakeseal.log.timestamps import first_in_commit_version, times_below
from lakeseal.protocol.actions import CommitInfo


class HistoryEntry(Struct, frozen=True, kw_only=True):
    version: int
    timestamp: datetime
    info: CommitInfo
    """Empty where the writer recorded nothing."""

    @property
    def operation(self) -> str | None:
        operation = self.info.operation
        return operation if isinstance(operation, str) else None

    def to_json(self) -> dict[str, Any]:
        return {**self.info.to_json(), "version": self.version, "timestamp": self.timestamp.isoformat()}


def history(log: DeltaLog, limit: int | None = None) -> list[HistoryEntry]:
    """The versions whose commits are still there; `limit` keeps the newest."""
    listing = log.listing()
    versions = sorted(listing.commits, reverse=True)[:limit]
    if not versions:
        return []
    latest = log.snapshot()
    first_own = first_in_commit_version(latest)
    is_all_own = first_own is not None and first_own <= versions[-1]
    times = {} if is_all_own else times_below(log, latest, first_own)
    return [_entry(log, version, times.get(version)) for version in versions]


def _entry(log: DeltaLog, version: int, file_time: int | None) -> HistoryEntry:
    info = log.commit_info(version) or CommitInfo()
    moment = info.in_commit_timestamp if info.in_commit_timestamp is not None else file_time
    if moment is None:
        moment = info.timestamp if isinstance(info.timestamp, int) else 0
    return HistoryEntry(version=version, timestamp=datetime.fromtimestamp(moment / 1000, UTC), info=info)
