"""VACUUM: what goes, what stays, what is refused."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lakeseal import Table, errors
from support.rows import rows

FEED = {"delta.enableChangeDataFeed": "true"}
VECTORS = {"delta.enableDeletionVectors": "true"}
DAY = 86_400


def age(folder: Path, days: float) -> None:
    """Make all that is there older, the log included, tombstones excepted (they hold their time)."""
    then = time.time() - days * DAY
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, (then, then))


def test_removed_files_go_and_live_ones_stay(tables: Any) -> None:
    table = tables(range(5), range(5, 10), partition_by=["part"], properties=FEED)
    table.update({"name": "'x'"}, "id > 7")
    table.delete("id < 3")
    live = tables.paths(table)
    report = tables.vacuum(table)
    assert {path.removeprefix("./") for path in tables.files_on_disk()} == live
    assert report.metrics["numDeletedFiles"] == len(report.deleted) > 0
    assert tables.ids(table) == list(range(3, 10))
    tables.check(table)
    assert [entry["operation"] for entry in table.history(2)] == ["VACUUM END", "VACUUM START"]


def test_a_dry_run_tells_and_deletes_nothing(tables: Any) -> None:
    table = tables(range(5))
    table.delete("id = 1")
    before = tables.files_on_disk()
    report = tables.vacuum(table, dry_run=True)
    assert len(report.deleted) == 1
    assert tables.files_on_disk() == before
    assert table.version() == 1


def test_less_than_the_tables_retention_is_refused(tables: Any) -> None:
    table = tables(range(5))
    with pytest.raises(errors.InvalidArgument, match="168"):
        table.vacuum(hours=167)
    assert table.vacuum(hours=168).deleted == ()
    table.set_properties({"delta.deletedFileRetentionDuration": "interval 2 days"})
    assert table.vacuum(hours=48).deleted == ()
    with pytest.raises(errors.InvalidArgument):
        table.vacuum(hours=47)
    with pytest.raises(errors.InvalidArgument):
        table.vacuum(hours=-1, enforce_retention_duration=False)


@pytest.mark.field_bug(25)
def test_young_files_stay_for_a_writer_may_be_about_to_commit_them(tables: Any) -> None:
    table = tables(range(5))
    folder = tables.root / "table"
    (folder / "part-in-flight.parquet").write_bytes(b"half a file")
    assert table.vacuum().deleted == ()
    age(folder, 8)
    assert table.vacuum().deleted == ("part-in-flight.parquet",)
    assert tables.ids(table) == list(range(5))


def test_files_removed_within_the_retention_stay_however_old_they_are(tables: Any) -> None:
    table = tables(range(5), range(5, 10))
    age(tables.root / "table", 30)
    table.delete("id = 7")
    assert table.vacuum().deleted == ()
    assert tables.ids(table, version=1) == list(range(10))


def test_a_longer_retention_than_the_tables_own_reaches_behind_a_checkpoint(tables: Any) -> None:
    table = tables(range(5), properties={"delta.deletedFileRetentionDuration": "interval 0 days"})
    age(tables.root / "table", 30)
    table.delete("id = 3")
    table.checkpoint()
    fresh = Table(table.uri)
    assert fresh.vacuum(hours=24).deleted == ()
    assert tables.ids(fresh, version=0) == list(range(5))


def test_deletion_vectors_and_change_files_go_with_what_needs_them(tables: Any) -> None:
    table = tables(range(3000), properties=FEED | VECTORS)
    table.delete("id % 7 = 0")
    table.update({"name": "'x'"}, "id % 11 = 0")
    assert len([p for p in tables.files_on_disk() if p.endswith(".bin")]) == 2
    expected = rows(table.to_arrow())
    deleted = tables.vacuum(table).deleted
    assert len([p for p in deleted if p.endswith(".bin")]) == 1
    assert len([p for p in deleted if p.startswith("_change_data/")]) == 1
    assert rows(table.to_arrow()) == expected
    with pytest.raises(errors.DataFileMissing) as caught:
        table.changes(2, 2)
    assert "vacuumed" in str(caught.value)


def test_the_log_hidden_files_and_strangers_directories_are_left_alone(tables: Any) -> None:
    table = tables(range(5))
    folder = tables.root / "table"
    for name in ("_SUCCESS", ".hidden", "_delta_index/x", ".git/config", "sub/_temporary/y", "sub/file.csv"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    age(folder, 1)
    log = sorted(p.name for p in (folder / "_delta_log").iterdir())
    assert tables.vacuum(table).deleted == ("sub/file.csv",)
    assert set(log) <= {p.name for p in (folder / "_delta_log").iterdir()}


ODD = ["A/A", "a?", "é", "%3A", "x y", "a=b:c", "100%", "#", "_under", ".dot", "a+b", "'quote'"]


@pytest.mark.field_bug(27)
def test_partition_values_with_special_characters(tables: Any) -> None:
    """Field bug 27: encoded once or twice, such files were missed, or live ones deleted."""
    table = tables(name="odd")
    data = tables.people(*range(len(ODD))).set_column(2, "part", [ODD])
    table.write(data, partition_by=["part"])
    table.write(data, mode="overwrite")
    assert len(tables.vacuum(table).deleted) == len(ODD)
    assert rows(table.to_arrow()) == rows(data)
    tables.check(table)


def test_partition_columns_that_start_with_an_underscore(tables: Any) -> None:
    table = tables(name="odd")
    data = tables.people(1, 2, 3).rename_columns(["id", "name", "_part", "score"])
    table.write(data, partition_by=["_part"])
    table.write(data, mode="overwrite")
    assert len(tables.vacuum(table).deleted) == 3
    assert rows(table.to_arrow()) == rows(data)


@pytest.mark.field_bug(27)
def test_files_of_another_client_with_special_characters_stay(tables: Any) -> None:
    from deltalake import write_deltalake

    folder = tables.root / "theirs"
    data = tables.people(*range(len(ODD))).set_column(2, "part", [ODD])
    write_deltalake(str(folder), data, partition_by=["part"])
    assert tables.vacuum(Table(folder)).deleted == ()
    assert DeltaTable(str(folder)).to_pyarrow_table().num_rows == len(ODD)


@pytest.mark.field_bug(25)
def test_a_table_with_unknown_features_is_refused(tables: Any) -> None:
    table = tables(range(5))
    table.delete("id = 1")
    line = '{"protocol":{"minReaderVersion":1,"minWriterVersion":7,"writerFeatures":["someDay"]}}\n'
    (tables.root / "table" / "_delta_log" / f"{2:020}.json").write_text(line)
    with pytest.raises(errors.UnsupportedFeature):
        tables.vacuum(table)


def test_there_must_be_a_table(tables: Any) -> None:
    with pytest.raises(errors.TableNotFound):
        tables(name="nothing").vacuum()


def test_lite_deletes_what_the_log_says_was_removed_and_nothing_else(tables: Any, tmp_path: Path) -> None:
    table = tables(range(5), range(5, 9), properties={"delta.enableDeletionVectors": "true"})
    table.delete("id = 6")
    table.delete("id < 5")
    table.optimize()
    orphan = Path(table.uri.removeprefix("file://")) / "part-orphan.parquet"
    orphan.write_bytes(b"x")
    time.sleep(0.01)

    planned = table.vacuum(0, dry_run=True, lite=True, enforce_retention_duration=False)
    done = table.vacuum(0, lite=True, enforce_retention_duration=False)

    assert planned.deleted == done.deleted
    assert orphan.exists()
    assert len([key for key in done.deleted if key.endswith(".parquet")]) == 2
    assert sorted(table.to_arrow()["id"].to_pylist()) == [5, 7, 8]
    assert table.vacuum(0, lite=True, enforce_retention_duration=False).deleted == ()


def test_lite_is_refused_where_the_log_no_longer_says(tables: Any) -> None:
    table = tables(range(5), range(5, 9))
    table.checkpoint()
    (Path(table.uri.removeprefix("file://")) / "_delta_log" / f"{0:020d}.json").unlink()
    with pytest.raises(errors.InvalidArgument, match="log begins"):
        Table(table.uri).vacuum(lite=True)


def test_an_inventory_stands_for_a_listing(tables: Any) -> None:
    table = tables(range(5), range(5, 9))
    table.delete("id < 5")
    gone = [a["path"] for a in _removed(table)]
    time.sleep(0.01)
    listed = pa.table(
        {
            "path": [f"{table.uri}/{gone[0]}", f"{table.uri}/_delta_log", "file:///elsewhere/x"],
            "length": pa.array([10, 0, 1], pa.int64()),
            "isDir": [False, True, False],
            "modificationTime": pa.array([0, 0, 0], pa.int64()),
        }
    )

    done = table.vacuum(0, inventory=listed, enforce_retention_duration=False)

    assert done.deleted == (gone[0],)
    with pytest.raises(errors.InvalidArgument, match="lacks the columns"):
        table.vacuum(inventory=listed.drop_columns(["isDir"]))
    with pytest.raises(errors.InvalidArgument, match="not by both"):
        table.vacuum(lite=True, inventory=listed)


def _removed(table: Any) -> list[dict[str, Any]]:
    log = Path(table.uri.removeprefix("file://")) / "_delta_log"
    lines = [json.loads(line) for file in sorted(log.glob("*.json")) for line in file.read_text().splitlines()]
    return [line["remove"] for line in lines if "remove" in line]
