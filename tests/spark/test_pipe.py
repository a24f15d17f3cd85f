"""Table → stream → table, stopped and killed again and again at any moment: nothing is lost, nothing comes twice."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeseal
from lakeseal import Table
from oracles.sessions import without_connect

pytestmark = pytest.mark.spark

_BUSY_VERSIONS = 20
SCRIPT = Path(__file__).with_name("pipe.py")


def script() -> Any:
    spec = importlib.util.spec_from_file_location("pipe", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Pipe:
    """`changes`: the source's change feed is piped, and not its rows."""

    def __init__(self, root: Path, *, changes: bool) -> None:
        self.source = Table(root / "source")
        self.target = Table(root / "target")
        self.chance = random.Random(7)
        self.asked = {
            "source": self.source.uri,
            "target": self.target.uri,
            "checkpoint": str(root / "checkpoint"),
            "changes": changes,
            "scratch": str(root / "scratch"),
        }
        self._ids = 0
        self._changes = changes
        self.source.write(self._rows(), properties={"delta.enableChangeDataFeed": "true"})

    def _rows(self) -> pa.Table:
        first, self._ids = self._ids, self._ids + self.chance.randrange(1, 5)
        ids = range(first, self._ids)
        return pa.table({"id": pa.array(ids, pa.int64()), "name": [f"n{i}" for i in ids]})

    def feed(self) -> None:
        """Some commits to the source."""
        for _ in range(3):
            self.source.write(self._rows())
        match self.chance.randrange(4):
            case 0:
                self.source.optimize()
            case 1 if self._changes:
                self.source.update({"name": "concat(name, '+')"}, f"id % 5 = {self.chance.randrange(5)}")
            case 2 if self._changes:
                self.source.delete(f"id % 7 = {self.chance.randrange(7)}")

    def version(self) -> int:
        return self.target.version() if self.target.exists() else -1

    def wait(self, is_alive: Callable[[], bool], versions: int) -> None:
        """Until the target has got so many more versions, and then a moment that ends anywhere in a batch."""
        until, deadline = self.version() + versions, time.monotonic() + 300
        while self.version() < until:
            assert is_alive(), "the stream ended by itself"
            assert time.monotonic() < deadline, "the stream made no progress"
            time.sleep(0.02)
        time.sleep(self.chance.random() * 0.3)

    def wait_for_a_plan(self, is_alive: Callable[[], bool]) -> None:
        """Until the first batch is planned, and mostly not yet run, with commits meanwhile."""
        checkpoint, deadline = Path(self.asked["checkpoint"]), time.monotonic() + 300
        while not (checkpoint / "offsets" / "0").exists():
            assert is_alive(), "the stream ended by itself"
            assert time.monotonic() < deadline, "the stream made no progress"
            if (checkpoint / "metadata").exists() and self.source.version() < _BUSY_VERSIONS:
                self.source.write(self._rows())
            time.sleep(0.1)
        self.source.write(self._rows())

    def check(self, since: int | None = None) -> None:
        """`since`: the feed began with the rows of this version."""
        found = self.target.to_arrow().to_pylist()
        if self._changes:
            given = Counter(
                (row["id"], row["name"], row["_change_type"], row["_commit_version"])
                for row in self.source.changes(0 if since is None else since + 1).to_pylist()
            )
            if since is not None:
                snapshot = self.source.to_arrow(version=since).to_pylist()
                given += Counter((row["id"], row["name"], "insert", since) for row in snapshot)
            assert Counter((row["id"], row["name"], row["kind"], row["version"]) for row in found) == given
        else:
            given = Counter((row["id"], row["name"]) for row in self.source.to_arrow().to_pylist())
            assert Counter((row["id"], row["name"]) for row in found) == given


def run(spark: Any, root: Path, *, changes: bool, stops: int, kills: int) -> None:
    lakeseal.register(spark)
    steps, pipe = script(), Pipe(root, changes=changes)
    for _ in range(kills):
        pipe.feed()
        kill(pipe)
    for _ in range(stops):
        pipe.feed()
        query = steps.start(spark, pipe.asked)
        pipe.wait(lambda query=query: query.isActive, 1)
        query.stop()
    pipe.feed()
    assert steps.start(spark, pipe.asked, until_done=True).awaitTermination(300)
    pipe.check()


def kill(pipe: Pipe, wait: Callable[[Callable[[], bool]], None] | None = None) -> None:
    """The stream in a process of its own, and all of it gone without a word."""
    with subprocess.Popen(
        [sys.executable, str(SCRIPT), json.dumps(pipe.asked)],
        env=without_connect(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            if wait is None:
                pipe.wait(lambda: process.poll() is None, 1)
            else:
                wait(lambda: process.poll() is None)
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_a_pipe_that_is_killed_and_stopped_gives_every_row_once(spark: Any, tmp_path: Path) -> None:
    run(spark, tmp_path, changes=False, stops=1, kills=1)


def test_a_pipe_of_changes_that_is_stopped_gives_every_change_once(spark: Any, tmp_path: Path) -> None:
    run(spark, tmp_path, changes=True, stops=2, kills=0)


@pytest.mark.parametrize("changes", [pytest.param(False, marks=pytest.mark.stress), True], ids=["rows", "changes"])
def test_a_pipe_that_is_killed_in_its_first_batch_beside_a_writer_gives_every_row_once(
    spark: Any, tmp_path: Path, changes: bool
) -> None:
    lakeseal.register(spark)
    steps, pipe = script(), Pipe(tmp_path, changes=changes)
    pipe.asked["snapshot"] = True
    pipe.feed()
    kill(pipe, pipe.wait_for_a_plan)
    pipe.feed()
    assert steps.start(spark, pipe.asked, until_done=True).awaitTermination(300)
    pipe.check(since=first_version(tmp_path / "checkpoint"))


def first_version(checkpoint: Path) -> int:
    """Whose snapshot the stream started with."""
    first = json.loads((checkpoint / "offsets" / "0").read_text().splitlines()[2])
    version: int = first["origin"]["version"]
    return version


@pytest.mark.stress
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("changes", [False, True], ids=["rows", "changes"])
def test_fifty_restarts_give_every_row_once(spark: Any, tmp_path: Path, changes: bool) -> None:
    run(spark, tmp_path, changes=changes, stops=46, kills=4)
