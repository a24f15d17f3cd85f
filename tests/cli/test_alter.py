"""`merge`, `properties`, `constraint`, `column`, `branch read`, beside what another Delta client reads then."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

Run = Callable[..., Any]


@pytest.fixture
def news(tmp_path: Path) -> str:
    path = str(tmp_path / "news.parquet")
    rows = {
        "id": [1, 9],
        "shop": ["west", "east"],
        "price": pa.array([None, None], pa.decimal128(10, 2)),
        "sold": pa.array([None, None], pa.date32()),
    }
    pq.write_table(pa.table(rows), path)
    return path


def rows(uri: str) -> dict[int, str]:
    found = deltalake.DeltaTable(uri).to_pyarrow_table().to_pylist()
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: row["shop"] for row in found}


def test_a_merge_updates_what_matches_and_adds_the_rest(sales: str, news: str, lakeseal: Run) -> None:
    before = rows(sales)
    ended = lakeseal("merge", sales, news, "--key", "id", "--set", "shop=s.shop", "--json")
    assert (ended.code, ended.err) == (0, "")
    assert ended.rows[0]["numTargetRowsUpdated"] == 1
    assert rows(sales) == {**before, 1: "west", 9: "east"}


def test_a_merge_says_what_to_leave_and_what_to_delete(sales: str, news: str, lakeseal: Run) -> None:
    before = rows(sales)
    assert (
        lakeseal(
            "merge", sales, news, "--on", "t.id = s.id", "--no-insert", "--no-update", "--delete-when", "true"
        ).code
        == 0
    )
    assert rows(sales) == {id_: shop for id_, shop in before.items() if id_ != 1}
    assert lakeseal("merge", sales, news, "-k", "id", "--no-update", "--delete-missing").code == 0
    assert rows(sales) == {1: "west", 9: "east"}


@pytest.mark.parametrize(
    "wrong", [[], ["--key", "id", "--on", "true"], ["--key", "id,"], ["--key", "id", "--no-update", "--set", "a=1"]]
)
def test_a_merge_that_is_not_said_clearly_is_no_call(sales: str, news: str, wrong: list[str], lakeseal: Run) -> None:
    assert lakeseal("merge", sales, news, *wrong).code == 2


def test_properties_are_set_shown_and_removed(sales: str, lakeseal: Run) -> None:
    assert lakeseal("properties", sales, "--set", "delta.appendOnly=false", "-s", "team=blue").code == 0
    assert {row["name"]: row["value"] for row in lakeseal("properties", sales, "--json").rows} == {
        "delta.appendOnly": "false",
        "team": "blue",
    }
    assert lakeseal("properties", sales, "--unset", "team").code == 0
    assert deltalake.DeltaTable(sales).metadata().configuration == {"delta.appendOnly": "false"}
    assert lakeseal("properties", sales, "--set", "team").code == 2


def test_constraints_are_added_listed_and_dropped(sales: str, lakeseal: Run) -> None:
    assert lakeseal("constraint", "add", sales, "positive", "id > 0").code == 0
    refused = lakeseal("constraint", "add", sales, "small", "id < 3", "--json")
    assert refused.code == 1
    assert json.loads(refused.err)["kind"] == "constraint-violation"
    assert lakeseal("constraint", "list", sales, "--json").rows == [
        {"name": "positive", "kind": "check", "condition": "id > 0"}
    ]
    assert lakeseal("constraint", "drop", sales, "positive").code == 0
    assert lakeseal("constraint", "list", sales, "--json").rows == []


def test_columns_are_changed_as_they_are_from_python(sales: str, lakeseal: Run) -> None:
    def did(*words: str) -> None:
        ended = lakeseal("column", *words)
        assert (ended.code, ended.err) == (0, ""), words

    did("add", sales, "note string", "weight int")
    did("comment", sales, "note", "what <b>they</b> said")
    did("not-null", sales, "id")
    assert (
        lakeseal("properties", sales, "-s", "delta.columnMapping.mode=name", "-s", "delta.enableTypeWidening=true").code
        == 0
    )
    did("rename", sales, "note", "remark")
    did("type", sales, "weight", "bigint")
    assert lakeseal("properties", sales, "-s", "delta.feature.allowColumnDefaults=supported").code == 0
    did("default", sales, "remark", "'none'")
    did("default", sales, "remark", "--drop")
    did("not-null", sales, "id", "--drop")
    did("drop", sales, "sold")
    found = {row["name"]: row for row in lakeseal("schema", sales, "--json").rows}
    assert list(found) == ["id", "shop", "price", "remark", "weight"]
    assert found["remark"]["metadata"]["comment"] == "what <b>they</b> said"
    assert found["weight"]["type"] == "long"
    assert found["id"]["nullable"]
    assert lakeseal("column", "default", sales, "remark").code == 2


def test_rows_on_a_branch_are_read(tmp_path: Path, news: str, lakeseal: Run) -> None:
    repo = str(tmp_path / "repo")
    assert lakeseal("branch", "init", repo).code == 0
    assert lakeseal("branch", "write", repo, "main", "shops", news).code == 0
    read = lakeseal("branch", "read", repo, "main", "shops", "--json")
    assert [(row["id"], row["shop"]) for row in read.rows] == [(1, "west"), (9, "east")]
    assert lakeseal("branch", "read", repo, "main", "shops", "-c", "id", "-n", "1", "--json").rows == [{"id": 1}]
    shown = lakeseal("branch", "read", repo, "main", "shops", "-n", "1").out
    assert "1 row, and there are more" in shown
    assert lakeseal("branch", "read", repo, "nowhere", "shops").code == 1


def test_a_doctor_looks_at_a_table_by_its_name(sales: str, tmp_path: Path, lakeseal: Run) -> None:
    catalog = f"sqlite:///{tmp_path}/names.db"
    assert lakeseal("catalog", "register", "a.sales", sales, "--catalog", catalog).code == 0
    ended = lakeseal("doctor", "a.sales", "--catalog", catalog, "--json")
    assert {row["check"]: row["status"] for row in ended.rows}["snapshot"] == "ok"
