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
from lakeseal.spark.options import TABLE_OPTIONS
from lakeseal.spark.read_options import ReadOptions
from lakeseal.spark.sink_options import SinkOptions
from lakeseal.spark.spark_catalog import (
    NO_PLACE,
    SAVED,
    check_source,
    created,
    is_asked_by_catalog,
    place_in,
    with_note,
)
from lakeseal.spark.stream_sink import StreamSink
from lakeseal.spark.stream_source import StreamSource
from lakeseal.spark.tree_options import TreeReadOptions, TreeSinkOptions, is_of_repository
from lakeseal.spark.tree_scan import TreeTask
from lakeseal.spark.tree_source import TreeBatchReader, TreeBatchWriter
from lakeseal.spark.wrapped_writers import wrap_writers

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
            if is_asked_by_catalog(self._options):
                return self._kept_by_catalog()
            if is_of_repository(self._options):
                self._pinned = TreeReadOptions.from_options(self._options).scan()
                return TreeTask.of(self._pinned).schema
            self._pinned, schema = declared(ReadOptions.from_options(self._options))
            return schema

    def _kept_by_catalog(self) -> StructType:
        options = created(self._options)
        _check_table(options, "Spark's catalog has")
        return with_note(declared(ReadOptions.from_options(options))[1], options)

    def reader(self, schema: StructType) -> BatchReader | TreeBatchReader:
        pinned = self._pinned
        with noted():
            if is_of_repository(self._options):
                tree = pinned if isinstance(pinned, TreeReadOptions) else TreeReadOptions.from_options(self._options)
                return TreeBatchReader(tree, schema, pinned if isinstance(pinned, TreeScan) else None)
            return BatchReader(pinned if isinstance(pinned, ReadOptions) else self._read_options(schema), schema)

    def _pin(self) -> ReadOptions | TreeReadOptions:
        if is_of_repository(self._options):
            return TreeReadOptions.from_options(self._options).pinned()
        return BatchRead(ReadOptions.from_options(self._options)).options

    def _read_options(self, schema: StructType) -> ReadOptions:
        """Where Spark reads a table of its catalog, it says nothing but the schema, and what the query adds."""
        if any(name.lower() in TABLE_OPTIONS[:2] for name in self._options):
            return ReadOptions.from_options(self._options)
        place = place_in(schema)
        if place is None:
            raise UnsupportedFeature(
                "Spark's catalog does not tell a data source in Python where a table is", hint=NO_PLACE
            )
        return ReadOptions.from_options({**place, **self._options})

    def streamReader(self, schema: StructType) -> StreamSource:  # noqa: N802  Spark's name
        with noted():
            _check_table(self._options, "A stream reads")
            return StreamSource(self._read_options(schema), schema, inferred=self._is_inferred)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter | TreeBatchWriter:
        with noted():
            check_source(self._options, schema)
            options = {name: text for name, text in self._options.items() if name.lower() != SAVED}
            if is_of_repository(options):
                return TreeBatchWriter(TreeSinkOptions.from_options(options, overwrite=overwrite), schema)
            return BatchWriter(SinkOptions.from_options(options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:  # noqa: N802  Spark's name
        with noted():
            _check_table(self._options, "A stream writes")
            check_source({SAVED: "", **self._options}, schema)
            return StreamSink(SinkOptions.from_options(self._options), schema, overwrite)


def _check_table(options: Mapping[str, str], what: str) -> None:
    if is_of_repository(options):
        raise InvalidArgument(
            f"{what} tables, not branches of a repository", hint="Leave ref and branch out, or use a batch"
        )


def register(spark: SparkSession) -> None:
    """Makes `format("lakeseal")` known to a session, and leaves all its settings alone. Spark finds the format by
    itself where its Python has Lakeseal (`pyspark_lakeseal`); then this is for what stream writers are told, and for
    `saveAsTable`.

    >>> lakeseal.register(spark)
    >>> spark.read.format("lakeseal").load(lakeseal.Table("orders").uri).count()
    3
    """
    use_this_python(spark)
    spark.dataSource.register(LakesealDataSource)
    wrap_writers(NAME, spark)
