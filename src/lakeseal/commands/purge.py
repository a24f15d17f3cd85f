"""REORG … APPLY (PURGE): what rows and columns that are gone have left in files goes, too. No row changes.

Files with deletion vectors are written anew without the rows that those hide, and files that still have a column which
the table has dropped, without it. Versions before keep their files until VACUUM takes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from lakeseal.clock import now_ms
from lakeseal.commands.command import CommandContext, FilesToWrite, PlannedChange, Written
from lakeseal.commands.file_changes import file_metrics, removals
from lakeseal.commands.optimize import chosen_by, plan_bins, splits_of
from lakeseal.commands.transactional_write import DEFAULT_TARGET_FILE_SIZE, WriteOptions
from lakeseal.commit.proposal import Operation
from lakeseal.errors import BrokenDataFile, TableNotFound
from lakeseal.jobs.rewrite import Rewrite
from lakeseal.log.data import DataReader, ReadSpec, data_files
from lakeseal.log.snapshot import Snapshot
from lakeseal.protocol.actions import Action
from lakeseal.protocol.features import check_writable
from lakeseal.protocol.parquet_footer import Footer
from lakeseal.protocol.schema import COLUMN_ID, ArrayType, DataType, MapType, StructType
from lakeseal.storage.base import Store

_READERS = 8


class PurgeCommand(Struct, frozen=True, kw_only=True):
    shown: ClassVar[str | None] = "purge"
    times: ClassVar[tuple[str, ...]] = ("executionTimeMs",)

    outside: Callable[[str], Store]
    where: str | None = None
    """Only files that may have rows for which this is true."""
    user_metadata: str | None = None

    def decide(self, context: CommandContext) -> PlannedChange:
        snapshot = context.txn.snapshot
        if snapshot is None:
            raise TableNotFound("There is no table here")
        check_writable(snapshot.protocol, snapshot.metadata)
        files = snapshot.files.filter(snapshot.match(chosen_by(self.where, context.engine, snapshot)).may)
        files = self._with_remains(files, snapshot, context.store.open())
        target = snapshot.properties.target_file_size or DEFAULT_TARGET_FILE_SIZE

        def finish(written: Written) -> tuple[list[Action], Operation]:
            actions: list[Action] = [*removals(files, now_ms=now_ms(), data_change=False), *written]
            operation = Operation(
                name="REORG",
                parameters={"predicate": [] if self.where is None else [self.where], "applyPurge": True},
                metrics=file_metrics(actions),
                user_metadata=self.user_metadata,
            )
            return actions, operation

        if not files.num_rows:
            return PlannedChange(finish=finish, nothing="no file has anything that is gone from the table")
        context.txn.read_files(files)
        splits = splits_of(plan_bins(data_files(files), target=target, all_files=True))
        options = WriteOptions(target_file_size=target, with_row_ids=True)
        write = FilesToWrite(
            data=Rewrite.of_bins(snapshot, context.store, splits, ()), options=options, is_optimize=True
        )
        return PlannedChange(finish=finish, writes=(write,), rewritten=files.num_rows)

    def _with_remains(self, files: pa.Table, snapshot: Snapshot, store: Store) -> pa.Table:
        """Those that have something in them which the table has not."""
        remains = files["deletionVector"].is_valid().to_pylist()
        if _may_have_dropped_columns(snapshot):
            spec = ReadSpec(schema=snapshot.schema, places=snapshot.places)
            reader = DataReader(store, spec, outside=self.outside)
            with ThreadPoolExecutor(_READERS, thread_name_prefix="lakeseal-purge") as readers:
                schemas = readers.map(lambda path: _schema_of(reader, path), files["path"].to_pylist())
                own = _row_id_columns(snapshot)
                remains = [
                    hides or not all(field.name in own or _has(snapshot.schema, field) for field in schema)
                    for hides, schema in zip(remains, schemas, strict=True)
                ]
        return files.filter(pa.array(remains, pa.bool_()))


def _schema_of(reader: DataReader, path: str) -> pa.Schema:
    store, key = reader.locate(path)
    try:
        with store.open_read(key) as source, pq.ParquetFile(source) as file:
            Footer(file.metadata, source).check_bounds()  # damaged ones must not be asked for
            return file.schema_arrow
    except (pa.ArrowException, OSError) as error:
        raise BrokenDataFile(f"This is not a Parquet file: {error}", file=path) from error


def _may_have_dropped_columns(snapshot: Snapshot) -> bool:
    """Whether more ids were given out than the table has columns and fields."""
    return snapshot.properties.column_mapping_max_id > sum(1 for _ in _ids(snapshot.schema))


def _ids(data_type: DataType) -> Iterator[object]:
    match data_type:
        case StructType(fields=fields):
            for field in fields:
                yield field.metadata.get(COLUMN_ID)
                yield from _ids(field.type)
        case ArrayType(element=element):
            yield from _ids(element)
        case MapType(key=key, value=value):
            yield from _ids(key)
            yield from _ids(value)


def _row_id_columns(snapshot: Snapshot) -> frozenset[str | None]:
    return frozenset((snapshot.properties.row_id_column, snapshot.properties.row_commit_version_column))


def _has(struct: StructType, field: pa.Field) -> bool:
    """Whether a column or field of a file is one of the table's, and all that is in it."""
    mine = next((one for one in struct.fields if one.physical_name == field.name), None)
    return mine is not None and _is_covered(mine.type, field.type)


def _is_covered(mine: DataType, arrow: pa.DataType) -> bool:
    match mine:
        case StructType() if pa.types.is_struct(arrow):
            return all(_has(mine, arrow.field(place)) for place in range(arrow.num_fields))
        case ArrayType(element=element) if pa.types.is_list(arrow):
            return _is_covered(element, arrow.value_type)
        case MapType(key=key, value=value) if pa.types.is_map(arrow):
            return _is_covered(key, arrow.key_type) and _is_covered(value, arrow.item_type)
        case _:
            return True
