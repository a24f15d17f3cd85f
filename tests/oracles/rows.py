"""One comparison for all judges: rows as multisets, values by what they are.

Columns by name, in any order. NaN equals NaN, a decimal or a whole number its value, a zoned moment its instant, a map
its pairs in any order. A zero's sign does not count, as it does not for Spark; a null is not an empty text.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

Row = Mapping[str, Any]


def same_rows(got: Iterable[Row], expected: Iterable[Row], about: str = "") -> None:
    """Raises with a few of the rows that are too many or missing."""
    found, wanted = Counter(map(plain, got)), Counter(map(plain, expected))
    if found == wanted:
        return
    extra, missing = found - wanted, wanted - found
    raise AssertionError(
        f"{about}: {found.total()} rows where {wanted.total()} are right; "
        f"{extra.total()} too many, such as {_some(extra)}; {missing.total()} missing, such as {_some(missing)}"
    )


def plain(value: Any) -> Any:
    """A value as something that can be hashed and compared across engines."""
    match value:
        case bool() | None | str():
            return value
        case float() if math.isnan(value):
            return "NaN"
        case float() if math.isinf(value):
            return value
        case int() | float() | decimal.Decimal():
            return ("number", decimal.Decimal(value).normalize() if value else decimal.Decimal(0))
        case dt.datetime() if value.tzinfo is not None:
            return ("instant", value.astimezone(dt.UTC).replace(tzinfo=None))
        case bytes() | bytearray() | memoryview():
            return bytes(value)
        case Mapping():
            return ("map", frozenset((plain(k), plain(v)) for k, v in value.items()))
        case _ if hasattr(value, "asDict"):
            return plain(value.asDict(recursive=False))
        case list() if value and all(isinstance(pair, tuple) and len(pair) == 2 for pair in value):
            return ("map", frozenset((plain(k), plain(v)) for k, v in value))  # a map, as Arrow gives it to Python
        case list() | tuple():
            return ("list", tuple(map(plain, value)))
        case _:
            return value


def _some(rows: Counter[Any]) -> str:
    return "; ".join(str(dict(sorted(row[1])) if row and row[0] == "map" else row) for row, _ in list(rows.items())[:3])
