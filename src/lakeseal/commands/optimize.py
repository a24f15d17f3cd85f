"""OPTIMIZE: small files become large ones, and hidden rows go for good. No row changes.

Within each partition, files smaller than the target size are put together up to that size, and files with deletion
vectors are written anew without the rows that those hide. With `zorder_by` all files are rewritten so that rows near
each other in these columns lie in the same files (see `zorder`). A table that is clustered is laid out by the columns
that it is clustered by, along Hilbert's curve; what is so already stays, unless `full` asks for all of it.

All files say `dataChange=false`: streams and the change feed pass over them, and rows that others append meanwhile are
no conflict; only files that others remove meanwhile are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa
from msgspec import Struct

from lakeseal.clock import now_ms
from lakeseal.commands.command import CommandContext, FilesToWrite, PlannedChange, Written
from lakeseal.commands.file_changes import Metrics, file_metrics, removals
from lakeseal.commands.transactional_write import DEFAULT_TARGET_FILE_SIZE, WriteOptions
from lakeseal.commit.clustering import clustered_by, in_new_cube, refuse_layout, to_cluster
from lakeseal.commit.proposal import Operation
from lakeseal.errors import InvalidArgument, TableNotFound, UnsupportedExpression
from lakeseal.expr.coercion import is_atomic
from lakeseal.jobs.engine import Engine
from lakeseal.jobs.rewrite import Rewrite
from lakeseal.jobs.table_files import SPLIT_BYTES
from lakeseal.log.data import DataFile, data_files
from lakeseal.log.files import add_actions
from lakeseal.log.snapshot import Snapshot
from lakeseal.protocol.actions import Action, AddFile
from lakeseal.protocol.features import check_writable

Bin = tuple[DataFile, ...]
_ZORDER_BIN_BYTES = 2**30
# A bin is one file, however its rows turn out to compress.
_NO_LIMIT = 2**62


Partition = tuple[tuple[str, str | None], ...]


class AutoCompaction(Struct, frozen=True, kw_only=True):
    """What is done behind a commit, unasked: little, and only where it is worth a commit of its own."""

    partitions: frozenset[Partition] | None = None
    """Those that the commit added files to; None for all."""
    target: int = 128 * 2**20
    """How large files become, unless the table's `delta.targetFileSize` says otherwise. Half of it is small."""
    least_files: int = 50
    """So many small files there must be in a partition."""

    def chosen(self, files: pa.Table, target: int) -> pa.Table:
        """Small files of the partitions that have enough of them. Pure."""
        sizes, values = files["size"].to_pylist(), files["partitionValues"].to_pylist(maps_as_pydicts="lossy")
        places: list[Partition] = [tuple(sorted((value or {}).items())) for value in values]
        is_small = [
            size < target // 2 and (self.partitions is None or place in self.partitions)
            for size, place in zip(sizes, places, strict=True)
        ]
        count = Counter(place for place, small in zip(places, is_small, strict=True) if small)
        wanted = [small and count[place] >= self.least_files for place, small in zip(places, is_small, strict=True)]
        return files.filter(pa.array(wanted, pa.bool_()))


class OptimizeCommand(Struct, frozen=True, kw_only=True):
    shown: ClassVar[str | None] = "optimize"
    times: ClassVar[tuple[str, ...]] = ("executionTimeMs",)

    where: str | None = None
    """Only files that may have rows for which this is true."""
    zorder_by: tuple[str, ...] = ()
    full: bool = False
    """Of a clustered table, all files."""
    target_file_size: int | None = None
    """Goes before the table's `delta.targetFileSize`."""
    auto: AutoCompaction | None = None
    """Behind a commit, unasked."""
    user_metadata: str | None = None

    def __post_init__(self) -> None:
        if self.target_file_size is not None and self.target_file_size < 1:
            raise InvalidArgument(f"target_file_size cannot be {self.target_file_size}", hint="Use 1 or more")

    def decide(self, context: CommandContext) -> PlannedChange:
        snapshot = context.txn.snapshot
        if snapshot is None:
            raise TableNotFound("There is no table here")
        check_writable(snapshot.protocol, snapshot.metadata)
        columns = clustered_by(snapshot)
        if columns:
            return self._cluster(context, snapshot, columns)
        if self.full:
            raise InvalidArgument("Only a clustered table is optimized in full", hint="Table.cluster_by(…) first")
        zorder_by = _columns(snapshot, self.zorder_by)
        target = self._target(snapshot)
        if self.auto is None:
            files = snapshot.files.filter(snapshot.match(chosen_by(self.where, context.engine, snapshot)).may)
        else:
            files = self.auto.chosen(snapshot.files, target)
        refuse_layout(snapshot, files)
        splits = splits_of(plan_bins(data_files(files), target=target, all_files=bool(zorder_by)))
        chosen = _chosen(files, splits)

        def finish(written: Written) -> tuple[list[Action], Operation]:
            actions: list[Action] = [*removals(chosen, now_ms=now_ms(), data_change=False), *written]
            return actions, self._operation(zorder_by, _metrics(actions))

        if not splits:
            return PlannedChange(finish=finish, nothing="all files are as they should be")
        context.txn.read_files(chosen)
        rewrite = Rewrite.of_bins(snapshot, context.store, splits, zorder_by)
        options = WriteOptions(target_file_size=target if zorder_by else _NO_LIMIT, with_row_ids=True)
        write = FilesToWrite(data=rewrite, options=options, is_optimize=True)
        return PlannedChange(finish=finish, writes=(write,), rewritten=chosen.num_rows)

    def _cluster(self, context: CommandContext, snapshot: Snapshot, columns: tuple[str, ...]) -> PlannedChange:
        if self.where is not None or self.zorder_by:
            raise InvalidArgument(
                f"The table is clustered by {', '.join(columns)}, which says how files are laid out, and which",
                hint="optimize() without a condition and without zorder_by",
            )
        refuse_layout(snapshot, snapshot.files)
        adds = to_cluster(list(add_actions(snapshot.files)), columns, full=self.full)
        paths = {add.path for add in adds}
        is_chosen = [path in paths for path in snapshot.files["path"].to_pylist()]
        files = snapshot.files.filter(pa.array(is_chosen, pa.bool_()))
        target = self._target(snapshot)

        def finish(written: Written) -> tuple[list[Action], Operation]:
            made = in_new_cube([add for add in written if isinstance(add, AddFile)], columns)
            actions: list[Action] = [*removals(files, now_ms=now_ms(), data_change=False), *made]
            return actions, self._operation((), _metrics(actions), columns)

        if not adds or (self.auto is not None and len(adds) < self.auto.least_files):
            return PlannedChange(finish=lambda _: ([], self._operation((), {})), nothing="all files are clustered")
        context.txn.read_files(files)
        bins = tuple(plan_bins(data_files(files), target=target, all_files=True))
        rewrite = Rewrite.of_bins(snapshot, context.store, bins, columns, hilbert=True)
        write = FilesToWrite(
            data=rewrite, options=WriteOptions(target_file_size=target, with_row_ids=True), is_optimize=True
        )
        return PlannedChange(finish=finish, writes=(write,), rewritten=files.num_rows)

    def _target(self, snapshot: Snapshot) -> int:
        unsaid = DEFAULT_TARGET_FILE_SIZE if self.auto is None else self.auto.target
        return self.target_file_size or snapshot.properties.target_file_size or unsaid

    def _operation(
        self, zorder_by: tuple[str, ...], metrics: Metrics, cluster_by: tuple[str, ...] | None = None
    ) -> Operation:
        predicate = [] if self.where is None else [self.where]
        return Operation(
            name="OPTIMIZE",
            parameters={
                "predicate": predicate,
                "zOrderBy": list(zorder_by),
                "clusterBy": None if cluster_by is None else list(cluster_by),
                "isFull": True if self.full else None,
                "auto": self.auto is not None,
            },
            metrics=metrics,
            user_metadata=self.user_metadata,
        )


def chosen_by(where: str | None, engine: Engine, snapshot: Snapshot) -> str | None:
    """The condition that chooses files, if it can be judged by what the log says of them."""
    judged = None if where is None else engine.judged(where, snapshot.schema)
    if where is not None and judged is None:
        raise UnsupportedExpression(
            f"Files cannot be chosen by {where[:200]!r}, which only Spark can judge, row by row",
            hint="Compare columns with constants",
        )
    return judged


def plan_bins(files: Iterable[DataFile], *, target: int, all_files: bool = False) -> list[Bin]:
    """Which files to put together. Pure. A file alone is a bin only if there are rows to drop, or with `all_files`."""
    by_partition: dict[tuple[tuple[str, str | None], ...], list[DataFile]] = {}
    for file in files:
        if all_files or file.deletion_vector is not None or (file.size or 0) < target:
            by_partition.setdefault(tuple(sorted(file.partition_values.items())), []).append(file)
    limit = max(target, _ZORDER_BIN_BYTES) if all_files else target
    bins = []
    for some in by_partition.values():
        held: list[DataFile] = []
        size = 0
        for file in sorted(some, key=lambda file: file.size or 0):
            if held and size + (file.size or 0) > limit:
                bins.append(tuple(held))
                held, size = [], 0
            held.append(file)
            size += file.size or 0
        bins.append(tuple(held))
    return [one for one in bins if all_files or len(one) > 1 or one[0].deletion_vector is not None]


def splits_of(bins: Sequence[Bin]) -> tuple[Bin, ...]:
    """Bins of different partitions share a task up to a size: a task writes one file for each of them."""
    splits: list[list[DataFile]] = []
    sizes: list[int] = []
    partitions: list[set[tuple[tuple[str, str | None], ...]]] = []
    for files in bins:
        partition = tuple(sorted(files[0].partition_values.items()))
        size = sum(file.size or 0 for file in files)
        if splits and partition not in partitions[-1] and sizes[-1] + size <= SPLIT_BYTES:
            splits[-1] += files
            sizes[-1] += size
            partitions[-1].add(partition)
        else:
            splits.append(list(files))
            sizes.append(size)
            partitions.append({partition})
    return tuple(tuple(split) for split in splits)


def _chosen(files: pa.Table, splits: tuple[Bin, ...]) -> pa.Table:
    paths = {file.path for split in splits for file in split}
    return files.filter(pa.array([path in paths for path in files["path"].to_pylist()], pa.bool_()))


def _columns(snapshot: Snapshot, names: tuple[str, ...]) -> tuple[str, ...]:
    partitioned = {name.lower() for name in snapshot.partition_columns}
    columns = []
    for name in names:
        field = snapshot.schema.field(name)
        if field is None:
            raise InvalidArgument(
                f"The table has no column {name!r}", hint=f"It has {', '.join(snapshot.schema.names)}", column=name
            )
        if field.name.lower() in partitioned:
            raise InvalidArgument("A partition has but one value of its column to order by", column=field.name)
        if not is_atomic(field.type):
            raise InvalidArgument(f"Rows cannot be ordered by a column of type {field.type}", column=field.name)
        columns.append(field.name)
    if len(set(columns)) < len(columns):
        raise InvalidArgument("A column can be ordered by only once", column=columns[0])
    return tuple(columns)


def _metrics(actions: Sequence[Action]) -> Metrics:
    metrics = file_metrics(actions)
    sizes = [action.size for action in actions if isinstance(action, AddFile)]
    found = {
        name: metrics[name]
        for name in (
            "numAddedFiles",
            "numAddedBytes",
            "numRemovedFiles",
            "numRemovedBytes",
            "numDeletionVectorsRemoved",
        )
    }
    if sizes:
        quantiles = np.quantile(sizes, [0, 0.25, 0.5, 0.75, 1], method="nearest")
        names = ("minFileSize", "p25FileSize", "p50FileSize", "p75FileSize", "maxFileSize")
        found |= {name: int(size) for name, size in zip(names, quantiles, strict=True)}
    return found
