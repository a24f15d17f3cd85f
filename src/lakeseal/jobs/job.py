"""One write job: what its tasks need, and what a task does.

A `WriteJobSpec` is all that a task is told, and is JSON, so it reaches any process that any engine starts. `run_task`
is all that a task does: normalise, check, write, commit. It returns the message for the driver's `commit_job`, or
raises and has left no file behind that it could remove. What it raises about the data or the store is a
`LakesealError` with the table in it; what the batches themselves raise while they are made passes as it is.

A spec carries the storage options, credentials among them: send it to tasks, never to a log. Its `repr` hides them.
"""

from __future__ import annotations

import datetime
import errno
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from lakeseal import clock, typed_json
from lakeseal.errors import InvalidArgument, InvalidInput, LakesealError, OutOfSpace, StorageError
from lakeseal.files.constraints import Constraint, ConstraintCheck
from lakeseal.files.file_format import PARQUET, FileFormat
from lakeseal.files.file_schema import CHANGE_TYPE, INSERTED, FileSchema
from lakeseal.files.identity_values import LANES, IdentityRange, IdentityValues
from lakeseal.files.normalize import Normalizer
from lakeseal.files.parquet_file import Compression
from lakeseal.files.partition_split import PartitionSplit
from lakeseal.files.records import check_decimals, check_texts
from lakeseal.files.uploads import Uploads
from lakeseal.jobs.branch_commit_protocol import BranchCommitProtocol
from lakeseal.jobs.delayed_commit_protocol import DelayedCommitProtocol
from lakeseal.jobs.file_commit_protocol import FileCommitProtocol, TaskCommitMessage, TaskContext
from lakeseal.jobs.rolling_files import Limits
from lakeseal.jobs.task_logging import configure_task
from lakeseal.jobs.task_writer import BUFFER_BYTES, TaskWriter
from lakeseal.protocol.file_stats import STRING_PREFIX
from lakeseal.protocol.row_tracking import RowTrackingColumns
from lakeseal.protocol.schema import StructField, StructType
from lakeseal.protocol.stats import DEFAULT_INDEXED_COLUMNS, indexed_columns
from lakeseal.storage import StoreSpec


class CommitProtocolSpec(Struct, frozen=True, kw_only=True):
    """Which protocol the job commits under; `options` are the protocol's own."""

    kind: str = DelayedCommitProtocol.kind
    path: str
    options: dict[str, Any] = {}


class StatsConfig(Struct, frozen=True, kw_only=True):
    num_indexed_cols: int = DEFAULT_INDEXED_COLUMNS
    stats_columns: str | None = None
    string_prefix: int = STRING_PREFIX


class WriteJobSpec(Struct, frozen=True, kw_only=True, dict=True):
    job_id: str = "delta"
    store: StoreSpec
    protocol: CommitProtocolSpec
    schema: str
    """The table's schema as the log has it."""
    partition_columns: tuple[str, ...] = ()
    mapped: bool = False
    """Whether files and partition values use physical names."""
    cdc: bool = False
    """Whether rows may have a `_change_type`, by which they go to the change feed and not to the table."""
    insert_changes: bool = False
    """Whether every row also goes to the change feed, as an insert."""
    compression: Compression = Compression()
    target_file_size: int | None = None
    max_records_per_file: int | None = None
    stats: StatsConfig | None = StatsConfig()
    """None for files without statistics."""
    format: FileFormat = PARQUET
    """Its compression counts for other formats than Parquet."""
    row_ids: RowTrackingColumns | None = None
    """Columns beside the table's that the rows bring and files keep; those of new rows may be null."""
    few_files: bool = False
    """Whether rows of a partition are brought together before tasks write them, where the engine can."""
    constraints: tuple[Constraint, ...] = ()
    identity: tuple[IdentityRange, ...] = ()
    """Identity columns whose nulls get values."""
    identity_lanes: int = LANES
    """No fewer than the job has tasks."""
    now: datetime.datetime = field(default_factory=clock.now)
    """What `current_timestamp()` stands for in all tasks."""
    log_level: int | None = None
    """What tasks log, in processes of their own; None leaves it as it is there."""
    buffer_bytes: int = BUFFER_BYTES
    spill_directory: str | None = None

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> WriteJobSpec:
        try:
            return typed_json.decode(text, cls)
        except msgspec.MsgspecError as error:
            raise InvalidArgument(
                f"The description of a write job is malformed: {error}",
                hint="Driver and tasks must run the same version of Lakeseal",
            ) from error

    @cached_property
    def table(self) -> StructType:
        return StructType.from_json(self.schema)


def new_protocol(spec: WriteJobSpec) -> FileCommitProtocol[Any]:
    """The job's protocol, alike on the driver and in every task."""
    asked = spec.protocol
    match asked.kind:
        case DelayedCommitProtocol.kind:
            return DelayedCommitProtocol(path=asked.path, job_id=spec.job_id, **asked.options)
        case BranchCommitProtocol.kind:
            return BranchCommitProtocol(path=asked.path, job_id=spec.job_id, **asked.options)
        case "staged":
            # A task that writes to a table needs none of what steps stand on.
            from lakeseal.jobs.staged_commit_protocol import StagedCommitProtocol

            return StagedCommitProtocol(store=spec.store, path=asked.path, job_id=spec.job_id)
    raise InvalidArgument(f"There is no commit protocol {asked.kind!r}")


def run_task(spec: WriteJobSpec, task: TaskContext, batches: Iterable[pa.RecordBatch]) -> TaskCommitMessage:
    running = TaskRun(spec, task)
    try:
        for batch in batches:
            running.write(batch)
        return running.commit()
    except BaseException:
        running.abort()
        raise


class TaskRun:
    """A task that is given its rows bit by bit. It ends by `commit` or `abort`."""

    def __init__(self, spec: WriteJobSpec, task: TaskContext) -> None:
        if spec.log_level is not None:
            configure_task(spec.log_level)
        self._spec, self._task = spec, task
        self._protocol = new_protocol(spec)
        self._protocol.setup_task(task)
        self._writer: TaskWriter | None = None
        try:
            with _typed_errors(spec):
                self._rows = TaskRows(spec, task)
                self._writer = _new_writer(spec, task, self._protocol)
        except BaseException:
            self.abort()
            raise

    def write(self, batch: pa.RecordBatch) -> None:
        assert self._writer is not None
        with _typed_errors(self._spec):
            self._writer.write(self._rows.prepared(batch))

    def commit(self) -> TaskCommitMessage:
        assert self._writer is not None
        with _typed_errors(self._spec):
            message = self._protocol.commit_task(self._task, self._writer.finish())
            return msgspec.structs.replace(message, identity=self._rows.identity.last)

    def abort(self) -> None:
        if self._writer is not None:
            self._writer.abort()
        # What went wrong first is what the user needs to know.
        with suppress(Exception):
            self._protocol.abort_task(self._task)


class TaskRows:
    """What happens to rows before they are written: normalised, given identities, then checked."""

    def __init__(self, spec: WriteJobSpec, task: TaskContext) -> None:
        table = spec.table
        self.identity = IdentityValues(spec.identity, lanes=spec.identity_lanes, lane=task.split)
        self._normalizer = Normalizer(table, spec.partition_columns, cdc=spec.cdc, along=_along(spec), now=spec.now)
        self._constraints = ConstraintCheck(spec.constraints, table, now=spec.now)
        self._insert_changes = spec.insert_changes
        self._cdc = spec.cdc

    def prepared(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = self.identity.fill(self._normalizer.apply(batch))
        if self._cdc:
            rows = _with_twins(rows)
        check_texts(rows)
        check_decimals(rows)
        self._constraints.check(_of_table(rows) if self._cdc else rows)
        return _with_inserts(rows) if self._insert_changes else rows


def _of_table(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Without rows of the change feed, which tell how rows were before, right or not."""
    kinds = rows.column(CHANGE_TYPE)
    return rows if kinds.null_count == rows.num_rows else rows.filter(kinds.is_null())


def _with_twins(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Each row that was `INSERTED` as a row of the table and as one of the change feed."""
    kinds = rows.column(CHANGE_TYPE)
    inserted = pc.equal(kinds, INSERTED)
    if not pc.any(inserted).as_py():
        return rows
    place, field = rows.schema.get_field_index(CHANGE_TYPE), rows.schema.field(CHANGE_TYPE)
    own = rows.set_column(place, field, pc.if_else(inserted, pa.scalar(None, pa.string()), kinds))
    twins = rows.filter(inserted)
    return pa.concat_batches([own, twins.set_column(place, field, pa.repeat(pa.scalar("insert"), twins.num_rows))])


def _with_inserts(rows: pa.RecordBatch) -> pa.RecordBatch:
    place = rows.schema.get_field_index(CHANGE_TYPE)
    kinds = pa.repeat(pa.scalar("insert"), rows.num_rows)
    return pa.concat_batches([rows, rows.set_column(place, rows.schema.field(place), kinds)])


def _new_writer(spec: WriteJobSpec, task: TaskContext, protocol: FileCommitProtocol[Any]) -> TaskWriter:
    table = spec.table
    indexed = None if spec.stats is None else _indexed(spec, spec.stats)
    return TaskWriter(
        protocol=protocol,
        task=task,
        uploads=Uploads(spec.store.open(), hashed=protocol.needs_checksums),
        schema=FileSchema(table, spec.partition_columns, mapped=spec.mapped, cdc=spec.cdc, along=_along(spec)),
        split=PartitionSplit(partition_fields(table, spec.partition_columns), mapped=spec.mapped, cdc=spec.cdc),
        indexed=indexed,
        string_prefix=STRING_PREFIX if spec.stats is None else spec.stats.string_prefix,
        compression=spec.compression,
        format=spec.format,
        limits=Limits(max_records=spec.max_records_per_file, target_bytes=spec.target_file_size),
        buffer_bytes=spec.buffer_bytes,
        spill_directory=spec.spill_directory,
    )


def _along(spec: WriteJobSpec) -> tuple[str, ...]:
    return () if spec.row_ids is None else spec.row_ids.names


def _indexed(spec: WriteJobSpec, stats: StatsConfig) -> StructType:
    """The columns with statistics, under the names that files have."""
    indexed = indexed_columns(
        spec.table,
        partition_columns=spec.partition_columns,
        num_indexed_cols=stats.num_indexed_cols,
        stats_columns=stats.stats_columns,
    )
    return indexed.to_physical() if spec.mapped else indexed


def partition_fields(table: StructType, partition_columns: Iterable[str]) -> list[StructField]:
    """The columns to split by, in the table's order of partitioning."""
    fields = []
    for name in partition_columns:
        field = table.field(name)
        if field is None:
            raise InvalidArgument(f"The table is partitioned by {name!r}, which is not one of its columns", column=name)
        fields.append(field)
    return fields


@contextmanager
def _typed_errors(spec: WriteJobSpec) -> Iterator[None]:
    try:
        yield
    except LakesealError as error:
        raise error.at(table=spec.store.uri) from error.__cause__
    except pa.ArrowException as error:
        raise InvalidInput(
            f"The data cannot be written: {error}", table=spec.store.uri, hint="Check its types and values"
        ) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise OutOfSpace(str(error), table=spec.store.uri) from error
        raise StorageError(f"A task failed: {error}", table=spec.store.uri, hint="Check the store") from error
