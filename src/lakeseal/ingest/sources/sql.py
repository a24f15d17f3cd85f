"""`sql`: the rows of a database's table or query, by a column that only grows.

A run reads rows whose column is above the watermark, up to the largest value that there was when it began. So the
column must grow: a row that is committed later with a value at or below the watermark is not read, and `delay_seconds`
is for columns of times in which rows may be committed a little late. Rows without a value there are never read either;
a note says that there are some.

What is above, and what is largest, the database says, by the column's own type and collation: here nothing is compared.
A row with a value that is none of the schema's type is a bad record (`sql_values`).
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import sqlalchemy as sa
from msgspec.structs import force_setattr, replace
from sqlalchemy.exc import NoSuchTableError, SQLAlchemyError

from lakeseal import clock
from lakeseal.errors import InvalidArgument, SourceNotFound, SourceUnavailable, Unsupported
from lakeseal.expr.schema_text import parse_schema
from lakeseal.extras import BRINGS, install
from lakeseal.ingest.sources.source import (
    Chunk,
    Plan,
    RejectedRecord,
    Source,
    Watermark,
    WorkUnit,
    at_least_one,
    register_source,
)
from lakeseal.ingest.sources.sql_values import SqlRows, text_or_not
from lakeseal.protocol import schema as types
from lakeseal.protocol.schema import DataType, DecimalType, StructField, StructType

_ROWS = 20_000
_START = "start"
_TYPES: dict[type, DataType] = {
    bool: types.BOOLEAN,
    int: types.LONG,
    float: types.DOUBLE,
    str: types.STRING,
    bytes: types.BINARY,
    dt.date: types.DATE,
    dt.datetime: types.TIMESTAMP,
}
_WHOLE = (types.BYTE, types.SHORT, types.INTEGER, types.LONG)


@register_source
class SqlSource(Source, frozen=True, kw_only=True, tag="sql", dict=True):
    url: str
    """As SQLAlchemy has it: postgresql+psycopg://…, sqlite:///….; its driver must be installed on executors too."""
    column: str
    """Which grows."""
    table: str | None = None
    """Or a view."""
    query: str | None = None
    """Instead of a table; needs a schema."""
    schema: str | None = None
    """Of the rows, as Spark writes it; a table's own is taken if there is none."""
    start: int | float | str | None = None
    """Where to begin without a watermark: rows above this."""
    span: tuple[str, str] | None = None
    """Only rows whose column is from the first value on and before the second, as the database compares."""
    max_rows: int | None = None
    """In one run; more if the last of them has the same value in the column as others."""
    delay_seconds: float = 0.0
    """For a column of times: leave what is younger for the next run."""
    units: int = 1
    """Into how many to cut the range of a column of integers."""

    def __post_init__(self) -> None:
        force_setattr(self, "url", _absolute(self.url))
        if (self.table is None) == (self.query is None):
            raise InvalidArgument("A source of the type sql has a table or a query, one of them")
        if self.query is not None and self.schema is None:
            raise InvalidArgument("A query needs a schema", hint='Add schema: "id long, at timestamp"')
        if self.schema is not None:
            fields = parse_schema(self.schema)
            if fields.field(self.column) is None:
                raise InvalidArgument(f"The schema lacks the growing column {self.column!r}", column=self.column)
            self._refuse_units(fields)
        at_least_one("units", self.units)
        at_least_one("max_rows", self.max_rows)
        if not self.delay_seconds >= 0:
            raise InvalidArgument(f"delay_seconds must be 0 or more, not {self.delay_seconds:g}")

    def _refuse_units(self, schema: StructType) -> None:
        field = schema.field(self.column)
        if (
            self.units != 1
            and field is not None
            and field.type not in _WHOLE
            and not isinstance(field.type, DecimalType)
        ):
            raise InvalidArgument(
                "units says nothing of a column that is none of integers", column=self.column, hint="Leave it out"
            )

    @property
    def commit_policies(self) -> tuple[str, ...]:
        return ("full",) if self.units == 1 else ("full", "partial")

    def describe(self) -> str:
        return f"sql {self.table or 'query'} by {self.column}"

    def within(self, first: str, last: str) -> SqlSource:
        return replace(self, span=(first, last), start=None, delay_seconds=0.0, max_rows=None)

    def row_schema(self) -> StructType:
        if self.schema is not None:
            return parse_schema(self.schema)
        return StructType(tuple(_field(column, is_sqlite=self._is_sqlite) for column in self._from.columns))

    def plan(self, watermarks: Mapping[str, Watermark]) -> Plan:
        mark = watermarks.get("")
        low = mark if mark is not None else None if self.start is None else {"value": self.start, "kind": _START}
        cursor = self._cursor
        with self._reading() as connection:
            unset = connection.execute(sa.select(sa.func.count()).select_from(self._from).where(cursor.is_(None)))
            empty = unset.scalar_one()
            notes = (f"{empty} rows have no {self.column} and are never read",) if empty else ()
            new = [*self._spanned(), *([] if low is None else [self._above(low)])]
            newest = highest = self._highest(connection, new)
            if highest is not None and self.delay_seconds:
                new.append(self._settled(connection, highest))
                newest = highest = self._highest(connection, new)
            if highest is not None and self.max_rows is not None:
                highest = self._highest(connection, new, self.max_rows)
            if highest is None:
                return Plan(notes=notes)
            high = _mark(highest, self.column, is_raw=self._is_sqlite)
            self._check_found(connection, high)
            edges = [low, *self._cuts(connection, low, high), high]
        units = tuple(
            WorkUnit(
                partition="",
                low=mark if n == 0 else edges[n],
                high=edges[n + 1],
                payload={"low": edges[n]},
            )
            for n in range(len(edges) - 1)
        )
        return Plan(units=units, notes=notes, has_more=highest != newest)

    def _highest(self, connection: sa.Connection, conditions: Sequence[Any], most: int | None = None) -> Any:
        """The column's largest value in rows that meet these; of the first so many rows, if there is a limit."""
        values = sa.select(self._cursor.label("value")).where(self._cursor.is_not(None), *conditions)
        if most is not None:
            values = values.order_by(self._cursor).limit(most)
        return connection.execute(sa.select(sa.func.max(values.subquery().c.value))).scalar_one()

    def read(self, unit: WorkUnit) -> Iterator[Chunk]:
        schema = self.row_schema()
        rows_of = SqlRows(schema)
        wanted = sa.select(self._cursor, *(self._column(name) for name in schema.names))
        wanted = wanted.where(sa.not_(self._above(unit.high)), *self._spanned()).order_by(self._cursor)
        if unit.payload["low"] is not None:
            wanted = wanted.where(self._above(_bound_of(unit.payload["low"])))
        with self._reading() as connection:
            result = connection.execution_options(yield_per=_ROWS).execute(wanted)
            for rows in result.partitions():
                parsed = rows_of.parse([row[1:] for row in rows])
                bad = tuple(
                    RejectedRecord.of(
                        one.reason,
                        str(dict(zip(schema.names, rows[one.at][1:], strict=True))),
                        f"{self.column} {rows[one.at][0]}",
                    )
                    for one in parsed.misfits
                )
                yield Chunk(rows=parsed.rows, bad=bad, bytes=parsed.rows.nbytes)

    def close(self) -> None:
        if "_engine" in self.__dict__:
            self.__dict__.pop("_engine").dispose()
            self.__dict__.pop("_from", None)

    @cached_property
    def _engine(self) -> sa.Engine:
        try:
            engine = sa.create_engine(self.url)
        except ModuleNotFoundError as error:
            told = f"The database's driver {error.name} is not installed"
            raise Unsupported(told, hint=_driver(error.name)) from None
        except SQLAlchemyError as error:
            raise InvalidArgument(
                f"The database cannot be reached: {error}", hint="Write its URL as SQLAlchemy has it"
            ) from None
        if engine.dialect.name == "sqlite":
            sa.event.listen(engine, "connect", _read_any_text)
        return engine

    @cached_property
    def _from(self) -> Any:
        if self.query is not None:
            names: list[Any] = [sa.column(field.name) for field in parse_schema(self.schema or "").fields]
            return sa.text(_as_it_is(self.query)).columns(*names).subquery("input")
        schema, _, name = str(self.table).rpartition(".")
        try:
            with self._reading() as connection:
                found = sa.Table(name, sa.MetaData(), schema=schema or None, autoload_with=connection)
        except NoSuchTableError as error:
            raise SourceNotFound(f"The database has no table {self.table}") from error
        if self.column not in found.c:
            raise InvalidArgument(f"The table {self.table} has no column {self.column!r}", column=self.column)
        return found

    @property
    def _is_sqlite(self) -> bool:
        return self._engine.dialect.name == "sqlite"

    def _column(self, name: str) -> Any:
        """SQLite's values are as they are stored: what SQLAlchemy makes of them by the declared type is something else
        to the database, which compares texts as texts."""
        found = self._from.c[name]
        return sa.type_coerce(found, sa.types.NullType()).label(name) if self._is_sqlite else found

    @property
    def _cursor(self) -> Any:
        found = self._from.c[self.column]
        return sa.type_coerce(found, sa.types.NullType()) if self._is_sqlite else found

    def _above(self, bound: Mapping[str, Any]) -> Any:
        """A condition for rows above a watermark. The database compares, by the column's own type and collation."""
        column, value = self._cursor, bound["value"]
        kind = bound.get("kind")
        if kind == _START and self._is_sqlite and isinstance(value, str) and self._is_of_times:
            # What a person writes as a time is not the text that the column has for it.
            moment = sa.func.julianday(value)
            return sa.or_(
                sa.func.julianday(column) > moment,
                sa.and_(sa.func.julianday(column) == moment, column != sa.bindparam(None, value)),
            )
        if kind in (None, _START):
            return column > self._typed(value)
        return column > _literal(value, kind, self._from.c[self.column].type)

    def _spanned(self) -> list[Any]:
        if self.span is None:
            return []
        column, ends = self._cursor, [self._written(text) for text in self.span]
        if self._is_sqlite and self._is_of_times:
            column, ends = sa.func.julianday(column), [sa.func.julianday(text) for text in self.span]
        return [column >= ends[0], column < ends[1]]

    def _written(self, text: str) -> Any:
        """What a person writes, by the column's declared type."""
        try:
            wanted = self._from.c[self.column].type.python_type
            if wanted in (int, float, decimal.Decimal):
                return sa.bindparam(None, wanted(text))
            return self._typed(text)
        except NotImplementedError:
            return sa.bindparam(None, text)
        except (ValueError, ArithmeticError) as error:
            raise InvalidArgument(f"{text!r} is no value of {self.column}: {error}", column=self.column) from None

    @property
    def _is_of_times(self) -> bool:
        field = self.row_schema().field(self.column)
        return field is not None and field.type in (types.TIMESTAMP, types.TIMESTAMP_NTZ)

    def _typed(self, value: Any) -> Any:
        """A value as people write it, or as earlier releases kept it, by the column's declared type."""
        declared = self._from.c[self.column].type
        try:
            wanted = declared.python_type
        except NotImplementedError:
            return sa.bindparam(None, value)
        if wanted is dt.datetime and isinstance(value, str):
            moment = dt.datetime.fromisoformat(value)
            aware = getattr(declared, "timezone", False)
            return sa.bindparam(None, moment if aware else moment.replace(tzinfo=None), type_=declared)
        if wanted is dt.date and isinstance(value, str):
            return sa.bindparam(None, dt.date.fromisoformat(value), type_=declared)
        return sa.bindparam(None, value)

    def _settled(self, connection: sa.Connection, highest: Any) -> Any:
        """A condition for rows that are older than the delay."""
        then = clock.now() - dt.timedelta(seconds=self.delay_seconds)
        column = self._cursor
        if self._is_sqlite:
            moment = sa.func.julianday(column)
            strange = sa.select(sa.func.count()).select_from(self._from).where(column.is_not(None), moment.is_(None))
            if connection.execute(strange).scalar_one():
                raise self._no_times()
            return moment <= sa.func.julianday(then.replace(tzinfo=None).isoformat(" "))
        if isinstance(highest, dt.datetime):
            then = then if highest.tzinfo is not None else then.replace(tzinfo=None)
            return column <= _literal(then.isoformat(), "time", None)
        if isinstance(highest, dt.date):
            return column <= _literal(then.date().isoformat(), "date", None)
        raise self._no_times()

    def _no_times(self) -> InvalidArgument:
        return InvalidArgument("delay_seconds is for a column of times", column=self.column, hint="Leave it out")

    def _check_found(self, connection: sa.Connection, high: Mapping[str, Any]) -> None:
        """The largest value must be found by what we keep of it: else its row would be passed over for ever."""
        column = self._cursor
        kept = _literal(high["value"], high["kind"], self._from.c[self.column].type)
        found = sa.select(sa.func.count()).select_from(self._from).where(column == kept)
        if not connection.execute(found).scalar_one():
            raise InvalidArgument(
                "The database does not find the column's largest value by that value",
                column=self.column,
                hint="Follow a column of whole numbers, texts or times; or cast it in a query",
            )

    def _cuts(self, connection: sa.Connection, low: Any, high: Mapping[str, Any]) -> list[Any]:
        """Where to cut the range of a column of integers."""
        last, first = high["value"], None if low is None else low["value"]
        if self.units == 1:
            return []
        self._refuse_units(self.row_schema())
        if not isinstance(last, int) or not isinstance(first, int | None):
            return []
        if first is None:
            lowest = connection.execute(sa.select(sa.func.min(self._cursor))).scalar_one()
            if not isinstance(lowest, int):
                return []
            first = lowest - 1
        count = max(1, min(self.units, last - first))
        return [{**high, "value": first + (last - first) * n // count} for n in range(1, count)]

    def _reading(self) -> Any:
        return _Reading(self._engine)


class _Reading:
    """A connection whose errors are ours."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def __enter__(self) -> sa.Connection:
        try:
            self._connection = self._engine.connect()
        except SQLAlchemyError as error:
            raise _unavailable(error) from error
        return self._connection

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._connection.close()
        if isinstance(error, SQLAlchemyError) and not isinstance(error, NoSuchTableError):
            raise _unavailable(error) from error


def _as_it_is(query: str) -> str:
    """The database gets what was written: to SQLAlchemy a colon begins a parameter, and a backslash before it hides it.
    Behind a comment the bracket that closes the query needs a line of its own."""
    return query.strip().removesuffix(";").replace(":", "\\:") + "\n"


def _read_any_text(connection: Any, _: Any) -> None:
    # One text that is not UTF-8 would otherwise fail all rows.
    connection.text_factory = text_or_not


def _absolute(text: str) -> str:
    """A database in a file is the same one in a task, whatever directory that runs in."""
    try:
        url = sa.make_url(text)
    except SQLAlchemyError:
        raise InvalidArgument("This is no URL of a database", hint="Write it as SQLAlchemy does") from None
    if url.get_backend_name() != "sqlite" or not url.database or url.database.startswith((":memory:", "file:")):
        return text
    return url.set(database=os.path.abspath(url.database)).render_as_string(hide_password=False)


def _driver(package: str | None) -> str:
    """Where it comes from, of the database that a URL names."""
    if package == "psycopg2":  # which SQLAlchemy takes where a URL of PostgreSQL names none
        return f"Write postgresql+psycopg://…, whose driver {install('psycopg')} brings, on executors too"
    if package in BRINGS:
        return f"{install(package)}, on executors too"
    return "Install it, on executors too"


def _unavailable(error: SQLAlchemyError) -> SourceUnavailable:
    # The statement's parameters are the user's data and stay out of messages.
    cause = getattr(error, "orig", None) or error
    return SourceUnavailable(f"The database does not answer the query: {cause}")


def _field(column: Any, *, is_sqlite: bool) -> StructField:
    name = str(column.name)  # SQLAlchemy's own kind of text is no JSON
    try:
        kind = column.type.python_type
    except NotImplementedError:
        kind = None
    if kind is decimal.Decimal and column.type.precision:
        return StructField(name, DecimalType(column.type.precision, column.type.scale or 0))
    found = types.DOUBLE if kind is decimal.Decimal else _TYPES.get(kind) if kind else None
    if found is None:
        raise InvalidArgument(
            f"The type {column.type} of a database's column is not known here",
            column=column.name,
            hint="Say which columns to read, and how, by a schema",
        )
    # SQLite has texts for times, some with a zone.
    if kind is dt.datetime and not is_sqlite and not getattr(column.type, "timezone", False):
        found = types.TIMESTAMP_NTZ
    return StructField(name, found)


def _mark(value: Any, column: str, *, is_raw: bool) -> dict[str, Any]:
    """A value of the column as JSON that stands for it exactly."""
    match value:
        case float() if not math.isfinite(value):
            raise InvalidArgument(f"A column cannot be followed to {value}", column=column, hint="Leave such rows out")
        case bool() | int() | float() | str():
            return {"value": value, "kind": "raw"}
        case decimal.Decimal() if not is_raw and value.is_finite():
            return {"value": str(value), "kind": "decimal"}
        case dt.datetime() if not is_raw:
            return {"value": value.isoformat(), "kind": "time"}
        case dt.date() if not is_raw:
            return {"value": value.isoformat(), "kind": "date"}
        case _:
            raise InvalidArgument(
                f"A column of {type(value).__name__} cannot be followed",
                column=column,
                hint="Use numbers, texts, dates or times",
            )


def _literal(value: Any, kind: str, declared: Any) -> Any:
    match kind:
        case "time":
            moment = dt.datetime.fromisoformat(value)
            return sa.bindparam(None, moment, type_=sa.DateTime(timezone=moment.tzinfo is not None))
        case "date":
            return sa.bindparam(None, dt.date.fromisoformat(value), type_=sa.Date())
        case "decimal":
            return sa.bindparam(None, decimal.Decimal(value), type_=sa.Numeric())
        case _ if isinstance(value, float) and isinstance(declared, sa.Float):
            # A number of single precision is another one than its digits in double precision.
            return sa.cast(sa.bindparam(None, value), declared)
        case _:
            return sa.bindparam(None, value)


def _bound_of(low: Any) -> Mapping[str, Any]:
    """Units that an earlier release planned have the value alone."""
    return low if isinstance(low, Mapping) else {"value": low}
