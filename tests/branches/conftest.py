"""Repositories over every kind of store and ledger."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lakeseal.branches import embedded
from lakeseal.branches.embedded.store import EmbeddedBranchStore
from lakeseal.branches.tree.ranges import TreeShape
from lakeseal.ledger import Ledger
from lakeseal.ledger import open as open_ledger

TINY = TreeShape(cut=4, longest=7, node_cut=3, node_longest=5)
"""So that a handful of files already makes several ranges, and some more make nodes."""


@pytest.fixture(scope="session")
def memory_ledger() -> Iterator[Ledger]:
    """One for all repositories of the session, like the next: making one takes longer than most tests."""
    with open_ledger("sqlite://") as book:
        yield book


@pytest.fixture(scope="session")
def file_ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    with open_ledger(f"sqlite:///{tmp_path_factory.mktemp('ledger')}/ledger.db") as book:
        yield book


@pytest.fixture
def opened() -> Iterator[Callable[[EmbeddedBranchStore], EmbeddedBranchStore]]:
    """Takes repositories to close at the end."""
    with ExitStack() as stack:

        def keep(repo: EmbeddedBranchStore) -> EmbeddedBranchStore:
            stack.callback(repo.close)
            return repo

        yield keep


@pytest.fixture
def repo(opened: Callable[[EmbeddedBranchStore], EmbeddedBranchStore], memory_ledger: Ledger) -> EmbeddedBranchStore:
    """The quick one, in small pieces."""
    return opened(embedded.create(f"memory://{uuid.uuid4().hex}/repo", ledger=memory_ledger, shape=TINY))


@pytest.fixture
def local(tmp_path: Path, opened: Callable[[EmbeddedBranchStore], EmbeddedBranchStore]) -> EmbeddedBranchStore:
    return opened(embedded.create(tmp_path / "repo", shape=TINY))
