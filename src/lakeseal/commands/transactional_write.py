"""`TransactionalWrite`: data → files of the table, as actions that the transaction has yet to commit.

`write_files` marks the transaction as written (its metadata is fixed from then on), normalises the data, plans
constraints, runs the job under a `DelayedCommitProtocol`, and returns what tasks added. Nothing is visible before the
caller commits the actions; if anything fails, nothing ever is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from lakeseal import typed_json
from lakeseal.commit.transaction import OptimisticTransaction
from lakeseal.errors import InvalidArgument, LakesealError
from lakeseal.files.constraints import ConstraintPlan, RowCondition, plan_constraints
from lakeseal.files.expressions import IN_TASK, Expressions
from lakeseal.files.file_schema import FileSchema
from lakeseal.files.identity_values import IdentityRange
from lakeseal.files.normalize import ColumnPlan, plan_columns
from lakeseal.files.parquet_file import Compression
from lakeseal.files.schema_merge import merge_schema
from lakeseal.jobs.delayed_commit_protocol import DelayedCommitProtocol
from lakeseal.jobs.engine import Engine, InPlan
from lakeseal.jobs.file_commit_protocol import TaskCommitMessage
from lakeseal.jobs.job import CommitProtocolSpec, StatsConfig, WriteJobSpec, new_protocol, partition_fields
from lakeseal.jobs.progress import SILENT, Progress
from lakeseal.jobs.task_logging import driver_level
from lakeseal.jobs.task_writer import BUFFER_BYTES
from lakeseal.protocol.actions import AddCDCFile, AddFile
from lakeseal.protocol.features import check_writable
from lakeseal.protocol.feed_columns import check_feed_columns
from lakeseal.protocol.identity import identity_columns
from lakeseal.protocol.properties import TableProperties
from lakeseal.protocol.row_tracking import RowTrackingColumns
from lakeseal.protocol.schema import StructField, StructType
from lakeseal.storage import StoreSpec

DEFAULT_TARGET_FILE_SIZE = 2**30


class WriteOptions(Struct, frozen=True, kw_only=True):
    merge_schema: bool = False
    """Add columns to the table that only the data has."""
    data_change: bool = True
    """False says that rows are only moved, so that streams need not read them again."""
    own_rows: bool = False
    """The rows are the table's own, so nothing about them is checked again."""
    with_row_ids: bool = False
    """Rows are such of the table, or become such, and bring their ids in the columns of its row tracking."""
    must_match: str | None = None
    """A predicate that every row must match."""
    changes: bool = False
    """Rows say by a `_change_type` whether they are of the change feed; without, a column of that name is any other."""
    insert_changes: bool = False
    """Every row goes to the change feed as well, as an insert."""
    max_records_per_file: int | None = None
    target_file_size: int | None = None
    """Goes before the table's `delta.targetFileSize`."""
    compression: str | None = None
    """Goes before the table's `delta.parquet.compression.codec`."""
    buffer_bytes: int = BUFFER_BYTES
    """Rows that a task keeps in memory; it needs two to three times as much."""
    spill_directory: str | None = None
    """Where tasks keep rows of many partitions; the system's place for temporary files if not given."""

    def __post_init__(self) -> None:
        for name in ("max_records_per_file", "target_file_size", "buffer_bytes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidArgument(f"{name} cannot be {value}", hint="Use 1 or more, or leave it out")


class PlannedWrite(Struct, frozen=True, kw_only=True):
    """A job whose tasks are yet to run, by `spec` and `in_plan`."""

    spec: WriteJobSpec
    in_plan: InPlan
    committer: DelayedCommitProtocol
    txn: OptimisticTransaction
    data_change: bool = True

    def collect(self, messages: Sequence[TaskCommitMessage]) -> list[AddFile | AddCDCFile]:
        """What the tasks added, once they have all ended. What they gave out of identity columns, the transaction is
        told."""
        actions = self.committer.commit_job(messages)
        for message in messages:
            self.txn.give_out(message.identity)
        return actions if self.data_change else [_without_change(action) for action in actions]

    def abort(self) -> None:
        self.committer.abort_job()


class TransactionalWrite:
    def __init__(
        self, txn: OptimisticTransaction, engine: Engine, *, store: StoreSpec, progress: Progress = SILENT
    ) -> None:
        """`store` is where the table is, as tasks are to open it."""
        self._txn = txn
        self._engine = engine
        self._store = store
        self._progress = progress

    def write_files(
        self, data: Any, options: WriteOptions | None = None, is_optimize: bool = False
    ) -> list[AddFile | AddCDCFile]:
        """`is_optimize`: the rows are the table's own, and nothing about them has changed."""
        try:
            return self._write_files(data, options or WriteOptions(), is_optimize)
        except LakesealError as error:
            raise error.at(table=self._store.uri) from error.__cause__

    def _write_files(self, data: Any, options: WriteOptions, is_optimize: bool) -> list[AddFile | AddCDCFile]:
        source = self._engine.open(data, self._progress)
        planned = self.plan(source.schema, options, is_optimize, source.expressions)
        try:
            return planned.collect(source.run(planned.spec, planned.in_plan))
        except BaseException:
            planned.abort()
            raise

    def plan(
        self,
        data: StructType,
        options: WriteOptions | None = None,
        is_optimize: bool = False,
        expressions: Expressions = IN_TASK,
    ) -> PlannedWrite:
        """The job that writes such data, for whoever runs its tasks: `write_files` is both of them."""
        options = options or WriteOptions()
        if options.merge_schema:
            self._merge_schema(data)
        check_writable(self._txn.protocol, self._txn.metadata)
        check_feed_columns(self._txn.metadata)
        self._txn.mark_written()
        row_ids = RowTrackingColumns.of(self._properties) if options.with_row_ids else None
        along = () if row_ids is None else row_ids.names
        columns = plan_columns(data, self._schema, cdc=options.changes, along=along, expressions=expressions)
        is_own = is_optimize or options.own_rows
        constraints = ConstraintPlan() if is_own else self._constraints(columns, options.must_match, expressions)
        identity = (
            ()
            if is_own
            else tuple(
                IdentityRange(name=column.name, first=column.next, step=column.step)
                for column in identity_columns(self._schema)
            )
        )
        cdc = options.insert_changes or options.changes
        spec = self._job_spec(options, constraints, cdc=cdc)
        spec = msgspec.structs.replace(spec, identity=identity, row_ids=row_ids)
        committer = self.get_committer(spec)
        committer.setup_job()
        return PlannedWrite(
            spec=spec,
            in_plan=InPlan(columns=columns.in_plan, checks=constraints.in_plan),
            committer=committer,
            txn=self._txn,
            data_change=options.data_change and not is_optimize,
        )

    def get_committer(self, spec: WriteJobSpec) -> DelayedCommitProtocol:
        committer = new_protocol(spec)
        assert isinstance(committer, DelayedCommitProtocol)
        return committer

    def normalize_data(self, data: StructType, expressions: Expressions = IN_TASK) -> ColumnPlan:
        """Which columns of the table the data brings, and that all of them can be written."""
        return plan_columns(data, self._schema, expressions=expressions)

    def get_partitioning_columns(self) -> list[StructField]:
        """The columns to split by; at least one column must be left for the files."""
        names = self._txn.metadata.partition_columns
        FileSchema(self._schema, names, mapped=self._is_mapped)
        return partition_fields(self._schema, names)

    @property
    def _schema(self) -> StructType:
        """That of the moment: the metadata may change until files are written."""
        return self._txn.metadata.schema

    @property
    def _properties(self) -> TableProperties:
        return TableProperties.of(self._txn.metadata)

    @property
    def _is_mapped(self) -> bool:
        return self._properties.column_mapping_mode != "none"

    def _merge_schema(self, data: StructType) -> None:
        merged = merge_schema(self._txn.metadata, data)
        if merged != self._txn.metadata:
            self._txn.update_metadata(merged)

    def _constraints(self, columns: ColumnPlan, must_match: str | None, expressions: Expressions) -> ConstraintPlan:
        extra = [] if must_match is None else [RowCondition(what="Predicate", name="replace_where", sql=must_match)]
        return plan_constraints(
            self._schema,
            self._properties.constraints,
            given=columns.given,
            partition_columns=self._txn.metadata.partition_columns,
            extra=extra,
            expressions=expressions,
        )

    def _job_spec(self, options: WriteOptions, constraints: ConstraintPlan, *, cdc: bool) -> WriteJobSpec:
        metadata, properties = self._txn.metadata, self._properties
        prefix = {"random_prefix_length": properties.random_prefix_length} if properties.randomize_file_prefixes else {}
        return WriteJobSpec(
            store=self._store,
            protocol=CommitProtocolSpec(path=self._store.uri, options=prefix),
            schema=self._schema.to_json(),
            partition_columns=tuple(f.name for f in self.get_partitioning_columns()),
            mapped=self._is_mapped,
            cdc=cdc,
            insert_changes=options.insert_changes,
            compression=Compression(options.compression or properties.parquet_compression_codec or "snappy"),
            target_file_size=options.target_file_size or properties.target_file_size or DEFAULT_TARGET_FILE_SIZE,
            max_records_per_file=options.max_records_per_file,
            stats=StatsConfig(
                num_indexed_cols=properties.data_skipping_num_indexed_cols,
                stats_columns=metadata.configuration.get(TableProperties.data_skipping_stats_columns.key),
                string_prefix=properties.data_skipping_string_prefix_length,
            ),
            few_files=properties.optimize_write,
            constraints=constraints.in_task,
            log_level=driver_level(),
            buffer_bytes=options.buffer_bytes,
            spill_directory=options.spill_directory,
        )


def operation_metrics(actions: Iterable[AddFile | AddCDCFile]) -> dict[str, int]:
    """What the history shows of a write."""
    adds = [action for action in actions if isinstance(action, AddFile)]
    return {
        "numFiles": len(adds),
        "numOutputBytes": sum(add.size for add in adds),
        "numOutputRows": sum(_num_records(add) for add in adds),
    }


def _without_change(action: AddFile | AddCDCFile) -> AddFile | AddCDCFile:
    """Files of the change feed never say that rows change."""
    return msgspec.structs.replace(action, data_change=False)


class _Rows(Struct):
    numRecords: int = 0  # noqa: N815  the format's name


def _num_records(add: AddFile) -> int:
    return typed_json.decode(add.stats, _Rows).numRecords if add.stats else 0
