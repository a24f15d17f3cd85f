"""Converting a directory of Parquet files into a table, in place: no file is moved, copied or rewritten.

The schema is the union of the files' schemas; partition columns come from `name=value` directories. Everything that a
commit says of a file (size, partition values, statistics) is read from the file's footer and path, a few files at a
time. Directories and files that start with `_` or `.` are left alone, as Spark does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from lakeseal.clock import now_ms
from lakeseal.commands.command import CommandContext, PlannedChange
from lakeseal.commit.alter import new_metadata
from lakeseal.commit.proposal import Operation
from lakeseal.errors import AlreadyExists, BrokenDataFile, InvalidArgument, NotFound, SchemaMismatch, located
from lakeseal.protocol.actions import AddFile
from lakeseal.protocol.arrow import from_arrow, from_arrow_type
from lakeseal.protocol.data_paths import encode_path
from lakeseal.protocol.file_stats import stats_from_parquet_metadata
from lakeseal.protocol.parquet_footer import Footer
from lakeseal.protocol.partitions import parse_partition_directory, parse_partition_values
from lakeseal.protocol.properties import TableProperties
from lakeseal.protocol.schema import STRING, DataType, StructField, StructType
from lakeseal.protocol.stats import indexed_columns
from lakeseal.storage.base import ObjectMeta, Store

_READERS = 8


class _Found(Struct, frozen=True, kw_only=True):
    meta: ObjectMeta
    partition: Mapping[str, str | None]
    footer: Any
    schema: Any


class ConvertCommand(Struct, frozen=True, kw_only=True):
    """To be run where the files are, which must be no table yet."""

    shown: ClassVar[str | None] = None
    times: ClassVar[tuple[str, ...]] = ()

    partition_by: Sequence[str] | Mapping[str, Any] = ()
    properties: Mapping[str, Any] = msgspec.field(default_factory=dict)

    def decide(self, context: CommandContext) -> PlannedChange:
        txn = context.txn
        if txn.snapshot is not None:
            raise AlreadyExists("There is a table here already", hint="Open it with lakeseal.Table(uri)")
        partitions = _partition_fields(self.partition_by)
        found = _footers(context.store.open(), partitions)
        schema = StructType((*_data_schema(found, partitions).fields, *partitions))
        names = tuple(field.name for field in partitions)
        metadata = new_metadata(schema, names, self.properties, created_ms=now_ms())
        if TableProperties.of(metadata).column_mapping_mode != "none":
            raise InvalidArgument(
                "Files that are there have their columns under their own names: they cannot be converted with mapping",
                hint="Convert without delta.columnMapping.mode, then set it to 'name'",
            )
        txn.update_metadata(metadata)
        txn.read_whole_table()
        txn.mark_written()
        adds = list(_adds(found, schema, partitions, TableProperties.of(txn.metadata)))
        operation = Operation(
            name="CONVERT",
            parameters={"numFiles": len(adds), "partitionedBy": list(names), "collectStats": True},
            metrics={"numConvertedFiles": len(adds)},
        )
        return PlannedChange(finish=lambda _: (adds, operation))


def _partition_fields(partition_by: Sequence[str] | Mapping[str, Any]) -> tuple[StructField, ...]:
    if isinstance(partition_by, str):
        partition_by = [partition_by]
    if not isinstance(partition_by, Mapping):
        return tuple(StructField(name, STRING) for name in partition_by)
    return tuple(StructField(name, _type(kind)) for name, kind in partition_by.items())


def _type(kind: Any) -> DataType:
    return from_arrow_type(kind) if isinstance(kind, pa.DataType) else kind


def _footers(store: Store, partitions: tuple[StructField, ...]) -> list[_Found]:
    files = [meta for meta in store.list(recursive=True) if _is_data(meta.key)]
    if not files:
        raise NotFound("There is no Parquet file here", hint="Check the location; names end in .parquet")
    with ThreadPoolExecutor(_READERS, thread_name_prefix="lakeseal-convert") as readers:
        return list(readers.map(lambda meta: _footer(store, meta, partitions), files))


def _is_data(key: str) -> bool:
    hidden = any(part.startswith((".", "_")) and "=" not in part for part in key.split("/"))
    return key.endswith(".parquet") and not hidden


def _footer(store: Store, meta: ObjectMeta, partitions: tuple[StructField, ...]) -> _Found:
    directory = meta.key.rpartition("/")[0]
    stated = parse_partition_directory("/".join(part for part in directory.split("/") if "=" in part))
    values = {name.lower(): value for name, value in stated.items()}
    if set(values) != {field.name.lower() for field in partitions}:
        raise InvalidArgument(
            f"The directory says {sorted(stated)}, but partition_by says {[field.name for field in partitions]}",
            file=meta.key,
            hint="Name all columns of the directories in partition_by, with their types",
        )
    partition = {field.name: values[field.name.lower()] for field in partitions}
    for field in partitions:
        with located(file=meta.key):
            parse_partition_values(pa.array([partition[field.name]], pa.string()), field.type, column=field.name)
    try:
        with store.open_read(meta.key) as source, pq.ParquetFile(source) as file:
            Footer(file.metadata, source).check_bounds()  # damaged ones must not be asked for
            return _Found(meta=meta, partition=partition, footer=file.metadata, schema=file.schema_arrow)
    except (pa.ArrowException, OSError) as error:
        raise BrokenDataFile(f"This is not a Parquet file: {error}", file=meta.key) from error


def _data_schema(found: list[_Found], partitions: tuple[StructField, ...]) -> StructType:
    names = {field.name.lower() for field in partitions}
    merged = pa.schema([])
    for file in found:
        try:
            merged = pa.unify_schemas([merged, file.schema.remove_metadata()], promote_options="permissive")
        except pa.ArrowException as error:
            raise SchemaMismatch(
                f"The schema of this file does not go with the others: {error}", file=file.meta.key
            ) from error
    fields = from_arrow(merged).fields
    return StructType(tuple(_nullable(field) for field in fields if field.name.lower() not in names))


def _nullable(field: StructField) -> StructField:
    return StructField(field.name, field.type, True, {k: v for k, v in field.metadata.items() if "field_id" not in k})


def _adds(
    found: list[_Found], schema: StructType, partitions: tuple[StructField, ...], properties: TableProperties
) -> Iterator[AddFile]:
    indexed = indexed_columns(
        schema,
        partition_columns=[field.name for field in partitions],
        num_indexed_cols=properties.data_skipping_num_indexed_cols,
        stats_columns=properties.configuration.get(TableProperties.data_skipping_stats_columns.key),
    )
    prefix = properties.data_skipping_string_prefix_length
    for file in found:
        yield AddFile(
            path=encode_path(file.meta.key),
            partition_values=dict(file.partition),
            size=file.meta.size,
            modification_time=file.meta.modified_ms,
            data_change=True,
            stats=stats_from_parquet_metadata(file.footer, indexed, string_prefix=prefix).to_json(),
        )
