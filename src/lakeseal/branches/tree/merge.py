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

from lakeseal.branches.tree import diff
from lakeseal.branches.tree.editor import Editor
from lakeseal.branches.tree.edits import EditStream, Interval, Intervals, forced, from_diff, intervals_of, just_after
from lakeseal.branches.tree.tree import Row, TreeFiles
from lakeseal.branches.tree.writer import TreeWriter
from lakeseal.branches.values import (
    ENTRIES,
    Commit,
    ConflictKind,
    Counts,
    Entry,
    PathConflict,
    Strategy,
    changes_of,
    entries_of,
)

Rows = Sequence[Row]


class Span(Struct, frozen=True, kw_only=True, gc=False):
    """Keys from `low` up to, and without, `high`, and the rows that trees have there."""

    low: str
    high: str | None
    base: Rows
    source: Rows
    dest: Rows

    @property
    def has_nodes(self) -> bool:
        return any(row.node for row in (*self.base, *self.source, *self.dest))


class Joined(Struct, kw_only=True):
    rows: list[Row] = []
    """Of the destination, with what is taken from the source."""
    taken: list[Span] = []
    agreed: list[Span] = []
    """Both sides have done the same."""
    clashes: list[Span] = []
    """As on the destination in `rows`; the changes of the source have yet to be made."""

    def counts(self, files: TreeFiles, in_all: Counts | None) -> Counts:
        """What was added, changed and removed by what is taken, where `in_all` is that of the source as a whole."""
        others = [*self.agreed, *self.clashes]
        if in_all is None or _ranges(others) > _ranges(self.taken):
            return _counted(files, self.taken)
        added, changed, removed = _counted(files, others)
        return in_all[0] - added, in_all[1] - changed, in_all[2] - removed


def join(
    files: TreeFiles, base: Rows, source: Rows, dest: Rows, emptied: Iterable[Interval], left_alone: Iterable[Interval]
) -> Joined:
    """`emptied` shall be as on the source, and `left_alone` as on the destination, whatever was the base."""
    joined = Joined()
    whole = Span(low="", high=None, base=base, source=source, dest=dest)
    _join(joined, files, whole, Intervals(emptied), Intervals(left_alone))
    return joined


def _join(joined: Joined, files: TreeFiles, whole: Span, as_source: Intervals, as_dest: Intervals) -> None:
    for between, common in _parted(whole):
        for one in _at_cuts(between):
            base, source, dest = (_ids(rows) for rows in (one.base, one.source, one.dest))
            if source == base and (dest == base or not as_source.meeting(one.low, one.high)):
                joined.rows += one.dest
            elif dest == base and not as_dest.meeting(one.low, one.high):
                joined.rows += one.source
                joined.taken.append(one)
            elif source == dest:
                joined.rows += one.dest
                joined.agreed.append(one)
            elif one.has_nodes:
                _join(joined, files, _opened(files, one), as_source, as_dest)
            else:
                joined.rows += one.dest
                joined.clashes.append(one)
        if common is not None:
            joined.rows.append(common)


def _parted(whole: Span) -> Iterator[tuple[Span, Row | None]]:
    """The spans between rows that all have, each with the row that follows it."""
    common = _ids(whole.base) & _ids(whole.source) & _ids(whole.dest)
    sides = [_split(rows, common) for rows in (whole.base, whole.source, whole.dest)]
    between = [row for row in whole.dest if row.id in common]
    low = whole.low
    for base, source, dest, row in zip(*sides, [*between, None], strict=True):
        high = whole.high if row is None else row.first
        yield Span(low=low, high=high, base=base, source=source, dest=dest), row
        low = low if row is None else just_after(row.last)


def _at_cuts(whole: Span) -> Iterator[Span]:
    """Parted where all have a cut after the same key. The end of a tree is none: something may come to follow it."""
    trees = (whole.base, whole.source, whole.dest)
    if not any(trees):
        return
    cuts = set.intersection(*({row.last for row in rows[:-1]} for rows in trees))
    sides = [_split_after(rows, cuts) for rows in trees]
    low = whole.low
    for base, source, dest, cut in zip(*sides, [*sorted(cuts), None], strict=True):
        high = whole.high if cut is None else just_after(cut)
        yield Span(low=low, high=high, base=base, source=source, dest=dest)
        low = high or ""


def _split(rows: Rows, common: set[str]) -> list[list[Row]]:
    parts: list[list[Row]] = [[]]
    for row in rows:
        if row.id in common:
            parts.append([])
        else:
            parts[-1].append(row)
    return parts


def _split_after(rows: Rows, cuts: set[str]) -> list[list[Row]]:
    parts: list[list[Row]] = [[]]
    for row in rows:
        parts[-1].append(row)
        if row.last in cuts:
            parts.append([])
    return parts


def _opened(files: TreeFiles, one: Span) -> Span:
    """With ranges instead of nodes. A node that two trees have is opened too, and what is in it found equal."""
    base, source, dest = (tuple(files.expand(rows)) for rows in (one.base, one.source, one.dest))
    return Span(low=one.low, high=one.high, base=base, source=source, dest=dest)


def _ids(rows: Rows) -> set[str]:
    """Rows are in the order of their keys, so where the same ones are, they are in the same order."""
    return {row.id for row in rows}


def _ranges(spans: Sequence[Span]) -> int:
    return sum(row.ranges for one in spans for row in (*one.base, *one.source))


def _counted(files: TreeFiles, spans: Sequence[Span]) -> Counts:
    base = [row for one in spans for row in one.base]
    source = [row for one in spans for row in one.source]
    return diff.counted(diff.diff(files, base, source))


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


class TreeMergePlan(Struct, frozen=True, kw_only=True):
    emptied: tuple[Interval, ...] = ()
    """Become exactly as on the source."""
    left_alone: tuple[Interval, ...] = ()
    """Stay exactly as on the destination."""
    replaced: int = 0
    decided: int = 0
    conflicts: tuple[PathConflict, ...] = ()


def plan(files: TreeFiles, sides: Sides, rows_of: BeforeAndAfter, strategy: Strategy | None) -> TreeMergePlan:
    emptied = intervals_of(name for commit in sides.source_commits for name in commit.directories)
    if not emptied or not sides.dest_commits:
        return TreeMergePlan(emptied=emptied)
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
    return TreeMergePlan(
        emptied=tuple(kept),
        left_alone=tuple(left_alone),
        replaced=replaced,
        decided=decided,
        conflicts=tuple(conflicts),
    )


def merged(
    files: TreeFiles, writer: TreeWriter, sides: Sides, plan: TreeMergePlan, strategy: Strategy | None
) -> tuple[Iterator[Row], Editor]:
    """The rows of the merged tree, made as they are asked for, and the editor whose tally tells what it came to."""
    joined = join(files, sides.base, sides.source, sides.dest, plan.emptied, plan.left_alone)
    emptied = [one for clash in joined.clashes for one in Intervals(plan.emptied).clipped(clash.low, clash.high)]
    edits = EditStream(_edits(files, joined.clashes, plan), emptied)
    editor = Editor(files, writer, edits, strategy=strategy, only_looks=bool(plan.conflicts))
    if not editor.failed:
        editor.tally.add(joined.counts(files, sides.counts))
    return editor.run(tuple(joined.rows)), editor


def conflicts_of(tables: Iterable[pa.Table]) -> Iterator[PathConflict]:
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
            yield PathConflict(path=row["path"], kind=kind, base=base, source=source, dest=there)


def _edits(files: TreeFiles, clashes: Sequence[Span], plan: TreeMergePlan) -> Iterator[pa.Table]:
    emptied, left_alone = Intervals(plan.emptied), Intervals(plan.left_alone)

    def decided(clash: Span) -> list[tuple[Interval, bool]]:
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


def _foreign(changes: pa.Table) -> Iterator[PathConflict]:
    for change in changes_of(changes):
        yield PathConflict(path=change.path, kind="foreign-write", base=change.before, dest=change.after)


def _side(row: dict[str, Any], prefix: str) -> Entry:
    table = pa.table([[row["path"]], *([row[prefix + name]] for name in ENTRIES.names[1:])], schema=ENTRIES)
    return next(entries_of(table))


def _base(row: dict[str, Any]) -> Entry:
    """Of the base, an edit knows the identity only."""
    return Entry(path=row["path"], address="", size=row["before_size"], checksum=row["before_checksum"])
