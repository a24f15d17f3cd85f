"""Which moment is meant where a session is given: Spark's own cast says it, in the session's time zone.

So a local time that clocks skipped or showed twice is what it is to Spark, in a statement and in a call alike.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

from pyspark.sql import SparkSession

from lakeseal.errors import InvalidArgument
from lakeseal.log.timestamps import Timestamp
from lakeseal.spark.failures import analysed, recovered


def micros_of(spark: SparkSession, sql: str, **values: Any) -> int | None:
    """Microseconds since the epoch of what an expression gives as a timestamp; None if that is null. `values` are those
    of its parameters, `:name`."""
    with recovered(), analysed("tell which moment is meant"):
        query = f"SELECT unix_micros(CAST(({sql}\n) AS TIMESTAMP_LTZ)) AS it"
        micros: int | None = spark.sql(query, values or None).collect()[0].it
        return micros


def moment_in(spark: SparkSession, moment: Timestamp) -> Timestamp:
    """A moment that does not depend on a zone any more; what has one, or is a number or a datetime, stays."""
    if isinstance(moment, datetime) or not isinstance(moment, str | date) or _has_zone(moment):
        return moment
    text = moment if isinstance(moment, str) else moment.isoformat()
    micros = micros_of(spark, "TRY_CAST(:moment AS TIMESTAMP_LTZ)", moment=text)
    if micros is None:
        raise InvalidArgument(
            f"{text!r} is not a timestamp", hint="Write it as 2024-01-31 12:00:00, or pass a datetime"
        )
    return datetime.fromtimestamp(micros // 1_000_000, UTC).replace(microsecond=micros % 1_000_000)


def _has_zone(moment: str | date) -> bool:
    try:
        return isinstance(moment, str) and datetime.fromisoformat(moment).tzinfo is not None
    except ValueError:
        return False
