"""The change feed over commits of writers that say less of the files that they remove."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeseal
from lakeseal.errors import BrokenCommit, VersionNotFound

FED = {"delta.enableChangeDataFeed": "true"}


def test_a_remove_without_its_partition_tells_rows_of_the_partition_that_they_were_of(tmp_path: Path) -> None:
    table, path = made(tmp_path)
    remove(tmp_path, path)
    told = table.changes(1).select(["id", "shop", "_change_type"]).to_pylist()
    assert told == [{"id": 1, "shop": "north", "_change_type": "delete"}]


def test_it_is_told_so_in_the_pages_of_a_stream(tmp_path: Path) -> None:
    from lakeseal.log.changes import told_changes
    from lakeseal.log.delta_log import DeltaLog
    from lakeseal.storage import open_store

    _, path = made(tmp_path)
    remove(tmp_path, path)
    log = DeltaLog(open_store(tmp_path))
    (change,) = told_changes(log, 1, log.commit_actions(1))
    assert (change.kind, change.file.partition_values) == ("delete", {"shop": "north"})


def test_where_nobody_knows_the_partition_any_more_the_feed_says_so(tmp_path: Path) -> None:
    table, path = made(tmp_path)
    remove(tmp_path, path)
    lakeseal.Table(tmp_path).checkpoint()
    (tmp_path / "_delta_log" / f"{0:020}.json").unlink()
    table = lakeseal.Table(tmp_path)
    with pytest.raises(VersionNotFound, match="of which partitions"):
        table.changes(1)


def test_a_remove_of_a_file_that_was_not_there_is_a_broken_commit(tmp_path: Path) -> None:
    table, _ = made(tmp_path)
    remove(tmp_path, "shop=north/other.parquet")
    with pytest.raises(BrokenCommit, match="not there"):
        table.changes(1)


def made(place: Path) -> tuple[lakeseal.Table, str]:
    table = lakeseal.Table(place)
    table.write(pa.table({"id": [1, 2], "shop": ["north", "south"]}), partition_by=["shop"], properties=FED)
    paths = table.files()["path"].to_pylist()
    return table, next(path for path in paths if "north" in path)


def remove(place: Path, path: str, **more: Any) -> None:
    action = {"remove": {"path": path, "dataChange": True, "deletionTimestamp": 1, **more}}
    (place / "_delta_log" / f"{1:020}.json").write_text(json.dumps(action))
