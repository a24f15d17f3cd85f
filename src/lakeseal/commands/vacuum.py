"""VACUUM: files that no version within the retention needs are deleted from the store, for good.

What stays, whatever its age: the log, files and deletion vectors of the newest version, and those that were removed
within the retention, so that every version since then can be read. What stays by its age: files younger than the
retention, for a writer may be about to commit them, and change files, which belong to no version's state. Names that
start with `_` or `.` are none of a table's business, `_change_data` and partition directories aside.

What is deleted is decided on the version at which the history says that a vacuum has started: who brought files back
until then keeps them, and who wanted to bring them back meanwhile (a restore) fails and has to look again.

A retention shorter than the table's own is refused unless the caller insists: it may take files from readers and
writers that are at work. A table that uses features which this client does not know is refused altogether, as its
files might be named in ways that are not known either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from lakeseal.commit.conflicts import VACUUM_END, VACUUM_START
from lakeseal.commit.proposal import Operation
from lakeseal.commit.transaction import CommitResult, OptimisticTransaction
from lakeseal.errors import InvalidArgument, LakesealError, ObjectNotFound, TableNotFound, UnsafePath, located
from lakeseal.jobs.progress import Progress, progress
from lakeseal.log.delta_log import DeltaLog
from lakeseal.log.files import REMOVES
from lakeseal.log.snapshot import Snapshot
from lakeseal.log.timestamps import file_times
from lakeseal.protocol.actions import Action, AddFile, DeletionVectorDescriptor, RemoveFile
from lakeseal.protocol.data_paths import resolve_data_path
from lakeseal.protocol.deletion_vectors import ABSOLUTE, RELATIVE, relative_path
from lakeseal.protocol.features import check_readable, check_writable
from lakeseal.protocol.paths import CHANGE_DATA_DIR, LOG_DIR
from lakeseal.storage import key_in
from lakeseal.storage.base import ObjectMeta, Store

Begin = Callable[[], OptimisticTransaction]
_HOUR_MS = 3_600_000
_AT_ONCE = 1000


class VacuumReport(Struct, frozen=True, kw_only=True):
    deleted: tuple[str, ...] = ()
    """Keys below the table that were deleted, or would be without `dry_run`."""
    bytes: int = 0
    directories: int = 0
    """That were looked through."""
    cut_ms: int
    """What was removed before this moment is gone."""
    dry_run: bool = False

    @property
    def metrics(self) -> dict[str, int | str]:
        return {
            "numDeletedFiles": len(self.deleted),
            "numVacuumedDirectories": self.directories,
            "sizeOfDataToDelete": self.bytes,
        }


class VacuumCommand(Struct, frozen=True, kw_only=True):
    hours: float | None = None
    """None: the table's `delta.deletedFileRetentionDuration`, a week unless it says otherwise."""
    dry_run: bool = False
    lite: bool = False
    """Only what the log says was removed; nothing is listed, and files that no commit names stay."""
    inventory: pa.Table | None = None
    """What is there, where somebody else has listed it."""
    enforce_retention_duration: bool = True

    def __post_init__(self) -> None:
        if self.lite and self.inventory is not None:
            raise InvalidArgument("A vacuum goes by the log (lite) or by an inventory, not by both")
        if self.hours is not None and not 0 <= self.hours < 10**9:
            raise InvalidArgument(f"The retention cannot be {self.hours} hours", hint="Use 0 or more")


def run(command: VacuumCommand, log: DeltaLog, store: Store, begin: Begin, *, now_ms: int) -> VacuumReport:
    """`begin` starts a transaction, for the two entries that the history gets."""
    with located(table=log.table), progress("vacuum") as bar:
        newest = log.update()
        if newest is None:
            raise TableNotFound("There is no table here")
        cut = now_ms - _retention_ms(command, newest)
        bar.stage("listing")
        # Listed before the log is read: what is committed in between is then known to the log.
        listed = _candidates(command, log, store, newest, cut)
        # Of what the log says was removed before, nobody is about to commit it.
        old = [meta for meta in listed if command.lite or meta.modified_ms < cut]
        directories = len({meta.key.rpartition("/")[0] for meta in listed})

        def report(gone: list[ObjectMeta], cut: int) -> VacuumReport:
            return VacuumReport(
                deleted=tuple(meta.key for meta in gone),
                bytes=sum(meta.size for meta in gone),
                directories=directories,
                cut_ms=cut,
                dry_run=command.dry_run,
            )

        looked_at = log.snapshot()
        needed = _needed(log, store, looked_at.version, cut)
        gone = [meta for meta in old if meta.key not in needed]
        if not gone or command.dry_run:
            return report(gone, cut)
        started = _start(report(gone, cut), command, newest, begin)
        if started.version > looked_at.version + 1:
            cut = min(cut, now_ms - _retention_ms(command, started.snapshot))
            needed = _needed(log, store, started.version, cut)
            gone = [m for m in gone if (command.lite or m.modified_ms < cut) and m.key not in needed]
        back = _delete(report(gone, cut), log, store, started.version, begin, bar)
        return report([meta for meta in gone if meta.key not in back], cut)


def _start(planned: VacuumReport, command: VacuumCommand, snapshot: Snapshot, begin: Begin) -> CommitResult:
    retention = {
        "retentionCheckEnabled": command.enforce_retention_duration,
        "specifiedRetentionMillis": None if command.hours is None else int(command.hours * _HOUR_MS),
        "defaultRetentionMillis": snapshot.properties.deleted_file_retention_ms,
    }
    metrics = {"numFilesToDelete": len(planned.deleted), "sizeOfDataToDelete": planned.bytes}
    return begin().commit([], Operation(name=VACUUM_START, parameters=retention, metrics=metrics))


def _delete(report: VacuumReport, log: DeltaLog, store: Store, looked_at: int, begin: Begin, bar: Progress) -> set[str]:
    """What was not deleted, because others have brought it back."""
    bar.stage("deleting", len(report.deleted))
    done = 0
    status = "FAILED"
    back: set[str] = set()
    try:
        for start in range(0, len(report.deleted), _AT_ONCE):
            if start:
                newest = log.snapshot().version
                back |= _brought_back(log, store, looked_at, newest)
                looked_at = newest
            some = [key for key in report.deleted[start : start + _AT_ONCE] if key not in back]
            store.delete(some)
            done += len(some)
            bar.advance(len(some))
        status = "COMPLETED"
    finally:
        # Why deleting failed is what the caller needs to know, not that the history could not be told.
        with suppress(*(() if status == "COMPLETED" else (LakesealError,))):
            ended = {"numDeletedFiles": done, "numVacuumedDirectories": report.directories}
            begin().commit([], Operation(name=VACUUM_END, parameters={"status": status}, metrics=ended))
    return back


def _brought_back(log: DeltaLog, store: Store, after: int, up_to: int) -> set[str]:
    """Keys of the files that commits have added."""
    return {
        key
        for version in range(after + 1, up_to + 1)
        for action in log.commit_actions(version)
        if isinstance(action, AddFile)
        for key in _keys(store, action.path, action.deletion_vector)
    }


def _retention_ms(command: VacuumCommand, snapshot: Snapshot) -> int:
    check_readable(snapshot.protocol, version=snapshot.version)
    check_writable(snapshot.protocol, snapshot.metadata, version=snapshot.version)
    own = snapshot.properties.deleted_file_retention_ms
    if command.hours is None:
        return own
    wanted = int(command.hours * _HOUR_MS)
    if wanted < own and command.enforce_retention_duration:
        raise InvalidArgument(
            f"{command.hours:g} hours are less than the {own / _HOUR_MS:g} for which the table keeps removed files",
            hint="Readers and writers at work may lose files. If there are none, pass "
            "enforce_retention_duration=False, or set delta.deletedFileRetentionDuration",
        )
    return wanted


def _candidates(command: VacuumCommand, log: DeltaLog, store: Store, newest: Snapshot, cut: int) -> list[ObjectMeta]:
    if command.lite:
        return list(_removed(log, store, newest.version, cut))
    metas = store.list(recursive=True) if command.inventory is None else _inventoried(command.inventory, store)
    return list(_deletable(metas, newest))


def _removed(log: DeltaLog, store: Store, version: int, cut: int) -> Iterator[ObjectMeta]:
    """Files that commits took out before `cut`, as far as they are still there."""
    first = min(log.listing().commits, default=0)
    if first > 0:
        raise InvalidArgument(
            f"The log begins at version {first}, so that it does not say what was removed before",
            hint="Vacuum without lite, which lists what is there",
        )
    seen: set[str] = set()
    for number in range(first, version + 1):
        for action in log.commit_actions(number):
            if isinstance(action, RemoveFile) and (action.deletion_timestamp or 0) < cut:
                seen.update(_keys(store, action.path, action.deletion_vector))
    for key in sorted(seen):
        with suppress(ObjectNotFound, UnsafePath, InvalidArgument):
            yield store.head(key)


def _inventoried(rows: pa.Table, store: Store) -> Iterator[ObjectMeta]:
    missing = {"path", "length", "isDir", "modificationTime"} - set(rows.column_names)
    if missing:
        raise InvalidArgument(
            f"The inventory lacks the columns {', '.join(sorted(missing))}",
            hint="It has path string, length bigint, isDir boolean, modificationTime bigint (milliseconds)",
        )
    for row in rows.select(["path", "length", "isDir", "modificationTime"]).to_pylist():
        if row["isDir"] or row["path"] is None:
            continue
        key = _below(str(row["path"]), store.uri)
        if key is not None:
            yield ObjectMeta(key=key, size=int(row["length"] or 0), modified_ms=int(row["modificationTime"] or 0))


def _below(path: str, table: str) -> str | None:
    """The key of a path, or of a key; None for one that is elsewhere."""
    for root in (table, table.removeprefix("file://"), table.replace("file:///", "file:/", 1)):
        if path.startswith(f"{root.rstrip('/')}/"):
            return path[len(root.rstrip("/")) + 1 :]
    return None if "://" in path or path.startswith(("/", "file:")) else path


def _deletable(metas: Iterable[ObjectMeta], snapshot: Snapshot) -> Iterator[ObjectMeta]:
    """Files that are the table's business."""
    partitions = tuple(f"{field.physical_name}=" for field in snapshot.partition_schema.fields)
    partitions += tuple(f"{field.name}=" for field in snapshot.partition_schema.fields)
    for meta in metas:
        if meta.key.startswith(LOG_DIR):
            continue
        key = meta.key.removeprefix(CHANGE_DATA_DIR)
        if not any(segment.startswith(("_", ".")) and not segment.startswith(partitions) for segment in key.split("/")):
            yield meta


def _needed(log: DeltaLog, store: Store, version: int, cut: int) -> frozenset[str]:
    """Keys of all files that some version since `cut` reads, up to the newest, `version`."""
    state = log.state(version, with_removes=True)
    removes = REMOVES.empty_table() if state.removes is None else state.removes
    # A time that is not stated is long ago.
    recent = removes.filter(_at_least(removes["deletionTimestamp"], cut))
    keys: set[str] = set()
    for files in (state.files, recent):
        columns = files.select(["path", "deletionVector"])
        for batch in columns.to_batches(max_chunksize=4096):
            for path, vector in zip(batch["path"].to_pylist(), batch["deletionVector"].to_pylist(), strict=True):
                keys.update(_keys(store, path, _descriptor(vector)))
    # Checkpoints forget removed files by the table's own retention, which may be shorter than what is asked for here.
    for action in _actions_since(log, cut, version):
        if isinstance(action, RemoveFile):
            keys.update(_keys(store, action.path, action.deletion_vector))
    return frozenset(keys)


def _actions_since(log: DeltaLog, cut: int, version: int) -> Iterator[Action]:
    for number, written in file_times(log).items():
        if written >= cut and number <= version:
            yield from log.commit_actions(number)


def _at_least(times: Any, cut: int) -> Any:
    return pc.fill_null(pc.greater_equal(times, cut), False)


def _descriptor(vector: dict[str, Any] | None) -> DeletionVectorDescriptor | None:
    if vector is None:
        return None
    return DeletionVectorDescriptor.from_json({name: value for name, value in vector.items() if value is not None})


def _keys(store: Store, path: str, vector: DeletionVectorDescriptor | None) -> Iterable[str]:
    yield from _key(store, path)
    # Some clients wrote paths without encoding them. A file that is kept in vain is better than one that is missed.
    yield path
    if vector is not None and vector.storage_type == RELATIVE:
        yield relative_path(vector)
    elif vector is not None and vector.storage_type == ABSOLUTE:
        yield from _key(store, vector.path_or_inline_dv)


def _key(store: Store, path: str) -> Iterable[str]:
    try:
        yield resolve_data_path(store.uri, path).key
    except UnsafePath:
        # Beyond the table, where nothing is deleted; or below it, if the log names it by another path than this one.
        key = key_in(store, path)
        if key is not None:
            yield key
