"""A stream into a table, in a process of its own, that the machine takes down at a chosen moment.

    python crashing_stream.py '{"source": …, "checkpoint": …, "uri": …, "crash": ["before" | "after", batch] | null}'

`before`: all tasks have succeeded, and nothing is committed. `after`: our commit is there, and Spark does not know it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from lakeseal.spark.datasource import LakesealDataSource
from lakeseal.spark.stream_sink import StreamSink
from lakeseal.testing.cluster import parent_of

ASKED: dict[str, Any] = json.loads(sys.argv[1])
CRASH = ASKED["crash"]


def take_down() -> None:
    """Spark runs commits in a grandchild of the driver's JVM; without that, nothing of the driver is left."""
    daemon = parent_of(os.getpid())
    assert daemon is not None
    driver = parent_of(daemon)
    assert driver is not None
    os.kill(driver, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


class CrashingSink(StreamSink):
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        if ["before", batchId] == CRASH:
            take_down()
        super().commit(messages, batchId)
        if ["after", batchId] == CRASH:
            take_down()


class CrashingSource(LakesealDataSource):
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:  # noqa: N802  Spark's name
        sink = super().streamWriter(schema, overwrite)
        sink.__class__ = CrashingSink
        return sink


def main() -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.dataSource.register(CrashingSource)
    stream = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).parquet(ASKED["source"])
    writer = stream.writeStream.format("lakeseal").option("checkpointLocation", ASKED["checkpoint"])
    writer.trigger(availableNow=True).start(ASKED["uri"]).awaitTermination()
    print("ended")


if __name__ == "__main__":
    main()
