"""`SparkEngine`: tasks of commands that change rows, on Spark's executors.

They read and write files in Arrow; rows never enter the JVM. What a task was told and what it answers is JSON.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from lakeseal import typed_json
from lakeseal.commit.transaction import CommitResult, OptimisticTransaction
from lakeseal.spark import merge
from lakeseal.spark.failures import noted, recovered
from lakeseal.spark.runner import SparkRunner
from lakeseal.spark.tasks import split_from_json, split_to_json
from lakeseal.storage import StoreSpec
from lakeseal.write.merge_clauses import Clause, MergeCommand
from lakeseal.write.progress import Progress
from lakeseal.write.runner import WriteRunner
from lakeseal.write.search import Found, Search
from lakeseal.write.write_command import NothingToDo

_FOUND = "found string"


class SparkEngine:
    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def runner(self, progress: Progress) -> WriteRunner:
        return SparkRunner(self.spark)

    def search(self, search: Search, progress: Progress) -> list[Found]:
        rows = [(number, split_to_json(split)) for number, split in enumerate(search.splits)]
        frame = self.spark.createDataFrame(rows, "split int, files string").repartitionById(len(rows), "split")
        task = SearchTask(f"search in {sum(map(len, search.splits))} files of {search.store.uri}", search)
        with recovered():
            answers = frame.mapInArrow(task, _FOUND).collect()
        return [found for row in answers for found in typed_json.decode(row.found, list[Found])]

    def change_in_plan(
        self,
        clause: Clause,
        txn: OptimisticTransaction,
        *,
        store: StoreSpec,
        user_metadata: str | None,
        now: datetime.datetime,
        progress: Progress,
    ) -> CommitResult | NothingToDo:
        command = MergeCommand(on="false", clauses=(clause,), user_metadata=user_metadata, now=now)
        return merge.run_change(self.spark, command, txn, store=store, bar=progress)


class SearchTask:
    """Looks through the files that it is told, which must be those of one split."""

    def __init__(self, name: str, search: Search) -> None:
        self.__name__ = name
        self._search = msgspec.json.encode(msgspec.structs.replace(search, splits=())).decode()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        search = typed_json.decode(self._search, Search)
        files = [file for batch in batches for text in batch["files"].to_pylist() for file in split_from_json(text)]
        with noted():
            found = msgspec.structs.replace(search, splits=(tuple(files),)).run(0)
        yield pa.RecordBatch.from_pydict({"found": [msgspec.json.encode(found).decode()]})
