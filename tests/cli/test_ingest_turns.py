"""Whose turn it is: a run of this machine that was killed is not waited for, and is not said to be running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakeseal import Pipeline, Table
from lakeseal import ledger as ledgers
from lakeseal.errors import InvalidArgument, LeaseHeld
from lakeseal.ingest.pipeline_books import PipelineBooks
from lakeseal.steps import leases
from lakeseal.steps.books import LedgerBooks
from lakeseal.steps.holder import _machine, _started, is_gone, this_process

Run = Callable[..., Any]

PIPELINE = """
name: clicks
ledger: sqlite:///{root}/ledger.db
lease_seconds: 3600
datasets:
  - name: events
    source: {{type: files, path: {root}/landing, format: json, schema: "id long"}}
    target: {{type: table, uri: {root}/events}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "a.json").write_text('{"id": 1}\n{"id": 2}\n')
    file = tmp_path / "clicks.yaml"
    file.write_text(PIPELINE.format(root=tmp_path))
    return file


HOLDING = """
    import sys, time
    from lakeseal.ingest.pipeline import Pipeline
    from lakeseal.ingest.turn import HeldTurn
    pipeline = Pipeline.from_yaml(sys.argv[1])
    books = pipeline._records.books()
    with HeldTurn(books.leases, pipeline.name, "the-run-that-dies", 3600) as held:
        books.runs.begin(pipeline.name, "the-run-that-dies", held.epoch)
        print("held", flush=True)
        time.sleep(600)
"""


def holding(file: Path) -> subprocess.Popen[str]:
    """A process that is in the middle of a run."""
    code = textwrap.dedent(HOLDING)
    process = subprocess.Popen([sys.executable, "-c", code, str(file)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    assert process.stdout is not None
    process.stdout.close()


@pytest.mark.field_bug(37)
def test_a_run_that_was_killed_is_taken_over_at_once(file: Path, tmp_path: Path) -> None:
    process = holding(file)
    try:
        with pytest.raises(LeaseHeld, match=f"process {process.pid}"):
            Pipeline.from_yaml(file).run(None)
    finally:
        kill(process)
    result = Pipeline.from_yaml(file).run(None)
    assert result.state == "published"
    assert sorted(Table(tmp_path / "events", owner=f"sqlite:///{tmp_path}/ledger.db").to_arrow()["id"].to_pylist()) == [
        1,
        2,
    ]
    states = [run.state for run in Pipeline.from_yaml(file).history()]
    assert states == ["published", "died"]


def test_a_run_that_was_killed_but_not_yet_asked_about_is_gone_too(file: Path) -> None:
    process = holding(file)
    process.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # a zombie from here on
    try:
        assert Pipeline.from_yaml(file).run(None).state == "published"
    finally:
        kill(process)


def test_status_calls_a_run_running_only_while_it_is(file: Path, lakeseal: Run) -> None:
    process = holding(file)
    try:
        assert lakeseal("ingest", "status", str(file), "--json").rows[0]["newest"]["state"] == "running"
    finally:
        kill(process)
    assert lakeseal("ingest", "status", str(file), "--json").rows[0]["newest"]["state"] == "died"
    assert lakeseal("ingest", "history", str(file), "--json").rows[0]["state"] == "died"


def test_a_run_whose_lease_is_over_is_not_running(file: Path, tmp_path: Path) -> None:
    with ledgers.open(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        books = LedgerBooks(ledger)
        name = leases.of_pipeline("clicks")
        lease = books.leases.acquire(name, holder="another machine, process 1, run r1", seconds=3600)
        books.runs.begin("clicks", "r1", lease.epoch)
        assert PipelineBooks.from_yaml(file).history(1)[0].state == "running"
        books.leases.release(lease)
        assert PipelineBooks.from_yaml(file).history(1)[0].state == "died"


def test_a_run_that_waits_is_told_of_the_other_and_then_runs(file: Path, tmp_path: Path) -> None:
    with ledgers.open(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        book = LedgerBooks(ledger).leases
        lease = book.acquire(leases.of_pipeline("clicks"), holder="another machine, process 1, run r1", seconds=3600)
        told: list[str] = []

        def waiting(held: LeaseHeld) -> None:
            told.append(held.message)
            if len(told) == 2:
                book.release(lease)

        assert Pipeline.from_yaml(file).run(None, waiting=waiting).state == "published"
    assert len(told) >= 2
    assert "another machine" in told[0]


def test_the_command_waits_with_a_line_of_progress(file: Path, tmp_path: Path, lakeseal: Run) -> None:
    with ledgers.open(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        book = LedgerBooks(ledger).leases
        lease = book.acquire(leases.of_pipeline("clicks"), holder="another machine, process 1, run r1", seconds=3600)
        refused = lakeseal("ingest", "run", str(file), "--no-spark")
        assert refused.code == 1
        assert "--wait" in refused.err
        timer = threading.Timer(1.5, book.release, [lease])
        timer.start()
        ended = lakeseal("ingest", "run", str(file), "--no-spark", "--wait")
        timer.join()
    assert ended.code == 0, ended.err
    assert "Waiting" in ended.out + ended.err


def test_who_is_gone_is_told_by_machine_process_and_start() -> None:
    mine = this_process("run r")
    assert not is_gone(mine)
    started = _started(os.getpid())
    assert started is not None
    assert is_gone(mine.replace(f"-{started}", f"-{started - 1}"))  # the number was given to another process
    assert not is_gone(mine.replace(_machine(), "0" * 16).replace(f"-{started}", "-1"))  # of another machine
    assert not is_gone("host, process 1, run r")
    assert not is_gone("anything")
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    assert is_gone(f"host, process {int(ended.stdout)}@{_machine()}-12345, run r")


@pytest.mark.field_bug(26)
def test_a_lease_is_taken_over_only_from_the_holder_that_is_gone(tmp_path: Path) -> None:
    with ledgers.open(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        book = LedgerBooks(ledger).leases
        first = book.acquire("ingest x", holder="a", seconds=3600)
        with pytest.raises(LeaseHeld):
            book.acquire("ingest x", holder="b", seconds=3600, instead_of="c")
        second = book.acquire("ingest x", holder="b", seconds=3600, instead_of="a")
        assert second.epoch == first.epoch + 1
        with pytest.raises(LeaseHeld):
            book.acquire("ingest x", holder="c", seconds=3600, instead_of="a")
        found = book.look("ingest x")
        assert found is not None
        assert (found.holder, found.epoch) == ("b", second.epoch)
        book.release(second)
        assert book.look("ingest x") is None
        assert book.look("never") is None


@pytest.mark.parametrize("command", ["status", "history", "watermarks"])
def test_what_is_known_of_a_pipeline_needs_no_variable_of_its_sources(
    command: str, file: Path, lakeseal: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    Pipeline.from_yaml(file).run(None)
    file.write_text(
        file.read_text().replace(
            "{type: files, path: " + str(file.parent) + '/landing, format: json, schema: "id long"}',
            '{type: kafka, brokers: "${BROKERS}", topic: clicks, schema: "id long"}',
        )
    )
    monkeypatch.delenv("BROKERS", raising=False)
    ended = lakeseal("ingest", command, str(file), "--json")
    assert ended.code == 0, ended.err
    assert ended.rows
    with pytest.raises(InvalidArgument, match="BROKERS"):
        Pipeline.from_yaml(file)
    file.write_text(file.read_text().replace("sqlite:///", "${LEDGER}"))
    assert "LEDGER" in lakeseal("ingest", command, str(file)).err
