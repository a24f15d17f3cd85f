from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.spark
@pytest.mark.own_spark
def test_the_demo_tells_its_story_and_cleans_up_after_itself(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "lakeseal", "demo", "--json"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert (ended.returncode, ended.stderr) == (0, "")
    write, refuse, race, query, travel, change, together, branches, spark, ingest = map(
        json.loads, ended.stdout.splitlines()
    )
    assert write["version"] == 0
    assert refuse["version before and after"] == "0 and 0"
    assert race["rows there"] == race["rows expected"] == race["different ids"]
    assert query["rows found"] > 0
    assert travel["rows in version 0"] == write["rows written"]
    assert change["rows merged"] == 5
    assert change["changes"]["delete"] > 0
    assert change["changes"]["update_preimage"] == change["changes"]["update_postimage"]
    assert together["versions"] == [1, 1]
    assert branches == {**branches, "rows on main before and after": "1000 and 10"}
    assert ingest["rows published by each run"] == [100, 100]
    assert (ingest["rows there"], ingest["rows set aside"]) == (200, 2)
    before = race["rows there"] - change["changes"]["delete"]
    assert sum(spark["Spark counts"].values()) == before + spark["rows written"]
    assert [name for name in os.listdir(tmp_path) if name.startswith("lakeseal-demo")] == []
