"""`lakeseal.sql`: one statement of SQL, done by Lakeseal where it knows how, and by Spark otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakeseal.commit.transaction import CommitResult
from lakeseal.spark import sql as statements
from lakeseal.table import Table
from lakeseal.write.merge_builder import MergeBuilder
from lakeseal.write.write_command import NothingToDo

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def sql(spark: SparkSession, text: str) -> DataFrame:
    """MERGE, DELETE, UPDATE, OPTIMIZE, VACUUM, DESCRIBE HISTORY and RESTORE on ``delta.`path` `` or
    ``lakeseal.`path` ``; what is not understood goes to `spark.sql` untouched.

    Commands answer with one row: the version, whether it is new, and what was done."""
    statement = statements.parse(text)
    if statement is None:
        return spark.sql(text)
    table = Table(statement.path)
    match statement:
        case statements.Delete(where=where):
            return _told(spark, table.delete(where, spark=spark))
        case statements.Update(values=values, where=where):
            return _told(spark, table.update(values, where, spark=spark))
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


def _merge(spark: SparkSession, table: Table, statement: statements.Merge) -> MergeBuilder:
    source = statement.source
    if source.path is not None:
        frame = Table(source.path).to_spark(spark)
    else:
        frame = spark.table(source.name) if source.name is not None else spark.sql(source.query or "")
    merge = table.merge(frame, statement.on, source_alias=statement.source_alias, target_alias=statement.target_alias)
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
