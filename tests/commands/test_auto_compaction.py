"""Auto-compaction: small files beside what a commit added become large ones behind it, where the table asks for it."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeseal
from lakeseal import Table
from lakeseal.commands.optimize import AutoCompaction

AUTO = {"delta.autoOptimize.autoCompact": "true"}
SCHEMA = pa.schema([("p", pa.int64()), ("n", pa.int64())])


def rows(part: int, *numbers: int) -> pa.Table:
    return pa.table({"p": pa.array([part] * len(numbers), pa.int64()), "n": pa.array(numbers, pa.int64())})


def many_files(table: Table, part: int, count: int) -> None:
    """So many files in a partition, in two commits that are no cause to put them together."""
    table.set_properties({"delta.autoOptimize.autoCompact": "false"})
    data = pa.table({"p": pa.array([part] * count, pa.int64()), "n": pa.array(range(count), pa.int64())})
    table.write(data, max_records_per_file=1)
    table.set_properties(AUTO)


def test_a_commit_with_which_there_are_enough_small_files_puts_them_together(tmp_path: Path) -> None:
    table = lakeseal.create(tmp_path / "t", SCHEMA, partition_by="p", properties=AUTO)
    many_files(table, 1, 48)
    many_files(table, 2, 60)

    table.write(rows(1, 100))
    assert table.history(1)[0]["operation"] == "WRITE", "49 are not enough"
    result = table.write(rows(1, 101))

    newest, write = table.history(2)
    assert (newest["operation"], newest["operationParameters"]["auto"]) == ("OPTIMIZE", "true")
    assert (write["operation"], write["version"]) == ("WRITE", result.version)
    assert newest["version"] == result.version + 1
    paths = table.files()["partitionValues"].to_pylist(maps_as_pydicts="lossy")
    assert [value["p"] for value in paths].count("1") == 1
    assert [value["p"] for value in paths].count("2") == 60, "the commit added nothing there"
    assert sorted(table.to_arrow(where="p = 1")["n"].to_pylist()) == [*range(48), 100, 101]


def test_rows_that_are_put_together_are_no_change(tmp_path: Path) -> None:
    feed = AUTO | {"delta.enableChangeDataFeed": "true", "delta.enableRowTracking": "true"}
    table = lakeseal.create(tmp_path / "t", SCHEMA, properties=feed)
    many_files(table, 1, 49)
    ids = {row["n"]: row["_row_id"] for row in table.to_arrow(row_ids=True).to_pylist()}

    table.write(rows(1, 100))

    assert table.files().num_rows == 1
    assert table.changes(table.version() - 1)["n"].to_pylist() == [100]
    assert {row["n"]: row["_row_id"] for row in table.to_arrow(row_ids=True).to_pylist() if row["n"] != 100} == ids


def test_merges_and_transactions_are_followed_by_it_too(tmp_path: Path) -> None:
    owner = f"sqlite:///{tmp_path}/ledger.db"
    table = lakeseal.create(tmp_path / "t", SCHEMA, properties=AUTO, owner=owner)
    many_files(table, 1, 49)
    table.merge(rows(1, 7, 200), "t.n = s.n").when_not_matched_insert().execute()
    assert (table.files().num_rows, table.history(1)[0]["operation"]) == (1, "OPTIMIZE")

    many_files(table, 1, 49)
    with lakeseal.transaction(owner) as txn:
        txn.table(table).write(rows(1, 300))
    assert (table.files().num_rows, table.history(1)[0]["operation"]) == (1, "OPTIMIZE")
    assert table.to_arrow().num_rows == 100


def test_what_goes_wrong_with_it_is_logged_and_the_write_stands(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = lakeseal.create(tmp_path / "t", SCHEMA, properties=AUTO)
    many_files(table, 1, 55)
    lost = table.files()["path"].to_pylist()[0]
    (tmp_path / "t" / lost).unlink()

    with caplog.at_level(logging.WARNING):
        result = table.write(rows(1, 100))

    assert table.version() == result.version
    assert table.files().num_rows == 56
    assert [
        record.message for record in caplog.records if "not put together" in record.message and lost in record.message
    ]


def test_a_clustered_table_is_clustered(tmp_path: Path) -> None:
    table = lakeseal.create(tmp_path / "t", SCHEMA, cluster_by="n", properties=AUTO)
    many_files(table, 1, 49)
    table.write(rows(1, 100))
    assert table.history(1)[0]["operationParameters"]["clusterBy"] == '["n"]'
    assert table.files().num_rows == 1


def test_large_files_and_other_partitions_are_left_alone() -> None:
    files = pa.table(
        {
            "path": [str(n) for n in range(6)],
            "size": pa.array([10, 10, 60, 10, 10, 10], pa.int64()),
            "partitionValues": pa.array(
                [[("p", "1")]] * 3 + [[("p", None)]] * 2 + [[("p", "3")]], pa.map_(pa.string(), pa.string())
            ),
        }
    )

    def chosen(**how: Any) -> list[str]:
        found: list[str] = AutoCompaction(**how).chosen(files, 100)["path"].to_pylist()
        return found

    assert chosen(least_files=2) == ["0", "1", "3", "4"]
    assert chosen(least_files=3) == []
    assert chosen(least_files=2, partitions=frozenset({(("p", None),)})) == ["3", "4"]


@pytest.mark.parametrize("asked", ["false", "true"])
def test_optimized_writes_leave_one_file_where_tasks_would_leave_several(tmp_path: Path, asked: str) -> None:
    table = lakeseal.create(tmp_path / "t", SCHEMA, properties={"delta.autoOptimize.optimizeWrite": asked})
    count = 5_000_000
    zeros = pa.repeat(pa.scalar(0, pa.int64()), count)
    table.write(pa.table({"p": zeros, "n": zeros}))
    tasks = 1 if asked == "true" or os.cpu_count() == 1 else 2
    assert (table.files().num_rows > 1) == (tasks > 1)
    assert table.to_arrow(columns=[]).num_rows == count
