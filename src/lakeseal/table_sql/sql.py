"""`lakeseal.sql`: one statement of SQL, done by Lakeseal where it knows how, or planned by Spark or DuckDB."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakeseal.errors import InvalidArgument, TableNotFound, UnsupportedExpression, UnsupportedFeature
from lakeseal.statements.parser import parse
from lakeseal.statements.statement import (
    AlterTable,
    CloneTable,
    Convert,
    CreateTable,
    Delete,
    Describe,
    Detail,
    DropTable,
    History,
    Insert,
    Merge,
    OnTable,
    Optimize,
    Query,
    Restore,
    ShowColumns,
    ShowCreate,
    ShowProperties,
    ShowTables,
    Statement,
    Update,
    Vacuum,
    View,
)
from lakeseal.table import Owner, Table
from lakeseal.table_sql import changes, definitions, descriptions, queries
from lakeseal.table_sql.answers import answer, done
from lakeseal.table_sql.context import SqlContext

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def sql(
    text: str,
    spark: SparkSession | None = None,
    catalog: Any = None,
    owner: Owner | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Any:
    """One statement, on tables by their paths, ``delta.`path` `` or ``lakeseal.`path` ``, and by names of the catalog.

    The answer is a DataFrame of `spark`, and without a session a pyarrow Table. Statements that change a table answer
    with one row: the version, whether it is new, and what was done. Queries are planned by Spark, and without it by
    DuckDB (`lakeseal[duckdb]`), in its dialect. Conditions and values are taken as they stand in the text, and mean
    what they mean to Spark in this session; without one, what they mean with ANSI mode on, in UTC. A statement that is
    about no table of ours goes to `spark.sql` untouched."""
    if not isinstance(text, str):
        raise InvalidArgument(
            f"The text of the statement comes first, not a {type(text).__name__}",
            hint='lakeseal.sql("SELECT …", spark)',
        )
    context = SqlContext(spark, catalog, owner, storage_options)
    statement = parse(text, double_quoted_names=context.double_quoted_names, lenient=spark is not None)
    return _Execution(context, text).run(statement)


class _Execution:
    def __init__(self, context: SqlContext, text: str) -> None:
        self._context = context
        self._text = text

    def run(self, statement: Statement) -> Any:
        match statement:
            case Query(text=text):
                return queries.rows_of(self._context, text)
            case View():
                return queries.create_view(self._context, statement)
            case Convert():
                return definitions.convert(self._context, statement)
            case ShowTables():
                return self._show_tables()
            case CreateTable(table=name) | CloneTable(table=name):
                made = self._context.to_make(name)
                return self._elsewhere(name.shown) if made is None else self._create(made, statement)
            case _:
                table = self._context.existing(statement.table)
                return self._elsewhere(statement.table.shown) if table is None else self._on(table, statement)

    def _elsewhere(self, name: str) -> Any:
        """A statement about a table that is not ours; tables of ours may be in its queries."""
        if self._context.spark is None:
            raise TableNotFound(
                "There is no table of this name",
                table=name,
                hint="Name it by its path, delta.`path`, or give catalog=…",
            )
        return queries.frame_of(self._context, self._text)

    def _show_tables(self) -> Any:
        if self._context.spark is None:
            raise UnsupportedExpression("Without a catalog there are no names", hint="Give catalog=…")
        return self._context.spark.sql(self._text)

    def _create(self, table: Table, statement: CreateTable | CloneTable) -> Any:
        if isinstance(statement, CloneTable):
            return definitions.clone(self._context, table, statement)
        return definitions.create(self._context, table, statement)

    def _on(self, table: Table, statement: OnTable) -> Any:
        context = self._context
        match statement:
            case Delete():
                return changes.delete(context, table, statement)
            case Update():
                return changes.update(context, table, statement)
            case Merge():
                return changes.merge(context, table, statement)
            case Insert():
                return changes.insert(context, table, statement)
            case AlterTable():
                return definitions.alter(context, table, statement)
            case DropTable():
                raise UnsupportedFeature(
                    "A table by its path has no name that could be dropped",
                    table=table.uri,
                    hint="Delete its rows and VACUUM it, or delete its directory",
                )
            case Optimize(where=where, zorder_by=names, full=full):
                if full:
                    raise UnsupportedFeature("OPTIMIZE FULL is for clustered tables", table=table.uri)
                return done(context, table.optimize(where, names, spark=context.spark))
            case Vacuum(hours=hours, dry_run=dry_run, lite=lite):
                if lite:
                    raise UnsupportedFeature("VACUUM LITE is not supported", table=table.uri, hint="Leave LITE out")
                deleted = table.vacuum(hours, dry_run).deleted
                return answer(context, {"path": pa.string()}, [{"path": key} for key in deleted])
            case Restore(to=to):
                return done(context, table.restore(**context.moment(to)))
            case History():
                return descriptions.history(context, table, statement)
            case Detail():
                return descriptions.detail(context, table, None)
            case Describe():
                return descriptions.describe(context, table, statement)
            case ShowColumns():
                return descriptions.show_columns(context, table)
            case ShowProperties():
                return descriptions.show_properties(context, table, statement)
            case ShowCreate():
                return descriptions.show_create(context, table, _quoted(statement.table.parts))
            case CreateTable() | CloneTable():
                return self._create(table, statement)


def _quoted(parts: tuple[str, ...]) -> str:
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)
