"""Rows of files on a branch, whatever their format, as Arrow batches of one schema.

The partition columns of a file's shape have the values that its directories state, all others those that are in the
file; a column that it lacks is null. Parquet is read by the reader of tables; the others here, file by file in batches.
Errors name the file: `DataFileMissing`, `BrokenDataFile`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import Struct, field

from lakeseal.errors import BrokenDataFile, DataFileMissing, LakesealError, ObjectNotFound, StorageUnavailable
from lakeseal.files import csv_text, json_lines, orc_stripes
from lakeseal.files.compression import inflated
from lakeseal.files.shape import Shape
from lakeseal.log.data import DataFile, DataReader, ReadSpec
from lakeseal.log.decoded_size import DecodedSize
from lakeseal.log.physical import Projection
from lakeseal.log.read_ahead import in_order
from lakeseal.protocol.data_paths import encode_path
from lakeseal.protocol.partitions import parse_partition_values
from lakeseal.protocol.schema import StructField, StructType
from lakeseal.storage import Store, StoreSpec, open_store
from lakeseal.trust import Trust

_WORKERS = 4


class TreeFile(Struct, frozen=True, kw_only=True, array_like=True):
    """What a reader needs to know of an entry. Goes to tasks."""

    address: str
    path: str
    size: int
    shape: int
    """Which of the spec's shapes it was written in."""
    partition_values: dict[str, str | None] = {}


class TreeSpec(Struct, frozen=True, kw_only=True):
    """What to read of a directory's files."""

    schema: StructType
    shapes: tuple[Shape, ...] = ()
    columns: tuple[str, ...] | None = None
    """In this order; None for all."""
    zone: str = "UTC"
    """Of moments in texts that name none."""
    trust: Trust = field(default_factory=Trust)
    """Of whoever asks, wherever it is read."""

    @property
    def table(self) -> ReadSpec:
        """Of files that have all columns in themselves."""
        return ReadSpec(
            schema=self.schema,
            partition_columns=(),
            columns=self.columns,
            max_decoded_bytes=self.trust.max_decoded_bytes,
            places=self.trust.places,
        )


class TreeReader:
    """May be shared by threads. Objects that lie beyond the repository's store are opened where they are."""

    def __init__(self, store: StoreSpec, spec: TreeSpec) -> None:
        self._store = store.open()
        self._spec = spec
        self._wanted = spec.table.wanted()
        self._tables = [self._reader(shape, outside=_opener(store)) for shape in spec.shapes]
        self.schema: pa.Schema = DataReader(self._store, spec.table).schema

    def _reader(self, shape: Shape, outside: Callable[[str], Store]) -> DataReader:
        names = tuple(name for name in shape.partition_columns if self._spec.schema.field(name) is not None)
        table = msgspec.structs.replace(self._spec.table, partition_columns=names)
        return DataReader(self._store, table, outside=outside)

    def read(self, files: Iterable[TreeFile], *, workers: int = _WORKERS) -> Iterator[pa.RecordBatch]:
        """Batches of `schema`, none empty, file after file."""
        return in_order(files, self.read_file, workers=workers)

    def read_file(self, file: TreeFile) -> Iterator[pa.RecordBatch]:
        shape = self._spec.shapes[file.shape]
        try:
            for batch in self._parquet(file) if shape.format == "parquet" else self._other(file, shape):
                if batch.num_rows:
                    yield batch
        except (ObjectNotFound, DataFileMissing) as error:
            raise DataFileMissing("A file's object is not there", table=self._store.uri, file=file.path) from error
        except LakesealError as error:
            error.file = file.path
            raise error.at(table=self._store.uri) from error.__cause__
        except (pa.ArrowException, EOFError, UnicodeDecodeError) as error:
            raise self._broken(error, file) from error
        except OSError as error:
            if error.errno is None:
                raise self._broken(error, file) from error
            raise StorageUnavailable(f"A file could not be read: {error}", file=file.path) from error

    def _parquet(self, file: TreeFile) -> Iterator[pa.RecordBatch]:
        values = dict(file.partition_values)
        data_file = DataFile(path=_located(file.address), partition_values=values, size=file.size)
        return self._tables[file.shape].read_file(data_file)

    def _other(self, file: TreeFile, shape: Shape) -> Iterator[pa.RecordBatch]:
        if not file.size:
            # No row at all, which text formats may say by no byte at all.
            return
        partitions = {name.lower() for name in shape.partition_columns}
        stored = [field for field in shape.columns.fields if field.name.lower() not in partitions]
        wanted = [field for field in self._wanted if field.name.lower() not in partitions]
        constants = {field.name: _constant(field, file) for field in self._wanted if field.name.lower() in partitions}
        store, key = self._tables[file.shape].locate(_located(file.address))
        with store.open_read(key) as opened:
            source = opened if shape.format == "orc" else inflated(opened, file.path)
            limit = self._spec.table.max_decoded_bytes
            decoded = DecodedSize(limit, file.size)
            for batch in _decoded(source, shape, stored, limit, self._spec.zone):
                decoded.add(batch.nbytes)
                values = dict(
                    zip(
                        (field.name for field in wanted),
                        Projection.of(wanted, batch.schema, "none").apply(batch),
                        strict=True,
                    )
                )
                arrays = [
                    pa.repeat(constants[field.name], batch.num_rows) if field.name in constants else values[field.name]
                    for field in self._wanted
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _broken(self, error: Exception, file: TreeFile) -> BrokenDataFile:
        return BrokenDataFile(f"A file cannot be read: {error}", table=self._store.uri, file=file.path)


def _decoded(
    source: Any, shape: Shape, stored: Sequence[StructField], limit: int, zone: str
) -> Iterator[pa.RecordBatch]:
    match shape.format:
        case "csv":
            return csv_text.decoded(source, stored, has_header=shape.header, zone=zone)
        case "json":
            return json_lines.decoded(source, stored, limit, zone=zone)
        case _:
            return orc_stripes.decoded(source, stored)


def _constant(field: StructField, file: TreeFile) -> pa.Scalar:
    texts = {name.lower(): text for name, text in file.partition_values.items()}
    return parse_partition_values(
        pa.array([texts.get(field.name.lower())], pa.string()), field.type, column=field.name
    )[0]


def _opener(spec: StoreSpec) -> Callable[[str], Store]:
    @lru_cache(maxsize=8)
    def opened(uri: str) -> Store:
        same_kind = uri.partition(":")[0] == spec.uri.partition(":")[0]
        return open_store(uri, spec.storage_options if same_kind else None)

    return opened


def _located(address: str) -> str:
    return address if "://" in address else encode_path(address)
