from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


def test_read_shows_people_a_table_and_how_much_of_it(lakeseal: Run, sales: str) -> None:
    ended = lakeseal("read", sales)

    assert (ended.code, ended.err) == (0, "")
    assert "süd/west" in ended.out
    assert ended.out.splitlines()[-1] == "6 rows"
    assert lakeseal("read", sales, "--limit", "4").out.splitlines()[-1].startswith("4 rows, and there are more")


def test_read_gives_programs_one_line_of_json_per_row(lakeseal: Run, sales: str) -> None:
    ended = lakeseal("read", sales, "--json", "--where", "shop = 'north' AND price IS NOT NULL")

    assert sorted(ended.rows, key=lambda row: row["id"]) == [
        {"id": 1, "shop": "north", "price": "1.50", "sold": "2026-03-01"},
        {"id": 2, "shop": "north", "price": "20.00", "sold": "2026-03-02"},
    ]


def test_read_takes_columns_limit_and_version(lakeseal: Run, sales: str) -> None:
    ended = lakeseal("read", sales, "--json", "--version", "0", "--columns", "sold, id", "--limit", "2")

    assert [sorted(row) for row in ended.rows] == [["id", "sold"]] * 2
    assert {row["id"] for row in ended.rows} <= {1, 2, 3}


def test_history_shows_the_newest_commit_first(lakeseal: Run, sales: str) -> None:
    ended = lakeseal("history", sales, "--json")

    assert [row["version"] for row in ended.rows] == [1, 0]
    assert lakeseal("history", sales, "--limit", "1").out.count("WRITE") == 1


def test_files_shows_paths_sizes_and_partition_values(lakeseal: Run, sales: str) -> None:
    ended = lakeseal("files", sales, "--json")

    assert sorted(row["partitionValues"]["shop"] for row in ended.rows) == ["north", "süd/west"]
    assert all(row["size"] > 0 for row in ended.rows)
    assert lakeseal("files", sales).out.splitlines()[-1] == "2 of 2 files"


def test_schema_shows_names_types_and_which_columns_partition(lakeseal: Run, sales: str) -> None:
    ended = lakeseal("schema", sales, "--json")

    assert [(row["name"], row["type"], row["partition"]) for row in ended.rows] == [
        ("id", "long", False),
        ("shop", "string", True),
        ("price", "decimal(10,2)", False),
        ("sold", "date", False),
    ]


def test_describe_is_one_object(lakeseal: Run, sales: str) -> None:
    (described,) = lakeseal("describe", sales, "--json").rows

    assert described["version"] == 1
    assert described["name"] == "sales"
    assert described["files"] == 2
    assert described["partitionColumns"] == ["shop"]
    assert "partitionColumns" in lakeseal("describe", sales).out


@pytest.mark.parametrize("command", ["read", "history", "files", "schema", "describe"])
def test_a_table_that_is_not_there_is_one_line_with_a_hint_and_exit_code_1(
    command: str, lakeseal: Run, tmp_path: Any
) -> None:
    ended = lakeseal(command, str(tmp_path / "nothing"))

    assert ended.code == 1
    assert ended.out == ""
    assert ended.err.count("\n") == 1
    assert "Check the location" in ended.err


def test_an_error_under_json_is_one_object_on_standard_error(lakeseal: Run, sales: str) -> None:
    import json

    ended = lakeseal("read", sales, "--version", "99", "--json")

    assert (ended.code, ended.out) == (1, "")
    error = json.loads(ended.err)
    assert error["kind"] == "version-not-found"
    assert error["hint"]


def test_a_wrong_expression_is_an_error_and_not_a_traceback(lakeseal: Run, sales: str) -> None:
    ended = lakeseal("read", sales, "--where", "no_such_column > 3")

    assert ended.code == 1
    assert "no_such_column" in ended.err
    assert "Traceback" not in ended.err


def test_a_missing_data_file_is_an_error_that_names_it(lakeseal: Run, sales: str) -> None:
    gone = next(Path(sales).rglob("*.parquet"))
    gone.unlink()

    ended = lakeseal("read", sales)

    assert ended.code == 1
    assert gone.name in ended.err
    assert "bug in Lakeseal" not in ended.err
