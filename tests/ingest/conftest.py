from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from lakeseal.ingest import Dataset, DirectoryTarget, FilesSource, Pipeline, TableTarget
from lakeseal.table import Table


class Lake:
    """A folder with landing directories, targets and a ledger."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.ledger = f"sqlite:///{place}/ledger.db"
        self.owner = "ledger"
        """Of tables that do not say."""

    def land(self, name: str, rows: Iterable[dict[str, Any] | str], folder: str = "landing") -> Path:
        """A file of JSON lines; texts go there as they are."""
        file = self.place / folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        file.write_text("".join(f"{line}\n" for line in lines))
        return file

    def files(self, folder: str = "landing", schema: str = "id long, name string", **options: Any) -> FilesSource:
        (self.place / folder).mkdir(parents=True, exist_ok=True)
        return FilesSource(path=str(self.place / folder), format="json", schema=schema, **options)

    def to_table(self, name: str = "t", **options: Any) -> TableTarget:
        return TableTarget(**{"uri": str(self.place / name), "owner": self.owner, **options})

    def to_directory(self, name: str = "d", **options: Any) -> DirectoryTarget:
        return DirectoryTarget(path=str(self.place / name), **options)

    def pipeline(self, *datasets: Dataset, **options: Any) -> Pipeline:
        return Pipeline(**{"name": "test", "ledger": self.ledger, "datasets": datasets, **options})

    def table(self, name: str = "t") -> Table:
        return Table(self.place / name, owner=self.ledger)

    def ids(self, name: str = "t") -> Counter[int | None]:
        """Of a table or a directory."""
        if (self.place / name / "_delta_log").exists():
            return Counter(self.table(name).to_arrow()["id"].to_pylist())
        if not any((self.place / name).rglob("part-*")):
            return Counter()
        return Counter(ds.dataset(self.place / name, format="parquet").to_table()["id"].to_pylist())


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@pytest.fixture(scope="session")
def broker() -> Iterator[Any]:
    from lakeseal.testing.kafka import KafkaBroker

    with KafkaBroker() as running:
        yield running
