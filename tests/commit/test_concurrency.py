"""Many writers at once: every acknowledged commit is there once, and there are no gaps."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lakeseal.commit.filesystem_owner import FilesystemOwner
from lakeseal.commit.proposal import Operation
from lakeseal.commit.transaction import OptimisticTransaction
from lakeseal.log.delta_log import DeltaLog
from lakeseal.protocol.actions import AddFile, Metadata
from lakeseal.protocol.paths import LOG_DIR
from lakeseal.storage import Store, open_store
from lakeseal.testing.faults import CRASHED, Fault, FaultyStore, How
from models.history import check_history

SCHEMA = '{"type":"struct","fields":[{"name":"x","type":"long","nullable":true,"metadata":{}}]}'
WRITER = Path(__file__).with_name("writer.py")


def create(store: Store, **configuration: str) -> None:
    txn = OptimisticTransaction.begin(DeltaLog(store), FilesystemOwner(store))
    named = {f"delta.{name}": value for name, value in configuration.items()}
    txn.update_metadata(Metadata(id="t", schema_string=SCHEMA, configuration=named))
    txn.commit([], Operation(name="CREATE TABLE"))


def add(path: str) -> AddFile:
    return AddFile(path=path, partition_values={}, size=1, modification_time=0, data_change=True)


@pytest.mark.parametrize("sharing", ["one log", "a log each"])
def test_16_threads_with_20_commits_each(store: Store, sharing: str) -> None:
    create(store, enableInCommitTimestamps="true")
    shared = DeltaLog(store)
    acknowledged: dict[str, int] = {}
    errors: list[BaseException] = []

    def write(name: int) -> None:
        log = shared if sharing == "one log" else DeltaLog(store)
        owner = FilesystemOwner(store)
        try:
            for number in range(20):
                txn = OptimisticTransaction.begin(log, owner)
                acknowledged[txn.txn_id] = txn.commit([add(f"{name}-{number}")], Operation(name="WRITE")).version
        except BaseException as error:
            errors.append(error)

    run_threads([threading.Thread(target=write, args=(name,)) for name in range(16)])
    assert not errors
    assert sorted(acknowledged.values()) == list(range(1, 321))
    check_history(store, acknowledged)
    snapshot = DeltaLog(store).update()
    assert snapshot is not None
    assert snapshot.files.num_rows == 320


def test_8_threads_over_a_store_that_loses_replies(store: Store) -> None:
    create(store)
    hows = [How.FAIL, How.LOSE_REPLY, How.LAND_LATE]
    faults = [Fault("put_if_absent", how=hows[n % 3], nth=n, later=3) for n in range(2, 400, 5)]
    faults += [Fault("get", how=How.FAIL, nth=n) for n in range(7, 2000, 41)]
    faulty = FaultyStore(store, faults)
    acknowledged: dict[str, int] = {}
    errors: list[BaseException] = []

    def write(name: int) -> None:
        snapshot = DeltaLog(store).update()
        log, owner = DeltaLog(faulty), FilesystemOwner(faulty)
        try:
            for number in range(10):
                txn = OptimisticTransaction(log, owner, snapshot)
                result = txn.commit([add(f"{name}-{number}")], Operation(name="WRITE"))
                acknowledged[txn.txn_id] = result.version
                snapshot = result.snapshot
        except BaseException as error:
            errors.append(error)

    run_threads([threading.Thread(target=write, args=(name,)) for name in range(8)])
    faulty.settle()
    assert not errors
    assert sorted(acknowledged.values()) == list(range(1, 81))
    check_history(store, acknowledged)


def run_threads(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_8_processes_append_to_one_local_table(tmp_path: Path) -> None:
    store = open_store(tmp_path / "t")
    create(store)
    processes = [start(tmp_path / "t", f"w{number}", 10) for number in range(8)]
    acknowledged: dict[str, int] = {}
    for process in processes:
        output, errors = process.communicate()
        assert process.returncode == 0, errors
        acknowledged |= acknowledged_by(output)
    assert sorted(acknowledged.values()) == list(range(1, 81))
    check_history(store, acknowledged)


def start(uri: Path, name: str, commits: int, *crash: object) -> subprocess.Popen[str]:
    command = [sys.executable, str(WRITER), str(uri), name, str(commits), *map(str, crash)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def acknowledged_by(output: str) -> dict[str, int]:
    return {txn_id: int(version) for txn_id, version in (line.split() for line in output.splitlines())}


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_writer_killed_at_a_commit_leaves_it_whole_or_absent_and_others_go_on(tmp_path: Path, when: str) -> None:
    store = open_store(tmp_path / "t")
    create(store)
    killed = start(tmp_path / "t", "killed", 5, "put_if_absent", f"{LOG_DIR}*", 3, when)
    output, _ = killed.communicate()
    assert killed.returncode == CRASHED
    acknowledged = acknowledged_by(output)
    assert len(acknowledged) == 2
    after = start(tmp_path / "t", "after", 1)
    output, errors = after.communicate()
    assert after.returncode == 0, errors
    acknowledged |= acknowledged_by(output)
    commits = check_history(store, acknowledged)
    assert len(commits) == (4 if when == "before" else 5)
