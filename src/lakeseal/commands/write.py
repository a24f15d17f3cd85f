"""The write command: what `Table.write` means, for every engine and every mode.

- append adds rows; overwrite replaces all of them; error and ignore do nothing to a table that is there.
- replace_where replaces the rows that match a predicate; new rows that do not match it are refused.
- Dynamic partition overwrite replaces the partitions that the new rows fall into, and no others.
- (app id, version) makes a write idempotent: one that the table has seen changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, get_args

import msgspec
import pyarrow as pa
from msgspec import Struct

from lakeseal import clock
from lakeseal.clock import now_ms
from lakeseal.commands.cluster import set_clustering
from lakeseal.commands.command import CommandContext, FilesToWrite, NothingToDo, PlannedChange, Written
from lakeseal.commands.file_changes import removals, total_rows
from lakeseal.commands.touched_files import find
from lakeseal.commands.transactional_write import WriteOptions, operation_metrics
from lakeseal.commit.alter import new_metadata, replaced_schema, replaced_table
from lakeseal.commit.clustering import clustered_by, clustering_columns, refuse_lost_columns
from lakeseal.commit.proposal import Operation
from lakeseal.commit.transaction import AlreadyApplied, OptimisticTransaction
from lakeseal.errors import AlreadyExists, InvalidArgument, TableNotFound
from lakeseal.expr.render import quote_name, quote_string
from lakeseal.jobs.engine import WriteInput
from lakeseal.jobs.rewrite import ChosenRows, Rewrite
from lakeseal.log.files import ADDS, add_actions
from lakeseal.log.snapshot import Snapshot
from lakeseal.protocol.actions import Action, AddFile, RemoveFile
from lakeseal.protocol.identity import refuse_given
from lakeseal.protocol.partitions import format_partition_values
from lakeseal.protocol.schema import StructField, StructType

Mode = Literal["append", "overwrite", "error", "ignore"]
MODES: tuple[str, ...] = get_args(Mode)
_SPARK_MODES = {"append": "Append", "overwrite": "Overwrite", "error": "ErrorIfExists", "ignore": "Ignore"}
_MAX_PREDICATE_PARTITIONS = 500


class WriteCommand(Struct, frozen=True, kw_only=True):
    """All that a caller may ask of a write."""

    mode: str = "append"
    partition_by: tuple[str, ...] | None = None
    cluster_by: tuple[str, ...] | None = None
    replace_where: str | None = None
    partition_overwrite: str | None = None
    """"dynamic": overwrite only the partitions that the data has rows for."""
    overwrite_schema: bool = False
    replaces_table: bool = False
    """Make a table that is there anew: its schema, partitions, properties and comment are those of the write."""
    comment: str | None = None
    """Of a table that the write creates, or makes anew."""
    txn: tuple[str, int] | None = None
    user_metadata: str | None = None
    properties: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """Of a table that the write creates."""
    options: WriteOptions = msgspec.field(default_factory=WriteOptions)
    operation: str = "WRITE"
    parameters: Mapping[str, Any] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise InvalidArgument(f"There is no write mode {self.mode!r}", hint=f"Choose one of {', '.join(MODES)}")
        if self.partition_overwrite not in (None, "static", "dynamic"):
            raise InvalidArgument(
                f"partition_overwrite cannot be {self.partition_overwrite!r}", hint="Choose 'static' or 'dynamic'"
            )
        if self.txn is not None and not _is_transaction(self.txn):
            raise InvalidArgument(f"txn cannot be {self.txn!r}", hint="Give a name and a whole number: ('nightly', 7)")
        for given, name in (
            (self.replace_where is not None, "replace_where"),
            (self.is_dynamic, "partition_overwrite='dynamic'"),
            (self.overwrite_schema, "overwrite_schema"),
            (self.replaces_table, "replace_table"),
        ):
            if given and self.mode != "overwrite":
                raise InvalidArgument(f"{name} is for mode 'overwrite', not {self.mode!r}")
        if self.is_dynamic and (self.replace_where is not None or self.overwrite_schema):
            raise InvalidArgument(
                "partition_overwrite='dynamic' goes neither with replace_where nor with overwrite_schema"
            )
        if self.replaces_table and (self.is_dynamic or self.replace_where is not None):
            raise InvalidArgument("replace_table keeps no rows, so neither replace_where nor dynamic goes with it")
        if not self.options.data_change and (
            self.mode != "overwrite" or self.overwrite_schema or self.replaces_table or self.options.merge_schema
        ):
            raise InvalidArgument(
                "data_change=False is for rows that replace the same ones: mode 'overwrite', and no other schema"
            )
        if self.replace_where is not None and self.overwrite_schema:
            raise InvalidArgument("replace_where keeps rows of the old schema, so overwrite_schema cannot go with it")

    @property
    def is_dynamic(self) -> bool:
        return self.partition_overwrite == "dynamic"

    @property
    def replaces_open_rows(self) -> bool:
        """Whether it is an overwrite that does not say which rows it replaces."""
        says = self.replace_where is not None or self.overwrite_schema or self.replaces_table
        return self.mode == "overwrite" and self.partition_overwrite is None and not says


def _is_transaction(given: Any) -> bool:
    match given:
        case (str(), int() as version):
            return not isinstance(version, bool)
        case _:
            return False


class Write(Struct, frozen=True, kw_only=True):
    """The command: data, and what was asked of its write."""

    shown: ClassVar[str | None] = None
    times: ClassVar[tuple[str, ...]] = ()

    asked: WriteCommand
    data: Any

    def decide(self, context: CommandContext) -> PlannedChange | NothingToDo:
        asked, txn = self.asked, context.txn
        snapshot = txn.snapshot
        if snapshot is not None and asked.mode == "error":
            raise AlreadyExists("The table is there already", hint="Use mode 'append' or 'overwrite'")
        if snapshot is not None and asked.mode == "ignore":
            return NothingToDo(version=snapshot.version, reason="the table is there already")
        if asked.txn is not None:
            seen = txn.set_transaction(*asked.txn)
            if isinstance(seen, AlreadyApplied):
                return NothingToDo(
                    version=txn.read_version, reason=f"the table has seen {seen.app_id} up to {seen.seen}"
                )
        if not asked.options.data_change:
            _check_only_moves(snapshot)
        source = context.engine.open(self.data)
        self._prepare(txn, source.schema)
        refuse_given(txn.metadata.schema, source.schema.names)
        write = FilesToWrite(data=source, options=asked.options)
        if snapshot is None or asked.mode != "overwrite":
            return self._change(txn, (write,), lambda _: ADDS.empty_table())
        if asked.is_dynamic and snapshot.partition_columns:
            return self._change(txn, (write,), lambda written: _in_partitions_of(written, txn, snapshot))
        if asked.replace_where is not None:
            return self._replacing(context, snapshot, source, asked.replace_where)
        files = txn.filter_files()
        return self._change(txn, (write,), lambda _: files)

    def _prepare(self, txn: OptimisticTransaction, data: StructType) -> None:
        """The table's metadata as the write needs it."""
        asked, snapshot = self.asked, txn.snapshot
        if snapshot is None or asked.replaces_table:
            fresh = new_metadata(data, asked.partition_by or (), asked.properties, created_ms=now_ms())
            fresh = msgspec.structs.replace(fresh, description=asked.comment)
            txn.update_metadata(fresh if snapshot is None else replaced_table(snapshot.metadata, fresh))
            if asked.cluster_by or (snapshot is not None and clustering_columns(snapshot.domains)):
                set_clustering(txn, asked.cluster_by or ())
            return
        if asked.cluster_by is not None:
            _check_clustered(snapshot, asked.cluster_by)
        if asked.overwrite_schema:
            partitions = snapshot.partition_columns if asked.partition_by is None else asked.partition_by
            replaced = replaced_schema(snapshot.metadata, data, partitions)
            refuse_lost_columns(snapshot, replaced)
            txn.update_metadata(replaced)
        elif asked.partition_by is not None:
            names = [name.lower() for name in asked.partition_by]
            if names != [name.lower() for name in snapshot.partition_columns]:
                raise InvalidArgument(
                    f"The table is partitioned by {list(snapshot.partition_columns)}, not {list(asked.partition_by)}",
                    hint="Leave partition_by out, or overwrite with overwrite_schema=True",
                )

    def _replacing(self, context: CommandContext, snapshot: Snapshot, source: WriteInput, where: str) -> PlannedChange:
        """Rows are looked for first: a file without such rows stays, or the feed would tell of rows that stayed."""
        touched = find(context, snapshot, where, now=clock.now(), by_vectors=False)
        partly = touched.partly.num_rows > 0
        explicit = partly and snapshot.properties.change_data_feed and self.asked.options.data_change
        options = msgspec.structs.replace(self.asked.options, must_match=where, insert_changes=explicit)
        writes = [FilesToWrite(data=source, options=options)]
        if partly:
            files = touched.chosen(touched.all if explicit else touched.partly)
            replaced = ChosenRows(judged=touched.judged)
            rewrite = Rewrite.of(snapshot, context.store, files, delete=replaced, changes=explicit)
            options = msgspec.structs.replace(self.asked.options, own_rows=True, changes=explicit, with_row_ids=True)
            writes.append(FilesToWrite(data=rewrite, options=options))
        return self._change(context.txn, tuple(writes), lambda _: touched.all)

    def _change(
        self, txn: OptimisticTransaction, writes: tuple[FilesToWrite, ...], replaced: Callable[[Written], pa.Table]
    ) -> PlannedChange:
        def finish(written: Written) -> tuple[list[Action], Operation]:
            gone = replaced(written)
            if not self.asked.options.data_change:
                _check_same_count(gone, written)
            removed = removals(gone, now_ms=now_ms(), data_change=self.asked.options.data_change)
            return [*written, *removed], self._operation(txn, written, removed)

        return PlannedChange(finish=finish, writes=writes)

    def _operation(self, txn: OptimisticTransaction, written: Written, removed: Sequence[RemoveFile]) -> Operation:
        asked, metrics = self.asked, operation_metrics(written)
        if removed:
            metrics |= {"numRemovedFiles": len(removed), "numRemovedBytes": sum(a.size or 0 for a in removed)}
        parameters = {
            "mode": _SPARK_MODES[asked.mode],
            "partitionBy": list(txn.metadata.partition_columns),
            "predicate": asked.replace_where,
            "isDynamicPartitionOverwrite": True if asked.is_dynamic else None,
        }
        return Operation(
            name=asked.operation,
            parameters={**parameters, **asked.parameters},
            metrics=metrics,
            user_metadata=asked.user_metadata,
        )


def _check_only_moves(snapshot: Snapshot | None) -> None:
    if snapshot is None:
        raise TableNotFound("There are no rows that could be laid out otherwise: there is no table")
    if snapshot.properties.row_tracking:
        raise InvalidArgument(
            "Rows of this table have ids, which an overwrite does not know, so it is a change",
            hint="Table.optimize() lays rows out with their ids",
        )


def _check_same_count(gone: pa.Table, written: Written) -> None:
    before = total_rows(add_actions(gone))
    after = total_rows(add for add in written if isinstance(add, AddFile))
    if before is not None and after is not None and before != after:
        raise InvalidArgument(
            f"{after} rows are not the {before} that they would replace, and data_change=False says that they are",
            hint="Leave data_change out",
        )


def _check_clustered(snapshot: Snapshot, columns: tuple[str, ...]) -> None:
    now = clustered_by(snapshot)
    if [name.lower() for name in now] != [name.lower() for name in columns]:
        raise InvalidArgument(
            f"The table is clustered by {list(now)}, not {list(columns)}",
            hint="Leave cluster_by out, or change it first: Table.cluster_by(…)",
        )


def _in_partitions_of(written: Written, txn: OptimisticTransaction, snapshot: Snapshot) -> pa.Table:
    """The files of the snapshot in the partitions that the new files are in, noted as read."""
    partitions = {tuple(sorted(add.partition_values.items())) for add in written if isinstance(add, AddFile)}
    if not partitions:
        return ADDS.empty_table()
    if len(partitions) <= _MAX_PREDICATE_PARTITIONS:
        txn.read_predicate(_partition_predicate(partitions, snapshot))
    else:
        txn.read_whole_table()
    return snapshot.files.filter(pa.array([v in partitions for v in _written_anew(snapshot)], pa.bool_()))


def _written_anew(snapshot: Snapshot) -> Iterator[tuple[tuple[str, str | None], ...]]:
    """The partition of each file, in the texts that we write: other clients have others for the same values."""
    names = _partition_names(snapshot)
    if not snapshot.files.num_rows:
        return iter(())
    values = snapshot.partition_struct(snapshot.files)
    texts = [format_partition_values(values.field(field.name), field.type).to_pylist() for field in names.values()]
    return (tuple(sorted(zip(names, row, strict=True))) for row in zip(*texts, strict=True))


def _partition_predicate(partitions: set[tuple[tuple[str, str | None], ...]], snapshot: Snapshot) -> str:
    names = _partition_names(snapshot)
    clauses = []
    for partition in sorted(partitions, key=repr):
        terms = []
        for name, value in partition:
            field = names[name]
            column = quote_name(field.name)
            terms.append(f"{column} = CAST({quote_string(value)} AS {field.type})" if value else f"{column} IS NULL")
        clauses.append(f"({' AND '.join(terms)})")
    return " OR ".join(clauses)


def _partition_names(snapshot: Snapshot) -> dict[str, StructField]:
    """The partition columns by their names in the log."""
    mapped = snapshot.properties.column_mapping_mode != "none"
    return {(field.physical_name if mapped else field.name): field for field in snapshot.partition_schema.fields}
