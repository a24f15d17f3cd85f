from __future__ import annotations

import pickle
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lakeseal.storage import LocalStore, Store, StoreSpec, open_store
from lakeseal.testing.s3 import S3Server


@pytest.fixture(params=["local", "local-named", "memory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """An empty store of each kind; `local-named` is local disk as on file systems that know no files without a name."""
    match request.param:
        case "local":
            return open_store(tmp_path / "root")
        case "local-named":
            return LocalStore(str(tmp_path / "root"), unnamed=False)
        case "memory":
            return open_store(f"memory://{uuid.uuid4().hex}/root")
    server: S3Server = request.getfixturevalue("s3")
    return open_store(server.uri(f"{uuid.uuid4().hex}/root"), server.storage_options)


@pytest.fixture(params=["local", "s3"])
def shared_spec(request: pytest.FixtureRequest, tmp_path: Path) -> StoreSpec:
    """A place that several processes can reach."""
    if request.param == "local":
        return StoreSpec(uri=str(tmp_path / "root"))
    server: S3Server = request.getfixturevalue("s3")
    return StoreSpec(uri=server.uri(uuid.uuid4().hex), storage_options=server.storage_options)


@pytest.fixture
def keys_below(store: Store) -> Callable[[], list[str]]:
    return lambda: [meta.key for meta in store.list(recursive=True)]


@pytest.fixture
def start() -> Iterator[Callable[[str, object], subprocess.Popen[bytes]]]:
    """Start Python on a text, hand it a value, and wait until it says that it is ready."""
    started: list[subprocess.Popen[bytes]] = []

    def run(code: str, value: object) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(pickle.dumps(value))
        process.stdin.flush()
        assert process.stdout.readline() == b"ready\n"
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()
