"""Real services on loopback, each a process of its own, and clients of them."""

from __future__ import annotations

import json
import signal
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from lakeseal import ledger
from lakeseal.clock import now_ms
from lakeseal.service import tokens
from lakeseal.service.access import Grant
from lakeseal.service.client import HttpOwner
from lakeseal.service.service import Service
from lakeseal.storage import Store, open_store
from lakeseal.testing.postgres import fresh_database
from lakeseal.testing.service import service_inside
from preloaded import children
from preloaded.children import Child

FAULTY = Path(__file__).parent / "faulty_server.py"
WATCHED = Path(__file__).parent / "watched_server.py"


class Running:
    """A service in a process of its own."""

    def __init__(self, process: Child, url: str, ledger_url: str, log: Path, certificate: Path | None) -> None:
        self.process = process
        self.url = url
        self.ledger = ledger_url
        self.folder = log.parent
        self._log = log
        self._owners: list[HttpOwner] = []
        trusted = False if certificate is None else ssl.create_default_context(cafile=certificate)
        self._client = httpx.Client(timeout=60, trust_env=False, verify=trusted)

    def owner(self, token: str | None = None, **options: Any) -> HttpOwner:
        owner = HttpOwner(self.url, token=token, **options)
        self._owners.append(owner)
        return owner

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self._client.get(self.url + path, **options)

    def ask(self, method: str, target: str, content: bytes) -> httpx.Response:
        return self._client.request(method, self.url + target, content=content)

    def post(self, call: str, body: Any, *, token: str | None = None, **headers: str) -> httpx.Response:
        sent = {"Content-Type": "application/json", **headers}
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self._client.post(f"{self.url}/v1/{call}", content=content, headers=sent)

    def log(self) -> str:
        return self._log.read_text()

    def token(self, *grants: str, name: str = "somebody", lifetime_ms: int | None = None) -> str:
        with ledger.open(self.ledger) as opened:
            now = now_ms()
            expires = None if lifetime_ms is None else now + lifetime_ms
            return tokens.create(opened, name, tuple(map(Grant.from_text, grants)), now=now, expires=expires)[0]

    def wait_until_ready(self, *, may_die: bool = False) -> None:
        deadline = time.monotonic() + 60
        while True:
            with suppress(httpx.TransportError):
                if self.get("/ready").status_code == 200:
                    return
            if self.process.poll() is not None:
                assert may_die, self.log()
                return
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.02)

    def stop(self) -> int:
        for client in (*self._owners, self._client):
            client.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    def kill(self) -> None:
        self._client.close()
        self.process.kill()
        self.process.wait()


@contextmanager
def running(
    ledger_url: str,
    folder: Path,
    *options: str,
    listen: str = "127.0.0.1:0",
    fault: str | None = None,
    certificate: Path | None = None,
    is_watched: bool = False,
) -> Iterator[Running]:
    """With `fault`, a service that dies at a certain point (see faulty_server.py)."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"service-{time.monotonic_ns()}.log"
    start = ["-m", "lakeseal", "serve"] if fault is None else [str(FAULTY), fault, "serve"]
    if is_watched:
        start = [str(WATCHED), "serve"]
    command = [*start, "--ledger", ledger_url, "--listen", listen, "--json", *options]
    with log.open("w") as errors:
        process = children.start(command, stderr=errors)
    try:
        line = process.stdout.readline()
        assert line, log.read_text()
        found = Running(process, json.loads(line)["url"], ledger_url, log, certificate)
        found.wait_until_ready(may_die=fault is not None)
        yield found
        found.stop()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stdout.close()


class Watched:
    """A service that says itself how long others had to wait (see watched_server.py)."""

    def __init__(self, service: Running) -> None:
        self.service = service
        self.longest: dict[str, tuple[float, str]] = {}
        self.look("before anything")
        self.longest.clear()

    def look(self, what: str) -> None:
        """Since the last time others waited for `what`."""
        for name, took in self.service.get("/watched").json().items():
            self.longest[name] = max(self.longest.get(name, (0.0, "")), (took, what))

    def __str__(self) -> str:
        return "; ".join(f"{name} {1000 * took:.1f} ms by {what}" for name, (took, what) in self.longest.items())

    def check(self, **most: float) -> None:
        for name, seconds in most.items():
            assert self.longest[name][0] < seconds, str(self)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    folder = tmp_path / "watched-service"
    options = ("--insecure", "--rate", "0", "--log-level", "warning")
    with running(f"sqlite:///{folder}/ledger.db", folder, *options, is_watched=True) as service:
        yield Watched(service)


Start = Callable[..., Running]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts services of their own for one test: `start("--workers", "2", ledger=…)`."""
    with ExitStack() as stack:

        def start_one(*options: str, ledger: str = "", **further: Any) -> Running:
            url = ledger or f"sqlite:///{tmp_path}/ledger.db"
            return stack.enter_context(running(url, tmp_path / "services", *options, **further))

        yield start_one


@pytest.fixture(name="inside")
def inside_fixture() -> Callable[..., AbstractContextManager[Inside]]:
    return inside


@pytest.fixture(scope="session")
def open_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Insecure, on SQLite; shared by tests that leave it as it was."""
    folder = tmp_path_factory.mktemp("open-service")
    with running(f"sqlite:///{folder}/ledger.db", folder, "--insecure", "--rate", "0") as service:
        yield service


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of the closed service."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="session")
def closed_service(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Iterator[Running]:
    """With tokens, a root and small limits; shared too."""
    folder = tmp_path_factory.mktemp("closed-service")
    options = ("--root", str(data), "--max-body", "20000", "--max-upload", "4000000", "--rate", "0")
    with running(f"sqlite:///{folder}/ledger.db", folder, *options) as service:
        yield service


@pytest.fixture(scope="session")
def postgres_service(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("postgres-service")
    with fresh_database(postgres) as url, running(url, folder, "--insecure", "--rate", "0", "--workers", "2") as found:
        yield found


@pytest.fixture(scope="session")
def strict_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """With a policy for tables below …/policed, and few commits that may wait for their backfill."""
    folder = tmp_path_factory.mktemp("strict-service")
    policies = folder / "policies.json"
    policed = f"file://{folder}/policed"
    policies.write_text(json.dumps([{"policy": "allowed-principals", "principals": ["etl"], "tables": policed}]))
    options = ("--policies", str(policies), "--max-unbackfilled", "3", "--rate", "0")
    with running(f"sqlite:///{folder}/ledger.db", folder, *options) as service:
        yield service


class Inside(httpx.Client):
    service: Service

    def login(self, *grants: str) -> dict[str, str]:
        """Headers with a new token."""
        text = tokens.create(self.service.ledger, "somebody", tuple(map(Grant.from_text, grants)), now=now_ms())[0]
        return {"Authorization": f"Bearer {text}"}


@contextmanager
def inside(**settings: Any) -> Iterator[Inside]:
    """A service on a thread of this process, for what needs one of its own."""
    with (
        service_inside(**settings) as (url, service),
        Inside(base_url=url, trust_env=False, verify=False, timeout=60) as client,
    ):
        client.service = service
        yield client


@pytest.fixture
def table(tmp_path: Path) -> Store:
    return open_store(tmp_path / "table")
