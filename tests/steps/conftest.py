"""Step stores and ledgers of every kind, and a small world in which sequences publish files."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from lakeseal import ledger
from lakeseal.ledger import Ledger
from lakeseal.ledger.schema import leases, runs, sequences, stores, task_states, watermarks
from lakeseal.service.book_client import HttpBooks
from lakeseal.service.client import HttpOwner
from lakeseal.service.service import Service
from lakeseal.steps import CommitStepStore
from lakeseal.steps.books import Books, LedgerBooks
from lakeseal.steps.file_store import FileStepStore
from lakeseal.steps.ledger_store import LedgerStepStore
from lakeseal.storage import open_store
from lakeseal.testing.s3 import S3Server
from lakeseal.testing.service import service_inside
from support.published_rows import Place, World

BOOKS = (leases, runs, sequences, stores, task_states, watermarks)


@pytest.fixture
def postgres_ledger(postgres_url: str) -> Iterator[Ledger]:
    with ledger.open(postgres_url) as opened:
        yield opened


@pytest.fixture
def sqlite_ledger(tmp_path: Path) -> Iterator[Ledger]:
    with ledger.open(f"sqlite:///{tmp_path}/ledger.db") as opened:
        yield opened


@pytest.fixture(params=["sqlite", "postgresql"])
def book(request: pytest.FixtureRequest) -> Ledger:
    return request.getfixturevalue("sqlite_ledger" if request.param == "sqlite" else "postgres_ledger")


@pytest.fixture(scope="session")
def serving() -> Iterator[tuple[str, Service]]:
    with service_inside(insecure=True, rate=0) as running:
        yield running


@pytest.fixture
def http_books(serving: tuple[str, Service]) -> Iterator[HttpBooks]:
    """The books of a service whose ledger has none yet."""
    url, service = serving
    service.ledger.write(lambda tx: [tx.run(sa.delete(table)) for table in BOOKS])
    owner = HttpOwner(url)
    yield owner.books()
    owner.close()


@pytest.fixture(params=["sqlite", "service"])
def books(request: pytest.FixtureRequest) -> Books:
    if request.param == "service":
        return request.getfixturevalue("http_books")
    return LedgerBooks(request.getfixturevalue("sqlite_ledger"))


@pytest.fixture(params=["sqlite", "postgresql", "service", "local", "memory", "s3"])
def steps(request: pytest.FixtureRequest, tmp_path: Path) -> CommitStepStore:
    """An empty step store of each kind."""
    match request.param:
        case "sqlite":
            return LedgerStepStore(request.getfixturevalue("sqlite_ledger"))
        case "postgresql":
            return LedgerStepStore(request.getfixturevalue("postgres_ledger"))
        case "service":
            return request.getfixturevalue("http_books").sequences
        case "local":
            return FileStepStore(open_store(tmp_path / "steps"))
        case "memory":
            return FileStepStore(open_store(f"memory://{uuid.uuid4().hex}/steps"))
    server: S3Server = request.getfixturevalue("s3")
    return FileStepStore(open_store(server.uri(f"{uuid.uuid4().hex}/steps"), server.storage_options))


@pytest.fixture(params=["ledger", "files"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(root=str(tmp_path), ledger=f"sqlite:///{tmp_path}/ledger.db", files=request.param == "files")


@pytest.fixture
def world(place: Place) -> Iterator[World]:
    with ledger.open(place.ledger) as opened:
        yield World(place, ledger=opened)
