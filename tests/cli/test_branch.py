from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeseal import Repository

Run = Callable[..., Any]


@pytest.fixture
def place(tmp_path: Path) -> str:
    """A repository with two commits of rows below `orders`."""
    repo = Repository.create(tmp_path / "repo")
    for n in (1, 2):
        repo.write(pa.table({"n": [n]}), "main", "orders", message=f"load {n}")
    return str(tmp_path / "repo")


def test_a_repository_is_made_written_to_and_listed(lakeseal: Run, tmp_path: Path) -> None:
    uri = str(tmp_path / "new")
    pq.write_table(pa.table({"n": [1, 2], "p": ["a", "b"]}), tmp_path / "rows.parquet")
    assert lakeseal("branch", "init", uri, "--json").rows[0]["repository"].endswith("/new")
    written = lakeseal(
        "branch", "write", uri, "main", "out", str(tmp_path / "rows.parquet"),
        "--mode", "overwrite", "--format", "csv", "-p", "p", "--json",
    )  # fmt: skip
    assert (written.rows[0]["files"], written.rows[0]["rows"]) == (2, 2)
    listed = lakeseal("branch", "ls", uri, "main", "out", "--json").rows
    assert [row["rows"] for row in listed] == [None, "1", "1"]
    assert "part-00000" in lakeseal("branch", "ls", uri).out
    assert lakeseal("branch", "init", uri).code == 1


def test_branches_tags_and_merges(lakeseal: Run, place: str) -> None:
    assert lakeseal("branch", "create", place, "exp", "--from", "main~1").code == 0
    assert lakeseal("branch", "tag", place, "v1", "main").code == 0
    refs = lakeseal("branch", "list", place, "--json").rows
    assert [(row["name"], row["kind"]) for row in refs] == [("exp", "branch"), ("main", "branch"), ("v1", "tag")]
    changed = lakeseal("branch", "diff", place, "exp", "main", "--json").rows
    assert [row["kind"] for row in changed] == ["added"]
    merged = lakeseal("branch", "merge", place, "main", "exp", "--json").rows[0]
    assert merged["added"] == 1
    assert lakeseal("branch", "diff", place, "exp", "main", "--json").rows == []
    assert lakeseal("branch", "tag", place, "v1", "--delete").code == 0
    assert lakeseal("branch", "delete", place, "exp").code == 0
    assert [row["name"] for row in lakeseal("branch", "list", place, "--json").rows] == ["main"]


def test_the_log_tells_people_little_and_programs_all(lakeseal: Run, place: str) -> None:
    shown = lakeseal("branch", "log", place)
    assert "load 2" in shown.out
    rows = lakeseal("branch", "log", place, "main", "--limit", "1", "--json").rows
    assert rows[0]["metadata"]["lakeseal.rows"] == "1"
    assert len(rows[0]["commit"]) == 64


def test_history_is_undone_done_again_and_reset(lakeseal: Run, place: str) -> None:
    repo = Repository.open(place)
    assert lakeseal("branch", "revert", place, "main", "main").code == 0
    assert repo.to_arrow("main", "orders").num_rows == 1
    assert lakeseal("branch", "cherry-pick", place, "main", "main~1").code == 0
    assert repo.to_arrow("main", "orders").num_rows == 2
    assert lakeseal("branch", "reset", place, "main", "main~2").code == 0
    refused = lakeseal("branch", "reset", place, "main", "main~1", "--if-head", "0" * 64, "--json")
    assert (refused.code, json.loads(refused.err or refused.out)["kind"]) == (1, "head-changed")


def test_a_protected_branch_refuses_what_its_rules_refuse(lakeseal: Run, place: str) -> None:
    rule = '{"rule": "max-removed", "limit": 0}'
    assert lakeseal("branch", "protect", place, "main", "--rule", rule, "--json").rows[0]["protected"]
    assert lakeseal("branch", "protect", place, "main", "--rule", "{").code == 1
    repo = Repository.open(place)
    repo.create_branch("exp")
    repo.write(pa.table({"n": [3]}), "exp", "orders", mode="overwrite")
    ended = lakeseal("branch", "merge", place, "exp", "main")
    assert ended.code == 1
    assert "max-removed" in ended.err + ended.out
    assert lakeseal("branch", "protect", place, "main", "--off").code == 0
    assert lakeseal("branch", "merge", place, "exp", "main").code == 0


def test_jobs_are_shown_to_who_looks_and_to_who_writes(lakeseal: Run, place: str, tmp_path: Path) -> None:
    Repository.open(place).store.begin_job("night", dest="main", path="orders", who="ada@host")
    row = lakeseal("branch", "jobs", place, "--json").rows[0]
    assert (row["job"], row["who"], row["path"]) == ("night", "ada@host", "orders")
    assert lakeseal("branch", "jobs", place, "--path", "elsewhere", "--json").rows == []
    pq.write_table(pa.table({"n": [1]}), tmp_path / "rows.parquet")
    ended = lakeseal("branch", "write", place, "main", "orders", str(tmp_path / "rows.parquet"))
    assert ended.code == 0
    assert "ada@host is writing to orders on main since" in ended.out
    swept = lakeseal("branch", "gc", place, "--job-grace-hours", "0", "--json").rows[0]
    assert swept["jobBranches"] == ["_jobs/orders/night"]


def test_files_are_laid_out_for_other_tools(lakeseal: Run, place: str, tmp_path: Path) -> None:
    out = str(tmp_path / "plain")
    assert lakeseal("branch", "export", place, "main", "orders", out, "--json").rows[0]["copied"] == 2
    assert lakeseal("branch", "export", place, "main", "orders", out, "--json").rows[0]["copied"] == 0


def test_what_is_not_there_is_named(lakeseal: Run, place: str, tmp_path: Path) -> None:
    ended = lakeseal("branch", "log", place, "nope")
    assert ended.code == 1
    assert "nope" in ended.err + ended.out
    assert lakeseal("branch", "list", str(tmp_path / "nowhere")).code == 1
