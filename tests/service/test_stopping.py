"""A service that is stopped, killed, or loses a worker: what was acknowledged stays, and clients find out the rest."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import httpx
import psutil
import pytest

from lakeseal import ledger
from lakeseal.errors import InvalidArgument, LakesealError, StorageUnavailable
from lakeseal.log.delta_log import DeltaLog
from lakeseal.owner.ledger_owner import LedgerOwner
from lakeseal.service.client import HttpOwner
from lakeseal.service.settings import ServiceSettings
from lakeseal.storage import Store, open_store
from lakeseal.testing.service import service_inside
from models.history import check_history
from preloaded import children
from support.managed_tables import append, create, managed_log, paths

CRASH_DRIVER = Path(__file__).parent.parent / "owner" / "crash_driver.py"


class Writer(threading.Thread):
    """Appends through a service, whatever happens to it; so many times, or until it is told to stop."""

    def __init__(self, url: str, store: Store, name: str, commits: int = 10**9) -> None:
        super().__init__(daemon=True)
        self._url, self._store, self._name, self._commits = url, store, name, commits
        self.over = threading.Event()
        self.acknowledged: dict[str, int] = {}
        self.error: BaseException | None = None

    def run(self) -> None:
        # Services that die at their first writes are away for longer than a client usually waits.
        owner = HttpOwner(self._url, patience_s=120)
        try:
            log, managed = managed_log(owner, open_store(self._store.uri))
            for number in range(self._commits):
                if self.over.is_set():
                    break
                result = append(log, managed, f"{self._name}-{number}")
                self.acknowledged[result.txn_id] = result.version
        except BaseException as error:
            self.error = error
        finally:
            owner.close()


def check(store: Store, owner: HttpOwner, writers: list[Writer]) -> None:
    assert not any(writer.is_alive() for writer in writers)
    assert [writer.error for writer in writers] == [None] * len(writers)
    owner.backfill(store.uri)
    check_history(store, {txn: version for writer in writers for txn, version in writer.acknowledged.items()})
    names = paths(DeltaLog(store))
    assert names == sorted(set(names))
    assert len(names) == sum(len(writer.acknowledged) for writer in writers)


WORST_MOMENTS = (
    "write/3/before",
    "write/3/inside",
    "write/3/after",
    "ratified",
    "put_if_absent/_delta_log/0*.json/before",
    "put_if_absent/_delta_log/0*.json/after",
)


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/ledger.db"
    url: str = request.getfixturevalue("postgres_url")
    return url


def outlive(start, url: str, folder: Path, points: Sequence[str]) -> None:
    """Writers of several tables, while their service is killed at each of the points in the middle of a group, and
    another takes its place each time."""
    tables = [open_store(folder / f"table-{number}") for number in range(3)]
    with ledger.open(url) as opened:
        for table in tables:
            create(table, LedgerOwner(opened))
    services = [start("--insecure", "--rate", "0", ledger=url, fault=points[0])]
    writers = [Writer(services[0].url, table, "w") for table in tables]
    for writer in writers:
        writer.start()
    for point in (*points[1:], None):
        services[-1].process.wait(timeout=60)
        assert services[-1].process.returncode != 0
        listen = services[0].url.removeprefix("http://")
        services.append(start("--insecure", "--rate", "0", ledger=url, listen=listen, fault=point))
    for writer in writers:
        writer.over.set()
    for table, writer in zip(tables, writers, strict=True):
        writer.join(timeout=200)
        check(table, services[-1].owner(), [writer])
        assert sorted(writer.acknowledged.values()) == list(range(1, len(writer.acknowledged) + 1))
        assert writer.acknowledged


def test_commits_are_settled_after_the_service_was_killed_at_each_of_its_worst_moments(
    start, ledger_url: str, tmp_path: Path
) -> None:
    # Where a write is cut off is the ledger's affair, what of it is told the service's: that is asked of one.
    is_sqlite = ledger_url.startswith("sqlite")
    outlive(start, ledger_url, tmp_path, WORST_MOMENTS if is_sqlite else WORST_MOMENTS[:4])


@pytest.mark.stress
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("when", ["before", "inside", "after"])
def test_commits_are_settled_after_the_service_was_killed_at_every_single_write(
    start, ledger_url: str, tmp_path: Path, when: str
) -> None:
    outlive(start, ledger_url, tmp_path, [f"write/{number}/{when}" for number in range(1, 25)])


def kill_clients(service, folder: Path, *, every: int) -> int:
    command = [sys.executable, "-W", "error", str(CRASH_DRIVER), service.url, str(folder), str(every)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_clients_that_are_killed_at_their_steps_leave_nothing_that_others_cannot_finish(
    open_service, tmp_path: Path
) -> None:
    assert kill_clients(open_service, tmp_path, every=4) > 10


@pytest.mark.stress
@pytest.mark.timeout(1800)
def test_clients_that_are_killed_at_every_single_step_leave_nothing_that_others_cannot_finish(
    open_service, tmp_path: Path
) -> None:
    assert kill_clients(open_service, tmp_path, every=1) > 40


def test_sigterm_finishes_what_is_under_way_and_takes_nothing_new(start, table: Store) -> None:
    service = start("--insecure")
    log, managed = create(table, service.owner())
    for name in "abc":
        append(log, managed, name)
    host, _, port = service.url.removeprefix("http://").partition(":")
    body = json.dumps({"table": table.uri}).encode()
    head = (
        f"POST /v1/backfill HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    )
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(head.encode() + b"\r\n\r\n" + body[:5])
        for _ in range(3):  # what came before these was read before
            service.get("/health")
        service.process.send_signal(signal.SIGTERM)
        with pytest.raises(OSError):  # noqa: PT011  whichever way a closed port says no
            while True:
                socket.create_connection((host, int(port)), timeout=5).close()
                time.sleep(0.05)
        connection.sendall(body[5:])
        answer = b""
        while part := connection.recv(65536):
            answer += part
    assert answer.startswith(b"HTTP/1.1 200")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["backfilled"] == 3
    assert service.stop() == 0
    assert "Application shutdown complete" in service.log()
    check_history(table)


def test_sigint_stops_it_too_and_clients_are_told_that_it_is_gone(start, table: Store) -> None:
    service = start("--insecure")
    log, managed = create(table, service.owner(patience_s=0.2))
    append(log, managed, "a")
    service.process.send_signal(signal.SIGINT)
    assert service.process.wait(timeout=60) == 0
    with pytest.raises(StorageUnavailable, match="cannot be reached"):
        managed.get_commits(0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_before_there_is_an_event_loop_stops_it_too(tmp_path: Path, number: signal.Signals) -> None:
    script, log = tmp_path / "told_early.py", tmp_path / "log"
    script.write_text(
        "import os, sys, uvicorn\n"
        "from lakeseal.cli import main\n"
        "make_loop = uvicorn.Config.get_loop_factory\n"
        "def told(config):\n"
        f"    os.kill(os.getpid(), {int(number)})\n"
        "    return make_loop(config)\n"
        "uvicorn.Config.get_loop_factory = told\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    asked = ["serve", "--ledger", f"sqlite:///{tmp_path}/ledger.db", "--listen", "127.0.0.1:0", "--insecure"]
    with log.open("w") as errors:
        process = children.start([str(script), *asked], stderr=errors)
    try:
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.stdout.close()
    assert "Application shutdown complete" in log.read_text()


def test_two_workers_share_the_ledger_and_one_that_is_killed_is_replaced(start, tmp_path: Path) -> None:
    service = start("--insecure", "--workers", "2", "--rate", "0")
    stores = [open_store(tmp_path / name) for name in ("a", "b")]
    for store in stores:
        create(store, service.owner())
    writers = [Writer(service.url, store, f"w{number}", 12) for number in range(2) for store in stores]
    before = workers(service.process.pid)
    assert len(before) == 2
    for writer in writers:
        writer.start()
    time.sleep(0.5)
    before[0].kill()
    for writer in writers:
        writer.join(timeout=200)
    for number, store in enumerate(stores):
        check(store, service.owner(), writers[number::2])
    deadline = time.monotonic() + 60
    while len(workers(service.process.pid)) < 2:
        assert time.monotonic() < deadline, service.log()
        time.sleep(0.1)
    # By a connection of its own: one that was kept is closed after a while, which may be now.
    numbers = httpx.get(f"{service.url}/metrics", trust_env=False).text
    ratified = next(line for line in numbers.splitlines() if line.startswith("lakeseal_commits_total"))
    # Both workers' numbers, the dead one's too; a commit that was asked for twice is answered twice.
    assert 48 <= float(ratified.split()[1]) < 60
    assert service.stop() == 0


def test_workers_end_when_their_parent_is_killed(start) -> None:
    service = start("--insecure", "--workers", "2")
    left = workers(service.process.pid)
    service.kill()
    _, alive = psutil.wait_procs(left, timeout=60)
    assert alive == []


def workers(pid: int) -> list[psutil.Process]:
    return [child for child in psutil.Process(pid).children() if is_worker(child)]


def is_worker(child: psutil.Process) -> bool:
    try:
        return "resource_tracker" not in " ".join(child.cmdline()) and child.status() != psutil.STATUS_ZOMBIE
    except (psutil.ZombieProcess, psutil.NoSuchProcess):
        return False


def test_a_ledger_in_memory_has_one_worker() -> None:
    with pytest.raises(InvalidArgument, match="memory"):
        ServiceSettings(ledger="sqlite://", workers=2)


_CANNOT_START = """
from lakeseal.errors import StorageUnavailable
from lakeseal.service.server import serve
from lakeseal.service.settings import ServiceSettings

def away(*_):
    raise StorageUnavailable("the ledger is away")

try:
    serve(ServiceSettings(ledger="sqlite://", insecure=True, port=0), make_owner=away)
except StorageUnavailable as error:
    print(error)
"""


def test_a_service_that_cannot_start_says_so_and_the_log_says_why() -> None:
    ran = subprocess.run([sys.executable, "-c", _CANNOT_START], capture_output=True, text=True, timeout=60, check=True)
    assert "could not start" in ran.stdout
    assert "the ledger is away" in ran.stderr


def test_a_service_inside_a_process_raises_what_keeps_it_from_starting(tmp_path: Path) -> None:
    with pytest.raises(LakesealError, match=str(tmp_path)), service_inside(ledger=f"sqlite:///{tmp_path}"):
        pass
