"""Many rows in one statement, for databases that read rows from JSON (`Backend.reads_rows`): PostgreSQL.

Its driver sends a statement of its own for each row, and writes arrays element by element. One text of JSON costs the
client what it takes to encode it, and the server one statement: see docs/design/003-ledger.md for what that is worth.

Values go through the same checks as otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.types import TypeDecorator

from lakeseal.ledger.types import Bytes, Int

ROWS = "rows"
"""The parameter that has all of them."""
UPDATES = "updates"
"""That of an update beside an insert."""


@cache
def insert(table: sa.Table, columns: tuple[str, ...]) -> str:
    """As all of these for the driver: there is nothing in it that SQLAlchemy would have to write for a dialect."""
    values = ", ".join(_value(table.c[name]) for name in columns)
    source = _source(table, columns, ROWS)
    return f"INSERT INTO {table.name} ({', '.join(columns)}) SELECT {values} FROM {source}"  # noqa: S608  own names


@cache
def update(table: sa.Table, on: str, columns: tuple[str, ...], parameter: str = ROWS) -> str:
    """Sets `columns` of the rows whose column `on` has the value that is given there."""
    values = ", ".join(f"{name} = {_value(table.c[name])}" for name in columns)
    source = _source(table, (on, *columns), parameter)
    where = f"{table.name}.{on} = given.{on}"
    return f"UPDATE {table.name} SET {values} FROM {source} WHERE {where}"  # noqa: S608  own names


@cache
def insert_and_update(
    table: sa.Table, columns: tuple[str, ...], updated: sa.Table, on: str, changed: tuple[str, ...]
) -> str:
    return f"WITH updated AS ({update(updated, on, changed, UPDATES)}) {insert(table, columns)}"


def encode(table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> str:
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
