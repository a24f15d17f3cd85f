"""Owners of every kind, and tables of every kind of storage."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lakeseal import ledger
from lakeseal.ledger import Ledger
from lakeseal.owner.ledger_owner import LedgerOwner
from lakeseal.storage import Store, open_store


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/ledger.db"


@pytest.fixture(params=["sqlite", "postgresql"])
def shared_url(request: pytest.FixtureRequest) -> str:
    """A ledger that several processes can open."""
    return str(request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url"))


@pytest.fixture
def scratch() -> Iterator[Path]:
    """In memory where that is possible, for tests that kill processes, not the machine, and need no slow disk."""
    folder = Path(tempfile.mkdtemp(prefix="lakeseal-owner-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, scratch: Path) -> str:
    """As `shared_url`, on no slow disk."""
    return f"sqlite:///{scratch}/ledger.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def any_url(request: pytest.FixtureRequest) -> str:
    match request.param:
        case "memory":
            return "sqlite://"
        case "sqlite":
            return str(request.getfixturevalue("sqlite_url"))
        case _:
            return str(request.getfixturevalue("postgres_url"))


OpenOwner = Callable[..., LedgerOwner]


@pytest.fixture
def open_owner() -> Iterator[OpenOwner]:
    """Opens owners; their ledgers are closed at the end."""
    with ExitStack() as stack:

        def open_one(url: str = "sqlite://", **options: object) -> LedgerOwner:
            opened: Ledger = stack.enter_context(ledger.open(url, patience=10))
            return LedgerOwner(opened, **options)  # type: ignore[arg-type]

        yield open_one


@pytest.fixture
def owner(open_owner: OpenOwner) -> LedgerOwner:
    """The quick one."""
    return open_owner(batch_size=100)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """In modules that say `ON_S3`, what is done on an object store is done on S3 too; not by every ledger."""
    names = set(metafunc.fixturenames)
    if "memory" in names and not names & {"any_url", "url"} and getattr(metafunc.module, "ON_S3", False):
        metafunc.parametrize("memory", ["memory", "s3"], indirect=True)


@pytest.fixture
def memory(request: pytest.FixtureRequest) -> Store:
    """An object store: one in memory, unless a test is run on S3 too."""
    if getattr(request, "param", "memory") == "s3":
        return open_store(f"{request.getfixturevalue('s3_root')}/table")
    return open_store(f"memory://{uuid.uuid4().hex}/table")


@pytest.fixture
def local(tmp_path: Path) -> Store:
    return open_store(tmp_path / "table")


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest) -> Store:
    found: Store = request.getfixturevalue(request.param)
    return found
