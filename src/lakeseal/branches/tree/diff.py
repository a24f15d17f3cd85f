"""What differs between two trees, by (path, identity).

Nodes and ranges whose ids are equal are passed over unread: the cost is that of the change. Others are compared side by
side in the order of keys; memory holds some ranges of each tree. Results are tables with the schema `CHANGES`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakeseal.branches.tree import ranges
from lakeseal.branches.tree.tree import Row, TreeFiles
from lakeseal.branches.values import CHANGES, ENTRIES, Counts


def diff(
    files: TreeFiles, before: Sequence[Row], after: Sequence[Row], low: str = "", high: str | None = None
) -> Iterator[pa.Table]:
    """What has to change in `before` to make it `after`, for paths from `low` up to (and without) `high`."""
    old, new = differing(files, before, after, low, high)
    left, right = _Side(files, old), _Side(files, new)
    while left.more() or right.more():
        bound = min((side.covered for side in (left, right) if side.covered is not None), default=None)
        changes = compare(
            ranges.within(left.take(bound), low, high),
            ranges.within(right.take(bound), low, high),
        )
        if len(changes):
            yield changes


def differing(
    files: TreeFiles, before: Sequence[Row], after: Sequence[Row], low: str, high: str | None
) -> tuple[list[Row], list[Row]]:
    """The ranges of each tree that the other lacks and that could hold such paths."""
    old, new = _without_common(_between(before, low, high), _between(after, low, high))
    if any(row.node for row in (*old, *new)):
        old, new = _between(files.expand(old), low, high), _between(files.expand(new), low, high)
        old, new = _without_common(old, new)
    return old, new


def compare(before: pa.Table, after: pa.Table) -> pa.Table:
    """The changes between two tables of entries."""
    before, after = _trimmed(before, after)
    at = pc.index_in(before["path"], value_set=after["path"].combine_chunks())
    new = after.take(at)
    same = pc.and_(
        pc.equal(pc.fill_null(new["size"], -1), before["size"]),
        pc.equal(pc.fill_null(new["checksum"], ""), before["checksum"]),
    )
    differs = pc.invert(same)
    gone_or_changed = _changes(before.filter(differs), new.filter(differs))
    is_new = pc.invert(pc.is_in(after["path"], value_set=before["path"].combine_chunks()))
    added = after.filter(is_new)
    nothing = before.slice(0, 0).take(pa.nulls(len(added), pa.int64()))
    result = pa.concat_tables([gone_or_changed, _changes(nothing, added)])
    return result.take(pc.sort_indices(result["path"])) if len(added) and len(gone_or_changed) else result


def _trimmed(before: pa.Table, after: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Without what both have in common at the beginning and at the end: often nearly everything."""
    count = min(len(before), len(after))
    if not count:
        return before, after
    start = _first_difference(before.slice(0, count), after.slice(0, count))
    before, after, count = before.slice(start), after.slice(start), count - start
    if not count:
        return before, after
    tails = before.slice(len(before) - count), after.slice(len(after) - count)
    end = _equal_at_the_end(*tails)
    return before.slice(0, len(before) - end), after.slice(0, len(after) - end)


def _first_difference(before: pa.Table, after: pa.Table) -> int:
    at: int = pc.index(_equal(before, after), False).as_py()
    return len(before) if at < 0 else at


def _equal_at_the_end(before: pa.Table, after: pa.Table) -> int:
    differing = pc.indices_nonzero(pc.invert(_equal(before, after)))
    return len(before) - 1 - differing[-1].as_py() if len(differing) else len(before)


def _equal(before: pa.Table, after: pa.Table) -> pa.ChunkedArray:
    sizes = pc.equal(before["size"], after["size"])
    checksums = pc.equal(before["checksum"], after["checksum"])
    return pc.and_(pc.and_(sizes, checksums), pc.equal(before["path"], after["path"]))


def counted(changes: Iterable[pa.Table]) -> Counts:
    """How many files were added, changed and removed."""
    count: Counter[str] = Counter()
    for table in changes:
        count.update({row["values"]: row["counts"] for row in table["kind"].value_counts().to_pylist()})
    return count["added"], count["changed"], count["removed"]


def listed(files: TreeFiles, rows: Sequence[Row], low: str = "", high: str | None = None) -> Iterator[pa.Table]:
    """The entries of a tree with paths from `low` up to (and without) `high`."""
    found = (row for row in files.expand(_between(rows, low, high)) if _is_between(row, low, high))
    for _, table in files.tables(found):
        inside = ranges.within(table, low, high)
        if len(inside):
            yield inside


def lookup(files: TreeFiles, rows: Sequence[Row], path: str) -> pa.Table | None:
    """The entry at a path, as a table of one row."""
    for row in files.expand(row for row in rows if row.first <= path <= row.last):
        if row.first <= path <= row.last:
            table = files.entries(row)
            at = ranges.row_of(table["path"], path)
            if at is not None:
                return table.slice(at, 1)
    return None


class _Side:
    """One tree's ranges as a stream that is read as far as the other needs."""

    def __init__(self, files: TreeFiles, rows: Sequence[Row]) -> None:
        self._tables = files.tables(rows)
        self._last = ""
        self._held = ENTRIES.empty_table()

    def more(self) -> bool:
        if not len(self._held):
            found = next(self._tables, None)
            if found is not None:
                self._last, self._held = found[0].last, found[1]
        return len(self._held) > 0

    @property
    def covered(self) -> str | None:
        """Up to where everything is at hand; None if that is all there is."""
        return self._last if self.more() else None

    def take(self, bound: str | None) -> pa.Table:
        count = ranges.count_below(self._held["path"], bound, or_equal=True)
        taken, self._held = self._held.slice(0, count), self._held.slice(count)
        return taken


def _without_common(old: Sequence[Row], new: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    common = {row.id for row in old} & {row.id for row in new}
    return [row for row in old if row.id not in common], [row for row in new if row.id not in common]


def _between(rows: Iterable[Row], low: str, high: str | None) -> list[Row]:
    return [row for row in rows if _is_between(row, low, high)]


def _is_between(row: Row, low: str, high: str | None) -> bool:
    return row.last >= low and (high is None or row.first < high)


def _changes(before: pa.Table, after: pa.Table) -> pa.Table:
    """Rows side by side; a side that is not there is null, and its path too."""
    kind = pc.if_else(pc.is_null(before["path"]), "added", pc.if_else(pc.is_null(after["path"]), "removed", "changed"))
    columns = [pc.coalesce(before["path"], after["path"]), kind]
    columns += [side[name] for side in (before, after) for name in ENTRIES.names[1:]]
    return pa.table(columns, schema=CHANGES)
