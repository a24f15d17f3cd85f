from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as pq
import pytest

from lakeseal.ingest import Dataset, DirectoryTarget, FilesSource, Pipeline, TableTarget
from lakeseal.storage import Store, open_store
from lakeseal.table import Table
from lakeseal.testing.postgres import fresh_database, postgres_server
from lakeseal.testing.s3 import S3Server


class Lake:
    """A folder with a ledger, and landing directories and targets in it or in another store."""

    def __init__(self, place: Path, root: str | None = None, storage_options: dict[str, str] | None = None) -> None:
        self.place = place
        self.root = root or str(place)
        """Of landing directories and targets."""
        self.storage_options = storage_options or {}
        self.ledger = f"sqlite:///{place}/ledger.db"
        self.owner = "ledger"
        """Of tables that do not say."""

    def land(self, name: str, rows: Iterable[dict[str, Any] | str], folder: str = "landing") -> Path:
        """A file of JSON lines; texts go there as they are. Its path, where it is one of this disk."""
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        self.store(folder).put(name, "".join(f"{line}\n" for line in lines).encode())
        return self.place / folder / name

    def files(self, folder: str = "landing", schema: str = "id long, name string", **options: Any) -> FilesSource:
        if not self.storage_options:
            (self.place / folder).mkdir(parents=True, exist_ok=True)
        where = {"path": f"{self.root}/{folder}", "storage_options": self.storage_options}
        return FilesSource(**{**where, "format": "json", "schema": schema, **options})

    def to_table(self, name: str = "t", **options: Any) -> TableTarget:
        where = {"uri": f"{self.root}/{name}", "storage_options": self.storage_options}
        return TableTarget(**{**where, "owner": self.owner, **options})

    def to_directory(self, name: str = "d", **options: Any) -> DirectoryTarget:
        return DirectoryTarget(**{"path": f"{self.root}/{name}", "storage_options": self.storage_options, **options})

    def pipeline(self, *datasets: Dataset, **options: Any) -> Pipeline:
        return Pipeline(**{"name": "test", "ledger": self.ledger, "datasets": datasets, **options})

    def table(self, name: str = "t", *, owner: bool = True) -> Table:
        return Table(f"{self.root}/{name}", self.ledger if owner else None, self.storage_options)

    def store(self, name: str = "t") -> Store:
        return open_store(f"{self.root}/{name}", self.storage_options)

    def ids(self, name: str = "t") -> Counter[int | None]:
        """Of a table or a directory."""
        store = self.store(name)
        if store.list_keys("_delta_log/"):
            return Counter(self.table(name).to_arrow()["id"].to_pylist())
        parts = [meta.key for meta in store.list(recursive=True) if meta.key.rpartition("/")[2].startswith("part-")]
        return Counter(value for key in parts for value in pq.read_table(store.open_read(key))["id"].to_pylist())


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """In modules that say `ON_S3`, all but the ledger is on S3 too."""
    if "lake" in metafunc.fixturenames and getattr(metafunc.module, "ON_S3", False):
        metafunc.parametrize("lake", ["local", "s3"], indirect=True)


@pytest.fixture
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    if getattr(request, "param", "local") == "s3":
        s3: S3Server = request.getfixturevalue("s3")
        return Lake(tmp_path, s3.uri(uuid.uuid4().hex), s3.storage_options)
    return Lake(tmp_path)


@pytest.fixture(scope="session")
def broker() -> Iterator[Any]:
    from lakeseal.testing.kafka import KafkaBroker

    with KafkaBroker() as running:
        yield running


@pytest.fixture(scope="session")
def logical_server() -> Iterator[str]:
    with postgres_server(wal_level="logical", max_replication_slots="20", fsync="off") as url:
        yield url


@pytest.fixture
def database(logical_server: str) -> Iterator[str]:
    """One whose changes can be captured."""
    with fresh_database(logical_server) as url:
        yield url
        with psycopg.connect(url, autocommit=True) as connection:
            for (slot,) in connection.execute(
                "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
            ).fetchall():
                connection.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
