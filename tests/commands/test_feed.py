"""The change feed: ranges, moments, schemas that changed, vectors, and what is no longer there."""

from __future__ import annotations

import datetime
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakeseal import Table, errors
from lakeseal.log.cleanup import clean_up_expired_logs
from support.rows import rows

FEED = {"delta.enableChangeDataFeed": "true"}
VECTORS = {"delta.enableDeletionVectors": "true"}


def kinds(feed: pa.Table) -> Counter[Any]:
    return Counter((row["_commit_version"], row["_change_type"], row["id"]) for row in feed.to_pylist())


@pytest.fixture
def changed(tables: Any) -> Table:
    """Version 0: rows 0 to 4. 1: row 1 is updated. 2: row 2 goes. 3: row 9 comes."""
    table: Table = tables(range(5), properties=FEED)
    table.update({"name": "'x'"}, "id = 1")
    table.delete("id = 2")
    table.write(tables.people(9))
    return table


ALL = {
    **{(0, "insert", n): 1 for n in range(5)},
    (1, "update_preimage", 1): 1,
    (1, "update_postimage", 1): 1,
    (2, "delete", 2): 1,
    (3, "insert", 9): 1,
}


def test_a_range_includes_both_ends(changed: Table) -> None:
    assert kinds(changed.changes(0)) == ALL
    assert kinds(changed.changes(1, 2)) == {key: n for key, n in ALL.items() if key[0] in (1, 2)}
    assert kinds(changed.changes(3, 99)) == {(3, "insert", 9): 1}
    with pytest.raises(errors.VersionNotFound, match="not there yet"):
        changed.changes(4)
    with pytest.raises(errors.InvalidArgument, match="no changes from version 2 to 1"):
        changed.changes(2, 1)


def test_rows_that_an_overwrite_leaves_are_not_in_the_feed(tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    table.write(pa.table({"id": [1, 5, 9]}), properties={"delta.enableChangeDataFeed": "true"})
    files = table.files()["path"].to_pylist()
    for where, new in (("id = 4", []), ("id = 4", [4]), ("id = 5", []), ("id IN (1, 4)", [4])):
        before, version = table.to_arrow(), table.version()
        table.write(pa.table({"id": pa.array(new, pa.int64())}), mode="overwrite", replace_where=where)
        gone = [id for id in before["id"].to_pylist() if id in {"id = 4": (4,), "id = 5": (5,)}.get(where, (1, 4))]
        found = table.changes(version + 1).to_pylist() if table.version() > version else []
        told = sorted((row["_change_type"], row["id"]) for row in found)
        assert told == sorted([("delete", id) for id in gone] + [("insert", id) for id in new]), where
        if where == "id = 4":
            assert set(files) <= set(table.files()["path"].to_pylist())


def test_a_range_of_moments_is_that_of_their_versions(tables: Any) -> None:
    table = tables(range(2), properties=FEED | {"delta.enableInCommitTimestamps": "true"})
    table.write(tables.people(5))
    table.delete("id = 0")
    times = {row["_commit_version"]: row["_commit_timestamp"] for row in table.changes(0).to_pylist()}
    second = times[1]
    assert {key[0] for key in kinds(table.changes(second))} == {1, 2}
    assert {key[0] for key in kinds(table.changes(second, second))} == {1}
    assert {key[0] for key in kinds(table.changes(second.isoformat(), 1))} == {1}
    assert {key[0] for key in kinds(table.changes(datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)))} == {0, 1, 2}
    with pytest.raises(errors.VersionNotFound):
        table.changes(datetime.datetime(2100, 1, 1, tzinfo=datetime.UTC))


@pytest.mark.parametrize("properties", [FEED, FEED | VECTORS], ids=["files", "vectors"])
def test_changes_have_the_schema_of_the_ranges_end(tables: Any, properties: Any) -> None:
    table = tables(range(4), properties=properties | {"delta.columnMapping.mode": "name"})
    table.update({"name": "'x'"}, "id = 1")
    table.add_columns(pa.schema([("extra", pa.int32())]))
    table.rename_column("score", "points")
    table.update({"extra": "7"}, "id = 3")
    table.drop_column("part")
    table.delete("id = 3")
    early, late = table.changes(1, 1), table.changes(1)
    assert early.column_names[:4] == ["id", "name", "part", "score"]
    assert late.column_names[:4] == ["id", "name", "points", "extra"]
    of_three = [row for row in late.to_pylist() if row["id"] == 3]
    assert [
        (row["_change_type"], row["extra"]) for row in sorted(of_three, key=lambda r: r["_commit_version"])[-1:]
    ] == [("delete", 7)]
    assert {row["extra"] for row in late.to_pylist() if row["_commit_version"] == 1} == {None}
    assert Counter(kind for _, kind, _ in kinds(late).elements()) == {
        "update_preimage": 2,
        "update_postimage": 2,
        "delete": 1,
    }


def test_versions_before_the_feed_was_on_are_refused_and_so_are_those_after_it_went_off(tables: Any) -> None:
    table = tables(range(3))
    table.set_properties(FEED)
    table.delete("id = 1")
    table.set_properties({"delta.enableChangeDataFeed": "false"})
    table.delete("id = 2")
    assert kinds(table.changes(1, 2)) == {(2, "delete", 1): 1}
    for first, last, version in ((0, 2, 0), (1, 4, 3)):
        with pytest.raises(errors.InvalidArgument, match="was not on") as caught:
            table.changes(first, last)
        assert caught.value.version == version
        assert "enableChangeDataFeed" in (caught.value.hint or "")


def test_changes_that_were_vacuumed_away_are_named(changed: Table, tables: Any) -> None:
    changed.optimize()
    tables.vacuum(changed)
    for first, last in ((1, 1), (0, None)):
        with pytest.raises(errors.DataFileMissing, match="not there") as caught:
            changed.changes(first, last)
        assert caught.value.version == first
        assert caught.value.file is not None
        assert "vacuumed away" in (caught.value.hint or "")
    assert kinds(changed.changes(4)) == {}


def test_change_files_that_are_gone_are_named(tables: Any, changed: Table) -> None:
    shutil.rmtree(tables.root / "table" / "_change_data")
    with pytest.raises(errors.DataFileMissing, match="not there") as caught:
        changed.changes(1)
    assert (caught.value.version, "_change_data/" in (caught.value.file or "")) == (1, True)
    assert kinds(changed.changes(3)) == {(3, "insert", 9): 1}


def test_versions_that_are_gone_from_the_log_are_named(changed: Table) -> None:
    changed.checkpoint()
    clean_up_expired_logs(changed._log, now_ms=2_500_000_000_000)
    with pytest.raises(errors.VersionNotFound) as caught:
        Table(changed.uri).changes(0)
    assert caught.value.table is not None
    assert kinds(Table(changed.uri).changes(3)) == {(3, "insert", 9): 1}


@pytest.mark.spark
@pytest.mark.parametrize("properties", [FEED, FEED | VECTORS], ids=["files", "vectors"])
def test_spark_reads_the_same_feed(spark: Any, tables: Any, properties: Any) -> None:
    table = tables(range(5), range(5, 9), properties=properties, partition_by=["part"])
    table.update({"name": "'x'"}, "id = 1")
    table.add_columns(pa.schema([("extra", pa.int32())]))
    table.delete("id % 4 = 2")
    for first, last in ((0, None), (2, 3)):
        assert rows(table.changes_spark(spark, first, last).toArrow()) == rows(table.changes(first, last))
    with pytest.raises(errors.VersionNotFound, match="not there yet"):
        table.changes_spark(spark, 9)
