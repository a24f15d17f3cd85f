"""A stream whose machine goes down at the worst moments writes every row once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeseal import Table

pytestmark = [pytest.mark.spark, pytest.mark.own_spark]

SCRIPT = Path(__file__).with_name("crashing_stream.py")


def run(folder: Path, crash: list[Any] | None) -> str:
    asked = {"source": folder / "source", "checkpoint": folder / "checkpoint", "uri": folder / "t", "crash": crash}
    command = [sys.executable, str(SCRIPT), json.dumps(asked, default=str)]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False).stdout


def rows(folder: Path) -> int:
    """How many there are; none of them twice."""
    ids = Table(folder / "t").to_arrow()["id"].to_pylist()
    assert len(ids) == len(set(ids))
    return len(ids)


def test_rows_count_once_after_a_crash_before_our_commit_and_one_between_ours_and_sparks(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    for n in range(4):
        pq.write_table(pa.table({"id": range(n * 10, n * 10 + 10)}), tmp_path / "source" / f"{n}.parquet")

    assert "ended" not in run(tmp_path, ["before", 1])
    assert rows(tmp_path) == 10
    written = len(list((tmp_path / "t").glob("*.parquet")))
    assert written > Table(tmp_path / "t").files().num_rows, "tasks had written what the crash left behind"

    assert "ended" not in run(tmp_path, ["after", 2])
    assert rows(tmp_path) == 30
    assert not (tmp_path / "checkpoint" / "commits" / "2").exists()

    assert "ended" in run(tmp_path, None)
    assert rows(tmp_path) == 40
    assert Table(tmp_path / "t").version() == 3
