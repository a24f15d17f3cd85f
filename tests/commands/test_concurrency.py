"""Six processes that change one table: what comes out is what the commits say, one after the other."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lakeseal import Table, errors
from lakeseal.commands.delete import DeleteCommand
from lakeseal.commands.running import run
from lakeseal.commands.update import UpdateCommand
from lakeseal.commit.isolation import IsolationLevel
from lakeseal.commit.transaction import OptimisticTransaction
from lakeseal.jobs.in_process import InProcessEngine

WORKER = Path(__file__).with_name("worker.py")
PROCESSES = 6


def worker() -> Any:
    spec = importlib.util.spec_from_file_location("change_worker", WORKER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.field_bug(13)
def test_concurrent_changes_equal_their_serial_order(tmp_path: Path) -> None:
    steps = worker()
    first = [(i, i % 5) for i in range(40)]
    # One after the other in the same processes: to start them takes longer than what they do.
    uris = [str(tmp_path / name) for name in ("files", "vectors")]
    for uri in uris:
        properties = {"delta.enableDeletionVectors": uri.endswith("vectors"), "delta.enableChangeDataFeed": "true"}
        Table(uri).write(steps.data(first), partition_by=["part"], properties=properties)
    running = [
        subprocess.Popen(
            [sys.executable, str(WORKER), str(seed), "6", *uris],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for seed in range(PROCESSES)
    ]  # fmt: skip
    for process in running:
        _, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
    for uri in uris:
        check(steps, Table(uri), first)


def check(steps: Any, table: Table, rows: list[tuple[int, int]]) -> None:
    """Every version, and the change feed, are what the commits say that they did to these rows."""
    net = Counter(rows)
    told = {entry["version"]: entry.get("userMetadata") for entry in table.history()}
    assert max(told) == 6 * PROCESSES
    for version in range(1, max(told) + 1):
        rows = steps.replayed(rows, json.loads(told[version]))
        found = table.to_arrow(version=version, columns=["id", "v"]).to_pylist()
        assert Counter((row["id"], row["v"]) for row in found) == Counter(rows), f"version {version}: {told[version]}"
    for row in table.changes(1).to_pylist():
        net[row["id"], row["v"]] += 1 if row["_change_type"] in ("insert", "update_postimage") else -1
    assert +net == Counter(rows)
    assert not -net


@pytest.mark.field_bug(13)
@pytest.mark.parametrize("vectors", [False, True], ids=["files", "vectors"])
@pytest.mark.parametrize("first", ["delete", "update"])
@pytest.mark.parametrize("level", ["Serializable", "WriteSerializable", "SnapshotIsolation"])
def test_a_row_that_is_deleted_while_it_is_updated_does_not_come_back(
    tables: Any, vectors: bool, first: str, level: str
) -> None:
    table = tables(range(5), properties={"delta.enableDeletionVectors": vectors})

    def change(kind: str, meanwhile: Any) -> None:
        route = table._router.route()
        txn = OptimisticTransaction.begin(route.log, route.owner, isolation_level=IsolationLevel(level))
        meanwhile()
        if kind == "delete":
            run(DeleteCommand(where="id = 3"), txn, engine=InProcessEngine(), store=table.spec)
        else:
            update = UpdateCommand(values={"name": "'new'"}, where="id = 3")
            run(update, txn, engine=InProcessEngine(), store=table.spec)

    def nothing() -> None:
        pass

    second = "update" if first == "delete" else "delete"
    with pytest.raises(errors.ConcurrentModification):
        change(second, lambda: change(first, nothing))
    if first == "delete":
        assert tables.ids(table) == [0, 1, 2, 4]
    else:
        assert tables.names(table)[3] == "new"
