"""Three-way merges of trees. Nothing here moves a branch.

`plan` says what a merge has to do with directories that the source emptied, `merged` makes the tree. By path, where B
is the base, S the source and D the destination: S as B, then D; D as B, then S; S as D, that; else a conflict. Under an
emptied directory the outcome is S as a whole, or with `dest-wins` and something to lose, D as a whole: never a mix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from lakeseal.branches import diff
from lakeseal.branches.editor import Editor
from lakeseal.branches.edits import EditStream, Interval, Intervals, forced, from_diff, intervals_of
from lakeseal.branches.stretches import Rows, Stretch, join
from lakeseal.branches.tree import Row, TreeFiles
from lakeseal.branches.tree_writer import TreeWriter
from lakeseal.branches.values import (
    ENTRIES,
    Commit,
    Conflict,
    ConflictKind,
    Counts,
    Entry,
    Strategy,
    changes_of,
    entries_of,
)

BeforeAndAfter = Callable[[Commit], tuple[Rows, Rows]]
"""The trees of a commit's first parent and of the commit."""


class Sides(Struct, frozen=True, kw_only=True):
    """The trees of a merge, and what happened on each side since the base."""

    base: Rows
    source: Rows
    dest: Rows
    source_commits: tuple[Commit, ...] = ()
    dest_commits: tuple[Commit, ...] = ()
    counts: Counts | None = None
    """What the source added, changed and removed since the base, if that is known."""
    by_job: bool = False
    """Whether the source is the work of a job, which replaces what other jobs did to the directories it empties."""


class Plan(Struct, frozen=True, kw_only=True):
    emptied: tuple[Interval, ...] = ()
    """Become exactly as on the source."""
    left_alone: tuple[Interval, ...] = ()
    """Stay exactly as on the destination."""
    replaced: int = 0
    decided: int = 0
    conflicts: tuple[Conflict, ...] = ()


def plan(files: TreeFiles, sides: Sides, rows_of: BeforeAndAfter, strategy: Strategy | None) -> Plan:
    emptied = intervals_of(name for commit in sides.source_commits for name in commit.directories)
    if not emptied or not sides.dest_commits:
        return Plan(emptied=emptied)
    foreign = [commit for commit in sides.dest_commits if not (sides.by_job and commit.job)]
    kept, left_alone, conflicts, replaced, decided = [], [], [], 0, 0
    for low, high in emptied:
        lost = _lost(files, sides, low, high)
        clashes = _made_by(files, lost, foreign, rows_of, low, high) if sides.by_job else lost
        count = sum(map(len, clashes))
        if count and strategy == "dest-wins":
            left_alone.append((low, high))
        else:
            kept.append((low, high))
            replaced += sum(map(len, lost))
        if strategy is None:
            conflicts += [conflict for table in clashes for conflict in _foreign(table)]
        else:
            decided += count
    return Plan(
        emptied=tuple(kept),
        left_alone=tuple(left_alone),
        replaced=replaced,
        decided=decided,
        conflicts=tuple(conflicts),
    )


def merged(
    files: TreeFiles, writer: TreeWriter, sides: Sides, plan: Plan, strategy: Strategy | None
) -> tuple[Iterator[Row], Editor]:
    """The rows of the merged tree, made as they are asked for, and the editor whose tally tells what it came to."""
    joined = join(files, sides.base, sides.source, sides.dest, plan.emptied, plan.left_alone)
    emptied = [one for clash in joined.clashes for one in Intervals(plan.emptied).clipped(clash.low, clash.high)]
    edits = EditStream(_edits(files, joined.clashes, plan), emptied)
    editor = Editor(files, writer, edits, strategy=strategy, only_looks=bool(plan.conflicts))
    if not editor.failed:
        editor.tally.add(joined.counts(files, sides.counts))
    return editor.run(tuple(joined.rows)), editor


def conflicts_of(tables: Iterable[pa.Table]) -> Iterator[Conflict]:
    """Of edits that did not fit, as the editor noted them."""
    for table in tables:
        for row in table.to_pylist():
            source = _side(row, "") if row["address"] is not None else None
            there = _side(row, "there_") if row["there_address"] is not None else None
            base = _base(row) if row["before_checksum"] is not None else None
            kind: ConflictKind = "both-changed"
            if source is None:
                kind = "removed-and-changed"
            elif there is None:
                kind = "changed-and-removed"
            yield Conflict(path=row["path"], kind=kind, base=base, source=source, dest=there)


def _edits(files: TreeFiles, clashes: Sequence[Stretch], plan: Plan) -> Iterator[pa.Table]:
    emptied, left_alone = Intervals(plan.emptied), Intervals(plan.left_alone)

    def decided(clash: Stretch) -> list[tuple[Interval, bool]]:
        from_source = [(one, True) for one in emptied.clipped(clash.low, clash.high)]
        return sorted([*from_source, *((one, False) for one in left_alone.clipped(clash.low, clash.high))])

    for has_decided, some in groupby(clashes, lambda clash: bool(decided(clash))):
        if not has_decided:
            together = list(some)
            base = [row for clash in together for row in clash.base]
            source = [row for clash in together for row in clash.source]
            yield from map(from_diff, diff.diff(files, base, source))
            continue
        for clash in some:
            at: str | None = clash.low
            for (low, high), from_source in decided(clash):
                if at is not None and at < low:
                    yield from map(from_diff, diff.diff(files, clash.base, clash.source, at, low))
                if from_source:
                    yield from map(forced, diff.listed(files, clash.source, low, high))
                at = high
            if at is not None:
                yield from map(from_diff, diff.diff(files, clash.base, clash.source, at, None))


def _lost(files: TreeFiles, sides: Sides, low: str, high: str | None) -> list[pa.Table]:
    """What the destination has changed in a directory since the base, and the source has otherwise."""
    lost = []
    for changes in diff.diff(files, sides.base, sides.dest, low, high):
        first, last = changes["path"][0].as_py(), changes["path"][-1].as_py()
        tables = list(diff.listed(files, sides.source, first, last + "\0"))
        source = pa.concat_tables(tables) if tables else ENTRIES.empty_table()
        there = source.take(pc.index_in(changes["path"], value_set=source["path"].combine_chunks()))
        differs = pc.or_(
            pc.not_equal(pc.fill_null(there["size"], -1), pc.fill_null(changes["after_size"], -1)),
            pc.not_equal(pc.fill_null(there["checksum"], ""), pc.fill_null(changes["after_checksum"], "")),
        )
        lost.append(changes.filter(differs))
    return [table for table in lost if len(table)]


def _made_by(
    files: TreeFiles,
    changes: list[pa.Table],
    commits: Sequence[Commit],
    rows_of: BeforeAndAfter,
    low: str,
    high: str | None,
) -> list[pa.Table]:
    """Those of the changes that touch paths which these commits touched."""
    if not changes or not commits:
        return []
    touched = [
        table["path"].combine_chunks() for commit in commits for table in diff.diff(files, *rows_of(commit), low, high)
    ]
    if not touched:
        return []
    paths = pa.concat_arrays(touched)
    found = [table.filter(pc.is_in(table["path"], value_set=paths)) for table in changes]
    return [table for table in found if len(table)]


def _foreign(changes: pa.Table) -> Iterator[Conflict]:
    for change in changes_of(changes):
        yield Conflict(path=change.path, kind="foreign-write", base=change.before, dest=change.after)


def _side(row: dict[str, Any], prefix: str) -> Entry:
    table = pa.table([[row["path"]], *([row[prefix + name]] for name in ENTRIES.names[1:])], schema=ENTRIES)
    return next(entries_of(table))


def _base(row: dict[str, Any]) -> Entry:
    """Of the base, an edit knows the identity only."""
    return Entry(path=row["path"], address="", size=row["before_size"], checksum=row["before_checksum"])
