"""The statements behind `Tx`, each built once.

SQLAlchemy spends more time on building a statement and finding its compiled form again than SQLite spends on running
it; for an object that it has met before it does neither.

Those of many rows at once are for databases that read rows from JSON (`Backend.reads_rows`): PostgreSQL. Its driver
sends a statement of its own for each row, and writes arrays element by element. One text of JSON costs the client what
it takes to encode it, and the server one statement: see docs/design/003-ledger.md for what that is worth. Values go
through the same checks as otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.types import TypeDecorator

from lakeseal.errors import InvalidArgument
from lakeseal.ledger.types import Bytes, Int

Match = tuple[tuple[str, bool], ...]
"""Columns to compare, and for each whether with NULL."""

ROWS = "rows"
"""The parameter that has all rows, as one text."""
UPDATES = "updates"
"""That of an update beside an insert."""

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


@cache
def insert_rows(table: sa.Table, columns: tuple[str, ...]) -> str:
    """As all of these for the driver: there is nothing in it that SQLAlchemy would have to write for a dialect."""
    values = ", ".join(_value(table.c[name]) for name in columns)
    source = _source(table, columns, ROWS)
    return f"INSERT INTO {table.name} ({', '.join(columns)}) SELECT {values} FROM {source}"  # noqa: S608  own names


@cache
def update_rows(table: sa.Table, on: str, columns: tuple[str, ...], parameter: str = ROWS) -> str:
    """Sets `columns` of the rows whose column `on` has the value that is given there."""
    values = ", ".join(f"{name} = {_value(table.c[name])}" for name in columns)
    source = _source(table, (on, *columns), parameter)
    where = f"{table.name}.{on} = given.{on}"
    return f"UPDATE {table.name} SET {values} FROM {source} WHERE {where}"  # noqa: S608  own names


@cache
def insert_and_update(
    table: sa.Table, columns: tuple[str, ...], updated: sa.Table, on: str, changed: tuple[str, ...]
) -> str:
    return f"WITH updated AS ({update_rows(updated, on, changed, UPDATES)}) {insert_rows(table, columns)}"


def rows_as_text(table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> str:
    """`InvalidArgument` where a column cannot hold a value."""
    checks = _checks(table)
    return msgspec.json.encode(
        [{name: check(value) if (check := checks[name]) else value for name, value in row.items()} for row in rows]
    ).decode()


def _source(table: sa.Table, columns: tuple[str, ...], parameter: str) -> str:
    types = ", ".join(f"{name} {_type(table.c[name])}" for name in columns)
    return f"json_to_recordset(CAST(%({parameter})s AS json)) AS given({types})"


def _type(column: sa.Column[Any]) -> str:
    match column.type:
        case Int():
            return "bigint"
        case sa.Boolean():
            return "boolean"
    return "text"


def _value(column: sa.Column[Any]) -> str:
    # Bytes travel in JSON as base64.
    return f"decode(given.{column.name}, 'base64')" if isinstance(column.type, Bytes) else f"given.{column.name}"


@cache
def _checks(table: sa.Table) -> dict[str, Callable[[Any], Any] | None]:
    return {column.name: _check(column.type) for column in table.c}


def _check(kind: Any) -> Callable[[Any], Any] | None:
    if isinstance(kind, TypeDecorator) and not isinstance(kind, Bytes):
        return partial(kind.process_bind_param, dialect=_DIALECT)
    return None


_DIALECT = sa.make_url("postgresql://").get_dialect()()
