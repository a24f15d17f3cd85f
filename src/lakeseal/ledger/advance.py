"""Rows that move on by compare-and-set, many at once, and rows of another table that come with them.

An `Advance` names a row by its name, what it must hold (None means NULL), what it holds then, and the rows that are
inserted if it did. Several of them stand and fall each by itself; that all of it is whole and durable is the ledger's
promise, as for any write. Rows are locked in the order of their names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import msgspec
import sqlalchemy as sa
from msgspec import Struct

from lakeseal.ledger import statements
from lakeseal.ledger.tx import Tx
from lakeseal.ledger.types import Bytes, Int, Json, Name, key


class Advance(Struct, frozen=True, kw_only=True):
    name: str
    expected: Mapping[str, Any]
    values: Mapping[str, Any]
    """The same columns in all that are made together, as in `expected` and `rows`."""
    rows: Sequence[Mapping[str, Any]]
    """At least one. The column of their name is filled in."""


def by_rows(tx: Tx, table: sa.Table, into: sa.Table, advances: Iterable[Advance], tell: str) -> dict[str, Any]:
    """Those that moved, by name, with the value of the column `tell`: row by row, on any database."""
    ((name, _),) = statements.keys(table).items()
    told: dict[str, Any] = {}
    for one in sorted(advances, key=lambda advance: advance.name):
        if tx.compare_and_set(table, {name: one.name}, one.expected, one.values):
            tx.insert_many(into, [{name: one.name, **row} for row in one.rows])
            row = tx.get(table, **{name: one.name})
            told[one.name] = None if row is None else row._mapping[tell]
    return told


Check = Callable[[Any], Any]


class Statement(Struct, frozen=True, kw_only=True):
    """All of it as one statement for PostgreSQL. A row that another transaction changed meanwhile is waited for, and
    compared as it is then."""

    text: str
    expected: tuple[tuple[str, str, Check], ...]
    """Of each column, its name in the statement and what checks its values."""
    values: tuple[tuple[str, str, Check], ...]
    rows: tuple[tuple[str, str, Check], ...]
    read: Callable[[bytes], Any]
    """What the column `tell` holds, from how the database writes it."""

    def told(self, found: Iterable[tuple[bytes | None, bytes | None]]) -> dict[str, Any]:
        return {name.decode(): None if told is None else self.read(told) for name, told in found if name is not None}

    def parameters(self, advances: Sequence[Advance]) -> list[bytes]:
        """As JSON, which takes the least to write."""
        heads: list[dict[str, Any]] = []
        rows: list[dict[str, Any]] = []
        for one in advances:
            keyed = key(one.name)
            head = {"key": keyed}
            for column, name, check in self.expected:
                head[name] = check(one.expected[column])
            for column, name, check in self.values:
                head[name] = check(one.values[column])
            heads.append(head)
            for row in one.rows:
                new = {"of": keyed}
                for column, name, check in self.rows:
                    new[name] = check(row[column])
                rows.append(new)
        return [msgspec.json.encode(heads), msgspec.json.encode(rows)]


def statement_of(table: sa.Table, into: sa.Table, like: Advance, tell: str) -> Statement:
    return _statement(table, into, tuple(like.expected), tuple(like.values), tuple(like.rows[0]), tell)


@cache
def _statement(
    table: sa.Table,
    into: sa.Table,
    expected: tuple[str, ...],
    values: tuple[str, ...],
    rows: tuple[str, ...],
    tell: str,
) -> Statement:
    ((name, keyed),) = statements.keys(table).items()
    heads = ["key text", *(f"was_{column} {_type(table, column)}" for column in expected)]
    heads += [f"new_{column} {_type(table, column)}" for column in values]
    new = ["of text", *(f"row_{column} {_type(into, column)}" for column in rows)]
    compared = " AND ".join(f"t.{column} IS NOT DISTINCT FROM h.was_{column}" for column in expected)
    changed = ", ".join(f"{column} = h.new_{column}" for column in values)
    put = ", ".join((keyed, *rows))
    given = ", ".join(("m.key", *(_read(into, column) for column in rows)))
    text = (  # all names are the schema's own
        f"WITH h AS MATERIALIZED (SELECT * FROM json_to_recordset($1::json) AS x({', '.join(heads)})),"  # noqa: S608
        f" locked AS MATERIALIZED (SELECT {keyed} AS key FROM {table.name} WHERE {keyed} IN (SELECT key FROM h)"
        f" ORDER BY {name} FOR NO KEY UPDATE),"
        f" m AS (UPDATE {table.name} t SET {changed} FROM h JOIN locked USING (key)"
        f" WHERE t.{keyed} = h.key AND {compared} RETURNING t.{keyed} AS key, t.{name} AS name, t.{tell} AS told),"
        f" put AS (INSERT INTO {into.name} ({put}) SELECT {given}"
        f" FROM json_to_recordset($2::json) AS r({', '.join(new)}) JOIN m ON m.key = r.of)"
        " SELECT name, told FROM m"
    )
    return Statement(
        text=text,
        expected=tuple((column, f"was_{column}", _check(table, column)) for column in expected),
        values=tuple((column, f"new_{column}", _check(table, column)) for column in values),
        rows=tuple((column, f"row_{column}", _check(into, column)) for column in rows),
        read=int if isinstance(table.c[tell].type, Int) else bytes.decode,
    )


def _type(table: sa.Table, column: str) -> str:
    kind = table.c[column].type
    return "bigint" if isinstance(kind, Int) else "boolean" if isinstance(kind, sa.Boolean) else "text"


def _read(table: sa.Table, column: str) -> str:
    """JSON has no bytes: they travel as base64."""
    return f"decode(r.row_{column}, 'base64')" if isinstance(table.c[column].type, Bytes) else f"r.row_{column}"


def _check(table: sa.Table, column: str) -> Check:
    kind = table.c[column].type
    if not isinstance(kind, Name | Int | Json):
        return _as_it_is
    # The types check values alike for all dialects.
    return partial(kind.process_bind_param, dialect=None)  # type: ignore[arg-type]


def _as_it_is(value: Any) -> Any:
    return value
