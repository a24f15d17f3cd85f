"""Queries: planned by Spark, or by DuckDB where there is no session, with our tables where they are named.

The text goes to whoever plans it as it was written, but for the names of tables. A table that is not ours is theirs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from lakeseal.errors import EvaluationError, InvalidExpression, LakesealError, UnsupportedExpression
from lakeseal.expr.lexer import tokenize
from lakeseal.expr.render import quote_name
from lakeseal.statements.references import Reference, references, replaced
from lakeseal.statements.statement import StatedName, TableChanges, View
from lakeseal.table import Table
from lakeseal.table_sql.context import FoundTable, SqlContext, no_such_table
from lakeseal.table_sql.duckdb_kinds import MACROS
from lakeseal.table_sql.duckdb_query import MARK, meaning_of
from lakeseal.table_sql.row_metadata import arrow_with_ids, asks_for_ids, frame_with_ids, has_ids
from lakeseal.table_sql.spelling import spelled, with_double_quotes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def rows_of(context: SqlContext, text: str) -> Any:
    """What a query gives: a DataFrame, or a pyarrow Table without Spark."""
    return frame_of(context, text) if context.spark is not None else arrow_of(context, text)


@contextmanager
def planned(context: SqlContext, what: str) -> Iterator[None]:
    """Around the query of a statement that is ours: where it means nothing to Spark, the error is ours, too."""
    if context.spark is None:
        yield
        return
    from lakeseal.spark.failures import analysed  # pyspark is an extra

    with analysed(what):
        yield


def rows_of_named(context: SqlContext, name: StatedName) -> Any:
    """All that a table has, ours or Spark's."""
    found = context.read(name)
    if found is not None:
        at = context.moment(found.at)
        return found.table.to_arrow(**at) if context.spark is None else found.table.to_spark(context.spark, **at)
    if name.at is not None or context.spark is None:
        raise no_such_table(name.shown)
    return context.spark.table(".".join(quote_name(part) for part in name.parts))


def frame_of(context: SqlContext, text: str) -> DataFrame:
    assert context.spark is not None
    found = _references(context, text)
    frames: dict[str, Any] = {}
    names: dict[int, str] = {}
    ids = asks_for_ids(text)
    for one in found:
        frame = _frame(context, one.named, ids)
        if frame is not None:
            name = f"lakeseal_{len(frames)}"
            frames[name] = frame
            names[one.start] = f"{{{name}}}"
    if not frames:
        return context.spark.sql(text)
    # Spark itself gives the frames names for the time that it needs them, in every kind of session.
    return context.spark.sql(replaced(text, found, names, braces=True), **frames)


@contextmanager
def viewed(context: SqlContext, *texts: str | None) -> Iterator[list[str | None]]:
    """Conditions and values with views for the tables that their subqueries name, for as long as this lasts."""
    views: list[str] = []
    changed: list[str | None] = []
    try:
        changed.extend(None if text is None else _with_views(context, text, views) for text in texts)
        yield changed
    finally:
        for view in views:
            assert context.spark is not None
            context.spark.catalog.dropTempView(view)


def create_view(context: SqlContext, view: View) -> Any:
    if context.spark is None:
        raise UnsupportedExpression("A view needs a session of Spark", hint="Give spark=…")
    frame = frame_of(context, view.query)
    if view.columns:
        if len(view.columns) != len(frame.columns):
            raise InvalidExpression(
                f"The view has {len(view.columns)} names for {len(frame.columns)} columns", hint="Name all of them"
            )
        frame = frame.toDF(*view.columns)
    make = (
        (frame.createOrReplaceGlobalTempView if view.or_replace else frame.createGlobalTempView)
        if view.is_global
        else (frame.createOrReplaceTempView if view.or_replace else frame.createTempView)
    )
    make(view.name)
    return context.spark.createDataFrame(pa.table({}))


def _with_views(context: SqlContext, text: str, views: list[str]) -> str:
    found = _references(context, text)
    names: dict[int, str] = {}
    for one in found:
        if context.spark is None:
            raise UnsupportedExpression("A subquery needs a session of Spark", hint="Give spark=…")
        frame = _frame(context, one.named)
        if frame is not None:
            name = f"__lakeseal_{uuid4().hex}"
            frame.createTempView(name)
            views.append(name)
            names[one.start] = name
    return replaced(text, found, names)


def _references(context: SqlContext, text: str) -> list[Reference]:
    try:
        return references(text, double_quoted_names=context.double_quoted_names, case_sensitive=context.case_sensitive)
    except InvalidExpression:
        if context.spark is None or "`" in text:
            raise
        return []  # no table by its path is in it, and Spark says better what is wrong


def _frame(context: SqlContext, named: StatedName | TableChanges, ids: bool = False) -> DataFrame | None:
    assert context.spark is not None
    found = context.read(named.table if isinstance(named, TableChanges) else named)
    if found is None:
        return None
    if isinstance(named, TableChanges):
        return found.table.changes_spark(context.spark, *_bounds(context, named, found))
    at = context.moment(found.at)
    if ids and has_ids(found.table, at):
        return frame_with_ids(found.table.to_spark(context.spark, row_ids=True, **at))
    return found.table.to_spark(context.spark, **at)


def _bounds(context: SqlContext, named: TableChanges, found: FoundTable) -> list[Any]:
    end = found.at.version if named.end is None and found.at is not None else named.end
    bounds = [named.start] if end is None else [named.start, end]
    return [bound if isinstance(bound, int) else context.timestamp(bound) for bound in bounds]


_STATEMENTS = frozenset(
    ("ADD", "ALTER", "ANALYZE", "BEGIN", "CACHE", "CALL", "CLEAR", "COMMENT", "COMMIT", "COPY", "CREATE", "DECLARE",
     "DESC", "DESCRIBE", "DROP", "EXECUTE", "EXPLAIN", "EXPORT", "FSCK", "GRANT", "LIST", "LOAD", "MSCK", "REFRESH",
     "REPAIR", "RESET", "REVOKE", "ROLLBACK", "SET", "SHOW", "UNCACHE", "UNDROP", "UNSET", "USE")
)  # fmt: skip


def arrow_of(context: SqlContext, text: str) -> pa.Table:
    """Planned by DuckDB, over our tables only, as Spark would answer; refused where it would answer otherwise."""
    first, second, *_ = (*tokenize(text, strict=False), None, None)
    if first is not None and first.keyword in _STATEMENTS:
        shown = first.text if second is None or second.kind != "name" else f"{first.text} {second.text}"
        raise UnsupportedExpression(
            f"{shown} is no statement of Lakeseal's own", hint="Spark may know it: give spark=…"
        )
    ids = asks_for_ids(text)
    return arrow_over(text, lambda named: _arrow(context, named, ids))


def arrow_over(text: str, rows_of_table: Callable[[StatedName | TableChanges], pa.Table | None]) -> pa.Table:
    """As `arrow_of`, over tables whose rows are given by their names."""
    try:
        import duckdb  # an extra
    except ImportError:
        raise UnsupportedExpression(
            "A query needs an engine that plans it, and there is none here",
            hint="Give spark=…, or pip install 'lakeseal[duckdb]'",
        ) from None
    check_duckdb(duckdb.__version__)
    found = references(spelled(text))
    names: dict[int, str] = {}
    with duckdb.connect(config={"autoinstall_known_extensions": "false", "python_enable_replacements": "false"}) as own:
        own.execute("SET TimeZone = 'UTC'")
        own.execute("SET default_null_order = 'nulls_first_on_asc_last_on_desc'")
        for macro in MACROS:
            own.execute(macro)
        for one in found:
            rows = rows_of_table(one.named)
            if rows is not None:
                name = names[one.start] = f"lakeseal_{len(names)}"
                _given(own, name, rows)
        try:
            query = meaning_of(own, with_double_quotes(replaced(text, found, names, quote=quote_name)))
            types = [row[1] for row in own.execute(f"DESCRIBE {query}").fetchall()]
            answer: pa.Table = own.execute(query).to_arrow_table()
            untyped = _untyped(own, query, answer, types)
        except duckdb.Error as error:
            raise _said(error, str(error)) from error
        return _with_longs(answer, [_NULL if place in untyped else kind for place, kind in enumerate(types)])


def check_duckdb(version: str) -> None:
    """Which of its answers are Spark's was found out of DuckDB 1; a later one may mean something else by a query."""
    if not version.startswith("1."):
        raise UnsupportedExpression(
            f"DuckDB {version} is installed, and that its answers are Spark's is known of DuckDB 1",
            hint="pip install 'lakeseal[duckdb]' brings that one; or give spark=…",
        )


_NULL = '"NULL"'


def _untyped(own: Any, query: str, answer: pa.Table, types: list[str]) -> set[int]:
    """Columns of nothing but NULL, which DuckDB calls integers in an answer."""
    if not any(kind == "INTEGER" and answer.column(n).null_count == answer.num_rows for n, kind in enumerate(types)):
        return set()
    inner = query.rstrip(";")
    asked = f"SELECT typeof(COLUMNS(q.*)) FROM (SELECT 1) AS one LEFT JOIN ({inner}) AS q ON false"  # noqa: S608  asked
    return {place for place, kind in enumerate(own.execute(asked).fetchone()) if kind == _NULL}


def _given(own: Any, name: str, rows: pa.Table) -> None:
    """DuckDB lets Arrow judge simple conditions, to which NaN is less than nothing: rows with one are copied to it."""
    if not any(_may_have_nan(rows.column(place)) for place in range(rows.num_columns)):
        own.register(name, rows)
        return
    own.register(f"{name}_arrow", rows)
    own.execute(f"CREATE TEMP TABLE {name} AS FROM {name}_arrow")
    own.unregister(f"{name}_arrow")


def _may_have_nan(column: pa.ChunkedArray) -> bool:
    if pa.types.is_floating(column.type):
        return bool(pc.any(pc.is_nan(column)).as_py())
    return pa.types.is_nested(column.type) and any(name in str(column.type) for name in ("float", "double"))


_UNKNOWN = re.compile(r"Catalog Error: Table with name (.+?) does not exist")


def _said(error: Exception, message: str) -> LakesealError:
    if MARK in message and type(error).__name__ == "InvalidInputException":
        what = message.split(MARK, 1)[1].split("\n", 1)[0].strip()
        return UnsupportedExpression(
            f"Without Spark a query must mean the same to DuckDB, and {what} does not",
            hint="Cast the values, or give spark=…",
        )
    if type(error).__name__ in ("OutOfRangeException", "ConversionException") or "Division by zero" in message:
        return EvaluationError(f"DuckDB says: {message}", hint="Mend the values, or leave their rows out")
    unknown = _UNKNOWN.search(message)
    if unknown is not None:
        return no_such_table(unknown[1])
    return InvalidExpression(f"DuckDB says: {message}", hint="Without Spark a query has to be one of DuckDB's, too")


def _with_longs(rows: pa.Table, types: list[str]) -> pa.Table:
    """A sum of integers is a long to Spark, and one that is too large an error; NULL alone has no type, and goes into
    every column."""
    for place, kind in enumerate(types):
        if kind == _NULL:
            rows = rows.set_column(place, rows.field(place).with_type(pa.null()), pa.nulls(rows.num_rows))
        if kind == "HUGEINT":
            try:
                longs = rows.column(place).cast(pa.int64())
            except pa.ArrowInvalid as error:
                raise EvaluationError(
                    "A number of the answer is too large for a BIGINT", column=rows.field(place).name
                ) from error
            rows = rows.set_column(place, rows.field(place).with_type(pa.int64()), longs)
    return rows


def _arrow(context: SqlContext, named: StatedName | TableChanges, ids: bool) -> pa.Table | None:
    found = context.read(named.table if isinstance(named, TableChanges) else named)
    if found is None:
        return None
    table: Table = found.table
    if isinstance(named, TableChanges):
        return table.changes(*_bounds(context, named, found))
    at = context.moment(found.at)
    return arrow_with_ids(table.to_arrow(row_ids=True, **at)) if ids and has_ids(table, at) else table.to_arrow(**at)
