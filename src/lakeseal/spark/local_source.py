"""Small sources of merges: a DataFrame whose rows Spark holds already, and that one process merges in a fraction of the
time that jobs take (0.4 s instead of 3.0 s for 50,000 rows into a million), into as few files.

Only what can be told without running anything counts: `DataFrame.isLocal` says whether the rows are part of the plan.
To count those of any other frame would run it, and what is expensive to run would be run twice. The merge must also
mean the same here as in the session, so one with another zone, without ANSI mode or with names that tell cases apart
stays with Spark; and the table must be one that a process may read whole.

`spark.conf.set("spark.lakeseal.localMerge", "false")` leaves all merges to Spark.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame

from lakeseal.errors import LakesealError
from lakeseal.log.snapshot import Snapshot
from lakeseal.protocol.arrow import from_arrow
from lakeseal.spark.predicates import Settings, StoreAssignment
from lakeseal.spark.schema import data_schema

SETTING = "spark.lakeseal.localMerge"
MOST_ROWS = 100_000
MOST_TABLE_BYTES = 256 * 2**20


def local_rows(frame: DataFrame, table: Snapshot) -> pa.Table | None:
    """The rows of a frame that is to be merged in this process; None where Spark is to do it."""
    spark = frame.sparkSession
    if str(spark.conf.get(SETTING, "true")).lower() == "false" or table.size_in_bytes > MOST_TABLE_BYTES:
        return None
    if frame.isStreaming or not frame.isLocal() or not _means_the_same(Settings.of(spark)):
        return None
    rows = frame.limit(MOST_ROWS + 1).toArrow()
    return rows if rows.num_rows <= MOST_ROWS and _has_its_types(rows, frame) else None


def _means_the_same(settings: Settings) -> bool:
    return settings.judges_as_expr and settings.store_assignment is StoreAssignment.ANSI and settings.pads_chars


def _has_its_types(rows: pa.Table, frame: DataFrame) -> bool:
    """Whether Arrow has all types that Spark has here, as Lakeseal reads both."""
    try:
        ours, theirs = from_arrow(rows.schema), data_schema(frame.schema)
    except LakesealError:
        return False
    return [(f.name, f.type) for f in ours.fields] == [(f.name, f.type) for f in theirs.fields] and not any(
        field.char_varchar for field in theirs.fields
    )
