"""Making a new tree out of an old one and a stream of edits.

One pass over the tree in the order of keys. Ranges and nodes that no edit touches are neither read nor written: they
are carried over by name. Ranges that are touched are read, changed in Arrow, many as one table, and cut anew, each with
its followers until a cut falls where one was before. Memory holds some ranges, and the edits at hand.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from lakeseal.branches.tree import ranges
from lakeseal.branches.tree.edits import EditStream
from lakeseal.branches.tree.ranges import RangeCutter
from lakeseal.branches.tree.tree import Row, Rows, TreeFiles
from lakeseal.branches.tree.writer import TreeWriter
from lakeseal.branches.values import ENTRIES, Counts, Strategy

_STEPS_AT_ONCE = 1_000


class Tally(Struct, kw_only=True):
    """What an edit came to, added up as it goes."""

    added: int = 0
    changed: int = 0
    removed: int = 0
    decided: int = 0
    """Conflicts that the strategy decided."""
    conflicts: list[pa.Table] = []
    """Edits that do not fit, with the columns `there_…` of what is there instead."""

    @property
    def counts(self) -> Counts:
        return self.added, self.changed, self.removed

    def add(self, counts: Counts) -> None:
        self.added += counts[0]
        self.changed += counts[1]
        self.removed += counts[2]


class _Step(Struct, frozen=True, kw_only=True, gc=False):
    """A row of the old tree, with what falls into it up to a path; without edits it is left alone."""

    row: Row
    upper: str | None = None
    edits: pa.Table | None = None


class Editor:
    """For one pass; not to be used again."""

    few: ClassVar[int] = 50
    """Edits are few where a range has so many rows for each."""

    def __init__(
        self,
        files: TreeFiles,
        writer: TreeWriter,
        edits: EditStream,
        *,
        strategy: Strategy | None = None,
        only_looks: bool = False,
    ) -> None:
        """`only_looks` for conflicts: the tree can't be used anyway, and nothing is written."""
        self._files = files
        self._writer = writer
        self._edits = edits
        self._strategy = strategy
        self._cutter = RangeCutter(files.shape)
        self._only_looks = only_looks
        self.tally = Tally()

    @property
    def failed(self) -> bool:
        return self._only_looks or bool(self.tally.conflicts)

    def run(self, rows: Rows) -> Iterator[Row]:
        """The ranges and nodes of the new tree. After a conflict nothing more is written: it can't be used."""
        if rows:
            self._open_nodes(rows)
            for steps in self._together(self._steps(rows, None)):
                yield from self._done(steps)
        else:
            after, ends = self._combined(ENTRIES.empty_table(), self._edits.take(None), [])
            yield from self._cut(after, _places(after, ends))
        yield from self._written(self._cutter.flush())

    def _open_nodes(self, rows: Rows) -> None:
        """Reads those that the next edits fall into, many at once."""
        touched = self._edits.known_touched([row.last for row in rows]) if any(row.node for row in rows) else ()
        for _ in self._files.expand(rows[number] for number in touched):
            pass

    def _steps(self, rows: Sequence[Row], upper_of_last: str | None) -> Iterator[_Step]:
        for row, upper in zip(rows, [*(row.last for row in rows[:-1]), upper_of_last], strict=True):
            if not self._edits.reaches(row.first, row.last, upper):
                yield _Step(row=row)
            elif self._edits.swallows(row.first, row.last, upper):
                self.tally.removed += row.entries
            elif row.node:
                yield from self._steps(tuple(self._files.expand([row])), upper)
            else:
                yield _Step(row=row, upper=upper, edits=self._edits.take(upper))

    def _together(self, steps: Iterator[_Step]) -> Iterator[list[_Step]]:
        held: list[_Step] = []
        count = 0
        for step in steps:
            held.append(step)
            count += 0 if step.edits is None else step.row.entries + len(step.edits)
            if count >= self._files.at_once or len(held) >= _STEPS_AT_ONCE:
                yield held
                held, count = [], 0
        if held:
            yield held

    def _done(self, steps: Sequence[_Step]) -> Iterator[Row]:
        """All ranges that are touched are changed as one table, and then cut one by one."""
        touched = [step for step in steps if step.edits is not None]
        after, ends = ENTRIES.empty_table(), list[str]()
        if touched:
            there = pa.concat_tables(self._files.fetch([step.row for step in touched])).combine_chunks()
            edits = pa.concat_tables([step.edits for step in touched]).combine_chunks()
            after, ends = self._combined(there, edits, [step.row.last for step in touched])
        cuts, start = _places(after, ends), 0
        for step in steps:
            if step.edits is None:
                yield from self._kept(step.row)
            else:
                stop = ranges.count_below(after["path"], step.upper, or_equal=True)
                inside = cuts[bisect_left(cuts, start) : bisect_left(cuts, stop)]
                yield from self._cut(after.slice(start, stop - start), [cut - start for cut in inside])
                start = stop

    def _kept(self, row: Row) -> Iterator[Row]:
        if self._cutter.is_fresh:
            yield row
        elif row.node:
            for inner in self._files.expand([row]):
                yield from self._kept(inner)
        else:
            entries = self._files.entries(row)
            yield from self._cut(entries, _places(entries, ranges.cut_paths([row.last], self._files.shape)))

    def _cut(self, entries: pa.Table, cuts: Sequence[int]) -> Iterator[Row]:
        if len(entries):
            yield from self._written(self._cutter.feed(entries, cuts))

    def _written(self, pieces: Iterator[pa.Table]) -> Iterator[Row]:
        for piece in pieces:
            if not self.failed:
                yield self._writer.put_range(piece)

    def _combined(self, there: pa.Table, edits: pa.Table, lasts: Sequence[str]) -> tuple[pa.Table, list[str]]:
        """The entries of ranges after the edits, and the paths that end ranges."""
        shape = self._files.shape
        # Only the last path of a range can be one that cuts, or the range would have ended before.
        ends = ranges.cut_paths(lasts, shape)
        kept = self._outside(there)
        if not len(edits):
            after = kept
        elif kept is there and len(edits) * self.few < len(there):
            return self._spliced(there, edits), [*ends, *ranges.cut_paths(edits["path"].to_pylist(), shape)]
        else:
            fits = self._fits(there.take(pc.index_in(edits["path"], value_set=_one(there["path"]))), edits)
            edits = edits.filter(fits) if not pc.all(fits).as_py() else edits
            ends += ranges.cut_paths(edits["path"].to_pylist(), shape)
            kept = kept.filter(pc.invert(pc.is_in(kept["path"], value_set=_one(edits["path"]))))
            after = puts = _puts(edits)
            if len(kept):
                after = ranges.sorted_by_path(pa.concat_tables([kept, puts])) if len(puts) else kept
        self._count(there, after)
        return after, ends

    def _spliced(self, there: pa.Table, edits: pa.Table) -> pa.Table:
        """The same for few edits in a long range, which is copied in pieces."""
        paths = there["path"]
        places = ranges.counts_below(paths, edits["path"].to_pylist())
        inside = pa.array([place if place < len(there) else None for place in places], pa.int64())
        found = pc.equal(pc.fill_null(paths.take(inside), ""), edits["path"])
        old = there.take(pc.if_else(found, inside, None))
        fits = self._fits(old, edits)
        is_put = pc.is_valid(edits["address"])
        done, before = edits.filter(fits), old.filter(fits)
        puts = _puts(done)
        self._count(before.filter(pc.is_valid(before["path"])), puts)
        pieces, start, first, number = [], 0, 0, 0
        # Puts that come to one place are one piece.
        for place, is_there, fit, put in zip(
            places, found.to_pylist(), fits.to_pylist(), is_put.to_pylist(), strict=True
        ):
            if fit:
                if place > start:
                    pieces += [puts.slice(first, number - first), there.slice(start, place - start)]
                    first = number
                start = place + is_there
                number += put
        return pa.concat_tables([*pieces, puts.slice(first), there.slice(start)]).combine_chunks()

    def _outside(self, there: pa.Table) -> pa.Table:
        """Without what lies in directories that are emptied."""
        if not len(there):
            return there
        pieces, start = [], 0
        for low, high in self._edits.emptied_between(there["path"][0].as_py(), there["path"][-1].as_py()):
            stop = ranges.count_below(there["path"], low)
            pieces.append(there.slice(start, stop - start))
            start = ranges.count_below(there["path"], high)
        return pa.concat_tables([*pieces, there.slice(start)]) if pieces else there

    def _fits(self, there: pa.Table, edits: pa.Table) -> pa.Array:
        """Which edits shall be done, where `there` has what is at their paths; those that do not fit are noted, or
        decided by the strategy."""
        force = edits["force"]
        if pc.all(force).as_py():
            return force
        as_before = _same(there["size"], there["checksum"], edits["before_size"], edits["before_checksum"])
        as_after = _same(there["size"], there["checksum"], edits["size"], edits["checksum"])
        clash = pc.invert(pc.or_(force, pc.or_(as_before, as_after)))
        clashes = pc.sum(clash).as_py() or 0
        if clashes and self._strategy is None:
            wrong, found = edits.filter(clash), there.filter(clash)
            for name in ENTRIES.names[1:]:
                wrong = wrong.append_column(f"there_{name}", found[name])
            self.tally.conflicts = [*self.tally.conflicts, wrong]
        self.tally.decided += clashes
        wanted = pc.invert(as_after) if self._strategy == "source-wins" else pc.and_not(as_before, as_after)
        return pc.or_(force, wanted)

    def _count(self, before: pa.Table, after: pa.Table) -> None:
        at = pc.index_in(after["path"], value_set=_one(before["path"]))
        old = before.select(["size", "checksum"]).take(at)
        common = len(at) - at.null_count
        equal = _same(old["size"], old["checksum"], after["size"], after["checksum"])
        self.tally.added += len(after) - common
        self.tally.removed += len(before) - common
        self.tally.changed += common - (pc.sum(equal).as_py() or 0)


def _places(entries: pa.Table, paths: Sequence[str]) -> list[int]:
    """Where these paths are among entries, for those that are."""
    found = {ranges.row_of(entries["path"], path) for path in paths}
    return sorted(place for place in found if place is not None)


def _same(size: pa.Array, checksum: pa.Array, other_size: pa.Array, other_checksum: pa.Array) -> pa.Array:
    """Whether identities are equal; two that are not there are."""
    return pc.and_(
        pc.equal(pc.fill_null(size, -1), pc.fill_null(other_size, -1)),
        pc.equal(pc.fill_null(checksum, ""), pc.fill_null(other_checksum, "")),
    )


def _puts(edits: pa.Table) -> pa.Table:
    there = edits.filter(pc.is_valid(edits["address"])) if edits["address"].null_count else edits
    return there.select(ENTRIES.names).cast(ENTRIES)


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks()
