"""Live files of a version, worked out when somebody asks for them.

A writer that only appends never does, so its commits cost the same however many files the table has. What recent
commits did waits beside the last table that was worked out, and a bounded number of them is then applied at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from lakeseal.log.files import (
    ADDS,
    REMOVES,
    adds_from_actions,
    append,
    concat,
    reconcile,
    removes_from_actions,
    without_keys,
)

_MAX_TAILS = 64
_MAX_WAITING_ROWS = 1000


class FileRows:
    """File actions on their way into columns, with their places in the log."""

    def __init__(self, to_table: Any, schema: pa.Schema) -> None:
        self._to_table, self._schema = to_table, schema
        self.actions: list[Any] = []
        self.unknown: dict[int, str] = {}
        self.places: list[int] = []
        self._tables: list[pa.Table] = []
        self._orders: list[np.ndarray] = []

    def flush(self) -> None:
        if self.actions:
            unknown = [self.unknown.get(n) for n in range(len(self.actions))] if self.unknown else None
            self._tables.append(self._to_table(self.actions, unknown))
            self._orders.append(np.array(self.places, dtype=np.int64))
            self.actions, self.unknown, self.places = [], {}, []

    def extend(self, other: FileRows, offset: int) -> None:
        self.unknown |= {len(self.actions) + n: text for n, text in other.unknown.items()}
        self.actions += other.actions
        self.places += [offset + place for place in other.places]

    def finish(self) -> tuple[pa.Table, np.ndarray]:
        self.flush()
        orders = np.concatenate(self._orders) if self._orders else np.empty(0, dtype=np.int64)
        return concat(self._tables, self._schema), orders

    @property
    def waiting(self) -> int | None:
        """How many actions there are, if none of them is in columns yet."""
        return None if self._tables else len(self.actions)


class Tail:
    """What some commits did to files, in their order."""

    def __init__(self) -> None:
        self.adds = FileRows(adds_from_actions, ADDS)
        self.removes = FileRows(removes_from_actions, REMOVES)
        self.lines = 0

    def flush(self) -> None:
        self.adds.flush()
        self.removes.flush()

    def can_wait(self) -> bool:
        adds, removes = self.adds.waiting, self.removes.waiting
        return adds is not None and removes is not None and adds + removes <= _MAX_WAITING_ROWS

    def extend(self, other: Tail) -> None:
        self.adds.extend(other.adds, self.lines)
        self.removes.extend(other.removes, self.lines)
        self.lines += other.lines

    def reconciled(self) -> tuple[pa.Table, pa.Table, pa.ChunkedArray]:
        return reconcile(*self.adds.finish(), *self.removes.finish())


class LiveFiles:
    """May be shared by threads: table and tails change together, or two threads work out the same."""

    def __init__(self, table: pa.Table, tails: tuple[Tail, ...] = ()) -> None:
        self._now = (table, tails)

    @property
    def table(self) -> pa.Table:
        table, tails = self._now
        if tails:
            together = Tail()
            for tail in tails:
                together.extend(tail)
            live, _, named = together.reconciled()
            table = append(without_keys(table, named), live, ADDS)
            self._now = (table, ())
        return table

    def after(self, tail: Tail) -> LiveFiles:
        if not tail.can_wait():
            live, _, named = tail.reconciled()
            return LiveFiles(append(without_keys(self.table, named), live, ADDS))
        table, tails = self._now
        if len(tails) >= _MAX_TAILS:
            return LiveFiles(self.table, (tail,))
        return LiveFiles(table, (*tails, tail))
