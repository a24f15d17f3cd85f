"""Catalogs of every kind: in a file, in PostgreSQL, behind a service."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakeseal import ledger
from lakeseal.catalog.endpoint import KeepsNames
from lakeseal.catalog.names import NameBook
from lakeseal.ledger import Tx
from lakeseal.ledger.schema import commits, schemas, staged_tables, table_names, tables
from lakeseal.service.client import HttpOwner


@pytest.fixture(autouse=True)
def folder_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Nothing of whoever runs the tests."""
    for name in ("LAKESEAL_CATALOG", "LAKESEAL_CATALOG_ROOT", "LAKESEAL_OWNERS", "LAKESEAL_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    return tmp_path / "share" / "lakeseal"


class Running:
    """A service in a process of its own; everybody may do everything, or tokens are asked for."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.ledger = f"sqlite:///{folder}/ledger.db"
        command = [sys.executable, "-m", "lakeseal", "serve", "--ledger", self.ledger, "--listen", "127.0.0.1:0"]
        self._log = (folder / "service.log").open("w")
        self._process = subprocess.Popen(
            [*command, "--rate", "0", "--json", *options], stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, (folder / "service.log").read_text()
        self.url: str = json.loads(line)["url"]

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(timeout=60)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of the services."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="session")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    found = Running(tmp_path_factory.mktemp("open"), "--insecure")
    yield found
    found.stop()


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Iterator[Running]:
    """Asks for tokens, and has a root."""
    found = Running(tmp_path_factory.mktemp("guarded"), "--root", str(data))
    yield found
    found.stop()


@pytest.fixture
def service(started: Running) -> str:
    """One without names."""
    forget(started)
    return started.url


def forget(running: Running) -> None:
    def do(tx: Tx) -> None:
        for table in (table_names, staged_tables, schemas, commits, tables):
            tx.run(table.delete())

    with ledger.open(running.ledger) as opened:
        opened.write(do)


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database without a ledger."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/catalog.db"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def ledger_book(ledger_url: str) -> Iterator[NameBook]:
    with ledger.open(ledger_url) as opened:
        yield NameBook(opened)


@pytest.fixture(params=["sqlite", "postgresql", "service"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a catalog without names."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/catalog.db"
    return str(request.getfixturevalue("postgres_url" if request.param == "postgresql" else "service"))


@pytest.fixture
def book(url: str) -> Iterator[KeepsNames]:
    if url.startswith("http"):
        owner = HttpOwner(url)
        yield owner.names()
        owner.close()
    else:
        with ledger.open(url) as opened:
            yield NameBook(opened)
