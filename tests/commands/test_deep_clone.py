"""Deep clones: copied once, brought up to date by what changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeseal
from lakeseal.commands.command import NothingToDo
from lakeseal.errors import AlreadyExists


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "part": [f"p/{n % 2}" for n in ids]})


def ids(table: lakeseal.Table) -> list[int]:
    return sorted(table.to_arrow()["id"].to_pylist())


@pytest.mark.parametrize(
    "properties", [{}, {"delta.enableDeletionVectors": "true"}, {"delta.columnMapping.mode": "name"}]
)
def test_a_deep_clone_needs_nothing_of_its_source_and_follows_it(tmp_path: Path, properties: Any) -> None:
    source = lakeseal.Table(tmp_path / "source")
    source.write(rows(1, 2, 3, 4), partition_by="part", properties=properties)
    source.delete("id = 4")

    clone = source.clone(tmp_path / "clone", deep=True)
    assert ids(clone) == [1, 2, 3]
    source.write(rows(5, 6))
    source.delete("id = 1")
    source.clone(tmp_path / "clone", deep=True)

    assert ids(clone) == ids(source) == [2, 3, 5, 6]
    done = clone.history(1)[0]["operationMetrics"]
    assert int(done["numCopiedFiles"]) < int(done["sourceNumOfFiles"]) + 2
    source.delete()
    source.vacuum(0, enforce_retention_duration=False)
    assert ids(lakeseal.Table(tmp_path / "clone")) == [2, 3, 5, 6]
    assert all("://" not in path for path in clone.files()["path"].to_pylist())


def test_a_second_run_copies_only_what_is_new(tmp_path: Path) -> None:
    source = lakeseal.Table(tmp_path / "source")
    for number in range(3):
        source.write(rows(number))
    clone = source.clone(tmp_path / "clone", deep=True)
    source.write(rows(7))

    source.clone(tmp_path / "clone", deep=True)
    assert clone.history(1)[0]["operationMetrics"]["numCopiedFiles"] == "1"
    version = clone.version()
    clone.write(rows(99))  # whatever is written to it goes with the next run
    source.clone(tmp_path / "clone", deep=True)

    assert ids(clone) == ids(source)
    assert clone.version() == version + 2
    assert isinstance(clone.delete("id = 1000"), NothingToDo)


def test_the_source_s_columns_come_along(tmp_path: Path) -> None:
    source = lakeseal.Table(tmp_path / "source")
    source.write(rows(1))
    clone = source.clone(tmp_path / "clone", deep=True)
    before = clone.snapshot().metadata.id

    source.write(rows(2).append_column("new", pa.array([5])), merge_schema=True)
    source.clone(tmp_path / "clone", deep=True)

    assert clone.schema().names == ["id", "part", "new"]
    assert clone.snapshot().metadata.id == before != source.snapshot().metadata.id


def test_a_table_that_is_no_clone_of_the_source_stays(tmp_path: Path) -> None:
    source, other = lakeseal.Table(tmp_path / "source"), lakeseal.Table(tmp_path / "other")
    source.write(rows(1))
    other.write(rows(2))

    with pytest.raises(AlreadyExists, match="none of this source"):
        source.clone(tmp_path / "other", deep=True)

    assert ids(other) == [2]


def test_a_shallow_clone_becomes_a_table_of_its_own_by_a_deep_one(tmp_path: Path) -> None:
    source = lakeseal.Table(tmp_path / "source")
    source.write(rows(1, 2))
    shallow = source.clone(tmp_path / "shallow")
    shallow.write(rows(3))

    deep = shallow.clone(tmp_path / "deep", deep=True)

    assert ids(deep) == [1, 2, 3]
    assert all("://" not in path for path in deep.files()["path"].to_pylist())
