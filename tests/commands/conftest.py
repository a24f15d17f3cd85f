from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from lakeseal import Table
from lakeseal.commands.transactional_write import TransactionalWrite, WriteOptions, operation_metrics
from lakeseal.commands.vacuum import VacuumReport
from lakeseal.commit.filesystem_owner import FilesystemOwner
from lakeseal.commit.proposal import Operation
from lakeseal.commit.transaction import OptimisticTransaction
from lakeseal.jobs.in_process import InProcessEngine
from lakeseal.log.delta_log import DeltaLog
from lakeseal.protocol.actions import AddCDCFile, AddFile, Metadata
from lakeseal.protocol.arrow import from_arrow
from lakeseal.protocol.schema import StructType
from lakeseal.storage import StoreSpec
from support.rows import rows


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


class TestTable:
    """A table on local disk, written through the real log and the real transaction."""

    __test__ = False

    def __init__(
        self,
        root: Path,
        schema: StructType | pa.Schema,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        threads: int = 1,
    ) -> None:
        root.mkdir(exist_ok=True)
        self.root = root
        self.spec = StoreSpec(uri=str(root))
        self.store = self.spec.open()
        self.log = DeltaLog(self.store)
        self.engine = InProcessEngine(threads)
        own = schema if isinstance(schema, StructType) else from_arrow(schema)
        txn = self.begin()
        txn.update_metadata(
            Metadata(
                id="00000000-0000-0000-0000-000000000000",
                schema_string=own.to_json(),
                partition_columns=tuple(partition_by),
                configuration=dict(properties or {}),
                created_time=0,
            )
        )
        txn.commit([], Operation(name="CREATE TABLE"))

    def begin(self) -> OptimisticTransaction:
        return OptimisticTransaction.begin(self.log, FilesystemOwner(self.store))

    def write_files(
        self, data: Any, options: WriteOptions | None = None, is_optimize: bool = False
    ) -> list[AddFile | AddCDCFile]:
        return TransactionalWrite(self.begin(), self.engine, store=self.spec).write_files(data, options, is_optimize)

    def write(self, data: Any, options: WriteOptions | None = None) -> list[AddFile | AddCDCFile]:
        txn = self.begin()
        actions = TransactionalWrite(txn, self.engine, store=self.spec).write_files(data, options)
        txn.commit(actions, Operation(name="WRITE", metrics=operation_metrics(actions)))
        return actions

    def data_files(self) -> list[str]:
        found = (p.relative_to(self.root).as_posix() for p in self.root.rglob("*") if p.is_file())
        return sorted(name for name in found if not name.startswith("_delta_log/"))


@pytest.fixture
def new_table(tmp_path: Path) -> Callable[..., TestTable]:
    def make(*args: Any, **kwargs: Any) -> TestTable:
        return TestTable(tmp_path / "table", *args, **kwargs)

    return make


@pytest.fixture(scope="session")
def table_at() -> type[TestTable]:
    """For tests that make many tables."""
    return TestTable
