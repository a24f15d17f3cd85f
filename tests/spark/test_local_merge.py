"""Small sources of merges: merged in the driver, with what Spark would have given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeseal
from lakeseal.spark.local_source import SETTING, local_rows

pytestmark = pytest.mark.spark
SOURCE = pa.table({"id": [2, 3, 9], "shop": ["west", None, "east"], "price": [1.5, None, 2.5]})


@pytest.fixture
def settings(spark: Any) -> Any:
    """Sets a session's settings, and puts them back. First those that Lakeseal answers in by itself."""
    before: dict[str, str | None] = {}

    def put(name: str, value: str) -> None:
        before.setdefault(name, spark.conf.get(name, None))
        spark.conf.set(name, value)

    put("spark.sql.session.timeZone", "UTC")
    put("spark.sql.ansi.enabled", "true")
    put("spark.sql.caseSensitive", "false")
    yield put
    for name, value in before.items():
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)


def made(place: Path) -> lakeseal.Table:
    table = lakeseal.Table(place)
    table.write(pa.table({"id": [1, 2, 3], "shop": ["north", "south", "north"], "price": [1.0, 2.0, 3.0]}))
    return table


def upserted(table: lakeseal.Table, source: Any, on: str = "t.id = s.id") -> list[dict[str, Any]]:
    table.merge(source, on).when_matched_update({"shop": "s.shop", "price": "t.price + 1"}).when_not_matched_insert(
        "*"
    ).execute()
    return sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"])


def test_a_local_frame_is_merged_here_with_the_rows_that_spark_gives(spark: Any, settings: Any, tmp_path: Path) -> None:
    frame = spark.createDataFrame(SOURCE)
    table = made(tmp_path / "here")
    if not frame.isLocal():  # over Connect no frame is said to be, so that merges stay with Spark
        assert local_rows(frame, table.snapshot()) is None
        return
    assert local_rows(frame, table.snapshot()) == SOURCE
    here = upserted(table, frame)
    settings(SETTING, "false")
    there = made(tmp_path / "there")
    assert local_rows(frame, there.snapshot()) is None
    assert upserted(there, frame) == here
    assert table.files().num_rows <= there.files().num_rows


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (SETTING, "false"),
        ("spark.sql.session.timeZone", "America/New_York"),
        ("spark.sql.ansi.enabled", "false"),
        ("spark.sql.caseSensitive", "true"),
        ("spark.sql.storeAssignmentPolicy", "LEGACY"),
    ],
)
def test_a_session_that_judges_otherwise_merges_by_itself(
    name: str, value: str, spark: Any, settings: Any, tmp_path: Path
) -> None:
    settings(name, value)
    assert local_rows(spark.createDataFrame(SOURCE), made(tmp_path / "t").snapshot()) is None


def test_only_rows_that_are_part_of_the_plan_are_taken(
    spark: Any, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = made(tmp_path / "t").snapshot()
    frame = spark.createDataFrame(SOURCE)
    assert local_rows(spark.range(3), snapshot) is None
    if not frame.isLocal():
        return
    assert local_rows(frame.where("id > 2"), snapshot) is None
    monkeypatch.setattr("lakeseal.spark.local_source.MOST_ROWS", 2)
    assert local_rows(frame, snapshot) is None
    monkeypatch.setattr("lakeseal.spark.local_source.MOST_ROWS", 3)
    assert local_rows(frame, snapshot) is not None
    monkeypatch.setattr("lakeseal.spark.local_source.MOST_TABLE_BYTES", 10)
    assert local_rows(frame, snapshot) is None


def test_what_only_spark_evaluates_goes_to_spark(spark: Any, settings: Any, tmp_path: Path) -> None:
    frame = spark.createDataFrame(SOURCE)
    table = made(tmp_path / "t")
    assert [row["id"] for row in upserted(table, frame, "t.id = s.id AND sin(t.id) <= 1")] == [1, 2, 3, 9]
    assert table.version() == 1
