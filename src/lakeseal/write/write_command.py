"""The write command: what `Table.write` means, for every engine and every mode.

One transaction: decide by the table as it is, write the new files, say which old ones they replace, commit.

- append adds rows; overwrite replaces all of them; error and ignore do nothing to a table that is there.
- replace_where replaces the rows that match a predicate; new rows that do not match it are refused.
- Dynamic partition overwrite replaces the partitions that the new rows fall into, and no others.
- (app id, version) makes a write idempotent: one that the table has seen changes nothing.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from lakeseal.commit.alter import new_metadata, replaced_schema
from lakeseal.commit.clustering import refuse_lost_columns
from lakeseal.commit.proposal import Operation
from lakeseal.commit.transaction import AlreadyApplied, CommitResult, OptimisticTransaction, now_ms
from lakeseal.errors import AlreadyExists, InvalidArgument, located
from lakeseal.expr.render import quote_name, quote_string
from lakeseal.log.data import DataFile, data_files
from lakeseal.log.files import ADDS
from lakeseal.log.snapshot import Snapshot
from lakeseal.protocol.actions import AddCDCFile, AddFile, RemoveFile
from lakeseal.protocol.schema import StructType
from lakeseal.storage import StoreSpec
from lakeseal.write.engine import Engine
from lakeseal.write.file_changes import removals
from lakeseal.write.progress import NoProgress
from lakeseal.write.rewrite import Rewrite, Rows
from lakeseal.write.touched_files import find
from lakeseal.write.transactional_write import TransactionalWrite, WriteOptions, operation_metrics

Mode = Literal["append", "overwrite", "error", "ignore"]
MODES: tuple[str, ...] = get_args(Mode)
_SPARK_MODES = {"append": "Append", "overwrite": "Overwrite", "error": "ErrorIfExists", "ignore": "Ignore"}
_MAX_PREDICATE_PARTITIONS = 500


class WriteCommand(Struct, frozen=True, kw_only=True):
    """All that a caller may ask of a write."""

    mode: str = "append"
    partition_by: tuple[str, ...] | None = None
    replace_where: str | None = None
    partition_overwrite: str | None = None
    """"dynamic": overwrite only the partitions that the data has rows for."""
    overwrite_schema: bool = False
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
        for given, name in (
            (self.replace_where is not None, "replace_where"),
            (self.is_dynamic, "partition_overwrite='dynamic'"),
            (self.overwrite_schema, "overwrite_schema"),
        ):
            if given and self.mode != "overwrite":
                raise InvalidArgument(f"{name} is for mode 'overwrite', not {self.mode!r}")
        if self.is_dynamic and (self.replace_where is not None or self.overwrite_schema):
            raise InvalidArgument(
                "partition_overwrite='dynamic' goes neither with replace_where nor with overwrite_schema"
            )
        if self.replace_where is not None and self.overwrite_schema:
            raise InvalidArgument("replace_where keeps rows of the old schema, so overwrite_schema cannot go with it")

    @property
    def is_dynamic(self) -> bool:
        return self.partition_overwrite == "dynamic"


class NothingToDo(Struct, frozen=True, kw_only=True):
    """The table was there (ignore), has seen this transaction before, or has no row or file that it is about."""

    version: int
    reason: str
    metrics: Mapping[str, int | str] = msgspec.field(default_factory=dict)


def run(
    command: WriteCommand, txn: OptimisticTransaction, data: Any, *, engine: Engine, store: StoreSpec
) -> CommitResult | NothingToDo:
    with located(table=txn.table):
        return _Write(command, txn, engine, store).run(data)


class _Write:
    def __init__(self, command: WriteCommand, txn: OptimisticTransaction, engine: Engine, store: StoreSpec) -> None:
        self._command = command
        self._txn = txn
        self._engine = engine
        self._runner = engine.runner(NoProgress())
        self._store = store
        self._files = TransactionalWrite(txn, self._runner, store=store)

    def run(self, data: Any) -> CommitResult | NothingToDo:
        command, snapshot = self._command, self._txn.snapshot
        if snapshot is not None and command.mode == "error":
            raise AlreadyExists("The table is there already", hint="Use mode 'append' or 'overwrite'")
        if snapshot is not None and command.mode == "ignore":
            return NothingToDo(version=snapshot.version, reason="the table is there already")
        if command.txn is not None:
            seen = self._txn.set_transaction(*command.txn)
            if isinstance(seen, AlreadyApplied):
                return NothingToDo(
                    version=self._txn.read_version, reason=f"the table has seen {seen.app_id} up to {seen.seen}"
                )
        source = self._runner.open(data)
        self._prepare(source.schema)
        actions = self._actions(source)
        return self._txn.commit(actions, self._operation(actions))

    def _prepare(self, data: StructType) -> None:
        """The table's metadata as the write needs it."""
        command, snapshot = self._command, self._txn.snapshot
        if snapshot is None:
            self._txn.update_metadata(
                new_metadata(data, command.partition_by or (), command.properties, created_ms=now_ms())
            )
        elif command.overwrite_schema:
            partitions = snapshot.partition_columns if command.partition_by is None else command.partition_by
            replaced = replaced_schema(snapshot.metadata, data, partitions)
            refuse_lost_columns(snapshot, replaced)
            self._txn.update_metadata(replaced)
        elif command.partition_by is not None:
            asked = [name.lower() for name in command.partition_by]
            if asked != [name.lower() for name in snapshot.partition_columns]:
                raise InvalidArgument(
                    f"The table is partitioned by {list(snapshot.partition_columns)}, not {list(command.partition_by)}",
                    hint="Leave partition_by out, or overwrite with overwrite_schema=True",
                )

    def _actions(self, source: Any) -> list[AddFile | AddCDCFile | RemoveFile]:
        command, snapshot = self._command, self._txn.snapshot
        options = command.options
        if snapshot is None or command.mode != "overwrite":
            return [*self._files.write_files(source, options)]
        if command.is_dynamic and snapshot.partition_columns:
            added = self._files.write_files(source, options)
            return [*added, *self._removed(self._in_partitions_of(added, snapshot))]
        if command.replace_where is not None:
            return self._replace(source, snapshot, command.replace_where)
        removed = self._removed(self._txn.filter_files())
        return [*self._files.write_files(source, options), *removed]

    def _replace(self, source: Any, snapshot: Snapshot, where: str) -> list[AddFile | AddCDCFile | RemoveFile]:
        judged = self._engine.judged(where, snapshot.schema)
        if judged is None:
            return self._replace_found(source, snapshot, where)
        files = self._txn.filter_files(judged)
        whole = snapshot.match(judged, files).all
        partly = files.filter(pc.invert(whole))
        explicit = partly.num_rows > 0 and snapshot.properties.change_data_feed
        options = msgspec.structs.replace(self._command.options, must_match=where, insert_changes=explicit)
        added = self._files.write_files(source, options)
        if partly.num_rows:
            # Where one file's changes are written out, those of all files must be.
            kept = list(data_files(files if explicit else partly))
            added += self._rewritten(snapshot, kept, Rows(judged=judged), changes=explicit)
        return [*added, *self._removed(files)]

    def _replace_found(self, source: Any, snapshot: Snapshot, where: str) -> list[AddFile | AddCDCFile | RemoveFile]:
        """Only the engine can say which rows are replaced, so it is asked first."""
        now = datetime.datetime.now(datetime.UTC)
        how: dict[str, Any] = {"engine": self._engine, "store": self._store, "now": now, "progress": NoProgress()}
        touched = find(self._txn, snapshot, where, **how, by_vectors=False)
        explicit = touched.partly.num_rows > 0 and snapshot.properties.change_data_feed
        options = msgspec.structs.replace(self._command.options, must_match=where, insert_changes=explicit)
        added = self._files.write_files(source, options)
        if touched.partly.num_rows:
            kept = touched.chosen(touched.all if explicit else touched.partly)
            added += self._rewritten(snapshot, kept, Rows(judged=touched.judged), changes=explicit)
        return [*added, *self._removed(touched.all)]

    def _rewritten(
        self, snapshot: Snapshot, files: Sequence[DataFile], replaced: Rows, *, changes: bool
    ) -> list[AddFile | AddCDCFile]:
        rewrite = Rewrite.of(snapshot, self._store, files, delete=replaced, changes=changes)
        return self._files.write_files(
            rewrite, msgspec.structs.replace(self._command.options, own_rows=True, changes=changes)
        )

    def _in_partitions_of(self, added: list[AddFile | AddCDCFile], snapshot: Snapshot) -> pa.Table:
        """The files of the snapshot in the partitions that the new files are in, noted as read."""
        partitions = {tuple(sorted(add.partition_values.items())) for add in added if isinstance(add, AddFile)}
        if not partitions:
            return ADDS.empty_table()
        if len(partitions) <= _MAX_PREDICATE_PARTITIONS:
            self._txn.read_predicate(_partition_predicate(partitions, snapshot))
        else:
            self._txn.read_whole_table()
        values = snapshot.files["partitionValues"].to_pylist(maps_as_pydicts="lossy")
        return snapshot.files.filter(pa.array([tuple(sorted(v.items())) in partitions for v in values], pa.bool_()))

    def _removed(self, files: pa.Table) -> list[RemoveFile]:
        return removals(files, now_ms=now_ms(), data_change=self._command.options.data_change)

    def _operation(self, actions: list[AddFile | AddCDCFile | RemoveFile]) -> Operation:
        command = self._command
        removed = [a for a in actions if isinstance(a, RemoveFile)]
        metrics = operation_metrics(a for a in actions if not isinstance(a, RemoveFile))
        if removed:
            metrics |= {"numRemovedFiles": len(removed), "numRemovedBytes": sum(a.size or 0 for a in removed)}
        parameters = {
            "mode": _SPARK_MODES[command.mode],
            "partitionBy": list(self._txn.metadata.partition_columns),
            "predicate": command.replace_where,
            "isDynamicPartitionOverwrite": True if command.is_dynamic else None,
        }
        return Operation(
            name=command.operation,
            parameters={**parameters, **command.parameters},
            metrics=metrics,
            user_metadata=command.user_metadata,
        )


def _partition_predicate(partitions: set[tuple[tuple[str, str | None], ...]], snapshot: Snapshot) -> str:
    fields = {field.physical_name: field for field in snapshot.partition_schema.fields}
    mapped = snapshot.properties.column_mapping_mode != "none"
    names = {(physical if mapped else field.name): field for physical, field in fields.items()}
    clauses = []
    for partition in sorted(partitions, key=repr):
        terms = []
        for name, value in partition:
            field = names[name]
            column = quote_name(field.name)
            terms.append(f"{column} = CAST({quote_string(value)} AS {field.type})" if value else f"{column} IS NULL")
        clauses.append(f"({' AND '.join(terms)})")
    return " OR ".join(clauses)
