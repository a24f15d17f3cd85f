"""Reading through `Table`: versions, moments, predicates, history, change feed, and what stays cheap."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from lakeseal import Table, create, errors
from lakeseal.commit.post_commit import flush


def numbers(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64()), "day": pa.array([f"d{v % 3}" for v in values], pa.string())})


def ids(rows: pa.Table) -> list[int]:
    return sorted(rows["id"].to_pylist())


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = Table(tmp_path / "table")
    table.write(numbers(1, 2, 3), partition_by="day")
    table.write(numbers(4, 5))
    table.write(numbers(6), mode="overwrite")
    return table


def test_every_version_can_be_read_again(table: Table) -> None:
    assert [ids(table.to_arrow(version=v)) for v in range(3)] == [[1, 2, 3], [1, 2, 3, 4, 5], [6]]
    assert table.version() == 2
    assert table.snapshot().files.num_rows == 1


def test_a_moment_sees_the_newest_version_at_or_before_it(table: Table, tmp_path: Path) -> None:
    start = datetime(2024, 1, 1, tzinfo=UTC)
    for version in range(3):
        moment = (start + timedelta(hours=version)).timestamp()
        os.utime(tmp_path / "table" / "_delta_log" / f"{version:020d}.json", (moment, moment))
    fresh = Table(tmp_path / "table")
    assert fresh.snapshot(timestamp=start).version == 0
    assert fresh.snapshot(timestamp="2024-01-01T01:30:00Z").version == 1
    assert fresh.snapshot(timestamp=start + timedelta(days=9)).version == 2
    assert ids(fresh.to_arrow(timestamp="2024-01-01T00:59:59")) == [1, 2, 3]
    with pytest.raises(errors.VersionNotFound, match="2024-01-01"):
        fresh.snapshot(timestamp="2023-12-31")


def test_file_times_that_go_backwards_are_made_to_increase(table: Table, tmp_path: Path) -> None:
    for version, moment in enumerate((1_700_000_000, 1_600_000_000, 1_700_000_001)):
        os.utime(tmp_path / "table" / "_delta_log" / f"{version:020d}.json", (moment, moment))
    stamps = [entry["timestamp"] for entry in reversed(Table(tmp_path / "table").history())]
    assert stamps == sorted(set(stamps))


@pytest.mark.field_bug(28)
def test_with_in_commit_timestamps_a_copied_log_keeps_its_times(tmp_path: Path) -> None:
    table = create(tmp_path / "table", numbers().schema, properties={"delta.enableInCommitTimestamps": "true"})
    table.write(numbers(1))
    table.write(numbers(2))
    stamps = [datetime.fromisoformat(entry["timestamp"]) for entry in table.history()]
    shutil.copytree(tmp_path / "table", tmp_path / "copy")
    for file in (tmp_path / "copy" / "_delta_log").iterdir():
        os.utime(file, (0, 0))
    copy = Table(tmp_path / "copy")
    assert [datetime.fromisoformat(entry["timestamp"]) for entry in copy.history()] == stamps
    assert copy.snapshot(timestamp=stamps[1]).version == 1
    assert copy.snapshot(timestamp=stamps[0]).version == 2


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("day = 'd1'", [1, 4]),
        ("id > 3", [4, 5]),
        ("id > 3 AND day = 'd2'", [5]),
        ("id IN (2, 5, 77)", [2, 5]),
        ("id % 2 = 0", [2, 4]),
        ("day IS NULL", []),
        ("NOT (id < 5)", [5]),
        ("id = 1 OR day = 'd0'", [1, 3]),
    ],
)
def test_where_gives_exactly_the_matching_rows(table: Table, where: str, expected: list[int]) -> None:
    assert ids(table.to_arrow(version=1, where=where)) == expected


def test_where_does_not_open_files_that_cannot_match(table: Table, tmp_path: Path) -> None:
    for file in (tmp_path / "table").rglob("day=d0/*.parquet"):
        file.unlink()
    assert ids(table.to_arrow(version=1, where="day = 'd1'")) == [1, 4]
    assert ids(table.to_arrow(version=1, where="id BETWEEN 4 AND 5")) == [4, 5]
    with pytest.raises(errors.DataFileMissing):
        table.to_arrow(version=1, where="id = 3")


def test_columns_come_in_the_order_asked_for_and_need_not_be_those_of_the_predicate(table: Table) -> None:
    found = table.to_arrow(version=1, columns=["DAY"], where="id = 4")
    assert found.column_names == ["day"]
    assert found["day"].to_pylist() == ["d1"]
    assert table.to_arrow(version=1, columns=[]).num_rows == 5


def test_a_column_that_is_asked_for_twice_is_refused(table: Table) -> None:
    for names in (["id", "ID"], ["id", "id"]):
        for read in (table.to_arrow, table.to_batches):
            with pytest.raises(errors.InvalidArgument, match="twice"):
                read(columns=names, where="id > 0")


def test_batches_stream_the_same_rows(table: Table) -> None:
    assert ids(table.to_batches(version=1, where="id > 1").read_all()) == [2, 3, 4, 5]


def test_history_is_newest_first_and_says_what_happened(table: Table) -> None:
    entries = table.history()
    assert [entry["version"] for entry in entries] == [2, 1, 0]
    assert entries[0]["operation"] == "WRITE"
    assert entries[0]["operationParameters"]["mode"] == "Overwrite"
    assert entries[0]["operationMetrics"]["numOutputRows"] == "1"
    assert [entry["version"] for entry in table.history(limit=1)] == [2]


def test_an_open_table_sees_what_others_commit(table: Table, tmp_path: Path) -> None:
    other = Table(tmp_path / "table")
    assert other.version() == 2
    for number in range(10, 17):
        table.write(numbers(number))
        if number % 3 == 0:
            assert ids(other.to_arrow()) == ids(table.to_arrow())
    assert other.version() == table.version() == 9


def test_an_open_table_notices_that_it_was_dropped_and_made_anew(table: Table, tmp_path: Path) -> None:
    assert table.version() == 2
    flush()
    shutil.rmtree(tmp_path / "table")
    with pytest.raises(errors.TableNotFound):
        table.version()
    Table(tmp_path / "table").write(numbers(9))
    assert table.version() == 0
    assert ids(table.to_arrow()) == [9]


def test_the_change_feed_derives_inserts_and_deletes(tmp_path: Path) -> None:
    table = create(tmp_path / "table", numbers().schema, properties={"delta.enableChangeDataFeed": True})
    table.write(numbers(1, 2))
    table.write(numbers(3), mode="overwrite")
    found = table.changes(1)
    assert found.column_names == ["id", "day", "_change_type", "_commit_version", "_commit_timestamp"]
    changes = sorted((r["_commit_version"], r["_change_type"], r["id"]) for r in found.to_pylist())
    assert changes == [(1, "insert", 1), (1, "insert", 2), (2, "delete", 1), (2, "delete", 2), (2, "insert", 3)]
    assert table.changes(2, 2).num_rows == 3
    assert table.changes("1970-01-01").num_rows == 5


def test_replacing_part_of_a_file_says_exactly_which_rows_changed(tmp_path: Path) -> None:
    table = create(tmp_path / "table", numbers().schema, properties={"delta.enableChangeDataFeed": True})
    table.write(numbers(1, 2, 3))
    table.write(numbers(2).set_column(1, "day", pa.array(["new"])), mode="overwrite", replace_where="id = 2")
    assert ids(table.to_arrow()) == [1, 2, 3]
    changes = sorted((r["_change_type"], r["id"], r["day"]) for r in table.changes(2).to_pylist())
    assert changes == [("delete", 2, "d2"), ("insert", 2, "new")]


@pytest.mark.parametrize("mapping", ["none", "name"])
def test_changes_over_a_column_that_became_another_one_are_refused(tmp_path: Path, mapping: str) -> None:
    """Delta Spark refuses them, too: a wall clock's time would come as a moment, or a text as null."""
    wall = pa.table({"id": [1], "at": pa.array([datetime(2026, 1, 1)], pa.timestamp("us"))})
    properties = {"delta.enableChangeDataFeed": True, "delta.columnMapping.mode": mapping}
    table = create(tmp_path / "table", wall.schema, properties=properties)
    table.write(wall)
    other = wall.set_column(1, "at", wall["at"].cast(pa.timestamp("us", "UTC")))
    table.write(other, mode="overwrite", overwrite_schema=True)
    table.write(other)
    for first, last in ((0, 2), (1, 2), (1, 3), (2, 3)):
        with pytest.raises(errors.InvalidArgument, match="was ") as raised:
            table.changes(first, last)
        assert raised.value.version == max(first - 1, 0)
        assert raised.value.column == ("at" if mapping == "none" else "id")  # in the other, all are new
    assert table.changes(1, 1).num_rows == table.changes(3, 3).num_rows == 1


def test_changes_from_before_the_feed_was_on_are_refused(table: Table) -> None:
    table.set_properties({"delta.enableChangeDataFeed": "true"})
    table.write(numbers(7))
    assert table.changes(3).num_rows == 1
    with pytest.raises(errors.InvalidArgument, match="not on") as raised:
        table.changes(1)
    assert raised.value.version == 1


def test_memory_tables_live_as_long_as_the_process() -> None:
    Table("memory://reading/one").write(numbers(1))
    assert ids(Table("memory://reading/one").to_arrow()) == [1]
    assert not Table("memory://reading/two").exists()
