"""Rewrite: rows of files that are in the table, read again in the task that writes them.

Rows never cross into an engine: a task is told files, not rows. Rows of `delete` go away; rows of `update` get new
values; all others are written again as they are. Which rows that are is said by a condition that `expr` judges, or,
where an engine has judged, by the files themselves (`DataFile.chosen`). With `changes`, what became of a row goes to
the change feed too. With `zorder_by`, rows that are near each other in these columns are written near each other.

New values are `expr`'s, unless the rewrite is `in_plan`: then only an engine can run it, which evaluates them as they
were written.

Where the table tracks rows, they bring their ids along, and rows that nothing was done to their versions, too.

A `Rewrite` is JSON, as a `WriteJobSpec` is, and may be given to an engine wherever data may. One split is one task.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from lakeseal import expr
from lakeseal.expr.values import truths
from lakeseal.files.assignments import Assigner, Assignment, only_where
from lakeseal.files.file_schema import CHANGE_TYPE
from lakeseal.files.zorder import ordered
from lakeseal.jobs.search import is_chosen
from lakeseal.jobs.table_files import SPLIT_BYTES, TableFiles, described, splits
from lakeseal.log.data import DEFAULT_BATCH_ROWS, DEFAULT_WORKERS, DataFile, grouped
from lakeseal.log.read_ahead import in_order
from lakeseal.log.snapshot import Snapshot
from lakeseal.protocol.schema import STRING, StructField, StructType
from lakeseal.storage import StoreSpec

_ENOUGH_ROWS = DEFAULT_BATCH_ROWS // 2
_ENOUGH_BYTES = 8 * 2**20
# As many as it takes to fill a batch: whoever reads them puts their rows together, too.
_GROUP_FILES = 64
# As many tasks as most machines have cores, unless files would be small.
_TASKS = 8
_LEAST_SPLIT_BYTES = 16 * 2**20

_POSITION = "lakeseal.position"

Transform = Callable[[DataFile, pa.RecordBatch], pa.RecordBatch]
Mask = npt.NDArray[np.bool_]


class ChosenRows(Struct, frozen=True, kw_only=True):
    """Which rows a rewrite is about."""

    judged: str | None = None
    """A condition that `expr` judges; None for those that each file's `chosen` names."""


class Rewrite(TableFiles, frozen=True, kw_only=True):
    delete: ChosenRows | None = None
    update: ChosenRows | None = None
    assignments: tuple[Assignment, ...] = ()
    """What rows of `update` are set to."""
    in_plan: bool = False
    """Whether only the engine can evaluate the assignments."""
    only_updated: bool = False
    """Other rows are not written again: their files stay."""
    changes: bool = False
    """Whether deleted and updated rows go to the change feed."""
    zorder_by: tuple[str, ...] = ()
    hilbert: bool = False
    """Along Hilbert's curve."""

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        store: StoreSpec,
        files: Sequence[DataFile],
        *,
        delete: ChosenRows | None = None,
        update: ChosenRows | None = None,
        assignments: tuple[Assignment, ...] = (),
        in_plan: bool = False,
        only_updated: bool = False,
        changes: bool = False,
        now: datetime.datetime | None = None,
    ) -> Rewrite:
        return cls(
            **described(snapshot, store),
            splits=splits(files, _split_bytes(snapshot, files)),
            delete=delete,
            update=update,
            assignments=assignments,
            in_plan=in_plan,
            only_updated=only_updated,
            changes=changes,
            now=now,
        )

    @classmethod
    def of_bins(
        cls,
        snapshot: Snapshot,
        store: StoreSpec,
        bins: tuple[tuple[DataFile, ...], ...],
        zorder_by: tuple[str, ...],
        *,
        hilbert: bool = False,
    ) -> Rewrite:
        """Rows as they are, each bin in a task of its own."""
        return cls(**described(snapshot, store), splits=bins, zorder_by=zorder_by, hilbert=hilbert)

    @property
    def schema(self) -> StructType:
        tracked = () if self.row_ids is None else self.row_ids.fields
        feed = (StructField(CHANGE_TYPE, STRING),) if self.changes else ()
        return StructType((*self.table.fields, *tracked, *feed))

    def batches(self, split: int, *, tasks: int = 1) -> Iterator[pa.RecordBatch]:
        """The rows that a split's task writes; `tasks` is how many share this process."""
        rows_of = self.delete or self.update
        by_place = rows_of is not None and rows_of.judged is None
        reader = self.reader(position_column=_POSITION if by_place else None, row_ids=True)
        transform = self._transform()
        # A file that is open takes memory. It is worth that where it takes a core, or waits for a network.
        workers = min(DEFAULT_WORKERS, os.cpu_count() or 1) if reader.is_local else DEFAULT_WORKERS

        def rows(files: list[DataFile]) -> Iterator[pa.RecordBatch]:
            read = ((file, batch) for file in files for batch in reader.read_file(file))
            return coalesced(batch if transform is None else transform(file, batch) for file, batch in read)

        groups = grouped(self.splits[split], most=_GROUP_FILES)
        batches = coalesced(in_order(groups, rows, workers=max(1, workers // tasks)))
        return ordered(batches, self.zorder_by, hilbert=self.hilbert) if self.zorder_by else batches

    def _transform(self) -> Transform | None:
        if self.delete is not None:
            return self._deleting(self.delete)
        return None if self.update is None else self._updating(self.update)

    def _of(self, rows: ChosenRows) -> Callable[[DataFile, pa.RecordBatch], tuple[pa.RecordBatch, Mask]]:
        """A batch of a file, and which of its rows are meant."""
        if rows.judged is None:

            def chosen(file: DataFile, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Mask]:
                return batch.drop_columns(_POSITION), is_chosen(file, batch.column(_POSITION).to_numpy())

            return chosen
        bound = expr.bind_predicate(expr.parse(rows.judged), self.table)
        return lambda _, batch: (batch, truths(expr.evaluate(bound, batch, now=self.now), batch.num_rows))

    def _deleting(self, rows: ChosenRows) -> Transform:
        meant = self._of(rows)

        def transform(file: DataFile, read: pa.RecordBatch) -> pa.RecordBatch:
            batch, gone = meant(file, read)
            if self.changes:
                kinds = pc.if_else(pa.array(gone), "delete", pa.scalar(None, pa.string()))
                return batch.append_column(CHANGE_TYPE, kinds)
            return batch.filter(pa.array(~gone))

        return transform

    def _updating(self, rows: ChosenRows) -> Transform:
        meant = self._of(rows)
        assigner = Assigner(self.table, [(a.column, expr.parse(a.sql)) for a in self.assignments], now=self.now)
        changed = assigner.columns if self.row_ids is None else assigner.columns | {self.row_ids.commit_version}

        def transform(file: DataFile, read: pa.RecordBatch) -> pa.RecordBatch:
            batch, mask = meant(file, read)
            before = batch if mask.all() else batch.filter(pa.array(mask))
            after = assigner.apply(before).cast(batch.schema) if before.num_rows else before
            after = after if self.row_ids is None else self.row_ids.updated(after)
            rows = after if self.only_updated else only_where(batch, mask, after, changed)
            if not self.changes:
                return rows
            kinds = ((rows, None), (before, "update_preimage"), (after, "update_postimage"))
            return pa.concat_batches([change_rows(part, kind) for part, kind in kinds])

        return transform


def _split_bytes(snapshot: Snapshot, files: Sequence[DataFile]) -> int:
    if snapshot.partition_columns:
        # Each task has a file for each of its partitions.
        return SPLIT_BYTES
    return min(SPLIT_BYTES, max(_LEAST_SPLIT_BYTES, sum(file.size or 0 for file in files) // _TASKS))


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
