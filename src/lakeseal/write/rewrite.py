"""Rewrite: rows of files that are in the table, read again in the task that writes them.

Rows never cross into an engine: a task is told files, not rows. What happens to a row on the way is said in SQL that
`expr` evaluates. Rows of `delete_where` go away, and with `changes` they go to the change feed as deletes; all others
are written again as they are.

A `Rewrite` is JSON, as a `WriteJobSpec` is, and may be given to a runner wherever data may. One split is one task.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from lakeseal import expr
from lakeseal.log.data import DataFile, DataReader, ReadSpec, data_files
from lakeseal.log.physical import Mapping
from lakeseal.log.snapshot import Snapshot
from lakeseal.protocol.schema import STRING, StructField, StructType
from lakeseal.storage import Store, StoreSpec, open_store
from lakeseal.write.file_schema import CHANGE_TYPE

_SPLIT_BYTES = 128 * 2**20


class Rewrite(Struct, frozen=True, kw_only=True):
    store: StoreSpec
    table_schema: str
    partition_columns: tuple[str, ...]
    mapping: Mapping
    splits: tuple[tuple[DataFile, ...], ...]
    delete_where: str | None = None
    changes: bool = False
    """Whether deleted rows go to the change feed."""

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        store: StoreSpec,
        files: pa.Table,
        *,
        delete_where: str | None = None,
        changes: bool = False,
        split_bytes: int = _SPLIT_BYTES,
    ) -> Rewrite:
        return cls(
            store=store,
            table_schema=snapshot.schema.to_json(),
            partition_columns=snapshot.partition_columns,
            mapping=snapshot.properties.column_mapping_mode,  # type: ignore[arg-type]  # checked by the property
            splits=tuple(_splits(data_files(files), split_bytes)),
            delete_where=delete_where,
            changes=changes,
        )

    @property
    def schema(self) -> StructType:
        table = StructType.from_json(self.table_schema)
        return StructType((*table.fields, StructField(CHANGE_TYPE, STRING))) if self.changes else table

    @property
    def arrow_schema(self) -> pa.Schema:
        schema = self._reader().schema
        return schema.append(pa.field(CHANGE_TYPE, pa.string())) if self.changes else schema

    def batches(self, split: int) -> Iterator[pa.RecordBatch]:
        """The rows that a split's task writes."""
        table = StructType.from_json(self.table_schema)
        deleted = None if self.delete_where is None else expr.bind(expr.parse(self.delete_where), table)
        for batch in self._reader().read(self.splits[split]):
            yield self._rewritten(batch, deleted)

    def _reader(self) -> DataReader:
        table = StructType.from_json(self.table_schema)
        spec = ReadSpec(schema=table, partition_columns=self.partition_columns, mapping=self.mapping)
        return DataReader(self.store.open(), spec, outside=self._outside)

    def _rewritten(self, batch: pa.RecordBatch, deleted: expr.BoundExpression | None) -> pa.RecordBatch:
        if deleted is None:
            gone = pa.repeat(pa.scalar(False), batch.num_rows)
        else:
            gone = pc.fill_null(expr.evaluate(deleted, batch), False)
        if self.changes:
            return batch.append_column(CHANGE_TYPE, pc.if_else(gone, "delete", pa.scalar(None, pa.string())))
        return batch.filter(pc.invert(gone))

    def _outside(self, uri: str) -> Store:
        # Only what the snapshot itself names is read, and whoever may write the table may name it.
        return open_store(uri, self.store.storage_options)


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
