"""Files that count days by the Julian calendar, as Spark 2 wrote them; Spark itself judges in tests/oracles."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakeseal
from lakeseal.errors import BrokenDataFile

# What a calendar on the wall said, and the Gregorian date that the same day had.
DAYS = [
    ((1, 1, 1), (1, 1, 1), -2),
    ((1582, 10, 4), (1582, 10, 14), 0),
    ((1582, 10, 15), (1582, 10, 15), 0),
    ((1500, 2, 28), (1500, 3, 9), 0),
    ((1000, 1, 1), (1000, 1, 6), 0),
    ((1900, 1, 1), (1900, 1, 1), 0),
    ((9999, 12, 31), (9999, 12, 31), 0),
]
EPOCH = dt.date(1970, 1, 1)
STORED = [(dt.date(*day) - EPOCH).days + more for _, day, more in DAYS]
MEANT = [dt.date(*wall) for wall, _, _ in DAYS]
LEAP_DAY = (dt.date(1500, 3, 10) - EPOCH).days
MICROS = 86_400_000_000
SPARK_2 = {"org.apache.spark.version": "2.4.8"}


def table_of(place: Path, notes: dict[str, str]) -> lakeseal.Table:
    days = pa.array(STORED, pa.int32()).cast(pa.date32())
    moments = pa.array([day * MICROS + 1 for day in STORED], pa.int64()).cast(pa.timestamp("us", "UTC"))
    numbers = pa.list_(pa.struct([("d", pa.int32())]))
    nested = pa.array([[{"d": day}] for day in STORED], numbers)
    kinds = pa.list_(pa.struct([("d", pa.date32())]))
    rows = pa.table({"d": days, "t": moments, "n": nested.cast(kinds), "w": moments.cast(pa.timestamp("us"))})
    table = lakeseal.Table(place)
    table.write(rows)
    (file,) = table.files()["path"].to_pylist()
    pq.write_table(rows.replace_schema_metadata(notes), place / file)
    return table


def found(table: lakeseal.Table) -> dict[str, list[Any]]:
    rows = table.to_arrow()
    return {name: rows[name].to_pylist() for name in ("d", "t", "n")}


def moments(days: list[dt.date]) -> list[dt.datetime]:
    return [dt.datetime.combine(day, dt.time(microsecond=1), dt.UTC) for day in days]


@pytest.mark.parametrize(
    "notes", [SPARK_2, {"org.apache.spark.version": "3.5.0", "org.apache.spark.legacyDateTime": ""}]
)
def test_days_and_moments_are_those_that_the_calendar_on_the_wall_showed(tmp_path: Path, notes: dict[str, str]) -> None:
    read = found(table_of(tmp_path, notes))
    assert read == {"d": MEANT, "t": moments(MEANT), "n": [[{"d": day}] for day in MEANT]}


@pytest.mark.parametrize("notes", [{}, {"org.apache.spark.version": "3.5.0"}, {"org.apache.spark.legacyDateTime": ""}])
def test_other_files_say_what_they_hold(tmp_path: Path, notes: dict[str, str]) -> None:
    rows = table_of(tmp_path, notes).to_arrow()
    assert rows["d"].cast(pa.int32()).to_pylist() == STORED
    assert rows["t"].cast(pa.int64()).to_pylist() == [day * MICROS + 1 for day in STORED]


def test_wall_clocks_of_no_zone_are_left_alone(tmp_path: Path) -> None:
    rows = table_of(tmp_path, SPARK_2).to_arrow()
    assert rows["w"].cast(pa.int64()).to_pylist() == [day * MICROS + 1 for day in STORED]


def test_conditions_see_the_days_that_are_read(tmp_path: Path) -> None:
    table = table_of(tmp_path, SPARK_2)
    assert table.to_arrow(where="d = DATE'1500-02-28'").num_rows == 1


def test_a_leap_day_that_is_none_is_the_day_after(tmp_path: Path) -> None:
    table = lakeseal.Table(tmp_path)
    rows = pa.table({"d": pa.array([LEAP_DAY, None], pa.int32()).cast(pa.date32())})
    table.write(rows)
    (file,) = table.files()["path"].to_pylist()
    pq.write_table(rows.replace_schema_metadata(SPARK_2), tmp_path / file)
    assert table.to_arrow()["d"].to_pylist() == [dt.date(1500, 3, 1), None]


def test_a_zone_that_is_none_is_a_broken_file(tmp_path: Path) -> None:
    table = table_of(tmp_path, {**SPARK_2, "org.apache.spark.timeZone": "Nowhere/At All"})
    with pytest.raises(BrokenDataFile, match="zone"):
        table.to_arrow()
