"""Rewrite: rows of files that are in the table, read again in the task that writes them.

Rows never cross into an engine: a task is told files, not rows. What happens to a row on the way is said in SQL that
`expr` evaluates. Rows of `delete_where` go away; rows of `update_where` get new values; all others are written again as
they are. With `changes`, what became of a row goes to the change feed too. With `zorder_by`, rows that are near each
other in these columns are written near each other.

A `Rewrite` is JSON, as a `WriteJobSpec` is, and may be given to a runner wherever data may. One split is one task.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from lakeseal import expr
from lakeseal.expr.values import truths
from lakeseal.log.data import DEFAULT_BATCH_ROWS, DEFAULT_WORKERS, DataFile, grouped
from lakeseal.log.read_ahead import in_order
from lakeseal.log.snapshot import Snapshot
from lakeseal.protocol.schema import STRING, StructField, StructType
from lakeseal.storage import StoreSpec
from lakeseal.write.assignments import Assigner, Assignment, only_where
from lakeseal.write.file_schema import CHANGE_TYPE
from lakeseal.write.table_files import SPLIT_BYTES, TableFiles, described, splits
from lakeseal.write.zorder import ordered

_ENOUGH_ROWS = DEFAULT_BATCH_ROWS // 2
_ENOUGH_BYTES = 8 * 2**20
# As many as it takes to fill a batch: whoever reads them puts their rows together, too.
_GROUP_FILES = 64
# As many tasks as most machines have cores, unless files would be small.
_TASKS = 8
_LEAST_SPLIT_BYTES = 16 * 2**20

Transform = Callable[[pa.RecordBatch], pa.RecordBatch]


class Rewrite(TableFiles, frozen=True, kw_only=True):
    delete_where: str | None = None
    update_where: str | None = None
    assignments: tuple[Assignment, ...] = ()
    """What rows of `update_where` are set to."""
    only_updated: bool = False
    """Other rows are not written again: their files stay."""
    changes: bool = False
    """Whether deleted and updated rows go to the change feed."""
    zorder_by: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        store: StoreSpec,
        files: pa.Table,
        *,
        delete_where: str | None = None,
        update_where: str | None = None,
        assignments: tuple[Assignment, ...] = (),
        only_updated: bool = False,
        changes: bool = False,
        now: datetime.datetime | None = None,
    ) -> Rewrite:
        return cls(
            **described(snapshot, store),
            splits=splits(files, _split_bytes(snapshot, files)),
            delete_where=delete_where,
            update_where=update_where,
            assignments=assignments,
            only_updated=only_updated,
            changes=changes,
            now=now,
        )

    @classmethod
    def of_bins(
        cls, snapshot: Snapshot, store: StoreSpec, bins: tuple[tuple[DataFile, ...], ...], zorder_by: tuple[str, ...]
    ) -> Rewrite:
        """Rows as they are, each bin in a task of its own."""
        return cls(**described(snapshot, store), splits=bins, zorder_by=zorder_by)

    @property
    def schema(self) -> StructType:
        table = self.table
        return StructType((*table.fields, StructField(CHANGE_TYPE, STRING))) if self.changes else table

    def batches(self, split: int, *, tasks: int = 1) -> Iterator[pa.RecordBatch]:
        """The rows that a split's task writes; `tasks` is how many share this process."""
        reader, transform = self.reader(), self._transform()
        # A file that is open takes memory. It is worth that where it takes a core, or waits for a network.
        workers = min(DEFAULT_WORKERS, os.cpu_count() or 1) if reader.is_local else DEFAULT_WORKERS

        def rows(files: list[DataFile]) -> Iterator[pa.RecordBatch]:
            read = (batch for file in files for batch in reader.read_file(file))
            return coalesced(read if transform is None else map(transform, read))

        groups = grouped(self.splits[split], most=_GROUP_FILES)
        batches = coalesced(in_order(groups, rows, workers=max(1, workers // tasks)))
        return ordered(batches, self.zorder_by) if self.zorder_by else batches

    def _transform(self) -> Transform | None:
        if self.delete_where is not None:
            return self._deleting(self.delete_where)
        return None if self.update_where is None else self._updating(self.update_where)

    def _deleting(self, where: str) -> Transform:
        bound = expr.bind_predicate(expr.parse(where), self.table)

        def transform(batch: pa.RecordBatch) -> pa.RecordBatch:
            gone = pc.fill_null(expr.evaluate(bound, batch, now=self.now), False)
            if self.changes:
                return batch.append_column(CHANGE_TYPE, pc.if_else(gone, "delete", pa.scalar(None, pa.string())))
            return batch.filter(pc.invert(gone))

        return transform

    def _updating(self, where: str) -> Transform:
        bound = expr.bind_predicate(expr.parse(where), self.table)
        assigner = Assigner(self.table, [(a.column, expr.parse(a.sql)) for a in self.assignments], now=self.now)

        def transform(batch: pa.RecordBatch) -> pa.RecordBatch:
            mask = truths(expr.evaluate(bound, batch, now=self.now), batch.num_rows)
            before = batch if mask.all() else batch.filter(pa.array(mask))
            after = assigner.apply(before).cast(batch.schema) if before.num_rows else before
            rows = after if self.only_updated else only_where(batch, mask, after, assigner.columns)
            if not self.changes:
                return rows
            kinds = ((rows, None), (before, "update_preimage"), (after, "update_postimage"))
            return pa.concat_batches([change_rows(part, kind) for part, kind in kinds])

        return transform


def _split_bytes(snapshot: Snapshot, files: pa.Table) -> int:
    if snapshot.partition_columns:
        # Each task has a file for each of its partitions.
        return SPLIT_BYTES
    return min(SPLIT_BYTES, max(_LEAST_SPLIT_BYTES, (pc.sum(files["size"]).as_py() or 0) // _TASKS))


def coalesced(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches that are neither small nor empty, since whatever is done to a batch has its price."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _ENOUGH_ROWS or size >= _ENOUGH_BYTES:
            yield held[0] if len(held) == 1 else pa.concat_batches(held)
            held, rows, size = [], 0, 0
    if rows:
        yield held[0] if len(held) == 1 else pa.concat_batches(held)


def change_rows(rows: pa.RecordBatch, kind: str | None) -> pa.RecordBatch:
    """Rows for the change feed, or for the table where `kind` is None, in one schema."""
    return rows.append_column(CHANGE_TYPE, pa.repeat(pa.scalar(kind, pa.string()), rows.num_rows))
