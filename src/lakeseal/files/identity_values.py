"""Values for identity columns, given out in the task that writes the rows.

Tasks of a job know nothing of each other, so each has a lane of its own: of `lanes` neighbours it takes one, the same
in every round. A job has at most as many tasks as there are lanes. Rows that bring a value keep it.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from lakeseal.errors import EvaluationError, InvalidArgument

LANES = 1024


class IdentityRange(Struct, frozen=True, kw_only=True):
    """Where a job begins in a column."""

    name: str
    first: int
    step: int


class IdentityValues:
    def __init__(self, ranges: tuple[IdentityRange, ...], *, lanes: int, lane: int) -> None:
        if ranges and lane >= lanes:
            raise InvalidArgument(
                f"A table with identity columns is written by at most {lanes} tasks at once",
                column=ranges[0].name,
                hint=f"Write df.coalesce({lanes})",
            )
        self._ranges = ranges
        self._lanes = lanes
        self._lane = lane
        self._given = dict.fromkeys((one.name for one in ranges), 0)

    @property
    def last(self) -> dict[str, int]:
        """What each column was given last; nothing of those that were given nothing."""
        return {one.name: self._value(one, self._given[one.name] - 1) for one in self._ranges if self._given[one.name]}

    def fill(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        for one in self._ranges:
            place = rows.schema.get_field_index(one.name)
            column = rows.column(place)
            if not column.null_count:
                continue
            start = self._given[one.name]
            last = self._value(one, start + column.null_count - 1)
            if not -(2**63) <= last < 2**63:
                raise EvaluationError(
                    "The identity column has no values left",
                    column=one.name,
                    hint="Write to a new table whose column starts afresh",
                )
            numbers = np.arange(start, start + column.null_count, dtype=np.int64)
            values = one.first + one.step * (numbers * self._lanes + self._lane)
            self._given[one.name] = start + column.null_count
            filled = pc.replace_with_mask(column, column.is_null(), pa.array(values, pa.int64()))
            rows = rows.set_column(place, rows.schema.field(place), filled)
        return rows

    def _value(self, one: IdentityRange, number: int) -> int:
        return one.first + one.step * (number * self._lanes + self._lane)
