"""`lakeseal.sql`: one statement of SQL, done by Lakeseal where it knows how, or planned by Spark or DuckDB."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakeseal.catalog.connect import CatalogLike
from lakeseal.catalogs import Catalog
from lakeseal.engines import read_by
from lakeseal.errors import InvalidArgument
from lakeseal.statements.parser import parse
from lakeseal.statements.statement import (
    AlterTable,
    CloneTable,
    Convert,
    CreateLike,
    CreateSchemaStatement,
    CreateTableStatement,
    Delete,
    Describe,
    DescribeColumn,
    Detail,
    DropSchemaStatement,
    DropTableStatement,
    Generate,
    History,
    Insert,
    Merge,
    OnTable,
    Optimize,
    Purge,
    Query,
    Restore,
    ShowColumns,
    ShowCreate,
    ShowProperties,
    ShowSchemas,
    ShowTables,
    StatedName,
    Statement,
    UpdateStatement,
    Vacuum,
    View,
)
from lakeseal.table import Owner, Table
from lakeseal.table_sql import changes, definitions, descriptions, queries
from lakeseal.table_sql.answers import answer, done
from lakeseal.table_sql.context import SqlContext, no_such_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def sql(
    text: str,
    spark: SparkSession | None = None,
    catalog: Catalog | CatalogLike | None = None,
    owner: Owner | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Any:
    """One statement, on tables by their paths, ``delta.`path` `` or ``lakeseal.`path` ``, and by names of the catalog.

    The answer is a DataFrame of `spark`, and without a session a pyarrow Table. Statements that change a table answer
    with one row: the version, whether it is new, and what was done. Queries are planned by Spark, and without it by
    DuckDB (`lakeseal[duckdb]`), which is asked so that it answers as Spark would, or not at all. Conditions and values
    are taken as they stand in the text, and mean what they mean to Spark in this session; without one, what they mean
    with ANSI mode on, in UTC. A statement that is about no table of ours goes to `spark.sql` untouched.

    Names are looked up in `catalog`, or in the one that LAKESEAL_CATALOG names; without a session also in the embedded
    one. `owner` and `storage_options` are for tables by their paths, the latter for all of them.

    >>> lakeseal.sql("SELECT id FROM delta.`orders` WHERE price > 5").to_pylist()
    [{'id': 3}]
    >>> lakeseal.sql("UPDATE delta.`orders` SET price = 1 WHERE id = 3")["version"].to_pylist()
    [2]
    """
    if not isinstance(text, str):
        raise InvalidArgument(
            f"The text of the statement comes first, not a {type(text).__name__}",
            hint='lakeseal.sql("SELECT …", spark)',
        )
    text = read_by(spark, text)
    context = SqlContext(spark, catalog, owner, storage_options, text)
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
                return self._show_tables(statement)
            case CreateSchemaStatement() | DropSchemaStatement() | ShowSchemas():
                return self._of_schemas(statement)
            case CreateLike():
                made = definitions.create_like(self._context, statement)
                return self._elsewhere(statement.table.shown) if made is None else made
            case CreateTableStatement() | CloneTable():
                made = definitions.create_named(self._context, statement)
                return self._elsewhere(statement.table.shown) if made is None else made
            case DropTableStatement():
                gone = definitions.drop(self._context, statement)
                return self._elsewhere(statement.table.shown) if gone is None else gone
            case _:
                table = self._context.existing(statement.table)
                if table is None:
                    return self._elsewhere(statement.table.shown)
                said = self._on(table, statement)
                if isinstance(statement, AlterTable | Insert | Merge | Restore):
                    self._context.keep_in_spark(statement.table)
                return said

    def _elsewhere(self, name: str) -> Any:
        """A statement about a table that is not ours; tables of ours may be in its queries."""
        if self._context.spark is None:
            raise no_such_table(name)
        return queries.frame_of(self._context, self._text)

    def _of_schemas(self, statement: CreateSchemaStatement | DropSchemaStatement | ShowSchemas) -> Any:
        if self._context.catalog is None:
            return queries.frame_of(self._context, self._text)
        match statement:
            case CreateSchemaStatement():
                return definitions.create_schema(self._context, self._context.catalog, statement)
            case DropSchemaStatement():
                return definitions.drop_schema(self._context, self._context.catalog, statement)
        found = self._context.catalog.schemas(*([] if statement.catalog is None else [statement.catalog]))
        if statement.like is not None:
            found = [name for name in found if _is_like(name, statement.like)]
        return answer(self._context, {"namespace": pa.string()}, [{"namespace": name} for name in found])

    def _show_tables(self, statement: ShowTables) -> Any:
        catalog = self._context.catalog
        if catalog is None:
            return queries.frame_of(self._context, self._text)
        schema = ".".join(f"`{part}`" for part in statement.schema) if statement.schema else None
        found = [one.name for one in catalog.tables(schema)]
        if statement.like is not None:
            found = [name for name in found if _is_like(name.table, statement.like)]
        rows = [
            {"namespace": f"{one.catalog}.{one.schema}", "tableName": one.table, "isTemporary": False} for one in found
        ]
        types = {"namespace": pa.string(), "tableName": pa.string(), "isTemporary": pa.bool_()}
        return answer(self._context, types, rows)

    def _on(self, table: Table, statement: OnTable) -> Any:
        context = self._context
        match statement:
            case Delete():
                return changes.delete(context, table, statement)
            case UpdateStatement():
                return changes.update(context, table, statement)
            case Merge():
                return changes.merge(context, table, statement)
            case Insert():
                return changes.insert(context, table, statement)
            case AlterTable():
                return definitions.alter(context, table, statement)
            case Optimize(where=where, zorder_by=names, full=full):
                return done(context, table.optimize(where, names, full=full, spark=context.spark))
            case Purge(where=where):
                return done(context, table.purge(where, spark=context.spark))
            case Generate(mode=mode):
                if mode.lower() != "symlink_format_manifest":
                    raise InvalidArgument(f"There is no mode {mode!r}", hint="It is symlink_format_manifest")
                return answer(context, {"path": pa.string()}, [{"path": key} for key in table.generate()])
            case Vacuum(hours=hours, dry_run=dry_run, lite=lite):
                listed = self._inventory(statement.inventory)
                deleted = table.vacuum(hours, dry_run, lite=lite, inventory=listed).deleted
                return answer(context, {"path": pa.string()}, [{"path": key} for key in deleted])
            case Restore(to=to):
                return done(context, table.restore(**context.moment(to)))
            case History():
                return descriptions.history(context, table, statement)
            case Detail():
                return descriptions.detail(context, table, table.name)
            case Describe():
                return descriptions.describe(context, table, statement)
            case DescribeColumn():
                return descriptions.describe_column(context, table, statement)
            case ShowColumns():
                return descriptions.show_columns(context, table)
            case ShowProperties():
                return descriptions.show_properties(context, table, statement)
            case ShowCreate():
                return descriptions.show_create(context, table, _quoted(statement.table.parts))
            case CreateTableStatement() | CreateLike() | CloneTable() | DropTableStatement():
                raise AssertionError("these are about names")

    def _inventory(self, named: StatedName | Query | None) -> Any:
        with queries.planned(self._context, "plan the inventory"):
            if isinstance(named, StatedName):
                return queries.rows_of_named(self._context, named)
            return None if named is None else queries.rows_of(self._context, named.text)


def _is_like(name: str, pattern: str) -> bool:
    """As Spark's LIKE of SHOW: `*` for anything, `|` between patterns, in any case."""
    return any(fnmatchcase(name.lower(), part.strip().lower()) for part in pattern.split("|"))


def _quoted(parts: tuple[str, ...]) -> str:
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)
