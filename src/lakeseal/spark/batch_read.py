"""`spark.read.format("lakeseal")`: a version of a table, or a range of its change feed, read by tasks as Arrow.

The options are pinned to versions when the DataFrame is made, so that it has the same rows whenever it is used. A
schema that the user gives selects columns.

The reader takes no filters. Spark keeps one reader for all scans of a relation, with the filters that the first scan
pushed into it, and uses it for scans that have other filters or none. So a reader is a pure function of the options and
the schema, and Spark applies each scan's filters to the rows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from lakeseal import expr
from lakeseal.errors import InvalidArgument, TableNotFound, UnsupportedExpression, VersionNotFound, located
from lakeseal.log.changes import changes
from lakeseal.log.delta_log import DeltaLog
from lakeseal.log.scan import read_spec
from lakeseal.log.snapshot import Snapshot
from lakeseal.owner.routing import Router
from lakeseal.protocol.char_varchar import char_limits
from lakeseal.protocol.schema import StructField, dotted
from lakeseal.protocol.schema import StructType as TableSchema
from lakeseal.spark.failures import noted
from lakeseal.spark.predicates import check_portable, columns_of
from lakeseal.spark.read_options import ReadOptions
from lakeseal.spark.read_task import ChangeTask, ScanTask, change_splits, file_splits
from lakeseal.spark.stream_tracking import SchemaTracking

_log = logging.getLogger(__name__)
_LARGE_BYTES = 2**30
_hinted: set[str] = set()


class BatchRead:
    """A batch as its options say it, against the log as it is."""

    def __init__(self, options: ReadOptions) -> None:
        self.log = open_table(options).route().log
        with located(table=self.log.table):
            self.options = options.pinned(self.log)
            self.snapshot: Snapshot = self.log.snapshot(
                self.options.ending_version if options.read_change_feed else self.options.version_as_of
            )

    def task(self) -> ScanTask | ChangeTask:
        # Spark fills up the values of char(n) itself, as its session says.
        with located(table=self.log.table, version=self.snapshot.version):
            spec = msgspec.structs.replace(read_spec(self.snapshot, self._columns()), pads_chars=False)
            if self.options.read_change_feed:
                return ChangeTask(store=self.options.store, spec=spec)
            if self.options.where is not None:
                _check_condition(self.options.where, self.snapshot.schema)
            return ScanTask(
                store=self.options.store, spec=spec, where=self.options.where, version=self.snapshot.version
            )

    def _columns(self) -> list[str] | None:
        """By the table's own names, in the order that was asked for."""
        asked, schema = self.options.columns, self.snapshot.schema
        if asked is None:
            return None
        found: list[str] = []
        for name in asked:
            field = schema.field(name)
            if field is None or field.name in found:
                raise InvalidArgument(
                    "The option columns names a column that the table does not have, or one twice",
                    column=name,
                    hint=f"The table has {', '.join(schema.names[:20])}",
                )
            found.append(field.name)
        if not found:
            raise InvalidArgument("The option columns names none", hint="For instance a,b")
        return found


def _check_condition(where: str, schema: TableSchema) -> None:
    """Raises where a session could mean something else: nobody asks it."""
    try:
        expr.bind_predicate(expr.parse(where), schema)
        check_portable(where, schema, zone_known=False)
        _check_no_chars(where, schema)
    except UnsupportedExpression as error:
        error.hint = "Filter the DataFrame, or read with Table.to_spark(spark, where=…), which asks the session"
        raise


def _check_no_chars(where: str, schema: TableSchema) -> None:
    for name in columns_of(where, schema):
        if char_limits(_field(schema, name)) is not None:
            raise UnsupportedExpression("Texts of char(n) are compared as the session pads them", column=name)


def _field(schema: TableSchema, name: str) -> StructField:
    field = schema.field(name)
    assert field is not None, "it is one of the schema's"
    return field


def open_table(options: ReadOptions) -> Router:
    router = options.open()
    if router.snapshot() is None:
        raise TableNotFound("There is no table here", table=options.store.uri)
    return router


def declared(options: ReadOptions) -> tuple[ReadOptions, StructType]:
    """What a DataFrame with these options is fixed to, and its schema.

    Spark asks for the schema before it says whether this will be a batch or a stream. What only a stream may have is
    refused when a batch is read, not here."""
    if not options.is_for_streams:
        try:
            batch = BatchRead(options)
            return batch.options, batch.task().schema
        except VersionNotFound:
            if not options.may_be_to_come:
                raise
    kind = ChangeTask if options.read_change_feed else ScanTask
    log = open_table(options).route().log
    tracking = SchemaTracking.of(options)
    started = log.snapshot() if tracking is None else tracking.started(log, options)
    return options, kind(store=options.store, spec=read_spec(started)).schema


class BatchReader(DataSourceReader):
    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        with noted():
            batch = BatchRead(options)
            self._options = batch.options
            self._log: DeltaLog = batch.log
            self._snapshot = batch.snapshot
            task = selected(batch.task(), schema, table=self._log.table)
            self._task: ScanTask | ChangeTask = _with_columns_of_where(task)

    def __getstate__(self) -> dict[str, Any]:
        # Tasks need to know what to read, not how it was planned.
        return {"_task": self._task}

    def partitions(self) -> list[InputPartition]:
        with noted(), located(table=self._log.table, version=self._snapshot.version):
            return [InputPartition(split) for split in self._splits()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return rows_of(self._task, partition)

    def _splits(self) -> list[bytes]:
        options, task = self._options, self._task
        if isinstance(task, ChangeTask):
            assert options.starting_version is not None
            assert options.ending_version is not None
            return change_splits(changes(self._log, options.starting_version, options.ending_version))
        files = self._snapshot.files
        if task.where is not None:
            files = files.filter(self._snapshot.match(task.where).may)
        elif len(task.spec.wanted()) == len(self._snapshot.schema.fields):
            _hint(self._log.table, pc.sum(files["size"]).as_py() or 0)
        return file_splits(files)


def _hint(table: str, size: int) -> None:
    """Once for a table in a process. Spark never says which columns a query needs, so nobody can do it for the user."""
    if size < _LARGE_BYTES or table in _hinted:
        return
    _hinted.add(table)
    _log.warning(
        "All columns of %s are read, %.1f GB: Spark tells no data source in Python which of them a query needs. "
        "Table.to_spark(spark) reads only those; or name them, .option('columns', 'a,b')",
        table,
        size / 1e9,
    )


def rows_of(task: ScanTask | ChangeTask, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    # Where there are no splits, Spark makes a partition of its own.
    if partition.value is not None:
        with noted():
            yield from task.read(partition.value)


def selected(task: ScanTask | ChangeTask, schema: StructType, *, table: str) -> ScanTask | ChangeTask:
    """The task for the columns of a schema, which may be fewer than the table's."""
    given = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    offered = [(field.name, field.dataType.simpleString()) for field in task.schema.fields]
    if not all(column in offered for column in given) or not given:
        raise InvalidArgument(
            f"The schema {schema.simpleString()} is not the table's, {task.schema.simpleString()}",
            table=table,
            hint="Leave .schema() out, or name columns of the table with their types; the table may have changed too",
        )
    promised = _never_null(schema, ())
    if promised is not None:
        raise InvalidArgument(
            "The schema says NOT NULL, which Spark would believe without looking at the rows",
            table=table,
            column=dotted(promised),
            hint="Leave NOT NULL out of the schema: rows are read as nullable, whatever the table promises",
        )
    if given == offered:
        return task
    if isinstance(task, ChangeTask):
        raise InvalidArgument(
            f"The change feed comes with all of its columns, {task.schema.simpleString()}",
            table=table,
            hint="Leave .schema() out, and select columns of the DataFrame",
        )
    spec = msgspec.structs.replace(task.spec, columns=tuple(schema.fieldNames()))
    return msgspec.structs.replace(task, spec=spec)


def _with_columns_of_where(task: ScanTask | ChangeTask) -> ScanTask | ChangeTask:
    if not isinstance(task, ScanTask) or task.where is None:
        return task
    wanted = {field.name for field in task.spec.wanted()}
    more = tuple(name for name in columns_of(task.where, task.spec.schema) if name not in wanted)
    return msgspec.structs.replace(task, only_for_where=more)


def _never_null(given: DataType, path: tuple[str, ...]) -> tuple[str, ...] | None:
    """The first part of a type that may not be null; a map's keys never are."""
    match given:
        case StructType():
            parts = [(field.name, field.nullable, field.dataType) for field in given.fields]
        case ArrayType():
            parts = [("element", given.containsNull, given.elementType)]
        case MapType():
            parts = [("key", True, given.keyType), ("value", given.valueContainsNull, given.valueType)]
        case _:
            return None
    for name, nullable, inner in parts:
        found = _never_null(inner, (*path, name)) if nullable else (*path, name)
        if found is not None:
            return found
    return None
