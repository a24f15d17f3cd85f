"""The statements behind `Tx`, each built once.

SQLAlchemy spends more time on building a statement and finding its compiled form again than SQLite spends on running
it; for an object that it has met before it does neither.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import sqlalchemy as sa

from lakeseal.errors import InvalidArgument

Match = tuple[tuple[str, bool], ...]
"""Columns to compare, and for each whether with NULL."""

# Without this option SQLAlchemy may close an INSERT's cursor before the count is read.
_COUNTED = {"preserve_rowcount": True}


@cache
def keys(table: sa.Table) -> dict[str, str]:
    """From each name that has a key column to that column."""
    return {column.info["key_of"]: column.name for column in table.c if "key_of" in column.info}


@cache
def select(table: sa.Table, match: Match, lock: bool) -> sa.Select[Any]:
    query = sa.select(table).where(*_where(table, match))
    return locked(query) if lock else query


@cache
def select_all(table: sa.Table, column: str, order: str, lock: bool, as_array: bool) -> sa.Select[Any]:
    found = table.c[column]
    if as_array:
        # One text for any number of values, which need not be made anew.
        is_one = found == sa.any_(sa.bindparam("these", type_=sa.ARRAY(sa.Text)))
    else:
        is_one = found.in_(sa.bindparam("these", expanding=True, type_=found.type))
    query = sa.select(table).where(is_one).order_by(table.c[order])
    return locked(query) if lock else query


def locked(query: sa.Select[Any]) -> sa.Select[Any]:
    # The lock that an UPDATE would take: other transactions may still refer to the row by a foreign key.
    return query.with_for_update(key_share=True)


@cache
def insert(dialect: Callable[[sa.Table], Any], table: sa.Table) -> Any:
    return dialect(table).on_conflict_do_nothing().execution_options(**_COUNTED)


@cache
def insert_all(table: sa.Table) -> sa.Insert:
    return sa.insert(table)


@cache
def put(dialect: Callable[[sa.Table], Any], table: sa.Table, columns: tuple[str, ...]) -> Any:
    statement = dialect(table)
    primary = set(table.primary_key.columns.keys())
    changes = {name: statement.excluded[name] for name in columns if name not in primary}
    return statement.on_conflict_do_update(index_elements=list(table.primary_key.columns), set_=changes)


@cache
def update(table: sa.Table, match: Match, columns: tuple[str, ...]) -> Any:
    values = {name: sa.bindparam(f"new_{name}", type_=table.c[name].type) for name in columns}
    return sa.update(table).where(*_where(table, match)).values(values).execution_options(**_COUNTED)


@cache
def delete(table: sa.Table, match: Match) -> Any:
    return sa.delete(table).where(*_where(table, match)).execution_options(**_COUNTED)


def _where(table: sa.Table, match: Match) -> list[sa.ColumnElement[bool]]:
    if not match:
        raise InvalidArgument(f"which of the {table.name}?", hint="Give at least one column to find rows by")
    return [
        table.c[name].is_(None) if null else table.c[name] == sa.bindparam(f"is_{name}", type_=table.c[name].type)
        for name, null in match
    ]
