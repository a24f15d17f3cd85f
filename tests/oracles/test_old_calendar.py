"""Dates and moments that Spark wrote by the calendar of before are those that Spark reads."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from lakeseal import Table
from oracles.rows import same_rows
from oracles.seeds import case, cases
from oracles.sessions import INTERPRETED, with_settings

pytestmark = pytest.mark.spark

SHORT, FULL = 2, 60
_ZONES = ("UTC", "America/Los_Angeles", "Asia/Kolkata", "Europe/Amsterdam", "+02:00")
_KINDS = ("INT96", "TIMESTAMP_MICROS", "TIMESTAMP_MILLIS")
_ROWS = 200


def test_dates_and_moments_of_the_calendar_of_before_are_what_spark_reads(spark: Any, tmp_path: Path) -> None:
    for seed in cases(SHORT, FULL):
        with case(seed) as chance:
            settings = {
                "spark.sql.session.timeZone": chance.choice(_ZONES),
                "spark.sql.parquet.outputTimestampType": chance.choice(_KINDS),
                "spark.sql.parquet.datetimeRebaseModeInWrite": chance.choice(("LEGACY", "LEGACY", "CORRECTED")),
                "spark.sql.parquet.int96RebaseModeInWrite": chance.choice(("LEGACY", "LEGACY", "CORRECTED")),
            }
            place = tmp_path / str(seed)
            with with_settings(spark, {**settings, **INTERPRETED}):
                rows = [_row(chance, n) for n in range(_ROWS)]
                kinds = "id INT, day INT, second BIGINT"
                given = spark.createDataFrame(rows, kinds).selectExpr(
                    "id", "date_from_unix_date(day) AS d", "timestamp_seconds(second) AS t",
                    "array(named_struct('d', date_from_unix_date(day + 1), 't', timestamp_seconds(second + 7))) AS n",
                )  # fmt: skip
                given.coalesce(1).write.parquet(str(place))
            with with_settings(spark, {"spark.sql.session.timeZone": "UTC", **INTERPRETED}):
                right = spark.read.parquet(str(place)).toArrow().to_pylist()
                _log(place, given.schema.json())
                same_rows(Table(place).to_arrow().to_pylist(), right, f"to_arrow {settings}")
                seen = Table(place).to_spark(spark).toArrow().to_pylist()
                same_rows(seen, right, f"to_spark {settings}")


def _row(chance: random.Random, number: int) -> tuple[int, int | None, int | None]:
    """Of the years 1 to 1950, and often of the days when calendars and clocks were changed."""
    day = chance.choice((chance.randint(-719_000, -7_000), chance.randint(-141_450, -141_400), None))
    second = chance.choice((chance.randint(-719_000, -7_000) * 86_400 + chance.randrange(86_400),
                            chance.randint(-141_450, -141_400) * 86_400 + chance.randrange(86_400), None))  # fmt: skip
    return number, day, second


def _log(place: Path, schema: str) -> None:
    (file,) = place.glob("*.parquet")
    add = {"path": file.name, "partitionValues": {}, "size": file.stat().st_size, "modificationTime": 1}
    lines = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": {"id": "m", "format": {"provider": "parquet", "options": {}}, "schemaString": schema,
                      "partitionColumns": [], "configuration": {}}},
        {"add": {**add, "dataChange": True}},
    ]  # fmt: skip
    (place / "_delta_log").mkdir()
    (place / "_delta_log" / f"{0:020}.json").write_text("\n".join(map(json.dumps, lines)))
