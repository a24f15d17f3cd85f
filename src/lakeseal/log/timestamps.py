"""When versions happened, and which version a moment saw.

A table with in-commit timestamps says it itself, from its enablement version on. Below that, and everywhere else, the
times of the commit files count, made to increase where clocks or copies did not: each is at least a millisecond after
the one before. A moment sees the newest version at or before it.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from datetime import UTC, date, datetime

from lakeseal.errors import InvalidArgument, InvalidMetadata, VersionNotFound
from lakeseal.log.delta_log import DeltaLog
from lakeseal.log.snapshot import Snapshot
from lakeseal.protocol.paths import LOG_DIR, LogFileKind, commit_path, parse

Timestamp = datetime | date | str | int


def to_ms(moment: Timestamp) -> int:
    """Milliseconds since the epoch of a datetime, an ISO text or milliseconds; without a zone it is UTC."""
    if isinstance(moment, bool):
        raise InvalidArgument(f"{moment!r} is not a timestamp")
    if isinstance(moment, int):
        return moment
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment)
        except ValueError as error:
            raise InvalidArgument(
                f"{moment!r} is not a timestamp", hint="Write it as 2024-01-31T12:00:00Z, or pass a datetime"
            ) from error
    if not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
    zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (zoned - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta_ms


timedelta_ms = datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)


def file_times(log: DeltaLog) -> dict[int, int]:
    """Version → time of its commit file, strictly increasing."""
    times: dict[int, int] = {}
    last: int | None = None
    for meta in log.store.list(LOG_DIR):
        file = parse(meta.key)
        if file is not None and file.kind is LogFileKind.COMMIT:
            last = meta.modified_ms if last is None else max(meta.modified_ms, last + 1)
            times[file.version] = last
    return times


def version_at(log: DeltaLog, moment: Timestamp) -> int:
    """The newest version at or before `moment`."""
    wanted = to_ms(moment)
    latest = log.snapshot()
    first_own = first_in_commit_version(latest)
    if first_own is not None:
        earliest = max(first_own, contiguous_from(log.listing().commits, latest.version))
        found = _last_at_or_before(wanted, earliest, latest.version, lambda v: in_commit_timestamp(log, v))
        if found is not None:
            return found
    times = {v: t for v, t in file_times(log).items() if first_own is None or v < first_own}
    seen = [v for v, t in times.items() if t <= wanted]
    if not seen:
        raise VersionNotFound(
            f"No version is as old as {_text(wanted)}",
            table=log.table,
            hint=f"The oldest that can be read is of {_text(min(times.values()))}" if times else "Ask for a later time",
        )
    return max(seen)


def contiguous_from(versions: Container[int], latest: int) -> int:
    """The first of the versions that lead up to `latest` without a gap: a clean-up below may have stopped halfway."""
    while latest - 1 in versions:
        latest -= 1
    return latest


def timestamp_of(log: DeltaLog, snapshot: Snapshot) -> int:
    """When the version of `snapshot` was committed."""
    own = snapshot.in_commit_timestamp
    return own if own is not None else log.store.head(commit_path(snapshot.version)).modified_ms


def first_in_commit_version(latest: Snapshot) -> int | None:
    """From which version on commits carry their own timestamps; None if the table does not keep them."""
    properties = latest.properties
    if not properties.in_commit_timestamps:
        return None
    return properties.in_commit_timestamp_enablement_version or 0


def in_commit_timestamp(log: DeltaLog, version: int) -> int:
    info = log.commit_info(version)
    if info is None or info.in_commit_timestamp is None:
        raise InvalidMetadata(
            "The commit lacks the in-commit timestamp that the table's properties promise",
            table=log.table,
            version=version,
            file=commit_path(version),
            hint="Read by version instead of by time",
        )
    return info.in_commit_timestamp


def _last_at_or_before(wanted: int, first: int, last: int, at: Callable[[int], int]) -> int | None:
    """Binary search over versions whose times increase."""
    if at(first) > wanted:
        return None
    while first < last:
        middle = (first + last + 1) // 2
        if at(middle) <= wanted:
            first = middle
        else:
            last = middle - 1
    return first


def _text(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
