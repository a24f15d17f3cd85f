"""The first half of a MERGE: which rows of which files change, and which source rows are matched.

Of each file that may have matches only the columns of conditions are read. A row that several source rows would change
is an error with the row in it, unless the merge does nothing with matched rows but delete them all.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from msgspec import Struct

from lakeseal import expr
from lakeseal.commands.merge.join import Matcher, Rows, paired
from lakeseal.commands.merge.names import TARGET, flat_columns
from lakeseal.commands.merge.plan import MergePlan, choose
from lakeseal.errors import AmbiguousMerge
from lakeseal.files.constraints import show_row
from lakeseal.jobs.progress import Progress
from lakeseal.log.data import DataFile, DataReader
from lakeseal.log.read_ahead import in_order

POSITION = "lakeseal.position"
_WORKERS = 4


class FileMatches(Struct, frozen=True, kw_only=True):
    """What becomes of rows of one file, in the order of their positions; other rows stay as they are."""

    file: DataFile
    rows: int
    """Rows that readers see."""
    positions: Rows
    clauses: Rows
    """The number of the clause that each row falls under."""
    sources: Rows
    """The source row that belongs to each; -1 for none."""

    @property
    def is_whole(self) -> bool:
        return len(self.positions) == self.rows


class Matches(Struct, frozen=True, kw_only=True):
    files: tuple[FileMatches, ...]
    """Files with at least one row that changes."""
    is_matched: np.ndarray
    """For each source row."""


class _Batch(Struct, frozen=True, kw_only=True):
    positions: Rows
    clauses: Rows
    sources: Rows
    matched: Rows


class MergeSearch:
    def __init__(self, plan: MergePlan, source: pa.Table, matcher: Matcher) -> None:
        """`source` has flat names."""
        self._plan = plan
        self._source = source
        self._matcher = matcher
        self._matched = plan.of("matched")
        self._by_source = plan.of("not_matched_by_source")

    def run(self, reader: DataReader, files: list[DataFile], progress: Progress) -> Matches:
        """`reader` gives the plan's search columns and `POSITION`."""
        is_matched = np.zeros(self._source.num_rows, dtype=np.bool_)

        def look(file: DataFile) -> Iterator[tuple[FileMatches, list[Rows]]]:
            parts, rows = [], 0
            for batch in reader.read_file(file):
                rows += batch.num_rows
                parts.append(self._look_at(batch))
            progress.advance()
            actions = FileMatches(
                file=file,
                rows=rows,
                positions=_joined([part.positions for part in parts]),
                clauses=_joined([part.clauses for part in parts]),
                sources=_joined([part.sources for part in parts]),
            )
            yield actions, [part.matched for part in parts]

        found = []
        for actions, matched in in_order(files, look, workers=_WORKERS):
            for sources in matched:
                is_matched[sources] = True
            if len(actions.positions):
                found.append(actions)
        return Matches(files=tuple(found), is_matched=is_matched)

    def _look_at(self, batch: pa.RecordBatch) -> _Batch:
        positions = batch.column(POSITION).to_numpy()
        target = pa.RecordBatch.from_pydict(flat_columns(TARGET, batch))
        has_match = np.zeros(batch.num_rows, dtype=np.bool_)
        matched, rows, clauses, sources = [], [], [], []
        for of_target, of_source in self._matcher.pairs(target):
            matched.append(np.unique(of_source))
            has_match[of_target] = True
            if self._matched and len(of_target):
                chosen = self._choose(target, of_target, of_source)
                acts = chosen >= 0
                rows.append(of_target[acts])
                clauses.append(chosen[acts])
                sources.append(of_source[acts])
        if self._by_source:
            unmatched = np.flatnonzero(~has_match)
            chosen = self._choose(target, unmatched, None)
            acts = chosen >= 0
            rows.append(unmatched[acts])
            clauses.append(chosen[acts])
            sources.append(np.full(int(acts.sum()), -1, dtype=np.int64))
        order, kept = self._one_per_row(_joined(rows), batch)
        return _Batch(
            positions=positions[_joined(rows)[order][kept]],
            clauses=_joined(clauses)[order][kept],
            sources=_joined(sources)[order][kept],
            matched=_joined(matched),
        )

    def _choose(self, target: pa.RecordBatch, of_target: Rows, of_source: Rows | None) -> Rows:
        def evaluate(condition: expr.BoundExpression, some: Rows) -> pa.Array:
            sources = np.empty(0, np.int64) if of_source is None else of_source[some]
            pairs = paired(target, of_target[some], self._source, sources, condition.columns)
            return expr.evaluate(condition, pairs, now=self._plan.command.now)

        return choose(self._by_source if of_source is None else self._matched, len(of_target), evaluate)

    def _one_per_row(self, rows: Rows, batch: pa.RecordBatch) -> tuple[Rows, Rows]:
        """The order of rows, and which of them to keep: the first of several deletes."""
        order = np.argsort(rows, kind="stable")
        ordered = rows[order]
        again = np.flatnonzero(ordered[1:] == ordered[:-1]) + 1
        if len(again) and not self._plan.command.may_match_often:
            row = show_row(batch.drop_columns([POSITION]), int(ordered[again[0]]))
            raise AmbiguousMerge(f"Several rows of the source would change the row {row}")
        return order, np.setdiff1d(np.arange(len(ordered)), again)


def _joined(parts: list[Rows]) -> Rows:
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
