from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from lakeseal import Table
from lakeseal.testing.rows import rows
from lakeseal.write.vacuum import VacuumReport


class Tables:
    """Makes tables of people, one file per list of ids, and looks at what became of them."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __call__(
        self,
        *files: Sequence[int],
        partition_by: Sequence[str] = (),
        properties: Mapping[str, Any] | None = None,
        name: str = "table",
    ) -> Table:
        table = Table(self.root / name)
        for number, ids in enumerate(files):
            if number:
                table.write(self.people(*ids))
            else:
                table.write(self.people(*ids), partition_by=partition_by, properties=properties)
        return table

    @staticmethod
    def people(*ids: int) -> pa.Table:
        """Some rows: a number, a name, a part of the table and a score."""
        return pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "name": pa.array([f"n{i}" if i % 5 else None for i in ids], pa.string()),
                "part": pa.array([f"p{i % 3}" for i in ids], pa.string()),
                "score": pa.array([i / 2 for i in ids], pa.float64()),
            }
        )

    @staticmethod
    def vacuum(table: Table, **how: Any) -> VacuumReport:
        """All that no newest version needs, however lately it was removed."""
        time.sleep(0.002)  # what was removed in this very millisecond would stay
        return table.vacuum(0, enforce_retention_duration=False, **how)

    @staticmethod
    def ids(table: Table, **how: Any) -> list[int]:
        return sorted(table.to_arrow(**how)["id"].to_pylist())

    @staticmethod
    def names(table: Table) -> dict[int, str | None]:
        found = table.to_arrow().to_pylist()
        assert len({row["id"] for row in found}) == len(found)
        return {row["id"]: row["name"] for row in found}

    @staticmethod
    def paths(table: Table) -> set[str]:
        return set(table.files()["path"].to_pylist())

    @staticmethod
    def check(table: Table) -> None:
        """Another client reads the same rows."""
        # Its reader for pyarrow knows no deletion vectors, its queries do.
        query = QueryBuilder().register("t", DeltaTable(table.uri.removeprefix("file://")))
        assert rows(pa.table(query.execute("SELECT * FROM t").read_all())) == rows(table.to_arrow())

    @staticmethod
    def feed(table: Table, start: int, end: int | None = None) -> Counter[Any]:
        """What the change feed says of each row: kind, id and name."""
        found = table.changes(start, end).to_pylist()
        return Counter((row["_change_type"], row["id"], row["name"]) for row in found)

    def files_on_disk(self, name: str = "table") -> set[str]:
        found = (p.relative_to(self.root / name).as_posix() for p in (self.root / name).rglob("*") if p.is_file())
        return {key for key in found if not key.startswith("_delta_log/")}


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(tmp_path)
