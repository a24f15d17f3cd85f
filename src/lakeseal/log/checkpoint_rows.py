"""What a checkpoint holds, in columns, as Delta lays them out.

Of a version's state it keeps the protocol, the metadata, transactions and domains that have not expired, the live files
and the tombstones that have not expired; nothing else belongs in a checkpoint. Files keep the order in which the log
added them, transactions and domains are sorted, so equal states give equal rows.

Statistics go in as JSON, as a typed struct, or both, as the table's properties say, and each is made from the other
where the log has only one. Partition values that are no values of their columns' types leave out the typed struct of
them: a null there would be a wrong answer. Fields that the format's columns have no place for are kept as JSON in a
column of our own (`checkpoint_reader.UNKNOWN`), which is there only where it is needed and which others ignore.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from lakeseal.errors import InvalidMetadata, UnsupportedType
from lakeseal.log.checkpoint_reader import UNKNOWN
from lakeseal.log.files import ADDS, REMOVES, STRING_MAP, filter_rows
from lakeseal.log.snapshot import Snapshot
from lakeseal.log.stored_stats import STATS_PARSED, stats_structs, stats_texts
from lakeseal.protocol.actions import DomainMetadata, KnownAction, SetTransaction
from lakeseal.protocol.stats import indexed_columns, stats_schema

BATCH_ROWS = 65_536

_STRINGS = pa.list_(pa.string())
_OTHERS = {
    "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
    "metaData": pa.struct(
        {
            "id": pa.string(),
            "name": pa.string(),
            "description": pa.string(),
            "format": pa.struct({"provider": pa.string(), "options": STRING_MAP}),
            "schemaString": pa.string(),
            "partitionColumns": _STRINGS,
            "configuration": STRING_MAP,
            "createdTime": pa.int64(),
        }
    ),
    "protocol": pa.struct(
        {
            "minReaderVersion": pa.int32(),
            "minWriterVersion": pa.int32(),
            "readerFeatures": _STRINGS,
            "writerFeatures": _STRINGS,
        }
    ),
    "domainMetadata": pa.struct({"domain": pa.string(), "configuration": pa.string(), "removed": pa.bool_()}),
    "checkpointMetadata": pa.struct({"version": pa.int64(), "tags": STRING_MAP}),
    "sidecar": pa.struct(
        {"path": pa.string(), "sizeInBytes": pa.int64(), "modificationTime": pa.int64(), "tags": STRING_MAP}
    ),
}
_ADD_FIELDS = [f for f in ADDS if f.name not in ("stats", "unknown")]
# Nobody skips by the statistics of a file that is gone.
_REMOVE_FIELDS = [f for f in REMOVES if f.name not in ("stats", "unknown")]


class CheckpointRows:
    def __init__(self, snapshot: Snapshot, *, now_ms: int) -> None:
        """`snapshot` is of a state that was read with its tombstones."""
        assert snapshot.state.removes is not None
        self._snapshot = snapshot
        properties = snapshot.properties
        self.adds: pa.Table = snapshot.files
        self.removes = _unexpired(snapshot.state.removes, now_ms - properties.deleted_file_retention_ms)
        self.others: list[KnownAction] = [
            snapshot.protocol,
            snapshot.metadata,
            *_unexpired_txns(snapshot, now_ms),
            *_sorted_domains(snapshot),
        ]
        self._stats_type = self._partitions = None
        if properties.checkpoint_stats_as_struct:
            self._stats_type, self._partitions = _stats_type(snapshot), _typed_partitions(snapshot)
        # A deletion vector asks for the number of records, so its file's statistics are never left out altogether.
        has_vectors = self.adds["deletionVector"].null_count < self.adds.num_rows
        wanted = properties.checkpoint_stats_as_struct or has_vectors
        self._as_json = properties.checkpoint_stats_as_json or (wanted and self._stats_type is None)
        self._add_type = pa.struct(self._add_fields())
        self._remove_type = pa.struct([*_REMOVE_FIELDS, *_unknown_field(self.removes)])

    @property
    def num_files(self) -> int:
        return int(self.adds.num_rows + self.removes.num_rows)

    @property
    def files_schema(self) -> pa.Schema:
        return pa.schema([("add", self._add_type), ("remove", self._remove_type)])

    def file_batches(self, first: int = 0, last: int | None = None) -> Iterator[pa.RecordBatch]:
        """Rows of removes, then of adds: the ones from `first` on, up to but without `last`."""
        last, gone = self.num_files if last is None else last, self.removes.num_rows
        for start, end in _steps(first, min(last, gone)):
            yield self._batch("remove", self._remove_structs(start, end))
        for start, end in _steps(max(first, gone), last):
            yield self._batch("add", self._add_structs(start - gone, end - gone))

    def _batch(self, name: str, rows: pa.StructArray) -> pa.RecordBatch:
        arrays = [rows if f.name == name else pa.nulls(len(rows), f.type) for f in self.files_schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.files_schema)

    def _add_fields(self) -> list[pa.Field]:
        fields = list(_ADD_FIELDS)
        if self._as_json:
            fields.append(pa.field("stats", pa.string()))
        if self._partitions is not None:
            fields.append(pa.field("partitionValues_parsed", self._partitions.type))
        if self._stats_type is not None:
            fields.append(pa.field(STATS_PARSED, self._stats_type))
        return fields + _unknown_field(self.adds)

    def _add_structs(self, start: int, end: int) -> pa.StructArray:
        files = self.adds.slice(start, end - start)
        made = {"dataChange": _falses(files)}
        if self._as_json:
            made["stats"] = _whole(stats_texts(files))
        if self._partitions is not None:
            made["partitionValues_parsed"] = self._partitions.slice(start, end - start)
        if self._stats_type is not None:
            made[STATS_PARSED] = stats_structs(files, self._stats_type)
        return _structs(files, self._add_type, made)

    def _remove_structs(self, start: int, end: int) -> pa.StructArray:
        removes = self.removes.slice(start, end - start)
        return _structs(removes, self._remove_type, {"dataChange": _falses(removes)})


def other_rows(actions: Sequence[KnownAction], names: Sequence[str]) -> pa.Table:
    """Actions that are not about files, one per row, in the columns `names`."""
    rows = [(action.key, *_known_and_unknown(action)) for action in actions]
    fields = []
    for name in names:
        kind = _OTHERS[name]
        if any(unknown for key, _, unknown in rows if key == name):
            kind = pa.struct([*kind, pa.field(UNKNOWN, pa.string())])
        fields.append(pa.field(name, kind))
    columns = [
        pa.array([_row(known, unknown) if key == field.name else None for key, known, unknown in rows], field.type)
        for field in fields
    ]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _row(known: dict[str, Any], unknown: dict[str, Any]) -> dict[str, Any]:
    return {**known, UNKNOWN: msgspec.json.encode(unknown).decode()} if unknown else known


def _known_and_unknown(action: KnownAction) -> tuple[dict[str, Any], dict[str, Any]]:
    """An action's fields that the format knows, and the others, nested where they were nested."""
    known = {name: value for name, value in action.to_json().items() if name not in action.unknown}
    unknown = dict(action.unknown)
    for name in action.records:
        inner = getattr(action, name, None)
        if inner is not None and inner.unknown:
            unknown[name] = inner.unknown
            known[name] = {key: value for key, value in known[name].items() if key not in inner.unknown}
    return known, unknown


def _unexpired(removes: pa.Table, since_ms: int) -> pa.Table:
    """A tombstone without a time is as old as can be."""
    return filter_rows(removes, pc.greater_equal(pc.fill_null(removes["deletionTimestamp"], 0), since_ms).to_numpy())


def _unexpired_txns(snapshot: Snapshot, now_ms: int) -> list[SetTransaction]:
    retention = snapshot.properties.set_transaction_retention_ms
    since = None if retention is None else now_ms - retention
    return [
        txn
        for _, txn in sorted(snapshot.txns.items())
        if since is None or txn.last_updated is None or txn.last_updated >= since
    ]


def _sorted_domains(snapshot: Snapshot) -> list[DomainMetadata]:
    return [domain for _, domain in sorted(snapshot.domains.items())]


def _stats_type(snapshot: Snapshot) -> pa.StructType | None:
    properties = snapshot.properties
    try:
        indexed = indexed_columns(
            snapshot.schema,
            partition_columns=snapshot.partition_columns,
            num_indexed_cols=properties.data_skipping_num_indexed_cols,
            stats_columns=properties.configuration.get("delta.dataSkippingStatsColumns"),
        )
        return _storable(stats_schema(indexed.to_physical()))
    except (InvalidMetadata, UnsupportedType):
        return None


def _storable(kind: pa.DataType) -> pa.DataType | None:
    """The type without structs that have no fields, which Parquet cannot hold."""
    if not pa.types.is_struct(kind):
        return kind
    fields = [pa.field(f.name, inner) for f in kind if (inner := _storable(f.type)) is not None]
    return pa.struct(fields) if fields else None


def _typed_partitions(snapshot: Snapshot) -> pa.StructArray | None:
    if not snapshot.partition_columns:
        return None
    try:
        names = [field.physical_name for field in snapshot.partition_schema.fields]
        return pa.StructArray.from_arrays(snapshot.partition_struct(snapshot.files).flatten(), names=names)
    except (InvalidMetadata, UnsupportedType):
        return None


def _unknown_field(files: pa.Table) -> list[pa.Field]:
    return [pa.field(UNKNOWN, pa.string())] if files["unknown"].null_count < files.num_rows else []


def _structs(files: pa.Table, kind: pa.StructType, made: dict[str, pa.Array]) -> pa.StructArray:
    arrays = []
    for field in kind:
        column = "unknown" if field.name == UNKNOWN else field.name
        arrays.append(made[column] if column in made else _whole(files[column]))
    return pa.StructArray.from_arrays(arrays, fields=list(kind))


def _falses(files: pa.Table) -> pa.Array:
    return pa.repeat(pa.scalar(False), files.num_rows)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks != 1 else column.chunk(0)


def _steps(first: int, last: int) -> Iterator[tuple[int, int]]:
    return ((start, min(start + BATCH_ROWS, last)) for start in range(first, last, BATCH_ROWS))
