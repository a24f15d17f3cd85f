"""Edits: what is to become of paths, as a sorted stream of tables.

An edit either holds whatever is there (`force`), or brings a change from `before` to `after` that fits only where the
tree has what was `before`; anything else is a conflict. An `after` of null removes the path. Beside the stream there
are directories to empty first.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from lakeseal.branches.paths import check_addresses, check_path, check_paths, directory, end_of, outermost, text_array
from lakeseal.branches.tree import ranges
from lakeseal.branches.values import ENTRIES, Changes, entry_table
from lakeseal.errors import InvalidArgument, InvalidPath

EDITS = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("force", pa.bool_(), nullable=False),
        pa.field("before_size", pa.int64()),
        pa.field("before_checksum", pa.string()),
        pa.field("address", pa.string()),
        pa.field("size", pa.int64()),
        pa.field("checksum", pa.string()),
        pa.field("metadata", pa.string()),
    ]
)

_LOOKED_AT = 10_000

Interval = tuple[str, str | None]
"""From a key up to, and without, another; None is the end of all."""


def just_after(key: str) -> str:
    """The next key there could be."""
    return key + "\0"


def intervals_of(directories: Iterable[str]) -> tuple[Interval, ...]:
    """Of directories, sorted and apart from each other."""
    return tuple((prefix, end_of(prefix)) for prefix in outermost(directory(name) for name in directories))


class Intervals:
    """Sorted, and apart from each other."""

    def __init__(self, intervals: Iterable[Interval]) -> None:
        self._all = tuple(intervals)
        self._lows = [low for low, _ in self._all]

    def meeting(self, low: str, high: str | None) -> tuple[Interval, ...]:
        """Those that have keys from `low` up to, and without, `high`."""
        start = bisect_right(self._lows, low) - 1
        if start < 0 or not _reaches_beyond(self._all[start], low):
            start += 1
        return self._all[start : len(self._all) if high is None else bisect_left(self._lows, high)]

    def clipped(self, low: str, high: str | None) -> list[Interval]:
        """What of them is from `low` up to, and without, `high`."""
        ends = [end for end in (high,) if end is not None]
        return [
            (max(first, low), min([*ends, *([] if last is None else [last])], default=None))
            for first, last in self.meeting(low, high)
        ]


class EditStream:
    """Tables of edits, whose paths ascend from table to table, and directories to empty before."""

    def __init__(self, tables: Iterable[pa.Table], emptied: Sequence[Interval] = ()) -> None:
        self._tables: Iterator[pa.Table] = iter(tables)
        self._head: pa.Table | None = None
        self._next = ""
        """The head's first path, which every range of a tree is compared with."""
        self._emptied = Intervals(emptied)

    def reaches(self, first: str, last: str, upper: str | None) -> bool:
        """Whether a range from `first` to `last` is touched, if everything up to `upper` belongs to it."""
        return self._next_is_at_most(upper) or bool(self.emptied_between(first, last))

    def swallows(self, first: str, last: str, upper: str | None) -> bool:
        """Whether all of a range goes, and nothing comes instead."""
        found = self.emptied_between(first, last)
        if len(found) != 1 or self._next_is_at_most(upper):
            return False
        low, high = found[0]
        return low <= first and (high is None or last < high)

    def emptied_between(self, first: str, last: str) -> tuple[Interval, ...]:
        """The emptied directories that could hold paths from `first` to `last`."""
        return self._emptied.meeting(first, just_after(last))

    def take(self, upper: str | None) -> pa.Table:
        """The edits up to a path (all, if None), which leave the stream."""
        taken = []
        while (head := self._peek()) is not None:
            count = ranges.count_below(head["path"], upper, or_equal=True)
            if count:
                taken.append(head.slice(0, count))
            self._set(head.slice(count) if count < len(head) else None)
            if self._head is not None:
                break
        return pa.concat_tables(taken).combine_chunks() if taken else EDITS.empty_table()

    def known_touched(self, lasts: Sequence[str]) -> list[int]:
        """Of ranges that follow each other up to these paths, those that the next edits at hand fall into. What comes
        after all of them falls into the last."""
        head = self._peek()
        if head is None or not lasts:
            return []
        paths = head["path"].slice(0, _LOOKED_AT).to_pylist()
        return sorted({min(bisect_left(lasts, path), len(lasts) - 1) for path in paths})

    def _next_is_at_most(self, upper: str | None) -> bool:
        return self._peek() is not None and (upper is None or self._next <= upper)

    def _peek(self) -> pa.Table | None:
        while self._head is None:
            table = next(self._tables, None)
            if table is None:
                return None
            self._set(table)
        return self._head

    def _set(self, head: pa.Table | None) -> None:
        self._head = head if head is not None and len(head) else None
        if self._head is not None:
            self._next = self._head["path"][0].as_py()


class Prepared(Struct, frozen=True, kw_only=True):
    """What a commit does, checked and sorted; a stream of it may be made as often as needed."""

    table: pa.Table
    emptied: tuple[Interval, ...] = ()

    def stream(self) -> EditStream:
        return EditStream([self.table], self.emptied)


def prepared(changes: Changes) -> Prepared:
    puts = _checked_puts(changes.puts)
    for path in changes.deletes:
        check_path(path)
    table = forced(puts)
    if changes.deletes:
        deletes = text_array(changes.deletes).unique()
        deletes = pc.filter(deletes, pc.invert(pc.is_in(deletes, value_set=_array(puts["path"]))))
        table = pa.concat_tables([table, removals(deletes)])
        table = table.take(pc.sort_indices(table["path"]))
    return Prepared(table=table, emptied=intervals_of(changes.directories))


def forced(entries: pa.Table) -> pa.Table:
    """Entries that shall be there, whatever is there now."""
    count = len(entries)
    columns = {
        "path": entries["path"],
        "force": pa.repeat(True, count),
        "before_size": pa.nulls(count, pa.int64()),
        "before_checksum": pa.nulls(count, pa.string()),
        **{name: entries[name] for name in ENTRIES.names[1:]},
    }
    return pa.table([columns[name] for name in EDITS.names], schema=EDITS)


def removals(paths: pa.Array) -> pa.Table:
    columns = {field.name: pa.nulls(len(paths), field.type) for field in EDITS}
    columns |= {"path": paths, "force": pa.repeat(True, len(paths))}
    return pa.table([columns[name] for name in EDITS.names], schema=EDITS)


def from_diff(changes: pa.Table) -> pa.Table:
    """Edits that bring the changes of a diff, where they fit."""
    columns = {
        "path": changes["path"],
        "force": pa.repeat(False, len(changes)),
        "before_size": changes["before_size"],
        "before_checksum": changes["before_checksum"],
        **{name: changes[f"after_{name}"] for name in ENTRIES.names[1:]},
    }
    return pa.table([columns[name] for name in EDITS.names], schema=EDITS)


def reversed_diff(changes: pa.Table) -> pa.Table:
    """The diff the other way round, for `from_diff`; its column `kind` is not kept up."""
    names = [
        name.replace("before_", "?").replace("after_", "before_").replace("?", "after_")
        for name in changes.column_names
    ]
    return changes.rename_columns(names)


def _checked_puts(puts: object) -> pa.Table:
    if isinstance(puts, pa.Table):
        if puts.schema.names != ENTRIES.names:
            raise InvalidArgument("a table of entries has the columns " + ", ".join(ENTRIES.names))
        try:
            table = puts.cast(ENTRIES)
        except (pa.ArrowException, ValueError) as error:
            raise InvalidArgument(f"this is no table of entries: {error}") from error
    else:
        try:
            table = entry_table(puts)  # type: ignore[arg-type]
        except (UnicodeError, pa.ArrowException, OverflowError, TypeError) as error:
            raise InvalidPath(f"an entry can't be stored: {error}") from error
    if not len(table):
        return table
    check_paths(table["path"])
    check_addresses(table["address"])
    for name in ENTRIES.names[:4]:
        if table[name].null_count:
            raise InvalidArgument(f"an entry has no {name}")
    if pc.min(table["size"]).as_py() < 0:
        raise InvalidArgument("an entry has a negative size")
    if pc.min(pc.binary_length(table["checksum"])).as_py() == 0:
        raise InvalidArgument("an entry has no checksum", hint="Without one, different files would count as the same")
    table = ranges.sorted_by_path(table)
    paths = _array(table["path"])
    twice = pc.filter(paths[1:], pc.equal(paths[1:], paths[:-1]))
    if len(twice):
        raise InvalidArgument("a path is put twice in one commit", file=twice[0].as_py())
    return _without_empty_metadata(table)


def _without_empty_metadata(table: pa.Table) -> pa.Table:
    empty = pc.is_in(table["metadata"], value_set=pa.array(["", "{}"]))
    if not pc.any(empty).as_py():
        return table
    cleared = pc.if_else(empty, pa.scalar(None, pa.string()), table["metadata"])
    return table.set_column(ENTRIES.get_field_index("metadata"), ENTRIES.field("metadata"), cleared)


def _array(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks()


def _reaches_beyond(interval: Interval, key: str) -> bool:
    return interval[1] is None or interval[1] > key
