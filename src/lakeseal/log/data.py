"""Reading data files: the rows that the log says are there, as Arrow batches of the table's schema.

`DataReader.read` gives the rows of many files, file after file in the order asked for, while a few files ahead are read
by threads; `read_file` gives those of one. Rows that a deletion vector takes are not there. Partition columns have the
values that the log states, data columns what `physical` makes of the file's.

Memory: a file is read row group by row group in batches of at most `batch_rows` rows, and only few batches are ahead of
the consumer, so neither a large file nor a large table is ever whole in memory. Batches have fewer rows where values
are long, and a small file that unfolds to more than `max_decoded_bytes` is refused (`decoded_size` says how).

Errors name the table and the file: `DataFileMissing`, `BrokenDataFile`, `BrokenDeletionVector`, `DecodedTooLarge`,
`UnsafePath`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct
from msgspec import field as msgspec_field

from lakeseal import typed_json
from lakeseal.errors import (
    BrokenDataFile,
    BrokenDeletionVector,
    DataFileMissing,
    InvalidArgument,
    LakesealError,
    ObjectNotFound,
    StorageUnavailable,
    UnsafePath,
)
from lakeseal.log.decoded_size import DecodedSize, fitting_rows, joined, leaves_below
from lakeseal.log.deletion_vector_files import read_deletion_vector
from lakeseal.log.old_calendar import SPARK_VERSION, OldCalendar
from lakeseal.log.parquet_reader import open_parquet
from lakeseal.log.physical import Mapping, Projection, plain_field
from lakeseal.log.plain_columns import plain_columns
from lakeseal.log.read_ahead import in_order
from lakeseal.log.row_groups import batches_of, rows_at, texts_among
from lakeseal.protocol.actions import DeletionVectorDescriptor
from lakeseal.protocol.char_varchar import char_limits, padded
from lakeseal.protocol.data_paths import resolve_data_path
from lakeseal.protocol.deletion_vectors import Positions
from lakeseal.protocol.parquet_footer import Footer
from lakeseal.protocol.partitions import parse_partition_values
from lakeseal.protocol.row_tracking import RowTrackingColumns
from lakeseal.protocol.schema import StructField, StructType
from lakeseal.storage.base import Store
from lakeseal.storage.places import is_in_any
from lakeseal.trust import PLACES, Trust

DEFAULT_WORKERS = 4
DEFAULT_BATCH_ROWS = 65_536
_GROUP_FILES = 8
_GROUP_BYTES = 2**20
# Below this, handing columns to threads costs more than reading them.
_THREADED_BYTES = 2**20
# Below this, all columns are read as fast as it is seen whether they are wanted.
_LOOK_BYTES = 2**19
# A batch that is read, one that waits, and one that is being used; and what is made of one.
_BATCHES_AHEAD = 4
_JOINED_BYTES = 2**24
# To choose one row in so many costs less than to read them all.
_FEW = 8
_FILE_COLUMNS = ("path", "partitionValues", "deletionVector", "size", "baseRowId", "defaultRowCommitVersion")


class DataFile(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a reader needs to know of an `add` or a `cdc` action. Goes to JSON and back, so tasks can be sent it."""

    path: str
    partition_values: dict[str, str | None] = {}
    deletion_vector: DeletionVectorDescriptor | None = None
    size: int | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None
    chosen: DeletionVectorDescriptor | None = None
    """Rows that whoever sends the file speaks of, by their positions, written inline; readers do not look at it."""


def data_files(files: pa.Table) -> Iterator[DataFile]:
    """The rows of a table of file actions, one after the other."""
    columns = [name for name in _FILE_COLUMNS if name in files.column_names]
    for batch in files.select(columns).to_batches(max_chunksize=1024):
        for row in batch.to_pylist(maps_as_pydicts="lossy"):
            yield typed_json.convert({k: v for k, v in row.items() if v is not None}, DataFile)


class ReadSpec(Struct, frozen=True, kw_only=True):
    """What to read of a table's files."""

    schema: StructType
    partition_columns: tuple[str, ...] = ()
    mapping: Mapping = "none"
    columns: tuple[str, ...] | None = None
    """Top-level columns, in this order; None for all."""
    extra_columns: StructType = StructType()
    """Columns of the files that are not the table's, such as `_change_type`; they come last."""
    row_ids: RowTrackingColumns | None = None
    """Columns with each row's id and version, behind those; null where the log knows of none."""
    pads_chars: bool = False
    """Whether values of `char(n)` are filled up with blanks, as Delta Spark does when it reads them."""
    position_column: str | None = None
    """Name of a column with each row's position in its file, deleted rows counted; behind all others."""
    batch_rows: int = DEFAULT_BATCH_ROWS
    max_decoded_bytes: int = msgspec_field(default_factory=lambda: Trust().max_decoded_bytes)
    places: tuple[str, ...] = msgspec_field(default_factory=lambda: Trust().places)
    """Beyond the table itself, where its files may be."""

    def wanted(self) -> tuple[StructField, ...]:
        if self.columns is None:
            return self.schema.fields
        found = []
        for name in self.columns:
            field = self.schema.field(name)
            if field is None:
                raise InvalidArgument(
                    f"The table has no column {name!r}", hint=f"It has {', '.join(self.schema.names)}", column=name
                )
            found.append(field)
        return tuple(found)


Places = range | npt.NDArray[np.int64]
"""Of rows in a file, ascending."""

RowGroups = Callable[[Footer], Iterable[int]]
"""Which row groups of a file to read, ascending; for readers that can tell from the footer."""


class Look(Struct, frozen=True):
    """At a few columns of a row group, to see which rows of it are wanted before all columns are read."""

    reader: DataReader
    """Of those columns, and the position of each row in its file."""
    wanted: Callable[[pa.RecordBatch], pa.BooleanArray]
    """Which rows of what that reads."""


class _Plan(Struct, frozen=True, kw_only=True):
    """How files of one schema are read."""

    file: pa.Schema
    own: Projection
    extra: Projection
    leaves: tuple[int, ...]
    texts: frozenset[int]
    """Of the leaves, those that are columns of texts by themselves."""
    calendar: OldCalendar | None


class DataReader:
    """Reads files of one table. May be shared by threads.

    `outside` opens the store of a file that lies beyond the table, by the URI of its bucket or of `/`, where the spec
    allows its place; without it such files are refused.
    """

    def __init__(self, store: Store, spec: ReadSpec, *, outside: Callable[[str], Store] | None = None) -> None:
        self._store = store
        self._outside = outside
        self._spec = spec
        partitions = {name.lower() for name in spec.partition_columns}
        self._wanted = spec.wanted()
        self._is_partition = [f.name.lower() in partitions for f in self._wanted]
        self._stored = tuple(
            f for f, is_partition in zip(self._wanted, self._is_partition, strict=True) if not is_partition
        )
        chars = {n: char_limits(f) for n, f in enumerate(self._wanted)} if spec.pads_chars else {}
        self._chars = {n: limit for n, limit in chars.items() if limit is not None}
        self._values: dict[tuple[str, str | None], pa.Scalar] = {}
        self._known_places: set[tuple[str, str]] = set()
        self._plan: _Plan | None = None
        self.is_local = store.uri.startswith("file:")
        self._extra = (*spec.extra_columns.fields, *(() if spec.row_ids is None else spec.row_ids.fields))
        fields = [plain_field(f) for f in (*self._wanted, *self._extra)]
        if spec.position_column is not None:
            fields.append(pa.field(spec.position_column, pa.int64()))
        self.schema: pa.Schema = pa.schema(fields)

    def read(
        self,
        files: pa.Table | Iterable[DataFile],
        *,
        transform: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None,
        row_groups: RowGroups | None = None,
        look: Look | None = None,
        workers: int = DEFAULT_WORKERS,
    ) -> Iterator[pa.RecordBatch]:
        """Batches of `schema`, none empty. `transform` may filter or change them; it runs where they are read. Rows
        that a `look` does not find may be left out."""

        def batches(group: list[DataFile]) -> Iterator[pa.RecordBatch]:
            for file in group:
                for batch in self.read_file(file, row_groups=row_groups, look=look):
                    changed = batch if transform is None else transform(batch)
                    if changed.num_rows:
                        yield changed

        rows = data_files(files) if isinstance(files, pa.Table) else files
        return in_order(grouped(rows), batches, workers=workers)

    def read_file(
        self, file: DataFile, *, row_groups: RowGroups | None = None, look: Look | None = None
    ) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._read(file, row_groups, look)
        except ObjectNotFound as error:
            raise DataFileMissing("A data file is not there", table=self._store.uri, file=file.path) from error
        except LakesealError as error:
            raise error.at(table=self._store.uri, file=file.path) from error.__cause__
        except pa.ArrowException as error:
            raise self._broken(error, file) from error
        except UnicodeDecodeError as error:
            raise self._broken(error, file) from error
        except OSError as error:
            # Arrow reports damaged footers as OSErrors too, but only the system's own have a number.
            if error.errno is None:
                raise self._broken(error, file) from error
            raise StorageUnavailable(
                f"A data file could not be read: {error}", table=self._store.uri, file=file.path
            ) from error

    def hidden_rows(self, vector: DeletionVectorDescriptor, data_size: int) -> Positions:
        """Of a data file of this size."""
        limit = self._spec.max_decoded_bytes
        return read_deletion_vector(vector, self._store, self.locate, limit=limit, data_size=data_size)

    def locate(self, path: str) -> tuple[Store, str]:
        """The store and the key of an action's `path`; `UnsafePath` where it may not be read."""
        found = resolve_data_path(self._store.uri, path, allow_outside=self._outside is not None)
        if found.root is None or self._outside is None:
            return self._store, found.key
        self._check_place(found.root, found.key, path)
        return self._outside(found.root), found.key

    def _check_place(self, root: str, key: str, path: str) -> None:
        # Real paths cost a look at each directory on the way, and the files of a clone are in few of them.
        directory = key.rpartition("/")[0]
        if (root, directory) in self._known_places and not self.is_local:
            return
        # A log may name the table's own files by a path that leads to them through a link.
        if not is_in_any((root, key), (*self._spec.places, self._store.uri)):
            raise UnsafePath(
                f"A file of the table is in a place that is not allowed: {path}",
                file=path,
                hint=f"If you trust whoever wrote the log, allow the place: {PLACES}, or Trust(places=…)",
            )
        self._known_places.add((root, directory))

    def _read(self, file: DataFile, row_groups: RowGroups | None, look: Look | None) -> Iterator[pa.RecordBatch]:
        store, key = self.locate(file.path)
        with store.open_read(key) as opened:
            # Many small reads are what a remote store is slow at; a local disk is not, and needs no copy of its bytes.
            parquet = open_parquet(opened, pre_buffer=not self.is_local)
            deleted = None
            if file.deletion_vector is not None:
                deleted = self.hidden_rows(file.deletion_vector, opened.size())
            if deleted is not None and len(deleted) and deleted[-1] >= parquet.metadata.num_rows:
                raise BrokenDeletionVector("A deletion vector names rows beyond the end of its data file")
            footer = Footer(parquet.metadata, opened)
            wanted = range(len(footer.rows)) if row_groups is None else row_groups(footer)
            decoded = DecodedSize(self._spec.max_decoded_bytes, opened.size())
            if look is None:
                yield from self._rows(file, parquet, opened, footer, wanted, deleted, decoded)
                return
            looked = DecodedSize(self._spec.max_decoded_bytes, opened.size())
            few, all_ = look.reader._planned(parquet).leaves, self._planned(parquet).leaves
            for number in wanted:
                only = None
                if _is_worth_a_look(footer, number, few, all_):
                    seen = look.reader._rows(file, parquet, opened, footer, [number], deleted, looked)
                    only = _rows_seen(seen, look.wanted, most=self._spec.batch_rows)
                    if only is not None and not len(only):
                        continue
                yield from self._rows(file, parquet, opened, footer, [number], deleted, decoded, only)

    def _rows(
        self,
        file: DataFile,
        parquet: pq.ParquetReader,
        opened: pa.NativeFile,
        footer: Footer,
        row_groups: Iterable[int],
        deleted: Positions | None,
        decoded: DecodedSize,
        only: Places | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """`only` names rows of the file by their positions, none of them deleted; others may be left out."""
        partition = [
            self._partition_value(f, file) for f, yes in zip(self._wanted, self._is_partition, strict=True) if yes
        ]
        plan = self._planned(parquet)
        for places, batch in self._batches(parquet, opened, footer, plan, row_groups, only):
            decoded.add(batch.nbytes)
            extra = self._with_row_ids(plan.extra.apply(batch), file, places)
            own = plan.own.apply(batch)
            if plan.calendar is not None:
                own = [plan.calendar.read(column) for column in own]
            columns = self._columns(batch, own, partition, extra, places)
            read = _record_batch(columns, self.schema, batch.num_rows)
            yield _without(read, places.start, deleted) if isinstance(places, range) else read

    def _planned(self, parquet: pq.ParquetReader) -> _Plan:
        plan, file = self._plan, parquet.schema_arrow
        # Files of a table mostly have one schema, and small ones are read faster than it is looked at.
        calendar = _calendar(parquet)
        if plan is None or plan.calendar != calendar or not plan.file.equals(file, check_metadata=True):
            own = Projection.of(self._stored, file, self._spec.mapping)
            extra = Projection.of(self._extra, file, "none")
            leaves = tuple(leaves_below(parquet.metadata, {*own.columns, *extra.columns}))
            plan = self._plan = _Plan(
                file=file,
                own=own,
                extra=extra,
                leaves=leaves,
                texts=texts_among(leaves, parquet.metadata, file),
                calendar=calendar,
            )
        return plan

    def _batches(
        self,
        parquet: pq.ParquetReader,
        opened: pa.NativeFile,
        footer: Footer,
        plan: _Plan,
        row_groups: Iterable[int],
        only: Places | None,
    ) -> Iterator[tuple[Places, pa.RecordBatch]]:
        """Batches with the positions of their rows in the file."""
        starts = [0, *accumulate(footer.rows)]
        wanted, limit = self._spec.batch_rows, self._spec.max_decoded_bytes // _BATCHES_AHEAD
        for number in row_groups:
            at = starts[number]
            threaded = parquet.metadata.row_group(number).total_byte_size >= _THREADED_BYTES
            # Pages are read one by one then, which a remote store is slow at.
            plain = plain_columns(footer, plan.file, opened, number, plan.leaves) if self.is_local else {}
            rows, dictionaries = fitting_rows(
                footer,
                opened,
                number,
                plan.leaves,
                rows=wanted,
                limit=limit,
                page_limit=self._spec.max_decoded_bytes,
                is_local=self.is_local,
            )
            dictionaries = {n: size for n, size in dictionaries.items() if n in plan.texts and size <= rows}
            if only is not None and self.is_local and len(only) <= rows:
                some = range(only.start - at, only.stop - at) if isinstance(only, range) else only - at
                batch = rows_at(
                    parquet,
                    opened,
                    footer,
                    number,
                    plan.leaves,
                    some,
                    rows=rows,
                    dictionaries=dictionaries,
                    plain=plain,
                )
                if batch is not None:
                    yield only, batch
                    continue
            batches = batches_of(
                parquet,
                opened,
                footer,
                number,
                plan.leaves,
                rows=rows,
                dictionaries=dictionaries,
                plain=plain,
                use_threads=threaded,
                is_local=self.is_local,
            )
            for batch in joined(batches, rows=wanted, limit=min(limit, _JOINED_BYTES)) if rows < wanted else batches:
                yield range(at, at + batch.num_rows), batch
                at += batch.num_rows
            if at != starts[number + 1]:
                raise BrokenDataFile(f"Row group {number} has {at - starts[number]} rows, not as many as it states")

    def _columns(
        self,
        batch: pa.RecordBatch,
        stored: list[pa.Array],
        partition: list[pa.Scalar],
        extra: list[pa.Array],
        places: Places,
    ) -> list[pa.Array]:
        rows = batch.num_rows
        values, constants = iter(stored), iter(partition)
        columns = [pa.repeat(next(constants), rows) if yes else next(values) for yes in self._is_partition]
        for n, limit in self._chars.items():
            columns[n] = padded(columns[n], limit)
        columns += extra
        if self._spec.position_column is not None:
            columns.append(pa.array(_numbers(places)))
        return columns

    def _with_row_ids(self, extra: list[pa.Array], file: DataFile, places: Places) -> list[pa.Array]:
        """Rows that were never moved are called after their place."""
        if self._spec.row_ids is None:
            return extra
        *others, ids, versions = extra
        if file.base_row_id is not None:
            ids = pc.coalesce(ids, pa.array(_numbers(places) + file.base_row_id))
        if file.default_row_commit_version is not None:
            versions = pc.fill_null(versions, file.default_row_commit_version)
        return [*others, ids, versions]

    def _partition_value(self, field: StructField, file: DataFile) -> pa.Scalar:
        name = field.name if self._spec.mapping == "none" else field.physical_name
        text = file.partition_values.get(name)
        if text is None and name not in file.partition_values:
            text = {k.lower(): v for k, v in file.partition_values.items()}.get(name.lower())
        value = self._values.get((field.name, text))
        if value is None:
            value = parse_partition_values(pa.array([text], pa.string()), field.type, column=field.name)[0]
            self._values[field.name, text] = value
        return value

    def _broken(self, error: Exception, file: DataFile) -> BrokenDataFile:
        return BrokenDataFile(f"A data file cannot be read: {error}", table=self._store.uri, file=file.path)


def grouped(files: Iterable[DataFile], most: int = _GROUP_FILES) -> Iterator[list[DataFile]]:
    """Files in their order; small ones together, since handing them over one by one costs as much as reading them."""
    group: list[DataFile] = []
    size = 0
    for file in files:
        of_file = _GROUP_BYTES if file.size is None else file.size
        if group and (size + of_file > _GROUP_BYTES or len(group) == most):
            yield group
            group, size = [], 0
        group.append(file)
        size += of_file
    if group:
        yield group


def _calendar(parquet: pq.ParquetReader) -> OldCalendar | None:
    notes = parquet.metadata.metadata
    if notes is None or SPARK_VERSION not in notes:
        return None
    columns = parquet.metadata.schema
    has_int96 = any(columns.column(n).physical_type == "INT96" for n in range(len(columns)))
    return OldCalendar.of(notes, has_int96=has_int96)


def _is_worth_a_look(footer: Footer, number: int, few: tuple[int, ...], all_: tuple[int, ...]) -> bool:
    """Columns that are looked at are read again if there are rows: only where the others are more."""
    chunks = footer.groups[number]
    looked, whole = (sum(chunks[leaf].compressed for leaf in leaves) for leaves in (few, all_))
    return whole >= _LOOK_BYTES and 2 * looked <= whole


def _rows_seen(
    batches: Iterable[pa.RecordBatch], wanted: Callable[[pa.RecordBatch], pa.BooleanArray], *, most: int
) -> Places | None:
    """Positions of those rows of the batches that are wanted: from the first to the last of them where these are not
    more than `most`, and else each of them. None where they are too many for that, without a look at what is behind."""
    found: list[npt.NDArray[np.int64]] = []
    count = seen = 0
    for batch in batches:
        seen += batch.num_rows
        places = batch.column(-1).filter(wanted(batch)).to_numpy()
        if len(places):
            found.append(places)
            count += len(places)
            if found[-1][-1] - found[0][0] >= most and (count > most or count * _FEW > seen):
                return None
    if not found:
        return range(0)
    stretch = range(int(found[0][0]), int(found[-1][-1]) + 1)
    return stretch if len(stretch) <= most else np.concatenate(found)


def _numbers(places: Places) -> npt.NDArray[np.int64]:
    return np.arange(places.start, places.stop, dtype=np.int64) if isinstance(places, range) else places


def _record_batch(columns: list[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    if columns:
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    # Nobody asked for columns, but the number of rows is still an answer.
    return pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(pa.struct([]), rows, [None]))


def _without(batch: pa.RecordBatch, start: int, deleted: Positions | None) -> pa.RecordBatch:
    if deleted is None:
        return batch
    first, last = np.searchsorted(deleted, [start, start + batch.num_rows])
    if first == last:
        return batch
    if not batch.num_columns:
        return batch.slice(0, batch.num_rows - int(last - first))
    keep: Any = np.ones(batch.num_rows, dtype=bool)
    keep[(deleted[first:last] - np.uint64(start)).astype(np.int64)] = False
    return batch.filter(pa.array(keep))
