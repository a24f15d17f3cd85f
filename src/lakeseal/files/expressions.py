"""Who evaluates the expressions of a write: casts into the table's types, defaults, generated columns, checks.

Without a session that is the task which writes, by `expr`: in UTC, with ANSI mode on. Where a session decides, its
engine says of each expression whether the task may do it; what it may not is handed back for the engine's own plan.
"""

from __future__ import annotations

from typing import Protocol

from lakeseal.files.store_assignment import Path, check_assignable
from lakeseal.protocol.schema import DataType, StructType


class Expressions(Protocol):
    def check_cast(self, source: DataType, target: DataType, path: Path) -> None:
        """Raises `SchemaMismatch` if such values may not go into the column, `UnsupportedExpression` if the task cannot
        put them there as they are meant."""

    def check(self, sql: str, schema: StructType) -> None:
        """Raises `UnsupportedExpression` if the task would not give an expression its value."""


class InTask:
    def check_cast(self, source: DataType, target: DataType, path: Path) -> None:
        check_assignable(source, target, path)

    def check(self, sql: str, schema: StructType) -> None:
        """Whatever `expr` can evaluate; whether it can is seen when it is bound."""


IN_TASK = InTask()
