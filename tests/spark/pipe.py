"""A stream from a table into a table; run as a program, it goes on until it is killed.

python pipe.py '{"source": …, "target": …, "checkpoint": …, "changes": true | false, "scratch": …}'

With "snapshot": true, changes start with the rows that are there, and not with version 0.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import lakeseal
from lakeseal.spark.local_session import local_session


def start(spark: Any, asked: dict[str, Any], *, until_done: bool = False) -> Any:
    """The query; two files a batch, so that there is always a batch to be interrupted."""
    reader = spark.readStream.format("lakeseal").option("maxFilesPerTrigger", 2)
    if asked["changes"]:
        reader = reader.option("readChangeFeed", "true")
        feed = (reader if asked.get("snapshot") else reader.option("startingVersion", 0)).load(asked["source"])
        rows = feed.selectExpr("id", "name", "_change_type AS kind", "_commit_version AS version")
    else:
        rows = reader.load(asked["source"])
    writer = rows.writeStream.format("lakeseal").option("checkpointLocation", asked["checkpoint"])
    when = {"availableNow": True} if until_done else {"processingTime": "0 seconds"}
    return writer.trigger(**when).start(asked["target"])


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    session = local_session("pipe", settings={"spark.local.dir": given["scratch"]})
    lakeseal.register(session)
    start(session, given).awaitTermination()
