"""Rows of a table's files in Spark, each with its place: the number of its file and its position in it.

What changes rows must be able to name them. Tasks read the files as Arrow, so that positions are those that deletion
vectors speak of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np
import pyarrow as pa
import pyspark.sql.types as spark
from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession

from lakeseal.jobs.search import is_chosen
from lakeseal.log.data import DataFile, DataReader, ReadSpec
from lakeseal.spark.read_task import MAX_SPLIT_BYTES, opener, runs, split_goal
from lakeseal.spark.rows import for_spark, rows_schema
from lakeseal.spark.scan import run_in_tasks
from lakeseal.storage import StoreSpec

FILE = "__lakeseal_file"
ROW = "__lakeseal_row"
CHOSEN = "__lakeseal_chosen"


class PlacedTask(Struct, frozen=True, kw_only=True):
    store: StoreSpec
    spec: ReadSpec
    """With `ROW` as its position column."""
    chosen: bool = False
    """Whether rows come with `CHOSEN`: whether they are of those that their file's `chosen` names."""

    @property
    def schema(self) -> spark.StructType:
        tracked = () if self.spec.row_ids is None else self.spec.row_ids.fields
        fields = list(rows_schema((*self.spec.wanted(), *tracked)).fields)
        places = [spark.StructField(ROW, spark.LongType()), spark.StructField(FILE, spark.IntegerType())]
        chosen = [spark.StructField(CHOSEN, spark.BooleanType())] if self.chosen else []
        return spark.StructType([*fields, *places, *chosen])

    def read(self, split: bytes) -> Iterator[pa.RecordBatch]:
        reader = DataReader(self.store.open(), self.spec, outside=opener(self.store))
        files = msgspec.msgpack.decode(split, type=list[tuple[int, DataFile]])
        schema = reader.schema.append(pa.field(FILE, pa.int32()))
        if self.chosen:
            schema = schema.append(pa.field(CHOSEN, pa.bool_()))
        return for_spark(self._placed(reader, files), schema)

    def _placed(self, reader: DataReader, files: Iterable[tuple[int, DataFile]]) -> Iterator[pa.RecordBatch]:
        for number, file in files:
            for batch in reader.read_file(file):
                if batch.num_rows:
                    placed = batch.append_column(FILE, pa.repeat(pa.scalar(number, pa.int32()), batch.num_rows))
                    yield (
                        placed
                        if not self.chosen
                        else placed.append_column(CHOSEN, pa.array(is_chosen(file, batch.column(ROW).to_numpy())))
                    )


def placed_rows(
    session: SparkSession,
    store: StoreSpec,
    spec: ReadSpec,
    files: Sequence[tuple[int, DataFile]],
    *,
    chosen: bool = False,
) -> DataFrame:
    """Rows of these files, with `FILE` and `ROW`, and `CHOSEN` if asked for. Each file comes with its number."""
    task = PlacedTask(store=store, spec=msgspec.structs.replace(spec, position_column=ROW), chosen=chosen)
    sizes = np.array([file.size or 0 for _, file in files], np.int64) + 2**20
    goal = split_goal(int(sizes.sum()), MAX_SPLIT_BYTES)
    splits = [msgspec.msgpack.encode(list(files[first:last])) for first, last in runs(sizes, goal)]
    return run_in_tasks(session, task, splits, f"rows of {store.uri}")
