from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakeseal.commit.filesystem_owner import FilesystemOwner
from lakeseal.commit.proposal import Operation
from lakeseal.commit.transaction import OptimisticTransaction
from lakeseal.log.delta_log import DeltaLog
from lakeseal.protocol.actions import AddCDCFile, AddFile, Metadata
from lakeseal.protocol.arrow import from_arrow
from lakeseal.protocol.schema import StructType
from lakeseal.storage import StoreSpec
from lakeseal.write.runner import InProcessRunner
from lakeseal.write.transactional_write import TransactionalWrite, WriteOptions, operation_metrics


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
        self.runner = InProcessRunner(threads)
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
        return TransactionalWrite(self.begin(), self.runner, store=self.spec).write_files(data, options, is_optimize)

    def write(self, data: Any, options: WriteOptions | None = None) -> list[AddFile | AddCDCFile]:
        txn = self.begin()
        actions = TransactionalWrite(txn, self.runner, store=self.spec).write_files(data, options)
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
