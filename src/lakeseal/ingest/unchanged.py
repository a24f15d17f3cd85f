"""Values that an update leaves out because they stay as they are: found again, never made null.

PostgreSQL does not send a large value that an update did not touch, and Debezium puts a placeholder in its place. Rows
of changes that wait to be merged say so in a column of their own, `UNCHANGED`. A value that is left out is that which
the row had before: of an earlier change of this run, also under another key if the key has changed since, or else of
the target. Only the last row of a key is filled in, as only that is merged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct

from lakeseal.errors import InvalidInput, SourceChanged
from lakeseal.ingest.row_changes import ARRIVAL, TRUNCATE, ChangeRule, Key
from lakeseal.protocol.feed_columns import CHANGE_TYPE

UNCHANGED = "__lakeseal_unchanged"
_HINT = "ALTER TABLE … REPLICA IDENTITY FULL in the database, then load the table again"

InTarget = Callable[[Sequence[str], pa.Table], pa.Table]
"""These columns of the target, keys first, for rows that have one of these keys."""


def told(rows: Iterable[tuple[str, ...]]) -> pa.Array | None:
    """The column for rows that leave these columns out; None if none of them leaves anything out."""
    texts = [msgspec.json.encode(one).decode() if one else None for one in rows]
    return pa.array(texts, pa.string()) if any(texts) else None


def columns_of(unchanged: pa.Array) -> set[str]:
    """All that rows of a chunk leave out."""
    return {name for text in unchanged.drop_null().unique().to_pylist() for name in _read(text)}


def refused(columns: Iterable[str], why: str) -> SourceChanged:
    name = min(columns)
    return SourceChanged(
        f"An update leaves out the large value of {name!r}, as it stays; {why}", column=name, hint=_HINT
    )


def filled(rows: pa.Table, rule: ChangeRule, in_target: InTarget) -> pa.Table:
    """Rows as they would be if nothing had been left out, and without `UNCHANGED`."""
    if UNCHANGED not in rows.column_names:
        return rows
    unchanged = rows[UNCHANGED].combine_chunks()
    rows = rows.drop_columns([UNCHANGED]).combine_chunks()
    if unchanged.null_count == len(unchanged):
        return rows
    check(unchanged, rule)
    chains = _Chains(rows, rule, unchanged)
    wanted = chains.from_target()
    known = _Known(rows, rule, wanted, in_target)
    for name in columns_of(unchanged):
        places = np.arange(rows.num_rows)
        for at, source in chains.places(name):
            places[at] = source
        for one in (one for one in wanted if name in one.columns):
            places[one.at] = rows.num_rows + known.place(one, name)
        rows = known.with_column(rows, name, places)
    return rows


def check(unchanged: pa.Array, rule: ChangeRule) -> None:
    """Raises where the target need not have what the source had before."""
    if rule.sequence_by is not None and unchanged.null_count < len(unchanged):
        why = f"by {rule.sequence_by}, the table may have another row than the source had"
        raise refused(columns_of(unchanged), why)


_Last = tuple[int | None, Key]
"""The last change of a row in the run, if there is one; and the key that the row has in the target."""


class _Wanted(Struct, frozen=True):
    """A row of which the target has the rest."""

    at: int
    columns: frozenset[str]
    key: Key
    """That the row has in the target."""


class _Chains:
    """Which change each value of the last row of each key is from."""

    def __init__(self, rows: pa.Table, rule: ChangeRule, unchanged: pa.Array) -> None:
        self._places: dict[int, dict[str, int | None]] = {}
        """Of rows that leave something out: where each value is; None: in the target."""
        self._now: dict[Key, _Last] = {}
        """By key, the last change of the row that has it."""
        self._said = [None if text is None else _read(text) for text in unchanged.to_pylist()]
        keys = _keys(rows, rule)
        kinds = rows[CHANGE_TYPE].to_pylist()
        before: _Last | None = None
        for at in np.argsort(rows[ARRIVAL].to_numpy(), kind="stable").tolist():
            key = keys[at]
            match kinds[at]:
                case "update_preimage":
                    before = self._now.pop(key, (None, key))
                    continue
                case "delete":
                    self._now.pop(key, None)
                case kind if kind == TRUNCATE:
                    self._now.clear()
                case "insert" if self._said[at] is not None:
                    raise refused(self._said[at], f"and the row {key} is new under its key")
                case _:
                    self._follow(at, key, before or self._now.get(key, (None, key)))
            before = None

    def _follow(self, at: int, key: Key, before: _Last) -> None:
        earlier, in_target = before
        said = self._said[at]
        if said is not None:
            known = {} if earlier is None else self._places.get(earlier, {})
            self._places[at] = {name: known.get(name, earlier) for name in said}
        self._now[key] = (at, in_target)

    def places(self, name: str) -> Iterable[tuple[int, int]]:
        """Rows, and the rows that have their value."""
        for at, places in self._places.items():
            found = places.get(name)
            if found is not None:
                yield at, found

    def from_target(self) -> list[_Wanted]:
        found = []
        for at, key in self._now.values():
            if at is None or at not in self._places:
                continue
            left = frozenset(name for name, place in self._places[at].items() if place is None)
            if left:
                found.append(_Wanted(at, left, key))
        return found


class _Known:
    """What the target has of rows that are wanted."""

    def __init__(self, rows: pa.Table, rule: ChangeRule, wanted: Sequence[_Wanted], in_target: InTarget) -> None:
        names = sorted({name for one in wanted for name in one.columns})
        asked = [one.key for one in wanted]
        kinds = [rows.schema.field(name) for name in rule.keys]
        table = pa.table(
            [pa.array([key[n] for key in asked], field.type) for n, field in enumerate(kinds)], names=list(rule.keys)
        )
        schema = pa.schema([*kinds, *(rows.schema.field(name) for name in names)])
        if asked:
            found = in_target([*rule.keys, *names], table)
            self._rows = pa.table(
                [column.cast(field.type) for column, field in zip(found.columns, schema, strict=True)], schema=schema
            )
        else:
            self._rows = schema.empty_table()
        self._at = {key: n for n, key in enumerate(_keys(self._rows, rule))}

    def place(self, one: _Wanted, name: str) -> int:
        if one.key not in self._at:
            raise refused([name], f"and neither the run nor the target has the row {one.key}")
        return self._at[one.key]

    def with_column(self, rows: pa.Table, name: str, places: np.ndarray) -> pa.Table:
        values = [rows[name]]
        if name in self._rows.column_names:
            values.append(self._rows[name])
        chunks = [chunk for column in values for chunk in column.chunks]
        every = pa.chunked_array(chunks, rows.schema.field(name).type)
        at = rows.column_names.index(name)
        return rows.set_column(at, rows.schema.field(name), every.take(pa.array(places)))


def _keys(rows: pa.Table, rule: ChangeRule) -> list[Key]:
    return list(zip(*(rows[name].to_pylist() for name in rule.keys), strict=True))


def _read(text: str) -> tuple[str, ...]:
    try:
        return msgspec.json.decode(text, type=tuple[str, ...])
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"The column {UNCHANGED} of a waiting row is malformed: {error}") from error
