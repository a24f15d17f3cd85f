"""Many processes at once, and processes that die: every acknowledged commit is there once, in an order that fits."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from lakeseal.owner.ledger_owner import LedgerOwner
from lakeseal.owner.publisher import recover
from lakeseal.storage import Store, open_store
from models.history import check_history
from models.linearizability import Op, check_linearizable
from support.managed_tables import create, newest

HERE = Path(__file__).parent
DAY_MS = 86_400_000


def run_clients(
    folder: Path, url: str, store: Store, *, count: int, kill_after: list[int] | None = None, **options: object
) -> list[Op]:
    dice = random.Random(count)
    clients = [
        {
            "out": f"{folder}/ops-{number}",
            "url": url,
            "table": store.uri,
            "name": f"{folder.name}-{number}",
            "seed": number,
            "skew_ms": dice.choice([-DAY_MS, 0, DAY_MS]),
            **options,
        }
        for number in range(count)
    ]
    asked = json.dumps({"clients": clients, "kill_after": kill_after})
    command = [sys.executable, "-W", "error", str(HERE / "worker.py"), asked]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [
        msgspec.json.decode(line, type=Op)
        for number in range(count)
        for line in (folder / f"ops-{number}").read_text().splitlines()
    ]


def finish(owner: LedgerOwner, store: Store, ops: list[Op]) -> list[Op]:
    """What must hold when all is over."""
    commits = [op for op in ops if op.kind == "commit"]
    owner.attach(store)
    assert recover(owner).failed == {}
    check_linearizable(ops)
    history = check_history(store, {op.txn_id: op.version for op in commits})
    assert newest(store) == len(history) - 1
    assert newest(store, owner) == len(history) - 1
    return commits


def run(owner: LedgerOwner, url: str, folder: Path, *, processes: int, seconds: float, batch_size: int) -> int:
    store = open_store(folder / "table")
    create(store, owner)
    ops = run_clients(folder, url, store, count=processes, seconds=seconds, lost=0.1, batch_size=batch_size)
    commits = finish(owner, store, ops)
    versions = sorted(op.version for op in commits)
    assert versions == list(range(1, len(versions) + 1)), "all commits were acknowledged, so there is no other version"
    return len(commits)


def test_8_processes_with_lost_replies_and_skewed_clocks_on_one_table(url: str, scratch: Path, open_owner) -> None:
    assert run(open_owner(url), url, scratch, processes=8, seconds=2, batch_size=7) > 8


@pytest.mark.stress
@pytest.mark.timeout(1800)
def test_32_processes_with_lost_replies_and_skewed_clocks_for_ten_minutes(url: str, scratch: Path, open_owner) -> None:
    """LAKESEAL_STRESS_SECONDS makes it shorter."""
    seconds = float(os.environ.get("LAKESEAL_STRESS_SECONDS", "600"))
    assert run(open_owner(url), url, scratch, processes=32, seconds=seconds, batch_size=10) > seconds


def test_processes_that_are_killed_at_random_leave_nothing_broken(url: str, scratch: Path, open_owner) -> None:
    store = open_store(scratch / "table")
    owner = open_owner(url)
    create(store, owner)
    dice = random.Random(2)
    ops: list[Op] = []
    for number in range(2):
        folder = scratch / f"round{number}"
        folder.mkdir()
        after = [dice.randrange(1, 8) for _ in range(4)]
        ops += run_clients(folder, url, store, count=4, seconds=120, batch_size=3, kill_after=after)
    assert len(finish(owner, store, ops)) >= 4


def drive(ledger_url: str, folder: Path, *, every: int) -> int:
    command = [sys.executable, "-W", "error", str(HERE / "crash_driver.py"), ledger_url, str(folder), str(every)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_killed_at_its_writes_one_after_the_other_a_survivor_goes_on(scratch: Path) -> None:
    assert drive("sqlite", scratch, every=4) > 25


@pytest.mark.stress
def test_killed_at_every_single_write_a_survivor_goes_on(scratch: Path) -> None:
    assert drive("sqlite", scratch, every=1) > 100


@pytest.mark.stress
def test_killed_at_every_single_write_on_postgresql_a_survivor_goes_on(postgres_url: str, scratch: Path) -> None:
    assert drive(postgres_url, scratch, every=1) > 100
