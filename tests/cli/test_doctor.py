from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pytest

from lakeseal import Table

Run = Callable[..., Any]


def statuses(ended: Any) -> dict[str, str]:
    return {row["check"]: row["status"] for row in ended.rows}


def test_doctor_looks_at_python_java_and_packages(lakeseal: Run) -> None:
    ended = lakeseal("doctor", "--json")

    assert ended.code == 0
    assert {"python", "java", "pyarrow", "pyspark"} <= set(statuses(ended))


def test_a_healthy_table_passes_every_check(lakeseal: Run, sales: str) -> None:
    deltalake.DeltaTable(sales).create_checkpoint()

    ended = lakeseal("doctor", sales, "--files", "--json")

    assert ended.code == 0
    found = statuses(ended)
    for check in ("store", "log", "_last_checkpoint", "checkpoint", "snapshot", "writing", "data files"):
        assert found[check] == "ok", ended.out


def test_a_missing_data_file_fails_when_files_are_looked_for(lakeseal: Run, sales: str) -> None:
    next(Path(sales).rglob("*.parquet")).unlink()

    assert lakeseal("doctor", sales, "--json").code == 0
    ended = lakeseal("doctor", sales, "--files", "--json")

    assert ended.code == 1
    assert statuses(ended)["data files"] == "failed"


def test_a_torn_hint_and_a_broken_checkpoint_are_warnings_because_readers_fall_back(lakeseal: Run, sales: str) -> None:
    deltalake.DeltaTable(sales).create_checkpoint()
    log = Path(sales) / "_delta_log"
    (log / "_last_checkpoint").write_text('{"vers')
    next(log.glob("*.checkpoint.parquet")).write_bytes(b"PAR1")

    ended = lakeseal("doctor", sales, "--json")

    assert ended.code == 0
    found = statuses(ended)
    assert (found["_last_checkpoint"], found["checkpoint"], found["snapshot"]) == ("warning", "warning", "ok")


def test_a_gap_in_the_log_fails_and_says_where(lakeseal: Run, sales: str) -> None:
    (Path(sales) / "_delta_log" / f"{0:020d}.json").unlink()

    ended = lakeseal("doctor", sales)

    assert ended.code == 1
    assert "failed" in ended.out


def test_no_table_there_fails_and_says_so(lakeseal: Run, tmp_path: Path) -> None:
    ended = lakeseal("doctor", str(tmp_path), "--json")

    assert ended.code == 1
    assert statuses(ended)["table"] == "failed"


@pytest.mark.parametrize("insists", [False, True])
def test_doctor_tells_of_a_checksum_that_does_not_fit_its_log(
    sales: str, lakeseal: Run, insists: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if insists:
        monkeypatch.setenv("LAKESEAL_INSIST_ON_CHECKSUMS", "1")
    version = Table(sales).version()
    stated = json.dumps({"tableSizeBytes": 1, "numFiles": 77, "numMetadata": 1, "numProtocol": 1})
    (Path(sales) / "_delta_log" / f"{version:020d}.crc").write_text(stated)
    ended = lakeseal("doctor", sales, "--json")
    assert ended.code == 0
    told = next(row for row in ended.rows if row["check"] == "checksum")
    assert told["status"] == "warning"
    assert "77 in the checksum" in told["detail"]
    assert "delete the checksum file" in told["detail"]


def test_doctor_tells_whether_the_python_of_sparks_workers_has_lakeseal(
    lakeseal: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert statuses(lakeseal("doctor", "--json"))["spark workers"] == "ok"
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert statuses(lakeseal("doctor", "--json"))["spark workers"] == "ok"
    bare = tmp_path / "python3"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o755)
    for python in (str(bare), str(tmp_path / "absent")):
        monkeypatch.setenv("PYSPARK_PYTHON", python)
        told = next(row for row in lakeseal("doctor", "--json").rows if row["check"] == "spark workers")
        assert told["status"] == "warning"
        assert "spark.pyspark.python" in told["detail"]
