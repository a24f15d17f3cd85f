from __future__ import annotations

import json
import os
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakeseal.testing import lakefs
from lakeseal.testing.s3 import s3_server

ROOT = Path(__file__).resolve().parents[2]


class DeltaSpark:
    """Delta Spark in its own environment; `run` executes code there, with `spark` and the arguments as names."""

    def __init__(self, python: Path, log: Path) -> None:
        self._log = log
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(
                [str(python), str(ROOT / "scripts" / "delta_spark.py")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )

    def run(self, code: str, **args: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"code": textwrap.dedent(code), "args": args}, default=str) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"Delta Spark died:\n{self._log.read_text(errors='replace')[-4000:]}"
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer["result"]

    def close(self) -> None:
        self._process.communicate(timeout=60)


@pytest.fixture(scope="session")
def delta_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeltaSpark]:
    python = ROOT / ".venv-peers" / "bin" / "python"
    if not (ROOT / ".venv-peers" / "delta-jars.txt").exists():
        pytest.skip("Delta Spark is not set up here: `make peers` does it where Maven Central answers")
    peer = DeltaSpark(python, tmp_path_factory.mktemp("delta-spark") / "stderr.txt")
    yield peer
    peer.close()


@pytest.fixture(scope="session")
def lakefs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Storage options for a lakeFS server: the one that the environment names, or one that is started for the tests."""
    if os.environ.get("LAKESEAL_LAKEFS_ENDPOINT"):
        yield {}
        return
    with lakefs.lakefs_server(lakefs_binary(), tmp_path_factory.mktemp("lakefs")) as options:
        yield options


@pytest.fixture
def lakefs_without_hooks(tmp_path: Path) -> Iterator[dict[str, str]]:
    with lakefs.lakefs_server(lakefs_binary(), tmp_path, hooks=False) as options:
        yield options


@pytest.fixture
def lakefs_on_s3(tmp_path: Path) -> Iterator[dict[str, str]]:
    """And a bucket, under that name."""
    binary = lakefs_binary()
    with s3_server() as s3, lakefs.lakefs_server(binary, tmp_path, s3=s3) as options:
        yield {**options, "bucket": s3.uri()}


def lakefs_binary() -> Path:
    binary = ROOT / ".venv-peers" / "bin" / "lakefs"
    if not binary.exists():
        pytest.skip("There is no lakeFS server: set LAKESEAL_LAKEFS_ENDPOINT, or let `make peers` build one with Go")
    return binary
