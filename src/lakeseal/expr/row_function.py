"""A function that is computed one row at a time, in Python.

A `RowFunction` says of which types its arguments are and what it gives. It sees no nulls, unless it asks for them: a
null among its arguments makes the result null. Values are Python's, but days for dates and microseconds for
timestamps, because Spark knows more of them than Python does. It may give None, raise `EvaluationError` where Spark
fails on a value, and `UnsupportedExpression` where what Spark says is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from lakeseal.errors import EvaluationError
from lakeseal.protocol.schema import DataType

MAX_TEXT = 1 << 24
"""Longer texts than this are not made of shorter ones."""


class RowFunction(Struct, frozen=True, kw_only=True):
    compute: Callable[..., Any]
    takes: tuple[DataType, ...] = ()
    """The types of the arguments; more arguments are of the last one. Nothing: as they are."""
    gives: DataType
    least: int
    most: int | None
    raises: bool = False
    with_nulls: bool = False
    exact: bool = False
    """Spark casts no argument to its type."""


def row_function(
    names: str,
    compute: Callable[..., Any],
    takes: Sequence[DataType],
    gives: DataType,
    *,
    least: int | None = None,
    most: int | None = -1,
    raises: bool = False,
    with_nulls: bool = False,
    exact: bool = False,
) -> dict[str, RowFunction]:
    """One function by its names. It takes as many arguments as types are given, unless said otherwise."""
    function = RowFunction(
        compute=compute,
        takes=tuple(takes),
        gives=gives,
        least=len(takes) if least is None else least,
        most=len(takes) if most == -1 else most,
        raises=raises,
        with_nulls=with_nulls,
        exact=exact,
    )
    return dict.fromkeys(names.split(), function)


def too_long() -> EvaluationError:
    return EvaluationError(f"A text of more than {MAX_TEXT} characters would be made", hint="Make it shorter")
