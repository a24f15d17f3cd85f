from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from lakeseal.storage import Store, open_store
from lakeseal.testing.s3 import S3Server


def _open(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    match kind:
        case "local":
            return open_store(tmp_path / "table")
        case "memory":
            return open_store(f"memory://{uuid.uuid4().hex}/table")
    server: S3Server = request.getfixturevalue("s3")
    return open_store(server.uri(f"{uuid.uuid4().hex}/table"), server.storage_options)


@pytest.fixture(params=["local", "memory", "s3"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return _open(request.param, request, tmp_path)


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """The quick ones."""
    return _open(request.param, request, tmp_path)


@pytest.fixture
def memory() -> Store:
    return open_store(f"memory://{uuid.uuid4().hex}/table")
