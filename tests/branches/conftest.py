"""Repositories over every kind of store and ledger."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from lakeseal.branches import embedded
from lakeseal.branches.embedded import EmbeddedBranchStore
from lakeseal.branches.ranges import Shape
from lakeseal.testing.postgres import postgres_server
from lakeseal.testing.s3 import S3Server, s3_server

TINY = Shape(cut=4, longest=7, node_cut=3, node_longest=5)
"""So that a handful of files already makes several ranges, and some more make nodes."""


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    # These tests kill clients, not the server: what the server has accepted need not reach the disk.
    with postgres_server(fsync="off", full_page_writes="off") as url:
        yield url


@pytest.fixture
def postgres_url(postgres: str) -> str:
    """A database without a ledger."""
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS lakeseal CASCADE")
    return postgres


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def opened() -> Iterator[Callable[[EmbeddedBranchStore], EmbeddedBranchStore]]:
    """Takes repositories to close at the end."""
    with ExitStack() as stack:

        def keep(repo: EmbeddedBranchStore) -> EmbeddedBranchStore:
            stack.callback(repo.close)
            return repo

        yield keep


@pytest.fixture
def repo(opened: Callable[[EmbeddedBranchStore], EmbeddedBranchStore]) -> EmbeddedBranchStore:
    """The quick one, in small pieces."""
    return opened(embedded.create(f"memory://{uuid.uuid4().hex}/repo", ledger="sqlite://", shape=TINY))


@pytest.fixture
def local(tmp_path: Path, opened: Callable[[EmbeddedBranchStore], EmbeddedBranchStore]) -> EmbeddedBranchStore:
    return opened(embedded.create(tmp_path / "repo", shape=TINY))
