"""`lakeseal.sql`: one statement of SQL, done by Lakeseal where it knows how, and by Spark otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from lakeseal.commands.command import NothingToDo
from lakeseal.commands.merge.builder import MergeBuilder
from lakeseal.commit.transaction import CommitResult
from lakeseal.spark import sql as statements
from lakeseal.spark.predicates import Settings
from lakeseal.spark.sql_qualifiers import unqualified
from lakeseal.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def sql(spark: SparkSession, text: str) -> DataFrame:
    """MERGE, DELETE, UPDATE, OPTIMIZE, VACUUM, DESCRIBE HISTORY and RESTORE on ``delta.`path` `` or
    ``lakeseal.`path` ``; every other statement goes to `spark.sql` untouched.

    Conditions and values are taken as they stand in the text, and mean what they mean to Spark in this session.
    Commands answer with one row: the version, whether it is new, and what was done."""
    settings = Settings.of(spark)
    statement = statements.parse(text, double_quoted_names=settings.double_quoted_names)
    if statement is None:
        return spark.sql(text)
    table = Table(statement.path)
    match statement:
        case statements.Delete(where=where, alias=alias):
            own = _Alias(alias, table, settings)
            return _told(spark, table.delete(own.cut(where), spark=spark))
        case statements.Update(values=values, where=where, alias=alias):
            own = _Alias(alias, table, settings)
            cut = {own.cut(name): own.cut(value) for name, value in values.items()}
            return _told(spark, table.update(cut, own.cut(where), spark=spark))
        case statements.Merge():
            return _told(spark, _merge(spark, table, statement).execute())
        case statements.Optimize(where=where, zorder_by=names):
            return _told(spark, table.optimize(where, names, spark=spark))
        case statements.Vacuum(hours=hours, dry_run=dry_run):
            deleted = table.vacuum(hours, dry_run).deleted
            return spark.createDataFrame([(key,) for key in deleted], "path string")
        case statements.History(limit=limit):
            return _history(spark, table.history(limit))
        case statements.Restore(version=version, timestamp=timestamp):
            return _told(spark, table.restore(version, timestamp))


class _Alias:
    """The name that a statement gives to the only table that it is about."""

    def __init__(self, name: str | None, table: Table, settings: Settings) -> None:
        self._name = name
        self._table = table
        self._settings = settings

    @overload
    def cut(self, text: str) -> str: ...
    @overload
    def cut(self, text: str | None) -> str | None: ...
    def cut(self, text: str | None) -> str | None:
        """The text with the table's own names."""
        if text is None or self._name is None:
            return text
        return unqualified(
            text,
            self._name,
            self._table.snapshot().schema,
            case_sensitive=self._settings.case_sensitive,
            double_quoted_names=self._settings.double_quoted_names,
        )


def _merge(spark: SparkSession, table: Table, statement: statements.Merge) -> MergeBuilder:
    source = statement.source
    if source.path is not None:
        frame = Table(source.path).to_spark(spark)
    else:
        frame = spark.table(source.name) if source.name is not None else spark.sql(source.query or "")
    merge = table.merge(
        frame,
        statement.on,
        merge_schema=statement.merge_schema,
        # A side without a name must not get one by which a column may be called, too.
        source_alias=statement.source_alias or "__lakeseal_source",
        target_alias=statement.target_alias or "__lakeseal_target",
    )
    return merge.with_clauses(*statement.clauses)


def _told(spark: SparkSession, result: CommitResult | NothingToDo) -> DataFrame:
    is_new = isinstance(result, CommitResult)
    row = {"version": result.version, "committed": is_new, **{k: int(v) for k, v in result.metrics.items()}}
    types = ["version long", "committed boolean", *(f"{name} long" for name in result.metrics)]
    return spark.createDataFrame([tuple(row.values())], ", ".join(types))


def _history(spark: SparkSession, entries: list[dict[str, Any]]) -> DataFrame:
    texts = "map<string,string>"
    types = {
        "version": "long",
        "timestamp": "string",
        "operation": "string",
        "operationParameters": texts,
        "readVersion": "long",
        "isolationLevel": "string",
        "isBlindAppend": "boolean",
        "operationMetrics": texts,
        "userMetadata": "string",
        "engineInfo": "string",
    }
    rows = [tuple(entry.get(name) for name in types) for entry in entries]
    return spark.createDataFrame(rows, ", ".join(f"{name} {kind}" for name, kind in types.items()))


__all__ = ["sql"]
