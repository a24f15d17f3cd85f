"""Many processes on one table through the service: a history that one could have made alone."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import deltalake
import pytest

from lakeseal.storage import Store, open_store
from lakeseal.testing.history import check_history
from lakeseal.testing.managed_tables import create

WRITER = Path(__file__).parent / "writer.py"


class UnawareReader(threading.Thread):
    """Knows nothing of owners, and reads the backfilled part at every moment."""

    def __init__(self, uri: str) -> None:
        super().__init__()
        self._uri = uri
        self._over = threading.Event()
        self.versions: list[int] = []
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            while not self._over.wait(0.2):
                self.versions.append(deltalake.DeltaTable(self._uri).version())
        except Exception as error:
            self.error = error

    def stop(self) -> None:
        self._over.set()
        self.join()


def write(service, store: Store, folder: Path, *, processes: int, seconds: float) -> list[dict[str, Any]]:
    go = folder / "go"
    common = [service.url, store.uri]
    command = [sys.executable, str(WRITER), *common]
    running = [
        subprocess.Popen([*command, f"w{n}", str(seconds), str(go)], stdout=subprocess.PIPE, text=True)
        for n in range(processes)
    ]
    try:
        for one in running:
            assert one.stdout is not None
            assert one.stdout.readline() == "ready\n"
        go.touch()
        said = [one.communicate(timeout=seconds + 300)[0] for one in running]
        assert [one.returncode for one in running] == [0] * processes
    finally:
        for one in running:
            if one.poll() is None:
                one.kill()
            one.communicate()
    return [json.loads(line) for text in said for line in text.splitlines()]


def check_linearizable(done: list[dict[str, Any]]) -> None:
    """Whoever was acknowledged before another began has the smaller version."""
    latest_begin = 0.0
    for one in sorted(done, key=lambda one: one["version"]):
        assert one["end"] >= latest_begin, f"version {one['version']} ended before an earlier one began"
        latest_begin = max(latest_begin, one["begin"])


def load(service, folder: Path, *, processes: int, seconds: float) -> None:
    store = open_store(folder / "table")
    owner = service.owner()
    create(store, owner)
    owner.backfill(store.uri)
    reader = UnawareReader(str(folder / "table"))
    reader.start()
    try:
        done = write(service, store, folder, processes=processes, seconds=seconds)
    finally:
        reader.stop()
    assert reader.error is None
    assert reader.versions == sorted(reader.versions)
    owner.backfill(store.uri)
    check_history(store, {one["txnId"]: one["version"] for one in done})
    check_linearizable(done)
    assert sorted(one["version"] for one in done) == list(range(1, len(done) + 1)), "no loss, no gap, no double"
    assert len(done) >= processes
    print(f"{len(done) / seconds:.0f} commits/s by {processes} processes")


def test_8_processes_on_one_table_make_one_history(open_service, tmp_path: Path) -> None:
    load(open_service, tmp_path, processes=8, seconds=10)


@pytest.mark.stress
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("service", ["open_service", "postgres_service"])
def test_32_processes_for_ten_minutes_make_one_history(
    request: pytest.FixtureRequest, service: str, tmp_path: Path
) -> None:
    load(request.getfixturevalue(service), tmp_path, processes=32, seconds=600)
