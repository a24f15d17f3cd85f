"""What a three-way merge can tell from the rows of trees alone, without reading an entry.

Three trees are laid side by side. Ranges that all of them have part their keys into *stretches*. Where the destination
is still as the base, a stretch becomes what the source has, by name; where the source is as the base, it stays. Only
the rest, which both have changed, is a *clash* and has to be looked at entry by entry. Large trees are compared by
their nodes first, so nodes that one side left alone are not opened either.

Ranges and nodes are cut by content, so rows that are put together in this way are those of a tree that was made in any
other way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from lakeseal.branches import diff
from lakeseal.branches.edits import Interval, Intervals, just_after
from lakeseal.branches.tree import Row, TreeFiles
from lakeseal.branches.values import Counts

Rows = Sequence[Row]


class Stretch(Struct, frozen=True, kw_only=True, gc=False):
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
    taken: list[Stretch] = []
    agreed: list[Stretch] = []
    """Both sides have done the same."""
    clashes: list[Stretch] = []
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
    whole = Stretch(low="", high=None, base=base, source=source, dest=dest)
    _join(joined, files, whole, Intervals(emptied), Intervals(left_alone))
    return joined


def _join(joined: Joined, files: TreeFiles, whole: Stretch, as_source: Intervals, as_dest: Intervals) -> None:
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


def _parted(whole: Stretch) -> Iterator[tuple[Stretch, Row | None]]:
    """The stretches between rows that all have, each with the row that follows it."""
    common = _ids(whole.base) & _ids(whole.source) & _ids(whole.dest)
    sides = [_split(rows, common) for rows in (whole.base, whole.source, whole.dest)]
    between = [row for row in whole.dest if row.id in common]
    low = whole.low
    for base, source, dest, row in zip(*sides, [*between, None], strict=True):
        high = whole.high if row is None else row.first
        yield Stretch(low=low, high=high, base=base, source=source, dest=dest), row
        low = low if row is None else just_after(row.last)


def _at_cuts(whole: Stretch) -> Iterator[Stretch]:
    """Parted where all have a cut after the same key. The end of a tree is none: something may come to follow it."""
    trees = (whole.base, whole.source, whole.dest)
    if not any(trees):
        return
    cuts = set.intersection(*({row.last for row in rows[:-1]} for rows in trees))
    sides = [_split_after(rows, cuts) for rows in trees]
    low = whole.low
    for base, source, dest, cut in zip(*sides, [*sorted(cuts), None], strict=True):
        high = whole.high if cut is None else just_after(cut)
        yield Stretch(low=low, high=high, base=base, source=source, dest=dest)
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


def _opened(files: TreeFiles, one: Stretch) -> Stretch:
    """With ranges instead of nodes. A node that two trees have is opened too, and what is in it found equal."""
    base, source, dest = (tuple(files.expand(rows)) for rows in (one.base, one.source, one.dest))
    return Stretch(low=one.low, high=one.high, base=base, source=source, dest=dest)


def _ids(rows: Rows) -> set[str]:
    """Rows are in the order of their keys, so where the same ones are, they are in the same order."""
    return {row.id for row in rows}


def _ranges(stretches: Sequence[Stretch]) -> int:
    return sum(row.ranges for one in stretches for row in (*one.base, *one.source))


def _counted(files: TreeFiles, stretches: Sequence[Stretch]) -> Counts:
    base = [row for one in stretches for row in one.base]
    source = [row for one in stretches for row in one.source]
    return diff.counted(diff.diff(files, base, source))
