"""`format("lakeseal")`: the one name by which Spark reads and writes tables, in batches and in streams.

`register` makes it known to a session. Everything that users say comes in here as options, and goes on as values.
"""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from lakeseal.spark.batch_write import BatchWriter
from lakeseal.spark.failures import noted
from lakeseal.spark.sink_options import SinkOptions
from lakeseal.spark.stream_sink import StreamSink

NAME = "lakeseal"


class LakesealDataSource(DataSource):
    def __init__(self, options: MutableMapping[str, str]) -> None:
        self._options = dict(options)

    @classmethod
    def name(cls) -> str:
        return NAME

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        with noted():
            return BatchWriter(SinkOptions.from_options(self._options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:  # noqa: N802  Spark's name
        with noted():
            return StreamSink(SinkOptions.from_options(self._options), schema, overwrite)


def register(spark: SparkSession) -> None:
    """Makes `format("lakeseal")` known to a session."""
    spark.dataSource.register(LakesealDataSource)
