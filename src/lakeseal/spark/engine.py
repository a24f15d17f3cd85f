"""`SparkEngine`: tasks of commands that change rows, on Spark's executors, and Spark as the judge of their expressions.

Where `expr` judges as the session does, tasks read and write files in Arrow, and rows never enter the JVM. Elsewhere
(another zone, ANSI mode off, a subquery, a function that only Spark has, …) Spark is given the rows with their places
and the condition as it was written, and tells which rows it chose. What tasks are told and what they answer is JSON.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from lakeseal import typed_json
from lakeseal.log.data import DataFile, ReadSpec
from lakeseal.protocol.deletion_vectors import Positions, decode, encode
from lakeseal.protocol.schema import DataType, StructType
from lakeseal.spark.failures import analysed, noted, recovered
from lakeseal.spark.interpreter import use_this_python
from lakeseal.spark.placed_rows import FILE, ROW, placed_rows
from lakeseal.spark.predicates import Settings, columns_of, judged, same_value, understood
from lakeseal.spark.runner import SparkRunner
from lakeseal.spark.store_assignment import stores_alike
from lakeseal.spark.tasks import split_from_json, split_to_json
from lakeseal.write.progress import Progress
from lakeseal.write.runner import WriteRunner
from lakeseal.write.search import Found, Search

_FOUND = "found string"
_PLACES = "file int, rows binary, count long"


class SparkEngine:
    def __init__(self, spark: SparkSession) -> None:
        use_this_python(spark)
        self.spark = spark

    @cached_property
    def _settings(self) -> Settings:
        """As they are when a command begins."""
        return Settings.of(self.spark)

    def runner(self, progress: Progress) -> WriteRunner:
        return SparkRunner(self.spark, self._settings)

    def judged(self, where: str, schema: StructType) -> str | None:
        return judged(where, schema, self._settings)

    def understood(self, where: str, schema: StructType) -> str | None:
        return understood(where, schema, self._settings)

    def evaluates(self, text: str, schema: StructType, target: DataType | None = None) -> bool:
        return stores_alike(target, self._settings) and same_value(text, schema, self._settings)

    def search(self, search: Search, progress: Progress) -> list[Found]:
        if search.in_plan:
            return self._search_in_plan(search)
        rows = [(number, split_to_json(split)) for number, split in enumerate(search.splits)]
        frame = self.spark.createDataFrame(rows, "split int, files string").repartitionById(len(rows), "split")
        task = SearchTask(f"search in {sum(map(len, search.splits))} files of {search.store.uri}", search)
        with recovered():
            answers = frame.mapInArrow(task, _FOUND).collect()
        return [found for row in answers for found in typed_json.decode(row.found, list[Found])]

    def _search_in_plan(self, search: Search) -> list[Found]:
        files = [file for split in search.splits for file in split]
        columns = columns_of(search.where, search.table, self._settings)
        spec = ReadSpec(
            schema=search.table,
            partition_columns=search.partition_columns,
            mapping=search.mapping,
            columns=columns,
            max_decoded_bytes=search.max_decoded_bytes,
            places=search.places,
        )
        with recovered(), analysed("judge this condition"):
            rows = placed_rows(self.spark, search.store, spec, list(enumerate(files)))
            chosen = rows.where(search.where).select(FILE, ROW)
            answers = chosen.mapInArrow(_places, _PLACES).collect()
        found: dict[int, Positions] = {}
        for row in answers:
            here = decode(bytes(row["rows"]), row["count"])
            found[row["file"]] = np.union1d(found[row["file"]], here) if row["file"] in found else here
        counts = self._counts(search, spec, {number: files[number] for number in found})
        return search.told([(files[number], counts[number], positions) for number, positions in sorted(found.items())])

    def _counts(self, search: Search, spec: ReadSpec, files: dict[int, DataFile]) -> dict[int, int]:
        """How many rows readers see in each file, by the log where it says so."""
        known = {number: search.rows[file.path] for number, file in files.items() if file.path in search.rows}
        unknown = [(number, file) for number, file in files.items() if number not in known]
        if unknown:
            none = msgspec.structs.replace(spec, columns=())
            with recovered():
                counted = placed_rows(self.spark, search.store, none, unknown).groupBy(FILE).count().collect()
            known |= {row[FILE]: row["count"] for row in counted}
        return known


class SearchTask:
    """Looks through the files that it is told, which must be those of one split."""

    def __init__(self, name: str, search: Search) -> None:
        self.__name__ = name
        self._search = msgspec.json.encode(msgspec.structs.replace(search, splits=(), rows={})).decode()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        search = typed_json.decode(self._search, Search)
        files = [file for batch in batches for text in batch["files"].to_pylist() for file in split_from_json(text)]
        with noted():
            found = msgspec.structs.replace(search, splits=(tuple(files),)).run(0)
        yield pa.RecordBatch.from_pydict({"found": [msgspec.json.encode(found).decode()]})


def _places(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Places of rows, put together: for each file of the partition the positions in it."""
    parts: dict[int, list[Positions]] = {}
    for batch in batches:
        files, rows = batch.column(0).to_numpy(), batch.column(1).to_numpy()
        for file in np.unique(files):
            parts.setdefault(int(file), []).append(rows[files == file].astype(np.uint64))
    whole = {file: np.unique(np.concatenate(positions)) for file, positions in parts.items()}
    yield pa.RecordBatch.from_arrays(
        [
            pa.array(list(whole), pa.int32()),
            pa.array([encode(positions) for positions in whole.values()], pa.binary()),
            pa.array([len(positions) for positions in whole.values()], pa.int64()),
        ],
        names=["file", "rows", "count"],
    )
