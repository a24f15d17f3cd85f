"""One transaction, as the function that runs in it sees it.

In a write, every row that is read is locked until the end: what you have read can't change before you commit. (On
SQLite there is one writer at a time anyway; on PostgreSQL `Tx` adds the lock.) Two things a lock can't cover, and what
does:

- A row that is *not* there can't be locked. Insert it: `insert` has one winner, and the others learn that they lost.
- Rows of a group (the commits of a table) can appear while you look at others. Lock the row that stands for the group
  (the table's) first, in every write that touches the group.

Writers that lock several rows should do it in one order; otherwise a deadlock is detected, which costs a second, and
the transaction is run again.

Keys and names: `tx.get(heads, repo="r", branch="main")`, where a long name stands for its key column by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import StatementError

from lakeseal.errors import InvalidArgument, LakesealError
from lakeseal.ledger import statements
from lakeseal.ledger.backend import Backend, TransactionKind
from lakeseal.ledger.types import key as key_of

Row = sa.Row[Any]

T = TypeVar("T")


class Again(Exception):
    """A statement failed in a way that running the whole transaction again may mend. Never leaves the ledger."""

    def __init__(self, error: LakesealError) -> None:
        super().__init__(str(error))
        self.error = error


class Tx:
    def __init__(self, connection: sa.Connection, backend: Backend, kind: TransactionKind) -> None:
        self._connection: sa.Connection | None = connection
        self._backend = backend
        self._writes = kind is TransactionKind.WRITE
        self._locks = self._writes and backend.locks_rows
        self._questions_left = 1 if kind is TransactionKind.LOOK else math.inf
        self.failure: Again | LakesealError | None = None
        """The first statement that failed: the database rolls back, even if the function went on."""

    def get(self, table: sa.Table, **key: Any) -> Row | None:
        """The row with this key (all columns of a primary key or of a unique constraint), or None."""
        match, values = self._match(table, key)
        query = statements.select(table, match, self._locks)
        return self._run(lambda connection: connection.execute(query, values).first())

    def get_all(self, table: sa.Table, name: str, values: Iterable[str]) -> Sequence[Row]:
        """The rows that have one of these values in `name`, which has a key column; in the order of `name`, and locked
        in that order."""
        column = statements.keys(table)[name]
        query = statements.select_all(table, column, name, self._locks, self._backend.reads_rows)
        asked = {"these": [key_of(value) for value in values]}
        return self._run(lambda connection: connection.execute(query, asked).all())

    def rows(
        self, query: sa.Select[Any], values: Mapping[str, Any] | None = None, *, lock: bool = True
    ) -> Sequence[Row]:
        """All rows of a query; `values` are those of its parameters. `lock=False` reads without a lock, where a row
        that is locked already guards what is read, or where nothing is decided by it; PostgreSQL needs it for a query
        that groups or counts."""
        query = statements.locked(query) if lock and self._locks else query
        return self._run(lambda connection: connection.execute(query, values or {}).all())

    def insert(self, table: sa.Table, **values: Any) -> bool:
        """False, and nothing changed, if a row with the same primary key or unique values is there already. A
        transaction that is about to insert the same is waited for."""
        self._writable()
        return self._changed(statements.insert(self._backend.insert, table), self._columns(table, values)) == 1

    def insert_many(self, table: sa.Table, rows: Iterable[Mapping[str, Any]]) -> None:
        """All of them, or `AlreadyExists` and the transaction is over."""
        self._writable()
        values = [self._columns(table, row) for row in rows]
        if values and self._backend.reads_rows:
            given = {statements.ROWS: statements.rows_as_text(table, values)}
            self._run_driver(statements.insert_rows(table, tuple(values[0])), given)
        elif values:
            self._run(lambda connection: connection.execute(statements.insert_all(table), values))

    def update_many(self, table: sa.Table, on: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Sets, where the column `on` has the value that a row gives, the row's other columns: the same of all rows."""
        self._writable()
        if not rows:
            return
        self._check(table, rows[0])
        columns = tuple(name for name in rows[0] if name != on)
        if self._backend.reads_rows:
            self._run_driver(
                statements.update_rows(table, on, columns), {statements.ROWS: statements.rows_as_text(table, rows)}
            )
        else:
            match = ((on, False),)
            values = [{f"is_{on}": row[on], **{f"new_{name}": row[name] for name in columns}} for row in rows]
            self._run(lambda connection: connection.execute(statements.update(table, match, columns), values))

    def insert_and_update(
        self,
        table: sa.Table,
        rows: Sequence[Mapping[str, Any]],
        updated: sa.Table,
        on: str,
        updates: Sequence[Mapping[str, Any]],
    ) -> None:
        """`insert_many` and `update_many`, in one statement where the database can."""
        if not (rows and updates and self._backend.reads_rows):
            self.insert_many(table, rows)
            self.update_many(updated, on, updates)
            return
        self._writable()
        self._check(updated, updates[0])
        values = [self._columns(table, row) for row in rows]
        changed = tuple(name for name in updates[0] if name != on)
        self._run_driver(
            statements.insert_and_update(table, tuple(values[0]), updated, on, changed),
            {
                statements.ROWS: statements.rows_as_text(table, values),
                statements.UPDATES: statements.rows_as_text(updated, updates),
            },
        )

    def _run_driver(self, statement: str, values: dict[str, Any]) -> None:
        self._run(lambda connection: connection.exec_driver_sql(statement, values))

    def put(self, table: sa.Table, **values: Any) -> None:
        """Inserts the row, or overwrites the given columns of the row with this primary key."""
        self._writable()
        columns = self._columns(table, values)
        self._changed(statements.put(self._backend.insert, table, tuple(columns)), columns)

    def update(self, table: sa.Table, key: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
        """Whether there was such a row."""
        return self.compare_and_set(table, key, {}, values)

    def compare_and_set(
        self, table: sa.Table, key: Mapping[str, Any], expected: Mapping[str, Any], values: Mapping[str, Any]
    ) -> bool:
        """Sets `values` if the row is there and has the `expected` ones (None means NULL); says whether it did."""
        self._writable()
        if both := key.keys() & expected.keys():
            raise InvalidArgument(f"{sorted(both)} can't be both the key and expected")
        match, parameters = self._match(table, {**key, **expected})
        columns = self._columns(table, values)
        parameters |= {f"new_{name}": value for name, value in columns.items()}
        return self._changed(statements.update(table, match, tuple(columns)), parameters) > 0

    def delete(self, table: sa.Table, **key: Any) -> int:
        """How many rows matched and are gone. Without any condition it is refused."""
        self._writable()
        match, values = self._match(table, key)
        return self._changed(statements.delete(table, match), values)

    def run(self, statement: sa.Insert | sa.Update | sa.Delete) -> int:
        """Any other change; the number of rows it touched."""
        self._writable()
        return self._changed(statement.execution_options(preserve_rowcount=True), {})

    def run_many(self, statement: sa.Insert | sa.Update | sa.Delete, values: Sequence[Mapping[str, Any]]) -> None:
        """The same change with each of several values for its parameters."""
        self._writable()
        if values:
            self._run(lambda connection: connection.execute(statement, values))

    def now(self) -> int:
        """Milliseconds since the epoch by the one clock that all users of this ledger share: for leases, and for
        nothing else. Times of facts are the caller's, who knows what they are times of."""
        return self._run(self._backend.now)

    def end(self) -> None:
        self._connection = None

    def _changed(self, statement: Any, values: Mapping[str, Any]) -> int:
        return self._run(lambda connection: connection.execute(statement, values).rowcount)

    def _run(self, ask: Callable[[sa.Connection], T]) -> T:
        if self._connection is None:
            raise InvalidArgument("this transaction is over", hint="Use tx only inside the function that was given it")
        if self.failure is not None:
            raise self.failure
        if self._questions_left < 1:
            raise InvalidArgument("a look at the ledger is one question", hint="Use Ledger.read for several")
        self._questions_left -= 1
        try:
            return ask(self._connection)
        except StatementError as error:
            self.failure = self._meaning(error)
            raise self.failure from error

    def _meaning(self, error: StatementError) -> Again | LakesealError:
        if isinstance(error.orig, LakesealError):  # a column type refused a value
            return error.orig
        fault = self._backend.fault(error)
        return Again(fault.error) if fault.retry else fault.error

    def _writable(self) -> None:
        if not self._writes:
            raise InvalidArgument("a read does not change anything", hint="Use Ledger.write")

    def _match(self, table: sa.Table, key: Mapping[str, Any]) -> tuple[statements.Match, dict[str, Any]]:
        """The columns to compare, and the values to compare with. A name that has a key column is compared by that."""
        keys = statements.keys(table)
        named = {keys.get(name, name): key_of(value) if name in keys else value for name, value in key.items()}
        self._check(table, named)
        match = tuple((name, value is None) for name, value in named.items())
        return match, {f"is_{name}": value for name, value in named.items() if value is not None}

    def _columns(self, table: sa.Table, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values by column. A name that has a key column goes to that too."""
        keys = statements.keys(table)
        columns = {keys[name]: key_of(value) for name, value in values.items() if name in keys}
        columns |= {name: value for name, value in values.items() if name not in keys or name in table.c}
        self._check(table, columns)
        return columns

    def _check(self, table: sa.Table, names: Iterable[str]) -> None:
        unknown = [name for name in names if name not in table.c]
        if unknown:
            raise InvalidArgument(f"the ledger's {table.name} have no {unknown[0]!r}")
