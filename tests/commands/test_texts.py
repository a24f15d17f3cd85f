"""Texts that are not UTF-8: nobody could read the rows around them again."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lakeseal import Repository, Table
from lakeseal.errors import InvalidInput
from lakeseal.files.records import check_texts

WRONG = pa.array([b"a", b"\xff", b"c"]).view(pa.string())
COLUMNS = {
    "text": WRONG,
    "large": pa.array([b"a", b"\xff", b"c"], pa.large_binary()).view(pa.large_string()),
    "struct": pa.StructArray.from_arrays([WRONG], ["s"]),
    "list": pa.ListArray.from_arrays([0, 1, 2, 3], WRONG),
    "map": pa.MapArray.from_arrays([0, 1, 2, 3], ["k", "k", "k"], WRONG),
}


@pytest.mark.parametrize("kind", list(COLUMNS))
def test_a_text_that_is_not_utf_8_is_refused_before_it_is_published(tmp_path: Path, kind: str) -> None:
    table = Table(tmp_path / "t")
    table.write(pa.table({"id": [0], "c": COLUMNS[kind].slice(0, 1)}))
    with pytest.raises(InvalidInput, match="UTF-8") as caught:
        table.write(pa.table({"id": [1, 2, 3], "c": COLUMNS[kind]}))
    assert caught.value.column == "c"
    assert table.to_arrow()["id"].to_pylist() == [0]


def test_a_partition_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="UTF-8"):
        Table(tmp_path / "t").write(pa.table({"id": [1, 2, 3], "p": WRONG}), partition_by=["p"])


@pytest.mark.parametrize("format", ["parquet", "csv", "json", "orc"])
def test_files_on_branches_have_no_such_texts_either(tmp_path: Path, format: str) -> None:
    repo = Repository.create(tmp_path / "r")
    with pytest.raises(InvalidInput, match="UTF-8"):
        repo.write(pa.table({"t": WRONG}), "main", "out", format=format)


def test_only_the_rows_of_a_slice_are_looked_at() -> None:
    rows = pa.RecordBatch.from_arrays(list(COLUMNS.values()), names=list(COLUMNS))
    check_texts(rows.slice(0, 1))
    check_texts(rows.slice(2, 1))
    check_texts(pa.RecordBatch.from_pydict({"t": ["ü", None, "", "😀"]}))
    with pytest.raises(InvalidInput):
        check_texts(rows.slice(1, 1))
