"""Ledgers of every kind, and a proxy that loses PostgreSQL's answers."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from lakeseal import ledger
from lakeseal.ledger import Ledger
from lakeseal.testing.postgres import fresh_database

WORKER = Path(__file__).parent / "worker.py"


@pytest.fixture
def own_database(postgres: str) -> Iterator[str]:
    """For tests that change more than a ledger."""
    with fresh_database(postgres) as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def shared_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database that several processes can open."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/ledger.db"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "memory":
        return "sqlite://"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/ledger.db"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def book(url: str) -> Iterator[Ledger]:
    """The ledger under test."""
    with ledger.open(url) as opened:
        yield opened


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a function of worker.py in a process of its own."""
    with ExitStack() as stack:

        def run(function: str, *args: object) -> subprocess.Popen[str]:
            command = [sys.executable, "-W", "error", str(WORKER), function, json.dumps(args)]
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            stack.callback(_end, process)
            return process

        yield run


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.kill()
    process.communicate()


class Proxy:
    """Stands between a client and PostgreSQL. Armed, it cuts the line at the next COMMIT: before the server gets it, or
    after the server has answered and before the client hears of it."""

    def __init__(self, server: str) -> None:
        parts = urlsplit(server)
        self._target = f"{parse_qs(parts.query)['host'][0]}/.s.PGSQL.5432"
        self._armed: str | None = None
        self._at = b"COMMIT\0"
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lines: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        port = self._listener.getsockname()[1]
        self.url = f"postgresql://postgres:hidden@127.0.0.1:{port}{parts.path}?sslmode=disable&gssencmode=disable"

    def cut(self, when: str, at: bytes = b"COMMIT\0") -> None:
        """`at`: what the client says then."""
        assert when in ("before", "after")
        self._armed, self._at = when, at

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for line in self._lines:
            self._hang_up(line)
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client = self._listener.accept()[0]
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._target)
            self._lines += [client, server]
            lost = threading.Event()
            for copy in (self._to_server, self._to_client):
                thread = threading.Thread(target=copy, args=(client, server, lost))
                self._threads.append(thread)
                thread.start()

    def _to_server(self, client: socket.socket, server: socket.socket, lost: threading.Event) -> None:
        for data in self._received(client):
            if self._armed and self._at in data:
                when, self._armed = self._armed, None
                if when == "before":
                    break
                lost.set()
            with suppress(OSError):
                server.sendall(data)
        self._hang_up(server)
        self._hang_up(client)

    def _to_client(self, client: socket.socket, server: socket.socket, lost: threading.Event) -> None:
        for data in self._received(server):
            if lost.is_set():
                break
            with suppress(OSError):
                client.sendall(data)
        self._hang_up(client)
        self._hang_up(server)

    @staticmethod
    def _received(line: socket.socket) -> Iterator[bytes]:
        with suppress(OSError):
            while data := line.recv(65536):
                yield data

    @staticmethod
    def _hang_up(line: socket.socket) -> None:
        with suppress(OSError):
            line.shutdown(socket.SHUT_RDWR)
        line.close()


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[Proxy]:
    proxy = Proxy(postgres_url)
    yield proxy
    proxy.close()
