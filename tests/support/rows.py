"""Comparing tables by their rows: order and column order aside, by value.

Timestamps with a zone are instants, NaN equals NaN, decimals are equal whatever their scale.
"""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa


def rows(table: pa.Table) -> Counter[Any]:
    """The multiset of a table's rows."""
    names = sorted(table.column_names)
    return Counter(comparable([row[name] for name in names]) for row in table.select(names).to_pylist())


def comparable(value: Any) -> Any:
    match value:
        case dict():
            return tuple(sorted((k, comparable(v)) for k, v in value.items()))
        case list() | tuple():
            return tuple(comparable(v) for v in value)
        case datetime():
            # Other tools drop the zone of an instant, or name it otherwise.
            return (value.astimezone(UTC) if value.tzinfo else value).replace(tzinfo=None)
        case float() if math.isnan(value):
            return "NaN"
        case Decimal():
            return value.normalize()
        case _:
            return value
