"""Readers by path are right behind the commits of an owner in a client's process, and nothing is left when it ends."""

from __future__ import annotations

import gc
import multiprocessing
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

import lakeseal
from lakeseal.errors import StorageUnavailable
from lakeseal.owner import background_backfill as background
from lakeseal.owner.background_backfill import BackgroundBackfill
from lakeseal.owner.connect import connect
from lakeseal.owner.ledger_owner import flush
from lakeseal.storage import Store
from lakeseal.testing.faults import Fault, FaultyStore, How
from support.managed_tables import append, create, managed_log, newest

ROWS = pa.table({"id": pa.array([1, 2], pa.int64())})
WRITER = """
import sys
import pyarrow as pa, lakeseal
uri, owner, commits = sys.argv[1], sys.argv[2], int(sys.argv[3])
table = lakeseal.Table(uri, owner=owner)
table.write(pa.table({"id": pa.array([1, 2], pa.int64())}), properties={"delta.checkpointInterval": "2"})
for _ in range(commits - 1):
    table.write(pa.table({"id": pa.array([1, 2], pa.int64())}))
"""


def soon(is_so, *, seconds: float = 30) -> bool:
    end = time.monotonic() + seconds
    while not is_so() and time.monotonic() < end:
        time.sleep(0.02)
    return bool(is_so())


def plain(uri: Path) -> int:
    return newest(lakeseal.storage.open_store(uri))


def test_each_commit_is_followed_by_its_backfill_while_the_process_goes_on(shared_url: str, tmp_path: Path) -> None:
    table = lakeseal.create(tmp_path / "t", ROWS.schema, owner=shared_url)
    for number in (1, 2, 3):
        table.write(ROWS)
        assert soon(lambda: plain(tmp_path / "t") == number)  # noqa: B023
    assert table.version() == 3


def test_a_table_that_is_let_go_leaves_nothing_behind(shared_url: str, tmp_path: Path) -> None:
    table = lakeseal.create(tmp_path / "t", ROWS.schema, owner=shared_url)
    table.write(ROWS)
    del table
    gc.collect()
    assert soon(lambda: plain(tmp_path / "t") == 1)


@pytest.mark.parametrize("run", [0, *(pytest.param(run, marks=pytest.mark.stress) for run in range(1, 5))])
def test_a_process_that_ends_leaves_nothing_behind_and_complains_of_nothing(
    shared_url: str, tmp_path: Path, run: int
) -> None:
    """A ledger that was closed before what runs after commits was logged as a failure of that."""
    command = [sys.executable, "-c", WRITER, tmp_path / "t", shared_url, "5"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert plain(tmp_path / "t") == 4
    assert (tmp_path / "t" / "_delta_log" / "00000000000000000004.checkpoint.parquet").exists()


def test_what_a_killed_process_left_is_brought_by_whoever_reads_the_table_next(
    shared_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two commits: with the third a checkpoint is due, for which the log is brought up to it at once.
    killed = WRITER + "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n"
    slow = "from lakeseal.owner import background_backfill as b\nb.DELAY_S = 60\n"
    command = [sys.executable, "-c", slow + killed, tmp_path / "t", shared_url, "2"]
    assert subprocess.run(command, check=False).returncode == -signal.SIGTERM
    assert plain(tmp_path / "t") < 1
    reader = lakeseal.Table(tmp_path / "t", owner=shared_url)
    assert reader.version() == 1
    monkeypatch.setattr("lakeseal.owner.ledger_owner._LEFT_MS", 0)
    time.sleep(0.01)
    assert lakeseal.Table(tmp_path / "t", owner=shared_url).to_arrow().num_rows == 4
    assert soon(lambda: plain(tmp_path / "t") == 1)


def _write(uri: Path, owner: str) -> None:
    lakeseal.Table(uri, owner=owner).write(ROWS)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_worker_process_leaves_nothing_behind(tmp_path: Path, method: str) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    lakeseal.create(tmp_path / "t", ROWS.schema, owner=url)
    flush()
    worker = multiprocessing.get_context(method).Process(target=_write, args=(tmp_path / "t", url))
    worker.start()
    worker.join()
    assert worker.exitcode == 0
    assert plain(tmp_path / "t") == 1


def test_many_commits_at_once_are_few_pieces_of_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lakeseal.create(tmp_path / "t", ROWS.schema, owner=f"sqlite:///{tmp_path}/ledger.db")
    owner = connect(f"sqlite:///{tmp_path}/ledger.db")
    flush()
    pieces = []
    are_written = threading.Event()
    backfill = type(owner).backfill_tables

    def later(self, tables):
        pieces.append(1)
        assert are_written.wait(timeout=60)
        return backfill(self, tables)

    monkeypatch.setattr(type(owner), "backfill_tables", later)
    for _ in range(40):
        table.write(ROWS)
    are_written.set()
    assert flush(timeout=60)
    assert plain(tmp_path / "t") == 40
    assert 1 <= len(pieces) <= 3


def test_a_backfill_that_fails_is_told_and_the_next_commit_brings_both(
    open_owner, memory: Store, caplog: pytest.LogCaptureFixture
) -> None:
    owner = open_owner(in_background=True)
    log, managed = create(memory, owner)
    owner.attach(FaultyStore(memory, [Fault("put_if_absent", "*00000000000000000001.json", How.FAIL)]))
    append(log, managed, "a")
    flush(timeout=20)
    assert "its commits stand" in caplog.text
    owner.attach(memory)
    append(*managed_log(owner, memory), "b")
    flush(timeout=20)
    assert newest(memory) == 2


def test_an_error_that_nobody_expected_does_not_end_the_thread(caplog: pytest.LogCaptureFixture) -> None:
    class Odd:
        calls = 0

        def backfill_tables(self, tables):
            self.calls += 1
            if self.calls == 1:
                raise RuntimeError("odd")
            return dict.fromkeys(tables, StorageUnavailable("later"))

    backfill, odd = BackgroundBackfill(), Odd()
    backfill.note(odd, "t", at_once=True)
    assert backfill.flush(timeout=20)
    backfill.note(odd, "t")
    assert backfill.flush(timeout=20)
    assert odd.calls == 2
    assert "odd" in caplog.text
    assert "later" in caplog.text
    assert background.DELAY_S < 1
