"""Dates and moments of files that count them by the calendar of before: Julian up to 4 October 1582.

Spark 2 wrote such files, and later ones do if a session asks for it; they say so in their footers. Spark reads them as
the date and the time of day that a calendar on the wall showed, and so does `OldCalendar`: a day that the Gregorian
calendar does not have, 29 February 1500, is the day after the one before it. From 1900 on nothing changes.

Moments also depend on a zone, whose offset was another one before there was standard time: what wrote such files took
today's standard offset for it. Files tell their zone since Spark 3; where they do not, it is UTC.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
from msgspec import Struct

from lakeseal.errors import BrokenDataFile
from lakeseal.protocol.nested import children, list_like, map_like, struct_like
from lakeseal.protocol.text_values import zone_offset

SPARK_VERSION = b"org.apache.spark.version"
_DATES = b"org.apache.spark.legacyDateTime"
_INT96 = b"org.apache.spark.legacyINT96"
_ZONE = b"org.apache.spark.timeZone"
_VERSION = re.compile(rb"(\d+)\.(\d+)")

_DAY = 86_400_000_000
_FIRST_GREGORIAN_DAY = -141_427
_1900_DAY = -25_567
_1900 = _1900_DAY * _DAY
_YEAR_1 = -719_162 * _DAY
_2030 = (21_915 * _DAY, 22_096 * _DAY)
# Days from 1 March of year 0 to 1970, by each of the two.
_JULIAN_START, _GREGORIAN_START = 719_470, 719_468


class OldCalendar(Struct, frozen=True, kw_only=True):
    """What of a file counts by it."""

    dates: bool
    moments: bool
    zone: str = "UTC"

    @classmethod
    def of(cls, notes: Mapping[bytes, bytes] | None, *, has_int96: bool) -> OldCalendar | None:
        """By the notes in a file's footer; None for nearly all files."""
        version = (notes or {}).get(SPARK_VERSION)
        if notes is None or version is None:
            return None
        found = _VERSION.match(version)
        number = (0, 0) if found is None else (int(found[1]), int(found[2]))
        dates = number < (3, 0) or _DATES in notes
        moments = number < (3, 1) or _INT96 in notes if has_int96 else dates
        if not dates and not moments:
            return None
        return cls(dates=dates, moments=moments, zone=notes.get(_ZONE, b"UTC").decode(errors="replace"))

    def read(self, array: pa.Array) -> pa.Array:
        """The array with dates and zoned moments, at any depth, as they were meant."""
        kind = array.type
        if not _has_any(kind):
            return array
        if pa.types.is_struct(kind):
            return struct_like(array, [self.read(child) for child in children(array)], kind)
        if pa.types.is_map(kind):
            return map_like(array, self.read(array.keys), self.read(array.items), kind)
        if pa.types.is_list(kind):
            return list_like(array, self.read(array.values), kind)
        if pa.types.is_date(kind):
            return _changed(array, pa.int32(), _days) if self.dates else array
        return _changed(array, pa.int64(), self._micros) if self.moments else array

    def _micros(self, micros: np.ndarray) -> np.ndarray:
        if self.zone == "UTC":
            return _local(micros)
        changed = micros.copy()
        early = np.flatnonzero(micros < _1900)
        if len(early):
            # Of today, in winter: what was taken for all that was before the zone's first rule.
            standard = min(self._offset(at) for at in _2030)
            local = _local(micros[early] + standard)
            # Before the year 1 clocks went as in it.
            changed[early] = [value - self._offset(max(value, _YEAR_1)) for value in local.tolist()]
        return changed

    def _offset(self, local: int) -> int:
        offset = zone_offset(self.zone, local)
        if offset is None:
            raise BrokenDataFile(f"The file says that its times are of the zone {self.zone!r}, which is none")
        return offset


def _changed(array: pa.Array, numbers: pa.DataType, change: Callable[[np.ndarray], np.ndarray]) -> pa.Array:
    counted = array.cast(numbers)
    values = counted.fill_null(0).to_numpy(zero_copy_only=False)
    return pa.array(change(values), numbers, mask=np.asarray(array.is_null())).cast(array.type)


def _local(micros: np.ndarray) -> np.ndarray:
    """Of moments that are counted from what the clock on the wall showed."""
    days: np.ndarray = micros // _DAY
    moved: np.ndarray = micros + (_days(days) - days) * _DAY
    return moved


def _days(days: np.ndarray) -> np.ndarray:
    changed = days.copy()
    early = days < _FIRST_GREGORIAN_DAY
    since = days[early].astype(np.int64) + _JULIAN_START
    # Years are counted from March, so that the leap day is the last of its year; four years have 1,461 days.
    fours, of_fours = np.divmod(since, 1461)
    year = (of_fours - of_fours // 1460) // 365
    day_of_year, years = of_fours - 365 * year, fours * 4 + year
    changed[early] = 365 * years + years // 4 - years // 100 + years // 400 + day_of_year - _GREGORIAN_START
    return changed


def _has_any(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_any(kind.field(n).type) for n in range(kind.num_fields))
    return bool(pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is not None))
