"""`sql`: the rows of a database's table or query, by a column that only grows.

A run reads rows whose column is above the watermark, up to the largest value that there was when it began. So the
column must grow: a row that is committed later with a value at or below the watermark is not read, and `delay_seconds`
is for columns of times in which rows may be committed a little late. Rows without a value there are never read either;
a note says that there are some.
"""

from __future__ import annotations

import datetime as dt
import decimal
import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from msgspec.structs import force_setattr
from sqlalchemy.exc import NoSuchTableError, SQLAlchemyError

from lakeseal.errors import InvalidArgument, SchemaMismatch, SourceNotFound, SourceUnavailable
from lakeseal.ingest.schema_text import parse_schema
from lakeseal.ingest.source import Chunk, Plan, Source, Watermark, WorkUnit, register_source
from lakeseal.protocol import schema as types
from lakeseal.protocol.arrow import to_arrow
from lakeseal.protocol.schema import DataType, DecimalType, StructField, StructType

_ROWS = 20_000
_ROW_BYTES = 200
_TYPES: dict[type, DataType] = {
    bool: types.BOOLEAN,
    int: types.LONG,
    float: types.DOUBLE,
    str: types.STRING,
    bytes: types.BINARY,
    dt.date: types.DATE,
    dt.datetime: types.TIMESTAMP,
}


@register_source
class SqlSource(Source, frozen=True, kw_only=True, tag="sql", dict=True):
    url: str
    """As SQLAlchemy has it: postgresql+psycopg://…, sqlite:///….; its driver must be installed on executors too."""
    column: str
    """Which grows."""
    table: str | None = None
    query: str | None = None
    """Instead of a table; needs a schema."""
    schema: str | None = None
    """Of the rows, as Spark writes it; a table's own is taken if there is none."""
    start: int | float | str | None = None
    """Where to begin without a watermark: rows above this."""
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
        if self.units < 1:
            raise InvalidArgument("units must be 1 or more")

    def describe(self) -> str:
        return f"sql {self.table or 'query'} by {self.column}"

    def row_schema(self) -> StructType:
        if self.schema is not None:
            return parse_schema(self.schema)
        return StructType(tuple(_field(column) for column in self._from.columns))

    def plan(self, watermarks: Mapping[str, Watermark]) -> Plan:
        mark = watermarks.get("")
        low = self.start if mark is None else mark["value"]
        column = self._from.c[self.column]
        top = sa.select(sa.func.max(column), sa.func.count() - sa.func.count(column))
        if self.delay_seconds:
            then = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=self.delay_seconds)
            top = top.where(column <= (then if getattr(column.type, "timezone", False) else then.replace(tzinfo=None)))
        with self._reading() as connection:
            highest, unset = connection.execute(top).one()
        notes = (f"{unset} rows have no {self.column} and are never read",) if unset else ()
        if highest is None or (mark is not None and highest <= _native(low, highest)):
            return Plan(notes=notes)
        high = _json(highest)
        edges = [low, high]
        if self.units > 1 and isinstance(high, int) and isinstance(low, int | None):
            first = low if low is not None else self._lowest(column) - 1
            count = max(1, min(self.units, high - first))
            edges = [low, *(first + (high - first) * n // count for n in range(1, count)), high]
        units = tuple(
            WorkUnit(
                partition="",
                low=mark if n == 0 else {"value": edges[n]},
                high={"value": edges[n + 1]},
                payload={"low": edges[n]},
            )
            for n in range(len(edges) - 1)
        )
        return Plan(units=units, notes=notes)

    def read(self, unit: WorkUnit) -> Iterator[Chunk]:
        arrow = to_arrow(self.row_schema())
        column = self._from.c[self.column]
        wanted = sa.select(*(self._from.c[name] for name in arrow.names)).order_by(column)
        wanted = wanted.where(column <= self._bound(unit.high["value"], column))
        if unit.payload["low"] is not None:
            wanted = wanted.where(column > self._bound(unit.payload["low"], column))
        with self._reading() as connection:
            result = connection.execution_options(yield_per=_ROWS).execute(wanted)
            for rows in result.partitions():
                columns = [_array(values, field) for values, field in zip(zip(*rows, strict=True), arrow, strict=True)]
                yield Chunk(
                    rows=pa.RecordBatch.from_arrays(columns, schema=arrow), bytes=sum(c.nbytes for c in columns)
                )

    def close(self) -> None:
        if "_engine" in self.__dict__:
            self.__dict__.pop("_engine").dispose()
            self.__dict__.pop("_from", None)

    @cached_property
    def _engine(self) -> sa.Engine:
        try:
            return sa.create_engine(self.url)
        except (SQLAlchemyError, ModuleNotFoundError) as error:
            raise InvalidArgument(f"The database cannot be reached: {error}", hint="Install its driver") from None

    @cached_property
    def _from(self) -> Any:
        if self.query is not None:
            names: list[Any] = [sa.column(field.name) for field in parse_schema(self.schema or "").fields]
            return sa.text(self.query).columns(*names).subquery("input")
        schema, _, name = str(self.table).rpartition(".")
        try:
            with self._reading() as connection:
                found = sa.Table(name, sa.MetaData(), schema=schema or None, autoload_with=connection)
        except NoSuchTableError as error:
            raise SourceNotFound(f"The database has no table {self.table}") from error
        if self.column not in found.c:
            raise InvalidArgument(f"The table {self.table} has no column {self.column!r}", column=self.column)
        return found

    def _lowest(self, column: Any) -> int:
        with self._reading() as connection:
            return int(connection.execute(sa.select(sa.func.min(column))).scalar_one())

    def _bound(self, value: Any, column: Any) -> Any:
        try:
            wanted = column.type.python_type
        except NotImplementedError:
            return value
        if wanted is dt.datetime and isinstance(value, str):
            moment = dt.datetime.fromisoformat(value)
            return moment if getattr(column.type, "timezone", False) else moment.replace(tzinfo=None)
        return dt.date.fromisoformat(value) if wanted is dt.date and isinstance(value, str) else value

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


def _absolute(text: str) -> str:
    """A database in a file is the same one in a task, whatever directory that runs in."""
    try:
        url = sa.make_url(text)
    except SQLAlchemyError:
        raise InvalidArgument("This is no URL of a database", hint="Write it as SQLAlchemy does") from None
    if url.get_backend_name() != "sqlite" or not url.database or url.database.startswith((":memory:", "file:")):
        return text
    return url.set(database=os.path.abspath(url.database)).render_as_string(hide_password=False)


def _unavailable(error: SQLAlchemyError) -> SourceUnavailable:
    # The statement's parameters are the user's data and stay out of messages.
    cause = getattr(error, "orig", None) or error
    return SourceUnavailable(f"The database does not answer the query: {cause}")


def _field(column: Any) -> StructField:
    try:
        kind = column.type.python_type
    except NotImplementedError:
        kind = None
    if kind is decimal.Decimal and column.type.precision:
        return StructField(column.name, DecimalType(column.type.precision, column.type.scale or 0))
    found = types.DOUBLE if kind is decimal.Decimal else _TYPES.get(kind) if kind else None
    if found is None:
        raise InvalidArgument(
            f"The type {column.type} of a database's column is not known here",
            column=column.name,
            hint="Say which columns to read, and how, by a schema",
        )
    if kind is dt.datetime and not getattr(column.type, "timezone", False):
        found = types.TIMESTAMP_NTZ
    return StructField(column.name, found)


def _array(values: Any, field: pa.Field) -> pa.Array:
    try:
        return pa.array(values, field.type)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise SchemaMismatch(
            f"A database's column cannot be read as {field.type}: {error}",
            column=field.name,
            hint="Mend the source's schema",
        ) from error


def _json(value: Any) -> Any:
    match value:
        case bool() | int() | float() | str():
            return value
        case decimal.Decimal() if value == value.to_integral_value():
            return int(value)
        case dt.datetime() | dt.date():
            return value.isoformat()
        case _:
            raise InvalidArgument(
                f"A column of {type(value).__name__} cannot be followed", hint="Use numbers, texts, dates or times"
            )


def _native(low: Any, like: Any) -> Any:
    """A watermark as the database gives such values."""
    if isinstance(like, dt.datetime):
        return dt.datetime.fromisoformat(low)
    return dt.date.fromisoformat(low) if isinstance(like, dt.date) else low
