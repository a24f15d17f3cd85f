from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from lakeseal import Repository, ledger
from lakeseal.testing.s3 import S3Server


@pytest.fixture(scope="session")
def shared_ledger(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One for all repositories of the session: making one takes longer than most tests."""
    url = f"sqlite:///{tmp_path_factory.mktemp('ledger')}/ledger.db"
    ledger.open(url).close()
    return url


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """In modules that say `ON_S3`, what is done in a folder is done on S3 too."""
    if "repo" in metafunc.fixturenames and getattr(metafunc.module, "ON_S3", False):
        metafunc.parametrize("repo", ["local", "s3"], indirect=True)


@pytest.fixture
def repo(request: pytest.FixtureRequest, tmp_path: Path, shared_ledger: str) -> Repository:
    if getattr(request, "param", "local") == "s3":
        s3: S3Server = request.getfixturevalue("s3")
        uri = s3.uri(f"{uuid.uuid4().hex}/repo")
        return Repository.create(uri, ledger=shared_ledger, storage_options=s3.storage_options)
    return Repository.create(tmp_path / "repo", ledger=shared_ledger)
