"""A scan with a condition reads a row group's other columns only around the rows that match; rows are what they must
be."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakeseal
from lakeseal import errors
from lakeseal.log import data

ROWS = 12_000
GROUP = 3_000


def rows() -> pa.Table:
    numbers = np.arange(ROWS)
    return pa.table(
        {
            "id": numbers,
            "few": pa.array(["ab"[n // GROUP % 2] for n in numbers]),
            "text": pa.array([f"{n * 2_654_435_761 % 2**32:08x}" * 30 for n in numbers]),
            "part": pa.array([f"p{n // (ROWS // 2)}" for n in numbers]),
        }
    )


@pytest.fixture
def table(tmp_path: Path) -> lakeseal.Table:
    """Two files of two row groups each, which are large enough for a look."""
    properties = {"delta.enableDeletionVectors": "true"}
    found = lakeseal.create(tmp_path / "t", rows().schema, partition_by=["part"], properties=properties)
    found.write(rows())
    for path in files(found):
        pq.write_table(pq.read_table(path, partitioning=None), path, row_group_size=GROUP, compression="none")
    return found


def files(table: lakeseal.Table) -> list[Path]:
    return sorted(Path(table.uri.removeprefix("file://")).glob("part=*/*.parquet"))


CONDITIONS = (
    "id = 4000",
    "id < 0",
    "few = 'b'",
    "few = 'b' AND id % 7 = 3",
    "id > 1400 AND id < 1600",
    "part = 'p1' AND few = 'a'",
    "part = 'p0'",
    "1 = 0",
    "length(text) > 3 AND id % 1000 = 1",
    "10 / (id - 77) > 9 OR id = 5000",
)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_rows_that_match_come_out_whatever_was_deleted(table: lakeseal.Table, condition: str) -> None:
    gone = {77, *random.Random(condition).sample(range(ROWS), 40)}
    table.delete(f"id IN ({', '.join(map(str, gone))})")
    assert table.files()["deletionVector"].null_count < 2
    found = table.to_arrow(where=condition, columns=["text", "id"])
    whole = [row for row in rows().to_pylist() if row["id"] not in gone]
    right = {
        "id = 4000": lambda r: r["id"] == 4000,
        "id < 0": lambda r: False,
        "few = 'b'": lambda r: r["few"] == "b",
        "few = 'b' AND id % 7 = 3": lambda r: r["few"] == "b" and r["id"] % 7 == 3,
        "id > 1400 AND id < 1600": lambda r: 1400 < r["id"] < 1600,
        "part = 'p1' AND few = 'a'": lambda r: r["part"] == "p1" and r["few"] == "a",
        "part = 'p0'": lambda r: r["part"] == "p0",
        "1 = 0": lambda r: False,
        "length(text) > 3 AND id % 1000 = 1": lambda r: r["id"] % 1000 == 1,
        "10 / (id - 77) > 9 OR id = 5000": lambda r: 10 / (r["id"] - 77) > 9 or r["id"] == 5000,
    }[condition]
    wanted = sorted((row["text"], row["id"]) for row in whole if right(row))
    assert sorted(zip(*(found[name].to_pylist() for name in ("text", "id")), strict=True)) == wanted


def test_other_columns_of_a_row_group_without_a_match_are_not_read(table: lakeseal.Table) -> None:
    path = files(table)[0]
    metadata = pq.read_metadata(path)
    assert metadata.num_row_groups == 2
    text = metadata.row_group(0).column(metadata.schema.names.index("text"))
    held = bytearray(path.read_bytes())
    assert text.total_compressed_size > data._LOOK_BYTES
    held[text.data_page_offset : text.data_page_offset + 64] = b"\xff" * 64
    path.write_bytes(held)
    assert table.to_arrow(where="id = 4000")["id"].to_pylist() == [4000]
    with pytest.raises(errors.BrokenDataFile):
        table.to_arrow(where="id = 3")


def test_other_columns_are_not_read_before_the_first_and_behind_the_last_match(table: lakeseal.Table) -> None:
    path = files(table)[0]
    rewritten = pq.read_table(path, partitioning=None)
    options = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    pq.write_table(rewritten, path, data_page_size=2**14, **options)
    text = pq.read_metadata(path).row_group(0).column(rewritten.schema.names.index("text"))
    held = bytearray(path.read_bytes())
    for damaged in (2**16, text.total_compressed_size - 64):
        held[text.data_page_offset + damaged + 40] ^= 1
    path.write_bytes(held)
    found = table.to_arrow(where="id > 2500 AND id < 2600")
    assert found.sort_by("id").equals(rows().slice(2501, 99).select(found.schema.names))
    for condition in ("id < 9 OR id = 2500", "id = 2500 OR id = 5999"):
        with pytest.raises(errors.BrokenDataFile):
            table.to_arrow(where=condition)


def test_rows_that_match_here_and_there_are_chosen_from_all_kinds_of_columns(tmp_path: Path) -> None:
    numbers = np.arange(150_000)
    rows = pa.table(
        {
            "id": numbers,
            "kind": pa.array(numbers * 7_919 % 50, pa.int32()),
            "code": pa.array([f"{n * 2_654_435_761 % 2**32:08x}" for n in numbers]),
            "name": pa.array([f"customer {n % 100}" for n in numbers]),
            "some": pa.array([None if n % 3 else n for n in numbers.tolist()]),
            "list": pa.array([[n % 5] for n in numbers]),
            "day": pa.array(["d"] * len(numbers)),
        }
    )
    properties = {"delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true"}
    table = lakeseal.create(tmp_path / "t", rows.schema, partition_by=["day"], properties=properties)
    table.write(rows)
    gone = {57, 149_950, *(n for n in range(0, 150_000, 5_000) if n * 7_919 % 50 == 0)}
    table.delete(f"id IN ({', '.join(map(str, gone))})")
    assert table.files().num_rows == 1
    left = np.array([n not in gone for n in numbers])
    for condition, chosen in (
        ("kind = 7", numbers * 7_919 % 50 == 7),
        ("kind = 0 AND 10 / (id - 57) < 9", (numbers * 7_919 % 50 == 0) & (numbers != 58)),
        ("id % 20000 = 3", numbers % 20_000 == 3),
        ("kind < 20", numbers * 7_919 % 50 < 20),
    ):
        found = table.to_arrow(where=condition, row_ids=True).sort_by("id")
        right = rows.filter(pa.array(left & chosen))
        assert found.select(rows.column_names).equals(right), condition
        assert found["_row_id"].to_pylist() == right["id"].to_pylist()
        assert table.to_arrow(where=condition, columns=["day", "code"]).num_rows == right.num_rows


def test_rows_that_match_count_without_any_column(table: lakeseal.Table) -> None:
    assert table.to_arrow(where="id > 1400 AND id < 1600", columns=[]).num_rows == 199
    assert table.to_arrow(where="part = 'p1'", columns=[]).num_rows == ROWS // 2
