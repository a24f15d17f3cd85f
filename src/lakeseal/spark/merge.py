"""MERGE of a Spark DataFrame into a table."""

from __future__ import annotations

from pyspark.sql import DataFrame

from lakeseal.commit.transaction import CommitResult, OptimisticTransaction
from lakeseal.spark.failures import recovered
from lakeseal.storage import StoreSpec
from lakeseal.write import merge_command
from lakeseal.write.engine import InProcessEngine
from lakeseal.write.merge_clauses import MergeCommand
from lakeseal.write.write_command import NothingToDo


def run(
    command: MergeCommand, txn: OptimisticTransaction, source: DataFrame, *, store: StoreSpec
) -> CommitResult | NothingToDo:
    with recovered():
        rows = merge_command.read_source(source.toArrow())
    return merge_command.run(command, txn, rows, engine=InProcessEngine(), store=store)
