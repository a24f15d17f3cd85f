from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakeseal as package
from lakeseal.cli.app import _FLAGS

Run = Callable[..., Any]


def test_create_write_and_read(lakeseal: Run, tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    columns = ("-c", "id bigint not null", "-c", "day date", "-c", "price decimal(10,2)")
    created = lakeseal("create", uri, *columns, "-p", "day", "--property", "delta.appendOnly=false", "--json")
    assert (created.code, created.rows[0]["columns"]) == (0, ["id", "day", "price"])
    file = tmp_path / "rows.csv"
    file.write_text("id,price\n1,2.5\n2,3.5\n")
    written = lakeseal("write", uri, str(file), "--json")
    assert written.code == 0, written.err
    assert written.rows[0] | {"numOutputBytes": 0} == {
        "version": 1,
        "committed": True,
        "numFiles": 1,
        "numOutputRows": 2,
        "numOutputBytes": 0,
    }
    assert [row["id"] for row in lakeseal("read", uri, "--json").rows] == [1, 2]
    assert lakeseal("create", uri, "-c", "id bigint").code == 1


def test_what_json_and_csv_have_no_value_for_is_not_taken_for_another(lakeseal: Run, tmp_path: Path) -> None:
    uri, file = str(tmp_path / "t"), tmp_path / "rows.csv"
    file.write_text('name,code,size\n,NA,NaN\n"",null,-Inf\nx,1,1.5\n')
    assert lakeseal("write", uri, str(file)).code == 0
    assert lakeseal("read", uri, "--json").rows == [
        {"name": None, "code": "NA", "size": "NaN"},
        {"name": "", "code": "null", "size": "-Infinity"},
        {"name": "x", "code": "1", "size": 1.5},
    ]


def test_days_and_moments_beyond_pythons_years_are_shown_and_read_again(lakeseal: Run, tmp_path: Path) -> None:
    days = pa.array([2**31 - 1, None, -(2**31), 0], pa.int32()).cast(pa.date32())
    moments = pa.array([2**62, -(2**62), None, 1], pa.timestamp("us", "UTC"))
    each = pa.array([0, 1, 2, 3, 4], pa.int32())
    data = pa.table(
        {
            "d": days,
            "at": moments,
            "n": moments.cast(pa.int64()).cast(pa.timestamp("us")),
            "l": pa.ListArray.from_arrays(each, days),
            "m": pa.MapArray.from_arrays(each, pa.array(list("abcd")), moments),
            "s": pa.StructArray.from_arrays([days, moments], ["d", "at"]),
        }
    )
    there, again = package.Table(tmp_path / "there"), package.create(tmp_path / "again", data.schema)
    file = tmp_path / "rows.json"
    there.write(data)
    told = lakeseal("read", there.uri, "--json")
    assert told.rows[0]["d"] == "+5881580-07-11"
    assert told.rows[3]["s"] == {"d": "1970-01-01", "at": "1970-01-01T00:00:00.000001Z"}
    file.write_text(told.out)
    assert lakeseal("write", again.uri, str(file)).code == 0
    assert again.to_arrow().equals(there.to_arrow())
    assert "+5881580-07-11" in lakeseal("read", there.uri).out


def test_values_of_files_are_read_in_the_types_of_the_table(lakeseal: Run, tmp_path: Path) -> None:
    uri, csv, lines = str(tmp_path / "t"), tmp_path / "rows.csv", tmp_path / "rows.json"
    lakeseal("create", uri, "-c", "code string", "-c", "price decimal(10,2)", "-c", "s struct<a: string, b: int>")
    lines.write_text('{"CODE": 7.10, "price": 1.5, "s": {"a": 1.0}}\n')
    assert lakeseal("write", uri, str(lines)).code == 0
    csv.write_text("code,price\n007,2.5\n2026-01-01,\n")
    assert lakeseal("write", uri, str(csv)).code == 0
    assert lakeseal("read", uri, "--json").rows == [
        {"code": "7.10", "price": "1.50", "s": {"a": "1.0", "b": None}},
        {"code": "007", "price": "2.50", "s": None},
        {"code": "2026-01-01", "price": None, "s": None},
    ]
    csv.write_text("code,price\n008,1\n009,a\n")
    ended = lakeseal("merge", uri, str(csv), "--key", "code")
    assert ended.code == 1
    assert "row 2" in ended.err
    assert "rows.csv" in ended.err
    csv.write_text("code,price\n007,3\n")
    merged = lakeseal("merge", uri, str(csv), "--key", "code", "--set", "price=s.price", "--no-insert", "--json")
    assert merged.rows[0]["numTargetRowsUpdated"] == 1


def test_files_of_several_kinds_are_refused(lakeseal: Run, tmp_path: Path) -> None:
    ended = lakeseal("write", str(tmp_path / "t"), "a.csv", "b.parquet")
    assert ended.code == 1
    assert "one kind" in ended.err


@pytest.mark.parametrize("text", ["id", "id nonsense", "bigint)"])
def test_a_wrong_column_is_an_error(lakeseal: Run, tmp_path: Path, text: str) -> None:
    assert lakeseal("create", str(tmp_path / "t"), "-c", text).code == 1


def test_delete_update_and_changes(lakeseal: Run, sales: str) -> None:
    assert lakeseal("delete", sales, "--where", "id = 2", "--json").rows[0]["numDeletedRows"] == 1
    nothing = lakeseal("delete", sales, "--where", "id = 2")
    assert nothing.out.startswith("Nothing to do: no row matches")
    assert lakeseal("delete", sales).code == 2
    assert (
        lakeseal("update", sales, "--set", "price=price * 2", "-w", "id = 1", "--json").rows[0]["numUpdatedRows"] == 1
    )
    assert lakeseal("read", sales, "-w", "id = 1", "--json").rows[0]["price"] == "3.00"
    assert lakeseal("update", sales, "--set", "price").code == 2
    assert "was not on" in lakeseal("changes", sales).err


def test_changes_shows_what_each_version_did(lakeseal: Run, tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "a.parquet")
    lakeseal("write", uri, str(tmp_path / "a.parquet"), "--property", "delta.enableChangeDataFeed=true")
    lakeseal("delete", uri, "--all")
    found = lakeseal("changes", uri, "--start", "1", "--json").rows
    assert [(row["id"], row["_change_type"], row["_commit_version"]) for row in found] == [
        (1, "delete", 1),
        (2, "delete", 1),
    ]


def test_optimize_vacuum_restore_and_clone(lakeseal: Run, sales: str, tmp_path: Path) -> None:
    lakeseal("write", sales, *[str(f) for f in Path(sales).rglob("part-*.parquet")][:1])
    assert lakeseal("optimize", sales, "--zorder-by", "id", "--json").rows[0]["committed"]
    assert lakeseal("optimize", sales).out.startswith("Nothing to do")
    assert lakeseal("vacuum", sales, "--hours", "1").code == 1
    listed = lakeseal("vacuum", sales, "--hours", "0", "--insist", "--dry-run", "--json").rows
    assert len(listed) == 3
    restored = lakeseal("restore", sales, "--version", "0", "--json").rows[0]
    assert restored["numOfFilesAfterRestore"] == 1
    assert lakeseal("vacuum", sales, "--hours", "0", "--insist", "--json").rows[0]["deletedFiles"] > 0
    made = lakeseal("clone", sales, str(tmp_path / "clone"), "--json")
    assert made.rows[0]["files"] == 1
    assert len(lakeseal("read", str(tmp_path / "clone"), "--json").rows) == 3


def test_convert_takes_files_where_they_are(lakeseal: Run, tmp_path: Path) -> None:
    (tmp_path / "t" / "year=2024").mkdir(parents=True)
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "t" / "year=2024" / "a.parquet")
    ended = lakeseal("convert", str(tmp_path / "t"), "-p", "year int", "--json")
    assert ended.code == 0, ended.err
    assert lakeseal("read", str(tmp_path / "t"), "--json").rows[0] == {"id": 1, "year": 2024}


def test_the_hint_of_a_vacuum_that_is_refused_names_the_flag(sales: str, lakeseal: Run) -> None:
    ended = lakeseal("vacuum", sales, "--hours", "0")
    assert ended.code == 1
    assert "--insist" in ended.err
    assert "enforce_retention_duration" not in ended.err


def test_no_flag_is_translated_that_no_hint_names() -> None:
    root = Path(package.__file__).parent
    sources = "".join(file.read_text() for file in root.rglob("*.py") if "cli" not in file.parts)
    for argument in _FLAGS:
        assert argument.removeprefix("pass ") in sources
