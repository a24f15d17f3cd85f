"""Many processes on one table through the service: a history that one could have made alone."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import deltalake
import deltalake.exceptions
import msgspec
import pytest

from lakeseal.storage import open_store
from lakeseal.testing.proxy import ProxyFault, Request, faulty_proxy
from models.history import check_history
from models.linearizability import Op, check_linearizable
from support.managed_tables import create

WRITER = Path(__file__).parent / "writer.py"
DAY_MS = 86_400_000
LOOKS = 100
STRESS_SECONDS = float(os.environ.get("LAKESEAL_STRESS_SECONDS", "600"))


class UnawareReader(threading.Thread):
    """Knows nothing of owners, and reads the backfilled part at every moment.

    It lists a local directory, and such a listing is no snapshot, whoever writes: of two files that come while it runs
    it may hold the later one only. Then deltalake speaks of a gap. When it looks again, that gap is not there any more,
    though there may be another one where much is written."""

    def __init__(self, uri: str) -> None:
        super().__init__()
        self._uri = uri
        self._over = threading.Event()
        self.versions: list[int] = []
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            while not self._over.wait(0.2):
                self.versions.append(self._read())
        except Exception as error:
            self.error = error

    def _read(self) -> int:
        gap = ""
        for _ in range(LOOKS):
            try:
                return deltalake.DeltaTable(self._uri).version()
            except deltalake.exceptions.DeltaError as error:
                if "found gap" not in str(error) or str(error) == gap:
                    raise
                gap = str(error)
        raise AssertionError(f"each of {LOOKS} looks found a gap, the last one: {gap}")

    def stop(self) -> None:
        self._over.set()
        self.join()


class LosesATenth:
    """Of the replies, or now and then of the requests."""

    def __init__(self) -> None:
        self._dice = random.Random(10)
        self._lock = threading.Lock()
        self.lost = 0

    def __call__(self, request: Request) -> ProxyFault | None:
        with self._lock:
            draw = self._dice.random()
            self.lost += draw < 0.1
        return None if draw >= 0.1 else ProxyFault.LOSE_REPLY if draw < 0.07 else ProxyFault.LOSE_REQUEST


def run_clients(urls: list[str], table: str, folder: Path, *, seconds: float) -> list[Op]:
    clients = [
        {
            "url": url,
            "table": table,
            "name": f"w{number}",
            "seconds": seconds,
            "skew_ms": (-DAY_MS, 0, DAY_MS)[number % 3],
            "out": f"{folder}/ops-{number}",
        }
        for number, url in enumerate(urls)
    ]
    command = [sys.executable, "-W", "error", str(WRITER), json.dumps(clients)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds + 500)
    assert done.returncode == 0, done.stderr
    lines = [line for one in clients for line in Path(str(one["out"])).read_text().splitlines()]
    return [msgspec.json.decode(line, type=Op) for line in lines]


def load(service, folder: Path, *, processes: int, seconds: float) -> None:
    store = open_store(folder / "table")
    owner = service.owner()
    create(store, owner)
    reader = UnawareReader(str(folder / "table"))
    reader.start()
    loses = LosesATenth()
    try:
        with faulty_proxy(service.url, loses) as proxy:
            # One in four behind the proxy: it is one process, and slower than the service.
            urls = [proxy.endpoint if number % 4 == 0 else service.url for number in range(processes)]
            ops = run_clients(urls, store.uri, folder, seconds=seconds)
    finally:
        reader.stop()
    assert loses.lost > 0
    assert reader.error is None
    assert reader.versions == sorted(reader.versions), "what was read once is there for ever"
    commits = [op for op in ops if op.kind == "commit"]
    owner.backfill(store.uri)
    check_history(store, {op.txn_id: op.version for op in commits})
    check_linearizable(ops)
    assert sorted(op.version for op in commits) == list(range(1, len(commits) + 1)), "no loss, no gap, no double"
    assert {op.client for op in commits} == {f"w{number}" for number in range(processes)}, "everybody got through"
    print(f"{len(commits) / seconds:.0f} commits/s by {processes} processes; {loses.lost} messages were lost")


def test_8_processes_for_4_seconds_make_one_history(open_service, tmp_path: Path) -> None:
    load(open_service, tmp_path, processes=8, seconds=4)


@pytest.mark.stress
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("service", ["open_service", "postgres_service"])
def test_32_processes_for_ten_minutes_make_one_history(
    request: pytest.FixtureRequest, service: str, tmp_path: Path
) -> None:
    """LAKESEAL_STRESS_SECONDS makes it shorter."""
    load(request.getfixturevalue(service), tmp_path, processes=32, seconds=STRESS_SECONDS)
