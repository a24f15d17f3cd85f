"""Days and calendar fields on numpy arrays, in the proleptic Gregorian calendar that Spark uses."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[Any]
"""Whole numbers of any width."""

MICROS_PER_SECOND = 1_000_000
MICROS_PER_DAY = 86_400 * MICROS_PER_SECOND
_DAYS_IN_MONTH = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], dtype=np.int64)


def civil_to_days(year: Ints, month: Ints, day: Ints) -> Ints:
    """Days since 1970-01-01 of a valid date."""
    # Years start in March here, so that the leap day is the last.
    shifted = year - (month <= 2)
    era = shifted // 400
    year_of_era = shifted - era * 400
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    days: Ints = era * 146_097 + day_of_era - 719_468
    return days


def days_to_civil(days: Ints) -> tuple[Ints, Ints, Ints]:
    """Year, month and day."""
    shifted = days.astype(np.int64) + 719_468
    era = shifted // 146_097
    day_of_era = shifted - era * 146_097
    year_of_era = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_from_march = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month_from_march + 2) // 5 + 1
    month = np.where(month_from_march < 10, month_from_march + 3, month_from_march - 9)
    return year_of_era + era * 400 + (month <= 2), month, day


def days_in_month(year: Ints, month: Ints) -> Ints:
    """For months from 1 to 12."""
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    days: Ints = _DAYS_IN_MONTH[month - 1] + (leap & (month == 2))
    return days


def add_months(days: Ints, months: Ints) -> Ints:
    """The same day some months later, or the last day of that month."""
    year, month, day = days_to_civil(days)
    total = year * 12 + (month - 1) + months
    year, month = total // 12, total % 12 + 1
    return civil_to_days(year, month, np.minimum(day, days_in_month(year, month)))
