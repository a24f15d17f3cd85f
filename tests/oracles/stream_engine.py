"""A stream engine without Spark that asks a source what Spark's asks, in the same order.

That it does is held against Spark itself by `test_spark_calls_a_source_as_these_tests_do`.
"""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from lakeseal.spark.datasource import LakesealDataSource
from lakeseal.spark.stream_source import StreamSource


class Engine:
    """Does with a source what Spark does, call by call (`test_spark_calls_a_source_as_these_tests_do`): asks for the
    initial offset when it plans the first batch and again when it runs it, runs that batch even if it is empty,
    remembers ends and nothing else. `crash` forgets that a batch was run, but not how it was planned."""

    def __init__(self, uri: str | Path, offset: dict[str, Any] | None = None, **options: Any) -> None:
        self.options = {"path": str(uri), **{name: str(value) for name, value in options.items()}}
        self.offset = offset
        self.planned: dict[str, Any] | None = None
        self.frame = self.load()
        self.source = self.new_source()

    def load(self) -> tuple[bytes, StructType]:
        """A DataFrame: Spark keeps the data source as it was when its schema was asked for."""
        made = LakesealDataSource(self.options)
        schema = made.schema()
        return cloudpickle.dumps(made), schema

    def new_source(self) -> StreamSource:
        made, schema = self.frame
        source: StreamSource = pickle.loads(made).streamReader(schema)
        return source

    def restart(self) -> None:
        """The query is started again, from a new DataFrame."""
        self.frame = self.load()
        self.source = self.new_source()

    def start(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(json.dumps(self.offset or self.source.initialOffset()))
        return found

    def plan(self, limit: Any = None) -> bool:
        """Whether there is something to run."""
        if self.planned is None:
            end = self.source.latestOffset(self.start(), limit or self.source.getDefaultReadLimit())
            self.planned = json.loads(json.dumps(end))
            if self.planned == self.offset:
                self.planned = None
        return self.planned is not None

    def run(self) -> pa.Table:
        assert self.planned is not None
        return read(self.source, self.source.partitions(self.start(), self.planned))

    def batch(self, limit: Any = None) -> pa.Table | None:
        """The next batch, or None if there is nothing new."""
        if not self.plan(limit):
            return None
        found = self.run()
        self.offset, self.planned = self.planned, None
        return found

    def drain(self, limit: Any = None) -> list[pa.Table]:
        return list(iter(lambda: self.batch(limit), None))


def read(source: StreamSource, partitions: list[InputPartition]) -> pa.Table:
    # As on an executor, which has only what was pickled.
    there = pickle.loads(cloudpickle.dumps(source))
    batches = [batch for part in partitions for batch in there.read(pickle.loads(cloudpickle.dumps(part)))]
    return pa.Table.from_batches(batches) if batches else pa.table({"id": pa.array([], pa.int64())})
