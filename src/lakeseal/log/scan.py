"""Scan: the rows of a snapshot, or of some of its files, that match a predicate.

Files that cannot match are not opened (partition values, then statistics); of the others every row is looked at, so
the answer is exact. Column mapping, deletion vectors and older schemas are the data reader's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from lakeseal import expr
from lakeseal.errors import located
from lakeseal.log.data import DataReader, ReadSpec
from lakeseal.log.snapshot import Snapshot
from lakeseal.storage.base import Store

Outside = Callable[[str], Store]


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
    ) -> None:
        """`files` are those of the snapshot to look at, all if not given; `outside` opens stores beyond the table."""
        with located(table=snapshot.table, version=snapshot.version):
            self._bound = None if where is None else expr.bind_predicate(expr.parse(where), snapshot.schema)
            candidates = snapshot.files if files is None else files
            self.files = candidates if where is None else candidates.filter(snapshot.match(where, candidates).may)
            wanted = read_spec(snapshot, columns)
            self._names = [field.name for field in wanted.wanted()]
            read = wanted if self._bound is None else read_spec(snapshot, self._with_predicate_columns(snapshot))
            self._reader = DataReader(store, read, outside=outside)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([self._reader.schema.field(name) for name in self._names])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Batches of `schema`, in the order of the files."""
        return self._reader.read(self.files, transform=None if self._bound is None else self._matching)

    def to_arrow(self) -> pa.Table:
        return pa.Table.from_batches(self.batches(), schema=self.schema)

    def _with_predicate_columns(self, snapshot: Snapshot) -> list[str]:
        assert self._bound is not None
        named = {column[0].lower() for column in self._bound.columns}
        asked = {name.lower() for name in self._names}
        return self._names + [n for n in snapshot.schema.names if n.lower() in named - asked]

    def _matching(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        assert self._bound is not None
        return expr.filter_batch(self._bound, batch).select(self._names)


def read_spec(snapshot: Snapshot, columns: Sequence[str] | None = None) -> ReadSpec:
    return ReadSpec(
        schema=snapshot.schema,
        partition_columns=snapshot.partition_columns,
        mapping=snapshot.properties.column_mapping_mode,  # type: ignore[arg-type]  # checked by the property
        columns=None if columns is None else tuple(columns),
        pads_chars=True,
        max_decoded_bytes=snapshot.trust.max_decoded_bytes,
        places=snapshot.places,
    )
