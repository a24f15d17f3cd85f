"""Cleaning up the log: what only serves versions that are older than the table wants to keep is deleted.

The cut is midnight UTC before now minus `delta.logRetentionDuration`. The newest whole checkpoint at or below the last
version from before the cut stays, and so does the commit of that version and everything above; what is below goes, with
sidecars that no checkpoint names any more. So every version since the cut can still be read, and the newest always can.

Deleting is safe to stop at any point, whatever order a store chooses within one request. What versions below are read
*from* goes first (compactions, the first commit, checkpoints), so that they are refused as cleaned up; the rest, which
nobody can then reach, goes afterwards. The next clean-up takes up where one was stopped.

A table that forbids clean-up, or protects its checkpoints, is left alone, and the report says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from lakeseal.errors import BrokenCheckpoint, VersionNotFound, located
from lakeseal.log.checkpoint_reader import check_checkpoint, read_sidecar_keys
from lakeseal.log.delta_log import DeltaLog, check_upkeep
from lakeseal.log.segment import choose, sort_out
from lakeseal.log.snapshot import Snapshot
from lakeseal.log.timestamps import own_time, version_at
from lakeseal.protocol.features import supports
from lakeseal.protocol.paths import LOG_DIR, SIDECARS_DIR, LogFile, LogFileKind, commit_path, parse
from lakeseal.storage.base import Store

_DAY_MS = 86_400_000
_AT_ONCE = 1000
# A checkpoint that is being written has sidecars that nothing names yet.
_SIDECAR_GRACE_MS = _DAY_MS

Steps = list[tuple[str, ...]]
"""Keys to delete: one step after the other, the keys of a step in any order."""


class CleanupReport(Struct, frozen=True, kw_only=True):
    deleted: tuple[str, ...] = ()
    """Keys, in the order in which they were deleted, or would be without `dry_run`."""
    oldest_version: int | None = None
    """The oldest version that can be read afterwards; None where nothing has expired."""
    cut_ms: int | None = None
    skipped: str | None = None
    """Why this table is not cleaned up at all."""
    dry_run: bool = False


def clean_up_expired_logs(log: DeltaLog, *, now_ms: int, dry_run: bool = False) -> CleanupReport:
    with located(table=log.table):
        snapshot = log.snapshot()
        skipped = _forbidden(snapshot)
        if skipped is not None:
            return CleanupReport(skipped=skipped, dry_run=dry_run)
        check_upkeep(log, snapshot)
        cut = (now_ms - snapshot.properties.log_retention_ms) // _DAY_MS * _DAY_MS
        names = log.store.list_keys(LOG_DIR)
        keep = _checkpoint_to_keep(log, snapshot, names, cut)
        if keep is None:
            return CleanupReport(cut_ms=cut, dry_run=dry_run)
        steps = plan(names, keep)
        if steps:
            steps += _orphaned_sidecars(log.store, names, keep, min(cut, now_ms - _SIDECAR_GRACE_MS))
        if not dry_run:
            delete_steps(log.store, steps)
        deleted = tuple(key for step in steps for key in step)
        return CleanupReport(deleted=deleted, oldest_version=keep, cut_ms=cut, dry_run=dry_run)


def delete_steps(store: Store, steps: Steps) -> None:
    for step in steps:
        for start in range(0, len(step), _AT_ONCE):
            store.delete(step[start : start + _AT_ONCE])


def plan(names: Iterable[str], keep: int) -> Steps:
    """What to delete of a log, so that it starts with the checkpoint of version `keep`, which it has.

    Raises `CorruptTable` where the rest could not be read."""
    names = list(names)
    below = sorted((file for file in _files(names) if _is_below(file, keep)), key=lambda file: file.version)
    compactions = [file.key for file in below if file.kind is LogFileKind.COMPACTED]
    first = [file.key for file in below if file.kind is LogFileKind.COMMIT and file.version == 0]
    checkpoints = [file.key for file in below if file.is_checkpoint]
    gone = {*compactions, *first, *checkpoints}
    rest = [file.key for file in below if file.key not in gone]
    gone.update(rest)
    left = sort_out(name for name in names if name not in gone)
    for version in (keep, left.latest):
        choose(left, version)
    return [tuple(step) for step in (compactions, first, checkpoints, rest) if step]


def _forbidden(snapshot: Snapshot) -> str | None:
    properties = snapshot.properties
    if not properties.expired_log_cleanup:
        return "The table's property delta.enableExpiredLogCleanup is false"
    if properties.checkpoint_protection_before_version > 0 or supports(snapshot.protocol, "checkpointProtection"):
        return "The table protects its checkpoints (checkpointProtection)"
    return None


def _checkpoint_to_keep(log: DeltaLog, snapshot: Snapshot, names: list[str], cut: int) -> int | None:
    """The newest checkpoint that serves all versions since the cut: whole, and with its version's commit."""
    # Runs after commits, in their process: of a long log, nearly all of which is commits, it takes apart little.
    listing = sort_out(name for name in names if "checkpoint" in name)
    commits = set(names)
    first = next((file.version for file in _files(names)), 0)
    useful = [v for v in listing.checkpoints if v > first and commit_path(v) in commits]
    if not useful or _stated_time(log, snapshot, min(useful)) >= cut:
        return None  # nearly always: a day's checkpoints expire together, at the first clean-up of another day
    try:
        last_expired = version_at(log, cut - 1)
    except VersionNotFound:
        return None
    for version in sorted((v for v in useful if v <= last_expired), reverse=True):
        for files in listing.checkpoints[version]:
            try:
                check_checkpoint(log.store, version, files)
            except BrokenCheckpoint:
                continue
            return version
    return None


def _stated_time(log: DeltaLog, snapshot: Snapshot, version: int) -> int:
    """When a version happened, or earlier: times of files may have to be moved forward to increase."""
    own = own_time(log, snapshot, version)
    return log.store.head(commit_path(version)).modified_ms if own is None else own


def _files(names: Iterable[str]) -> Iterator[LogFile]:
    return (file for name in names if (file := parse(name)) is not None)


def _is_below(file: LogFile, keep: int) -> bool:
    if file.kind is LogFileKind.STAGED_COMMIT:
        return False
    return (file.version if file.end_version is None else file.end_version) < keep


def _orphaned_sidecars(store: Store, names: list[str], keep: int, before_ms: int) -> Steps:
    old = [meta.key for meta in store.list(SIDECARS_DIR) if meta.modified_ms < before_ms]
    if not old:
        return []
    named: set[str] = set()
    for file in _files(names):
        if file.is_checkpoint and file.version >= keep:
            try:
                named.update(read_sidecar_keys(store, (file,)))
            except BrokenCheckpoint:
                return []  # it may be mended, and nobody can say which sidecars it needs
    orphans = tuple(key for key in old if key not in named)
    return [orphans] if orphans else []
