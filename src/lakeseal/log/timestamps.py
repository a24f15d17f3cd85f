"""When versions happened, and which version a moment saw.

A commit that carries its own in-commit timestamp happened then, for good: also after the table has stopped to keep
them, as it may once its owner has released it, when the files' times are those of their backfill. Everywhere else the
times of the commit files count, made to increase where clocks or copies did not: each is at least a millisecond after
the one before. A moment sees the newest version at or before it.

A table that keeps in-commit timestamps has them from its enablement version on, so that a few commits have to be looked
at. One that has stopped to keep them does not say which versions have them, and each commit is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from datetime import UTC, date, datetime

from lakeseal.errors import InvalidArgument, InvalidMetadata, VersionNotFound
from lakeseal.log.delta_log import DeltaLog, commit_info_in
from lakeseal.log.snapshot import Snapshot
from lakeseal.protocol.features import supports
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


def file_times(log: DeltaLog, *, own: Mapping[int, int] | None = None) -> dict[int, int]:
    """Version → time of its commit file, strictly increasing, or what is its own."""
    times: dict[int, int] = {}
    last: int | None = None
    for meta in log.store.list(LOG_DIR):
        file = parse(meta.key)
        if file is not None and file.kind is LogFileKind.COMMIT:
            said = None if own is None else own.get(file.version)
            increasing = meta.modified_ms if last is None else max(meta.modified_ms, last + 1)
            last = increasing if said is None else said
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
    times = times_below(log, latest, first_own)
    seen = [v for v, t in times.items() if t <= wanted]
    if not seen:
        raise VersionNotFound(
            f"No version is as old as {_text(wanted)}",
            table=log.table,
            hint=f"The oldest that can be read is of {_text(min(times.values()))}" if times else "Ask for a later time",
        )
    return max(seen)


def times_below(log: DeltaLog, latest: Snapshot, first_own: int | None) -> dict[int, int]:
    """Of the versions before in-commit timestamps were switched on, this time; of all, if they are off."""
    if first_own is None:
        return file_times(log, own=_own_times(log, 0, latest)) if _may_have_own(latest) else file_times(log)
    times = {v: t for v, t in file_times(log).items() if v < first_own}
    before = log.snapshot(first_own - 1) if first_own - 1 in times else None
    if before is None or not _may_have_own(before):
        return times
    # They were on before, and off in between.
    own = _own_times(log, 0, before)
    return {v: t for v, t in file_times(log, own=own).items() if v < first_own}


def _may_have_own(snapshot: Snapshot) -> bool:
    return snapshot.properties.in_commit_timestamps or supports(snapshot.protocol, "inCommitTimestamp")


def _own_times(log: DeltaLog, first: int, last: Snapshot) -> dict[int, int]:
    """Version → its in-commit timestamp, where its commit carries one."""
    first = max(first, contiguous_from(log.listing().commits, last.version))
    found = {}
    for commit in log.commits(first, last.version):
        info = commit_info_in(commit.data)
        if info is not None and info.in_commit_timestamp is not None:
            found[commit.version] = info.in_commit_timestamp
    return found


def own_time(log: DeltaLog, snapshot: Snapshot, version: int) -> int | None:
    """The in-commit timestamp of a version, if its commit carries one; `snapshot` is of that version or later."""
    if not _may_have_own(snapshot):
        return None
    info = log.commit_info(version)
    return None if info is None else info.in_commit_timestamp


def contiguous_from(versions: Container[int], latest: int) -> int:
    """The first of the versions that lead up to `latest` without a gap: a clean-up below may have stopped halfway."""
    while latest - 1 in versions:
        latest -= 1
    return latest


def timestamp_of(log: DeltaLog, snapshot: Snapshot) -> int:
    """When the version of `snapshot` was committed."""
    own = snapshot.in_commit_timestamp
    if own is not None:
        return own
    told = times_below(log, snapshot, None).get(snapshot.version)
    return log.store.head(commit_path(snapshot.version)).modified_ms if told is None else told


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
