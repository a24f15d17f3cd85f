"""Filters that Spark pushes into a data source, as conditions of ours.

Values come as Python has them, with all casts done and all zones applied, so nothing depends on the session. A filter
that has no counterpart here just skips nothing: Spark applies all of them to the rows again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyspark.sql.datasource as spark

from lakeseal import expr
from lakeseal.errors import InvalidInput
from lakeseal.protocol.schema import StructType
from lakeseal.spark.predicates import Settings, both, understood

_COMPARISONS: dict[type[spark.Filter], str] = {
    spark.EqualTo: "=",
    spark.EqualNullSafe: "<=>",
    spark.GreaterThan: ">",
    spark.GreaterThanOrEqual: ">=",
    spark.LessThan: "<",
    spark.LessThanOrEqual: "<=",
}
_TEXTS: dict[type[spark.Filter], str] = {
    spark.StringStartsWith: "startswith",
    spark.StringEndsWith: "endswith",
    spark.StringContains: "contains",
}


def pushed(filters: Iterable[spark.Filter], schema: StructType) -> str | None:
    """What can be judged here of all the filters together; None if nothing can."""
    parts = (part for one in filters if (text := _sql(one)) and (part := understood(text, schema, Settings())))
    return both(expr.parse(part) for part in parts)


def _sql(one: Any) -> str | None:
    try:
        match one:
            case spark.Not(child=child):
                inner = _sql(child)
                return None if inner is None else f"NOT ({inner})"
            case spark.IsNull(attribute=path):
                return f"{expr.column(*path).sql} IS NULL"
            case spark.IsNotNull(attribute=path):
                return f"{expr.column(*path).sql} IS NOT NULL"
            case spark.In(attribute=path, value=values):
                return f"{expr.column(*path).sql} IN ({', '.join(expr.literal(v).sql for v in values)})"
            case _ if type(one) in _COMPARISONS:
                return f"{expr.column(*one.attribute).sql} {_COMPARISONS[type(one)]} {expr.literal(one.value).sql}"
            case _ if type(one) in _TEXTS:
                return f"{_TEXTS[type(one)]}({expr.column(*one.attribute).sql}, {expr.literal(one.value).sql})"
            case _:
                return None
    except (InvalidInput, ValueError, OverflowError):
        return None
