"""Files of a table that tasks are told to read: which, where they are, and how to read them.

A value of this kind is JSON and may be sent to any process. One split is one task's files.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
from msgspec import Struct

from lakeseal.log.data import DEFAULT_BATCH_ROWS, DataFile, DataReader, ReadSpec, data_files
from lakeseal.log.physical import Mapping
from lakeseal.log.snapshot import Snapshot
from lakeseal.protocol.row_tracking import RowTrackingColumns
from lakeseal.protocol.schema import StructType
from lakeseal.storage import Store, StoreSpec, open_store

SPLIT_BYTES = 128 * 2**20


class TableFiles(Struct, frozen=True, kw_only=True, dict=True):
    store: StoreSpec
    table_schema: str
    partition_columns: tuple[str, ...]
    mapping: Mapping
    splits: tuple[tuple[DataFile, ...], ...]
    max_decoded_bytes: int
    places: tuple[str, ...]
    row_ids: RowTrackingColumns | None = None
    """Where the table tracks rows: the columns of their ids and versions."""
    now: datetime.datetime | None = None
    """What `current_timestamp()` stands for in all tasks."""

    @cached_property
    def table(self) -> StructType:
        return StructType.from_json(self.table_schema)

    def reader(
        self,
        columns: Sequence[str] | None = None,
        *,
        position_column: str | None = None,
        row_ids: bool = False,
        batch_rows: int = DEFAULT_BATCH_ROWS,
    ) -> DataReader:
        """`row_ids`: with the columns of row tracking, where there are any."""
        spec = ReadSpec(
            schema=self.table,
            partition_columns=self.partition_columns,
            mapping=self.mapping,
            columns=None if columns is None else tuple(columns),
            row_ids=self.row_ids if row_ids else None,
            position_column=position_column,
            batch_rows=batch_rows,
            max_decoded_bytes=self.max_decoded_bytes,
            places=self.places,
        )
        return DataReader(self.store.open(), spec, outside=self._outside)

    def _outside(self, uri: str) -> Store:
        # Only what the snapshot itself names is read, and whoever may write the table may name it.
        return open_store(uri, self.store.storage_options)


def described(snapshot: Snapshot, store: StoreSpec) -> dict[str, Any]:
    """The parts of a `TableFiles` that say how to read a snapshot's files."""
    return {
        "store": store,
        "table_schema": snapshot.schema.to_json(),
        "partition_columns": snapshot.partition_columns,
        "mapping": snapshot.properties.column_mapping_mode,
        "max_decoded_bytes": snapshot.trust.max_decoded_bytes,
        "places": snapshot.places,
        "row_ids": RowTrackingColumns.of(snapshot.properties),
    }


def splits(files: pa.Table | Iterable[DataFile], split_bytes: int = SPLIT_BYTES) -> tuple[tuple[DataFile, ...], ...]:
    """Files in their order, put together up to so many bytes."""
    rows = data_files(files) if isinstance(files, pa.Table) else files
    return tuple(_splits(rows, split_bytes))


def _splits(files: Iterable[DataFile], split_bytes: int) -> Iterator[tuple[DataFile, ...]]:
    split: list[DataFile] = []
    size = 0
    for file in files:
        if split and size + (file.size or 0) > split_bytes:
            yield tuple(split)
            split, size = [], 0
        split.append(file)
        size += file.size or 0
    if split:
        yield tuple(split)
