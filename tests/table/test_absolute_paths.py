"""Files that a log names by absolute paths: read where the reader, or a clone's own record, allows it, else refused."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakeseal
from lakeseal import Table, Trust, errors
from lakeseal.log.clone_source import CLONE_SOURCES, source_of_clone
from lakeseal.protocol.actions import CommitInfo

ROWS = pa.table({"x": [1, 2, 3]})


def with_absolute(folder: Path, path: str, size: int = 1) -> Table:
    """A table of which one file is where a stranger says."""
    table = Table(folder)
    table.write(pa.table({"x": [0]}), properties={"delta.enableChangeDataFeed": "true"})
    add = {"path": path, "partitionValues": {}, "size": size, "modificationTime": 1, "dataChange": True}
    (folder / "_delta_log" / f"{1:020d}.json").write_text(json.dumps({"add": add}))
    return Table(folder)


def file_elsewhere(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "a.parquet"
    pq.write_table(ROWS, file)
    return file


READS: dict[str, Callable[[Table], Any]] = {
    "to_arrow": lambda table: table.to_arrow(),
    "where": lambda table: table.to_arrow(where="x > 1"),
    "to_batches": lambda table: table.to_batches().read_all(),
    "changes": lambda table: table.changes(1),
    "delete": lambda table: table.delete("x = 1"),
    "update": lambda table: table.update({"x": "x + 1"}, "x = 1"),
    "optimize": lambda table: table.optimize(),
    "merge": lambda table: table.merge(pa.table({"x": [1]}), "t.x = s.x").when_matched_delete().execute(),
    "constraint": lambda table: table.add_constraint("small", "x < 100"),
    "restore": lambda table: (table.delete(), table.restore(1)),
}


@pytest.mark.field_bug("S4")
@pytest.mark.parametrize("read", READS)
def test_a_file_in_a_place_that_nobody_allowed_is_refused_with_a_hint(read: str, tmp_path: Path) -> None:
    file = file_elsewhere(tmp_path / "elsewhere")
    table = with_absolute(tmp_path / "t", f"file://{file}", file.stat().st_size)
    with pytest.raises(errors.UnsafePath, match="not allowed") as caught:
        READS[read](table)
    assert caught.value.table
    assert "LAKESEAL_PLACES" in caught.value.hint


@pytest.mark.parametrize("read", READS)
def test_a_file_in_a_place_that_the_reader_allows_is_read(read: str, tmp_path: Path) -> None:
    file = file_elsewhere(tmp_path / "elsewhere")
    with_absolute(tmp_path / "t", f"file://{file}", file.stat().st_size)
    READS[read](Table(tmp_path / "t", trust=Trust(places=(str(tmp_path / "elsewhere"),))))


def test_a_place_can_be_allowed_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = file_elsewhere(tmp_path / "elsewhere")
    with_absolute(tmp_path / "t", f"file://{file}", file.stat().st_size)
    monkeypatch.setenv("LAKESEAL_PLACES", f"s3://other {tmp_path}/elsewhere")
    assert sorted(Table(tmp_path / "t").to_arrow()["x"].to_pylist()) == [0, 1, 2, 3]
    monkeypatch.setenv("LAKESEAL_PLACES", json.dumps([f"{tmp_path}/elsewhere"]))
    assert Table(tmp_path / "t").to_arrow().num_rows == 4
    monkeypatch.setenv("LAKESEAL_PLACES", "[1]")
    with pytest.raises(errors.InvalidArgument, match="LAKESEAL_PLACES"):
        Table(tmp_path / "t")


@pytest.mark.parametrize(
    "path",
    [
        "file://{root}/allowed-2/a.parquet",
        "file://{root}/allowed/../elsewhere/a.parquet",
        "file://{root}/allowed/%2e%2e/elsewhere/a.parquet",
        "file://{root}/allowed/link/a.parquet",
        "/{root}/elsewhere/a.parquet",
        "s3://bucket/allowed/a.parquet",
        "file://{root}/ALLOWED/a.parquet",
    ],
)
def test_a_place_is_not_left_by_how_a_path_is_spelled(path: str, tmp_path: Path) -> None:
    for name in ("allowed", "allowed-2", "elsewhere", "ALLOWED"):
        file_elsewhere(tmp_path / name)
    (tmp_path / "allowed" / "link").symlink_to(tmp_path / "elsewhere")
    with_absolute(tmp_path / "t", path.format(root=tmp_path))
    with pytest.raises(errors.UnsafePath):
        Table(tmp_path / "t", trust=Trust(places=(str(tmp_path / "allowed"),))).to_arrow()


@pytest.mark.parametrize("read", [name for name in READS if name not in ("changes", "restore")])
def test_a_clone_is_read_without_being_told_where_its_source_is(read: str, tmp_path: Path) -> None:
    source = Table(tmp_path / "source")
    source.write(ROWS)
    source.clone(tmp_path / "clone")
    READS[read](Table(tmp_path / "clone"))


def test_a_clone_of_a_clone_knows_both_sources_after_its_log_is_gone(tmp_path: Path) -> None:
    source = Table(tmp_path / "source")
    source.write(ROWS)
    first = source.clone(tmp_path / "first")
    first.write(pa.table({"x": [4]}))
    second = first.clone(tmp_path / "second")
    second.checkpoint()
    for commit in (tmp_path / "second" / "_delta_log").glob("*.json"):
        commit.unlink()
    assert sorted(Table(tmp_path / "second").to_arrow()["x"].to_pylist()) == [1, 2, 3, 4]
    named = json.loads(Table(tmp_path / "second").snapshot().metadata.configuration[CLONE_SOURCES] or "")
    assert named == [first.uri, source.uri]


def test_a_clone_does_not_allow_what_its_source_does_not(tmp_path: Path) -> None:
    file = file_elsewhere(tmp_path / "elsewhere")
    table = with_absolute(tmp_path / "t", f"file://{file}", file.stat().st_size)
    table.clone(tmp_path / "clone")
    with pytest.raises(errors.UnsafePath):
        Table(tmp_path / "clone").to_arrow()


@pytest.mark.parametrize(
    "source", ["{root}/source", "file:{root}/source", "delta.`{root}/source`", "`file://{root}/source`"]
)
def test_a_clone_of_another_client_is_read_by_what_its_first_commit_says(source: str, tmp_path: Path) -> None:
    original = Table(tmp_path / "source")
    original.write(ROWS)
    original.clone(tmp_path / "clone")
    commit = tmp_path / "clone" / "_delta_log" / f"{0:020d}.json"
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    for line in lines:
        if "metaData" in line:
            del line["metaData"]["configuration"][CLONE_SOURCES]
        if "commitInfo" in line:
            line["commitInfo"]["operationParameters"]["source"] = source.format(root=tmp_path)
    commit.write_text("\n".join(map(json.dumps, lines)))
    for checksum in (tmp_path / "clone" / "_delta_log").glob("*.crc"):
        checksum.unlink()
    clone = Table(tmp_path / "clone")
    assert clone.to_arrow().num_rows == 3
    clone.write(pa.table({"x": [9]}))
    assert clone.to_arrow().num_rows == 4


@pytest.mark.parametrize("source", ["/", "file:///", "s3://bucket", "default.events", "", "memory://", None, 7])
def test_a_whole_disk_and_a_name_are_no_source(source: Any) -> None:
    info = CommitInfo(operation="CLONE", operation_parameters={"source": source})
    assert source_of_clone(info) == ()


def test_a_table_that_is_no_clone_names_no_source() -> None:
    assert source_of_clone(CommitInfo(operation="WRITE", operation_parameters={"source": "/data/t"})) == ()
    assert source_of_clone(None) == ()


def test_a_vacuum_of_a_clone_leaves_its_source_alone(tmp_path: Path) -> None:
    source = Table(tmp_path / "source")
    source.write(ROWS)
    clone = source.clone(tmp_path / "clone")
    clone.delete()
    time.sleep(0.002)  # what was removed in this very millisecond would stay
    clone.vacuum(0, enforce_retention_duration=False)
    assert lakeseal.Table(tmp_path / "source").to_arrow().num_rows == 3
