"""The change feed: which rows each version inserted, deleted or updated.

A version with `cdc` files says all of its changes in them. Otherwise they are derived: rows of files that it added are
inserts, rows of files that it removed are deletes, and where both name one file with different deletion vectors, only
the rows that the vectors do not share. Files that say `dataChange=false` change no rows.

Rows come in the schema of the last version of the range, with `_change_type`, `_commit_version` and
`_commit_timestamp` behind them. The feed must have been on in every version of the range, and no column may have had a
type that is not the last one's or a narrower one of the same kind: its values would be told as others than they were.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from lakeseal.errors import BrokenCommit, DataFileMissing, InvalidArgument, VersionNotFound, located
from lakeseal.log.data import DataFile, DataReader, ReadSpec
from lakeseal.log.delta_log import DeltaLog
from lakeseal.log.physical import plain_field
from lakeseal.log.scan import Outside, read_spec
from lakeseal.log.snapshot import Snapshot
from lakeseal.log.timestamps import Timestamp, first_in_commit_version, times_below, to_ms, version_at
from lakeseal.protocol.actions import Action, AddCDCFile, AddFile, CommitInfo, Metadata, RemoveFile
from lakeseal.protocol.data_paths import canonical_path, canonical_paths
from lakeseal.protocol.feed_columns import CHANGE_FIELDS, CHANGE_TYPE, check_no_feed_columns
from lakeseal.protocol.properties import TableProperties
from lakeseal.protocol.schema import STRING, VOID, ArrayType, DataType, MapType, StructField, StructType, dotted
from lakeseal.protocol.type_widening import is_widening
from lakeseal.storage.base import Store

_POSITION = "lakeseal.position"


class FileChange(Struct, frozen=True, kw_only=True):
    """Rows of one file that a version changed: as `kind` says, or as the file's own `_change_type` does."""

    file: DataFile
    kind: str | None = None
    without: DataFile | None = None
    """The same file with another deletion vector: rows that it shows too did not change."""


class VersionChanges(Struct, frozen=True, kw_only=True):
    version: int
    timestamp_ms: int
    changes: tuple[FileChange, ...]


def file_changes(actions: list[Action]) -> tuple[FileChange, ...]:
    """Which rows a commit changed. Pure."""
    explicit = [a for a in actions if isinstance(a, AddCDCFile)]
    if explicit:
        return tuple(FileChange(file=_data_file(cdc)) for cdc in explicit)
    added = {canonical_path(a.path): a for a in actions if isinstance(a, AddFile) and a.data_change}
    removed = {canonical_path(a.path): a for a in actions if isinstance(a, RemoveFile) and a.data_change}
    changes = []
    for path, add in added.items():
        before = removed.get(path)
        without = None if before is None else _data_file(before, like=add)
        changes.append(FileChange(file=_data_file(add), kind="insert", without=without))
    for path, remove in removed.items():
        after = added.get(path)
        without = None if after is None else _data_file(after)
        changes.append(FileChange(file=_data_file(remove, like=after), kind="delete", without=without))
    return tuple(changes)


def _data_file(action: AddFile | RemoveFile | AddCDCFile, like: AddFile | None = None) -> DataFile:
    values = action.partition_values
    if values is None and like is not None:
        values = like.partition_values
    return DataFile(
        path=action.path,
        partition_values=values or {},
        deletion_vector=None if isinstance(action, AddCDCFile) else action.deletion_vector,
        size=action.size,
    )


def told_changes(log: DeltaLog, version: int, actions: list[Action]) -> tuple[FileChange, ...]:
    """`file_changes` of a commit of the log. A remove may leave out what partition its file was of; the version before
    knows it."""
    derived = not any(isinstance(a, AddCDCFile) for a in actions)
    bare = [a for a in actions if isinstance(a, RemoveFile) and a.data_change and a.partition_values is None]
    if not derived or not bare:
        return file_changes(actions)
    try:
        before = log.snapshot(max(version - 1, 0))
    except VersionNotFound as error:
        if not log.snapshot(version).partition_columns:
            return file_changes(actions)
        raise VersionNotFound(
            "What this version removed cannot be told: it does not say of which partitions it was, and the version "
            "before it is no longer there",
            table=log.table,
            version=version,
            hint="Ask for later versions",
        ) from error
    if not before.partition_columns:
        return file_changes(actions)
    values = _partition_values(before.files, {canonical_path(a.path) for a in bare})
    completed: list[Action] = []
    for action in actions:
        if isinstance(action, RemoveFile) and action.data_change and action.partition_values is None:
            known = values.get(canonical_path(action.path))
            if known is None:
                raise BrokenCommit(
                    "The commit removes a file that was not there", table=log.table, version=version, file=action.path
                )
            action = msgspec.structs.replace(action, partition_values=known)
        completed.append(action)
    return file_changes(completed)


def _partition_values(files: pa.Table, paths: set[str]) -> dict[str, dict[str, str | None]]:
    """By canonical path."""
    spelled = canonical_paths(files["path"])
    wanted = pc.is_in(spelled, value_set=pa.array(sorted(paths), pa.string()))
    values = files["partitionValues"].filter(wanted).to_pylist(maps_as_pydicts="lossy")
    return dict(zip(spelled.filter(wanted).to_pylist(), values, strict=True))


def version_range(log: DeltaLog, start: int | Timestamp, end: int | Timestamp | None) -> tuple[int, int]:
    """First and last version: numbers are versions, everything else is a moment."""
    latest = log.snapshot().version
    first = start if isinstance(start, int) else first_version_from(log, start)
    last = latest if end is None else end if isinstance(end, int) else version_at(log, end)
    if first > latest:
        raise VersionNotFound(f"Version {first} is not there yet", table=log.table, hint=f"The newest is {latest}")
    if not 0 <= first <= last:
        raise InvalidArgument(f"There are no changes from version {first} to {last}", table=log.table)
    return first, min(last, latest)


def first_version_from(log: DeltaLog, moment: Timestamp) -> int:
    """The first version at or after a moment; it may be one that is yet to come."""
    try:
        return version_at(log, to_ms(moment) - 1) + 1
    except VersionNotFound:
        return min(log.listing().commits)


def changes(log: DeltaLog, first: int, last: int, schema: StructType | None = None) -> Iterator[VersionChanges]:
    """What each version changed, ascending; refused where the feed was off, or a column another one. Rows will be read
    by `schema`, which is that of the last version if it is not given."""
    times = CommitTimes(log)
    enabled = log.snapshot(first).properties.change_data_feed
    wanted = log.snapshot(last).schema if schema is None else schema
    _check_readable(log, _schema_before(log, first), wanted, max(first - 1, 0), last)
    for version in range(first, last + 1):
        actions = log.commit_actions(version)
        for action in actions:
            if isinstance(action, Metadata):
                enabled = TableProperties.of(action).change_data_feed
                _check_readable(log, action.schema, wanted, version, last)
        if not enabled:
            raise InvalidArgument(
                "The change feed was not on in this version",
                table=log.table,
                version=version,
                hint="Set delta.enableChangeDataFeed=true, and ask for versions since then",
            )
        yield VersionChanges(
            version=version, timestamp_ms=times.of(version, actions), changes=told_changes(log, version, actions)
        )


def _schema_before(log: DeltaLog, version: int) -> StructType:
    """What rows had that this version took away; its own schema, if the one before is no longer there."""
    try:
        return log.snapshot(max(version - 1, 0)).schema
    except VersionNotFound:
        return log.snapshot(version).schema


def _check_readable(log: DeltaLog, found: StructType, wanted: StructType, version: int, last: int) -> None:
    other = _other_column(found, wanted)
    if other is not None:
        column, was, is_now = other
        raise InvalidArgument(
            f"The column {column} was {was} in version {version}, and is {is_now} in the last version of the range",
            table=log.table,
            version=version,
            column=column,
            hint="Ask for versions up to the one that overwrote the schema, or for those behind it",
        )


def _other_column(old: StructType, new: StructType, path: tuple[str, ...] = ()) -> tuple[str | None, str, str] | None:
    """The first column of `old` that is another in `new`, with what it was and what it is; one that is gone is none."""
    stored = {field.physical_name: field for field in new.fields}
    named = {field.name.lower(): field for field in new.fields}
    for field in old.fields:
        at = (*path, field.name)
        now = stored.get(field.physical_name)
        if now is None:
            if field.name.lower() in named and field.name.lower() != field.physical_name.lower():
                return dotted(at), "another column", "a new one"
            continue
        if other := _other_type(field.type, now.type, at):
            return other
    return None


def _other_type(old: DataType, new: DataType, path: tuple[str, ...]) -> tuple[str | None, str, str] | None:
    match old, new:
        case StructType(), StructType():
            return _other_column(old, new, path)
        case ArrayType(), ArrayType():
            return _other_type(old.element, new.element, (*path, "element"))
        case MapType(), MapType():
            return _other_type(old.key, new.key, (*path, "key")) or _other_type(old.value, new.value, (*path, "value"))
        case _:
            return None if old in (new, VOID) or is_widening(old, new) else (dotted(path), str(old), str(new))


class ChangeReader:
    """Reads changed rows, in the schema of a snapshot, or of what a task was told of one."""

    def __init__(self, source: Snapshot | ReadSpec, store: Store, *, outside: Outside | None = None) -> None:
        spec = source if isinstance(source, ReadSpec) else read_spec(source)
        check_no_feed_columns(spec.schema)
        change_type = StructType((StructField(CHANGE_TYPE, STRING),))
        self._explicit = DataReader(store, msgspec.structs.replace(spec, extra_columns=change_type), outside=outside)
        self._derived = DataReader(store, msgspec.structs.replace(spec, position_column=_POSITION), outside=outside)
        self._store = store
        self._names = [field.name for field in spec.wanted()]
        own = [self._derived.schema.field(name) for name in self._names]
        self.schema: pa.Schema = pa.schema([*own, *(plain_field(field) for field in CHANGE_FIELDS)])

    def read(self, version: VersionChanges) -> Iterator[pa.RecordBatch]:
        for change in version.changes:
            with located(table=self._store.uri, version=version.version):
                try:
                    for batch in self._rows(change):
                        if batch.num_rows:
                            yield self._stamped(batch, version)
                except DataFileMissing as error:
                    error.hint = "Its changes were vacuumed away: ask for later versions"
                    raise

    def _rows(self, change: FileChange) -> Iterator[pa.RecordBatch]:
        if change.kind is None:
            yield from self._explicit.read_file(change.file)
            return
        shared = None if change.without is None else _Vector(change.without, self._derived)
        for batch in self._derived.read_file(change.file):
            rows = batch if shared is None else batch.filter(pa.array(shared.hides(batch[_POSITION].to_numpy())))
            kinds = pa.repeat(pa.scalar(change.kind), rows.num_rows)
            yield rows.select(self._names).append_column(CHANGE_TYPE, kinds)

    def _stamped(self, batch: pa.RecordBatch, version: VersionChanges) -> pa.RecordBatch:
        stamp = pa.scalar(version.timestamp_ms * 1000, pa.int64()).cast(pa.timestamp("us", "UTC"))
        columns = [batch[name] for name in (*self._names, CHANGE_TYPE)]
        columns += [pa.repeat(pa.scalar(version.version, pa.int64()), batch.num_rows), pa.repeat(stamp, batch.num_rows)]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


class _Vector:
    """The rows that a file's deletion vector hides."""

    def __init__(self, file: DataFile, reader: DataReader) -> None:
        vector = file.deletion_vector
        self._hidden = np.empty(0, np.uint64) if vector is None else reader.hidden_rows(vector, file.size or 0)

    def hides(self, positions: np.ndarray) -> np.ndarray:
        return np.isin(positions.astype(np.uint64), self._hidden)


class CommitTimes:
    """Times of versions, as time travel sees them; files are listed once, and only if a commit does not say its own."""

    def __init__(self, log: DeltaLog) -> None:
        self._log = log
        self._files: dict[int, int] | None = None

    def of(self, version: int, actions: list[Action]) -> int:
        info = next((a for a in actions if isinstance(a, CommitInfo)), None)
        if info is not None and info.in_commit_timestamp is not None:
            return info.in_commit_timestamp
        if self._files is None or version not in self._files:
            latest = self._log.snapshot()
            self._files = times_below(self._log, latest, first_in_commit_version(latest))
        return self._files.get(version, 0)
