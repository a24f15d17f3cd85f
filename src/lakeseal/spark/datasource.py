"""`format("lakeseal")`: the one name by which Spark reads and writes tables, in batches and in streams.

`register` makes it known to a session. Everything that users say comes in here as options, and goes on as values.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from lakeseal.errors import InvalidArgument, LakesealError, UnsupportedFeature
from lakeseal.files.tree_scan import TreeScan
from lakeseal.spark.batch_read import BatchRead, BatchReader, declared
from lakeseal.spark.batch_write import BatchWriter
from lakeseal.spark.failures import noted
from lakeseal.spark.interpreter import use_this_python
from lakeseal.spark.read_options import ReadOptions
from lakeseal.spark.sink_options import SinkOptions
from lakeseal.spark.stream_sink import StreamSink
from lakeseal.spark.stream_source import StreamSource
from lakeseal.spark.stream_writers import heed
from lakeseal.spark.tree_options import TreeReadOptions, TreeSinkOptions, is_of_repository
from lakeseal.spark.tree_scan import TreeTask
from lakeseal.spark.tree_source import TreeBatchReader, TreeBatchWriter

NAME = "lakeseal"


class LakesealDataSource(DataSource):
    def __init__(self, options: MutableMapping[str, str]) -> None:
        self._options = dict(options)
        self._pinned: ReadOptions | TreeReadOptions | TreeScan | None = None
        """What a batch reads: a DataFrame has the same rows whenever it is used."""
        self._is_inferred = False
        """Whether Spark asked for the schema; if not, the user gave one."""

    def __getstate__(self) -> dict[str, Any]:
        # Spark keeps a source for its scans by pickling it, and may make a reader for each of them; where the user gave
        # the schema, nothing was asked before that. What can't be pinned (a stream) is judged by the reader.
        if self._pinned is None:
            with suppress(LakesealError):
                self._pinned = self._pin()
        return self.__dict__

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        self._is_inferred = True
        with noted():
            self._refuse_catalog()
            if is_of_repository(self._options):
                self._pinned = TreeReadOptions.from_options(self._options).scan()
                return TreeTask.of(self._pinned).schema
            self._pinned, schema = declared(ReadOptions.from_options(self._options))
            return schema

    def reader(self, schema: StructType) -> BatchReader | TreeBatchReader:
        pinned = self._pinned
        with noted():
            self._refuse_catalog()
            if is_of_repository(self._options):
                tree = pinned if isinstance(pinned, TreeReadOptions) else TreeReadOptions.from_options(self._options)
                return TreeBatchReader(tree, schema, pinned if isinstance(pinned, TreeScan) else None)
            known = pinned if isinstance(pinned, ReadOptions) else ReadOptions.from_options(self._options)
            return BatchReader(known, schema)

    def _pin(self) -> ReadOptions | TreeReadOptions:
        if is_of_repository(self._options):
            return TreeReadOptions.from_options(self._options).pinned()
        return BatchRead(ReadOptions.from_options(self._options)).options

    def _refuse_catalog(self) -> None:
        """Spark's catalog tells a Python source nothing of a table, not even where it is: one that is made there (USING
        lakeseal, saveAsTable) could never be read. Only making it tells that it is of the catalog."""
        if self._options and not {"provider", "location"} <= {name.lower() for name in self._options}:
            return
        raise UnsupportedFeature(
            "A table of Lakeseal cannot be one of Spark's catalog, which does not tell its sources where a table is",
            hint="Name it by a view: CREATE TEMPORARY VIEW name USING lakeseal OPTIONS (path 'uri'); or read it with "
            "spark.read.format('lakeseal').load(uri), and write it with .save(uri). What saveAsTable wrote is at its "
            "path, and DROP TABLE leaves it there",
        )

    def streamReader(self, schema: StructType) -> StreamSource:  # noqa: N802  Spark's name
        with noted():
            _check_table(self._options, "reads")
            options = ReadOptions.from_options(self._options)
            return StreamSource(options, schema, inferred=self._is_inferred)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter | TreeBatchWriter:
        with noted():
            self._refuse_catalog()
            if is_of_repository(self._options):
                return TreeBatchWriter(TreeSinkOptions.from_options(self._options, overwrite=overwrite), schema)
            return BatchWriter(SinkOptions.from_options(self._options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:  # noqa: N802  Spark's name
        with noted():
            _check_table(self._options, "writes")
            return StreamSink(SinkOptions.from_options(self._options), schema, overwrite)


def _check_table(options: Mapping[str, str], what: str) -> None:
    if is_of_repository(options):
        raise InvalidArgument(
            f"A stream {what} tables, not branches of a repository", hint="Leave ref and branch out, or use a batch"
        )


def register(spark: SparkSession) -> None:
    """Makes `format("lakeseal")` known to a session, and leaves all its settings alone. Spark finds the format by
    itself where its Python has Lakeseal (`pyspark_lakeseal`); then this is for what stream writers are told."""
    use_this_python(spark)
    spark.dataSource.register(LakesealDataSource)
    heed(NAME, spark)
