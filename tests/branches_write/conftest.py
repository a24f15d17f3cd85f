from __future__ import annotations

from pathlib import Path

import pytest

from lakeseal import Repository, ledger


@pytest.fixture(scope="session")
def shared_ledger(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One for all repositories of the session: making one takes longer than most tests."""
    url = f"sqlite:///{tmp_path_factory.mktemp('ledger')}/ledger.db"
    ledger.open(url).close()
    return url


@pytest.fixture
def repo(tmp_path: Path, shared_ledger: str) -> Repository:
    return Repository.create(tmp_path / "repo", ledger=shared_ledger)
