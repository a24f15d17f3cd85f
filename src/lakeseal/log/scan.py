"""Scan: the rows of a snapshot, or of some of its files, that match a predicate.

Files that cannot match are not opened (partition values, then statistics); of the others every row is looked at, so
the answer is exact. Column mapping, deletion vectors and older schemas are the data reader's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from lakeseal import expr
from lakeseal.errors import InvalidArgument, located
from lakeseal.log.data import DataReader, Look, ReadSpec
from lakeseal.log.parquet_reader import row_memory
from lakeseal.log.snapshot import Snapshot
from lakeseal.protocol.row_tracking import ROW_COMMIT_VERSION, ROW_ID, RowTrackingColumns
from lakeseal.protocol.schema import duplicate_name
from lakeseal.storage.base import Store

Outside = Callable[[str], Store]
# No condition can name it.
_POSITION = "\0position"


class Scan:
    def __init__(
        self,
        snapshot: Snapshot,
        store: Store,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        files: pa.Table | None = None,
        outside: Outside | None = None,
        row_ids: bool = False,
    ) -> None:
        """`files` are those of the snapshot to look at, all if not given; `outside` opens stores beyond the table.
        `row_ids`: with `_row_id` and `_row_commit_version` behind the other columns."""
        with located(table=snapshot.table, version=snapshot.version):
            self._bound = None if where is None else expr.bind_predicate(expr.parse(where), snapshot.schema)
            candidates = snapshot.files if files is None else files
            self.files = candidates if where is None else candidates.filter(snapshot.match(where, candidates).may)
            wanted = read_spec(snapshot, columns)
            self._names = [field.name for field in wanted.wanted()]
            read = wanted if self._bound is None else read_spec(snapshot, self._with_predicate_columns(snapshot))
            self._tracked = tracked_columns(snapshot) if row_ids else None
            read = msgspec.structs.replace(read, row_ids=self._tracked)
            self._names += () if self._tracked is None else self._tracked.names
            self._reader = DataReader(store, read, outside=outside)
            self._look = None if self._bound is None else self._looking(read, store, outside)

    @property
    def schema(self) -> pa.Schema:
        return self._called(pa.schema([self._reader.schema.field(name) for name in self._names]))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Batches of `schema`, in the order of the files."""
        transform = None if self._bound is None else self._matching
        batches = self._reader.read(self.files, transform=transform, look=self._look)
        if self._tracked is None:
            return batches
        schema = self.schema
        return (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in batches)

    def to_arrow(self) -> pa.Table:
        return pa.Table.from_batches(self.batches(), schema=self.schema)

    def _called(self, schema: pa.Schema) -> pa.Schema:
        if self._tracked is None:
            return schema
        shown = dict(zip(self._tracked.names, (ROW_ID, ROW_COMMIT_VERSION), strict=True))
        return pa.schema([field.with_name(shown.get(field.name, field.name)) for field in schema])

    def _with_predicate_columns(self, snapshot: Snapshot) -> list[str]:
        assert self._bound is not None
        named = {column[0].lower() for column in self._bound.columns}
        asked = {name.lower() for name in self._names}
        return self._names + [n for n in snapshot.schema.names if n.lower() in named - asked]

    def _looking(self, read: ReadSpec, store: Store, outside: Outside | None) -> Look | None:
        """Of rows before the first and behind the last one that matches, only the condition's columns are read."""
        assert self._bound is not None
        bound, named = self._bound, {column[0].lower() for column in self._bound.columns}
        if named <= {name.lower() for name in read.partition_columns}:
            return None  # files have been told apart by these
        names = tuple(field.name for field in read.schema.fields if field.name.lower() in named)
        spec = msgspec.structs.replace(read, columns=names, row_ids=None, position_column=_POSITION)
        reader = DataReader(store, spec, outside=outside)
        return Look(reader, lambda batch: expr.mask(bound, batch))

    def _matching(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        assert self._bound is not None
        # The mask is of all columns, the rows of those that were asked for; without any, they still count.
        rows = batch.select(self._names) if self._names else batch
        return pc.filter(rows, expr.mask(self._bound, batch), memory_pool=row_memory()).select(self._names)


def tracked_columns(snapshot: Snapshot) -> RowTrackingColumns:
    """By which the ids of a snapshot's rows are read; refused where there are none."""
    found = RowTrackingColumns.of(snapshot.properties)
    if found is None:
        raise InvalidArgument(
            "The table does not track its rows, so they have no ids",
            table=snapshot.table,
            hint="Create it with the property delta.enableRowTracking=true",
        )
    for name in (ROW_ID, ROW_COMMIT_VERSION):
        if snapshot.schema.field(name) is not None:
            raise InvalidArgument(
                "The table has a column that is called as those with row ids are",
                table=snapshot.table,
                column=name,
                hint="Rename it, or read the table without row ids",
            )
    return found


def read_spec(snapshot: Snapshot, columns: Sequence[str] | None = None) -> ReadSpec:
    twice = duplicate_name(tuple(columns or ()))
    if twice is not None:
        raise InvalidArgument("A column is asked for twice", column=twice, hint="Name each column once, in any case")
    return ReadSpec(
        schema=snapshot.schema,
        partition_columns=snapshot.partition_columns,
        mapping=snapshot.properties.column_mapping_mode,  # type: ignore[arg-type]  # checked by the property
        columns=None if columns is None else tuple(columns),
        pads_chars=True,
        max_decoded_bytes=snapshot.trust.max_decoded_bytes,
        places=snapshot.places,
    )
