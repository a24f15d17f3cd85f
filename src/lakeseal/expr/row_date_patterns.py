"""Java's date patterns, one row at a time, in UTC and English: texts of moments, and moments of texts.

A pattern is a list of letters and plain text; what has letters beyond those here is refused. Reading takes padded
fields only.
"""

from __future__ import annotations

import re
from functools import lru_cache

from lakeseal.errors import EvaluationError, UnsupportedExpression
from lakeseal.expr.calendar import MICROS_PER_DAY, MICROS_PER_SECOND
from lakeseal.expr.row_moments import day_of_week, days_to_civil, make_date

_PART = re.compile(r"'(?P<quoted>[^']*)'|(?P<letters>([A-Za-z])\3*)|(?P<other>[^A-Za-z'\[\]{}#])")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_READ = {"yyyy": 4, "MM": 2, "dd": 2, "HH": 2, "mm": 2, "ss": 2}
_SHOWN = frozenset(
    (
        *("y", "yy", "yyyy", "M", "MM", "MMM", "MMMM", "d", "dd", "D", "DDD", "E", "EE", "EEE", "EEEE", "a"),
        *("H", "HH", "h", "hh", "m", "mm", "s", "ss", "Q", "q", "QQ", "qq"),
    )
)


@lru_cache(maxsize=256)
def parts_of(pattern: str) -> tuple[tuple[str, str], ...]:
    """("letters", "yyyy") or ("text", "-"), in their order."""
    parts: list[tuple[str, str]] = []
    at = 0
    while at < len(pattern):
        found = _PART.match(pattern, at)
        if found is None:
            raise UnsupportedExpression(f"The date pattern {pattern[:50]!r} is not supported")
        at = found.end()
        if found["letters"] is None:
            parts.append(("text", found["other"] if found["quoted"] is None else found["quoted"] or "'"))
        else:
            parts.append(("letters", found["letters"]))
    return tuple(parts)


def check_shown(pattern: str) -> None:
    for kind, text in parts_of(pattern):
        if kind == "letters" and text not in _SHOWN and not (set(text) == {"S"} and len(text) <= 6):
            raise UnsupportedExpression(f"The letters {text} of a date pattern are not supported")


def check_read(pattern: str) -> None:
    letters = [text for kind, text in parts_of(pattern) if kind == "letters"]
    whole = {"yyyy", "MM", "dd"} <= set(letters) and len(set(letters)) == len(letters)
    times = [name for name in ("HH", "mm", "ss") if name in letters]
    if not whole or times != ["HH", "mm", "ss"][: len(times)] or not set(letters) <= set(_READ):
        raise UnsupportedExpression(f"Reading by the date pattern {pattern[:50]!r} is not supported")


def shown(pattern: str, micros: int) -> str:
    days, in_day = divmod(micros, MICROS_PER_DAY)
    civil = days_to_civil(days)
    if not 1 <= civil[0] <= 9999:
        raise UnsupportedExpression("A date beyond the years 1 to 9999 as text is not supported")
    return "".join(text if kind == "text" else _field(text, days, civil, in_day) for kind, text in parts_of(pattern))


def _field(letters: str, days: int, civil: tuple[int, int, int], in_day: int) -> str:
    year, month, day = civil
    width = len(letters)
    seconds, micros = divmod(in_day, MICROS_PER_SECOND)
    match letters[0]:
        case "y":
            return f"{year % 100:02}" if width == 2 else str(year).zfill(width)
        case "M" if width >= 3:
            return _MONTHS[month - 1][: 3 if width == 3 else None]
        case "M":
            return str(month).zfill(width)
        case "d":
            return str(day).zfill(width)
        case "D":
            return str(days - make_date(year, 1, 1) + 1).zfill(width)
        case "E":
            return _DAYS[day_of_week(days)][: 3 if width < 4 else None]
        case "a":
            return "AM" if seconds < 43_200 else "PM"
        case "H":
            return str(seconds // 3600).zfill(width)
        case "h":
            return str((seconds // 3600 - 1) % 12 + 1).zfill(width)
        case "m":
            return str(seconds // 60 % 60).zfill(width)
        case "s":
            return str(seconds % 60).zfill(width)
        case "S":
            return f"{micros:06}"[:width]
        case _:
            return str((month - 1) // 3 + 1).zfill(width)


@lru_cache(maxsize=256)
def _reader(pattern: str) -> re.Pattern[str]:
    check_read(pattern)
    texts = (
        re.escape(text) if kind == "text" else rf"(?P<{text}>[0-9]{{{_READ[text]}}})"
        for kind, text in parts_of(pattern)
    )
    return re.compile("".join(texts))


def read(pattern: str, text: str) -> int:
    """Microseconds since 1970."""
    found = _reader(pattern).fullmatch(text)
    if found is None:
        if not text.isascii() or re.search(r"[+-]?[0-9]{5}|^\s*[+-]", text):
            raise UnsupportedExpression(f"{text[:50]!r} by the date pattern {pattern[:50]!r} is not supported")
        raise EvaluationError(f"{text[:50]!r} is not written as {pattern[:50]!r}")
    fields = {name: int(value) for name, value in found.groupdict().items()}
    hour, minute, second = (fields.get(name, 0) for name in ("HH", "mm", "ss"))
    if fields["yyyy"] == 0:
        raise UnsupportedExpression("The year 0000 is not supported")
    if hour > 23 or minute > 59 or second > 59:
        raise EvaluationError(f"There is no time {hour}:{minute}:{second}")
    days = make_date(fields["yyyy"], fields["MM"], fields["dd"])
    return days * MICROS_PER_DAY + ((hour * 60 + minute) * 60 + second) * MICROS_PER_SECOND


def read_date(pattern: str, text: str) -> int:
    return read(pattern, text) // MICROS_PER_DAY


def try_read(pattern: str, text: str) -> int | None:
    try:
        return read(pattern, text)
    except EvaluationError:
        return None


def try_read_date(pattern: str, text: str) -> int | None:
    found = try_read(pattern, text)
    return None if found is None else found // MICROS_PER_DAY


def read_seconds(pattern: str, text: str) -> int:
    return read(pattern, text) // MICROS_PER_SECOND


def shown_seconds(pattern: str, seconds: int) -> str:
    return shown(pattern, seconds * MICROS_PER_SECOND)
