"""MERGE in this process: rows of a source change, delete and add rows of a table, in one transaction.

The source is in memory, the table is read file by file. First the files with rows that change are found, from the
columns of conditions alone; all others are never rewritten. Then those rows are written again, with the rows beside
them where the table has no deletion vectors, and the new rows behind them. A merge that only inserts rewrites nothing.

The change feed gets every change of a merge that rewrites or updates rows; otherwise it derives them from the files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from msgspec import Struct

from lakeseal import expr
from lakeseal.clock import now_ms
from lakeseal.commands.command import EVERY_TIME, CommandContext, FilesToWrite, PlannedChange, Written
from lakeseal.commands.file_changes import removal, with_vector
from lakeseal.commands.merge.clauses import MergeCommand
from lakeseal.commands.merge.evolution import evolved
from lakeseal.commands.merge.join import Matcher, Rows
from lakeseal.commands.merge.metrics import merge_metrics, merge_operation
from lakeseal.commands.merge.names import SOURCE, TARGET, flat_columns
from lakeseal.commands.merge.plan import MergePlan, choose, target_predicate
from lakeseal.commands.merge.search import POSITION, FileMatches, Matches, MergeSearch
from lakeseal.commands.touched_files import changeable
from lakeseal.commands.transactional_write import WriteOptions
from lakeseal.commit.proposal import Operation
from lakeseal.errors import SchemaMismatch
from lakeseal.files.file_schema import CHANGE_TYPE, INSERTED
from lakeseal.files.store_assignment import canonical
from lakeseal.jobs.in_process import arrow_reader
from lakeseal.jobs.rewrite import change_rows
from lakeseal.jobs.search import write_vectors
from lakeseal.jobs.table_files import TableFiles, described
from lakeseal.log.data import DEFAULT_BATCH_ROWS, data_files
from lakeseal.log.files import add_actions
from lakeseal.log.read_ahead import in_order
from lakeseal.protocol.actions import Action, AddFile
from lakeseal.protocol.arrow import from_arrow
from lakeseal.protocol.schema import duplicate_name

_INSERT_ROWS = 65_536
_SEARCH_ROWS = 2**20
_WORKERS = 4


def read_source(data: Any) -> pa.Table:
    """The source, in memory, in Arrow's one form of each type."""
    table = arrow_reader(data).read_all()
    duplicate = duplicate_name(table.column_names)
    if duplicate is not None:
        raise SchemaMismatch("Two columns of the source have the same name", column=duplicate)
    from_arrow(table.schema)
    columns = [
        pa.chunked_array([canonical(chunk) for chunk in column.chunks] or [canonical(pa.array([], column.type))])
        for column in table.columns
    ]
    return pa.Table.from_arrays(columns, names=table.column_names).combine_chunks()


class ArrowMerge(Struct, frozen=True, kw_only=True):
    """The command: a merge with what `read_source` made of its source."""

    shown: ClassVar[str | None] = "merge"
    times: ClassVar[tuple[str, ...]] = EVERY_TIME

    asked: MergeCommand
    source: pa.Table

    def decide(self, context: CommandContext) -> PlannedChange:
        merge = _Merge(self.asked, context, self.source)
        matches = merge.search()
        return merge.change(matches)


class _Merge:
    def __init__(self, command: MergeCommand, context: CommandContext, source: pa.Table) -> None:
        self._command = command
        self._txn = context.txn
        self._store = context.store
        self._progress = context.progress
        self._snapshot = changeable(context.txn)
        schema = from_arrow(source.schema)
        table = evolved(command, context.txn, schema)
        self._plan = MergePlan(command, table, schema)
        self._source = source.rename_columns([SOURCE + name for name in source.column_names])
        self._matcher = Matcher(self._plan.condition, self._source, now=command.now)
        properties = self._snapshot.properties
        self._by_vectors = properties.deletion_vectors
        self._feed = properties.change_data_feed
        self._files = TableFiles(
            **described(self._snapshot, context.store) | {"table_schema": table.to_json()}, splits=(), now=command.now
        )
        self._counts: Counter[str] = Counter()

    def search(self) -> Matches:
        candidates = self._txn.filter_files(target_predicate(self._plan, self._matcher))
        self._progress.stage("searching", candidates.num_rows)
        # The source is hashed anew for every batch, so a batch should not be small beside it.
        rows = min(max(DEFAULT_BATCH_ROWS, 4 * self._source.num_rows), _SEARCH_ROWS)
        reader = self._files.reader(self._plan.search_columns, position_column=POSITION, batch_rows=rows)
        search = MergeSearch(self._plan, self._source, self._matcher)
        return search.run(reader, list(data_files(candidates)), self._progress)

    def change(self, matches: Matches) -> PlannedChange:
        self._count(matches)

        def finish(written: Written) -> tuple[list[Action], Operation]:
            actions = [*written, *self._old_files(matches)]
            metrics = merge_metrics(actions, self._counts, self._source.num_rows)
            return actions, merge_operation(self._command, metrics)

        return PlannedChange(
            finish=finish,
            writes=self._writes(matches),
            rewritten=len(matches.files),
            nothing="no row changes",
        )

    def _count(self, matches: Matches) -> None:
        for file in matches.files:
            for number, count in enumerate(np.bincount(file.clauses)):
                self._counts[self._plan.clauses[number].clause.name] += int(count)
            self._counts["copied"] += 0 if self._by_vectors else file.rows - len(file.positions)

    def _writes(self, matches: Matches) -> tuple[FilesToWrite, ...]:
        inserting = self._plan.of("not_matched")
        fresh = np.flatnonzero(~matches.is_matched) if inserting else np.empty(0, np.int64)
        if not matches.files and not len(fresh):
            return ()
        updates = any(self._updates(file) for file in matches.files)
        # What deletion vectors hide and files add, the feed derives; of updates it would not know what they were.
        changes = self._feed and bool(matches.files) and (updates or not self._by_vectors)
        # New rows alone need nothing of the kind: they are called after their place.
        row_ids = self._files.row_ids if matches.files else None
        reader = self._files.reader(position_column=POSITION, row_ids=row_ids is not None)
        schema = pa.schema([field for field in reader.schema if field.name != POSITION])

        def rewritten(file: FileMatches) -> Iterator[pa.RecordBatch]:
            for batch in reader.read_file(file.file):
                yield from self._rewritten(batch, file, changes)
            self._progress.advance()

        def rows() -> Iterator[pa.RecordBatch]:
            files = [f for f in matches.files if changes or not self._by_vectors or self._updates(f)]
            yield from in_order(files, rewritten, workers=_WORKERS)
            yield from self._inserted(fresh, schema, changes)

        given = schema.append(pa.field(CHANGE_TYPE, pa.string())) if changes else schema
        stream = pa.RecordBatchReader.from_batches(given, (batch for batch in rows() if batch.num_rows))
        options = WriteOptions(changes=changes, with_row_ids=row_ids is not None)
        return (FilesToWrite(data=stream, options=options),)

    def _updates(self, file: FileMatches) -> bool:
        updates = [number for number, c in enumerate(self._plan.clauses) if c.clause.action == "update"]
        return bool(np.isin(file.clauses, updates).any())

    def _rewritten(self, batch: pa.RecordBatch, file: FileMatches, changes: bool) -> Iterator[pa.RecordBatch]:
        positions = batch.column(POSITION).to_numpy()
        rows = batch.drop_columns([POSITION])
        first, last = np.searchsorted(file.positions, [positions[0], positions[-1] + 1])
        at = np.searchsorted(positions, file.positions[first:last])
        clauses, sources = file.clauses[first:last], file.sources[first:last]
        order = np.arange(rows.num_rows)
        parts, behind, feed = [rows], rows.num_rows, []
        for number in np.unique(clauses):
            planned, mine = self._plan.clauses[number], clauses == number
            before = rows.take(pa.array(at[mine]))
            if planned.assigner is None:
                order[at[mine]] = -1
                feed.append((before, "delete"))
                continue
            given = self._joined(before, sources[mine], planned.assigner.reads)
            after = planned.assigner.apply(before, given).cast(rows.schema)
            after = after if self._files.row_ids is None else self._files.row_ids.updated(after)
            order[at[mine]] = behind + np.arange(after.num_rows)
            behind += after.num_rows
            parts.append(after)
            feed += [(before, "update_preimage"), (after, "update_postimage")]
        kept = order[order >= rows.num_rows] if self._by_vectors else order[order >= 0]
        result = pa.concat_batches(parts).take(pa.array(kept))
        yield change_rows(result, None) if changes else result
        if changes:
            yield from (change_rows(some, kind) for some, kind in feed)

    def _joined(self, before: pa.RecordBatch, sources: Rows, paths: frozenset[tuple[str, ...]]) -> pa.RecordBatch:
        """The table's rows with the source rows that belong to them; rows without one see the table alone."""
        columns = flat_columns(TARGET, before)
        wanted = sorted({path[0] for path in paths if path[0].startswith(SOURCE)})
        if wanted:
            taken = self._source.select(wanted).take(pa.array(sources)).combine_chunks()
            columns |= {name: _whole(taken.column(name)) for name in wanted}
        return pa.RecordBatch.from_pydict(columns)

    def _inserted(self, fresh: Rows, schema: pa.Schema, changes: bool) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(fresh), _INSERT_ROWS):
            some = fresh[start : start + _INSERT_ROWS]
            source = _batch(self._source.take(pa.array(some)))

            def evaluate(condition: expr.BoundExpression, rows: Rows, source: pa.RecordBatch = source) -> pa.Array:
                return expr.evaluate(condition, source.take(pa.array(rows)), now=self._command.now)

            chosen = choose(self._plan.of("not_matched"), len(some), evaluate)
            for number, planned in self._plan.of("not_matched"):
                given = source.filter(pa.array(chosen == number))
                if not given.num_rows:
                    continue
                assert planned.assigner is not None, "an insert says what to insert"
                empty = pa.RecordBatch.from_arrays([pa.nulls(given.num_rows, f.type) for f in schema], schema=schema)
                rows = planned.assigner.apply(empty, given).cast(schema)
                self._counts[planned.clause.name] += rows.num_rows
                yield change_rows(rows, INSERTED) if changes else rows

    def _old_files(self, matches: Matches) -> list[Action]:
        if not matches.files:
            return []
        by_path = {file.file.path: file for file in matches.files}
        adds = {add.path: add for add in add_actions(self._snapshot.files) if add.path in by_path}
        now = now_ms()
        actions: list[Action] = [removal(add, now_ms=now) for add in adds.values()]
        if self._by_vectors:
            actions += self._with_vectors(adds, [file for file in matches.files if not file.is_whole])
        return actions

    def _with_vectors(self, adds: Mapping[str, AddFile], files: list[FileMatches]) -> Iterator[AddFile]:
        properties = self._snapshot.properties
        prefix = properties.random_prefix_length if properties.randomize_file_prefixes else 0
        wanted = [(file.file, file.positions.astype(np.uint64)) for file in files]
        vectors = write_vectors(self._files.reader([]), self._store.open(), wanted, prefix)
        for file, vector in zip(files, vectors, strict=True):
            hidden = 0 if file.file.deletion_vector is None else file.file.deletion_vector.cardinality
            yield with_vector(adds[file.file.path], vector, records=file.rows + hidden)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _batch(rows: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({name: _whole(rows.column(name)) for name in rows.column_names})
