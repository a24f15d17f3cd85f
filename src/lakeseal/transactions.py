"""Several tables at once, for users: `lakeseal.transaction` and `lakeseal.snapshots`.

    with lakeseal.transaction("sqlite:///ledger.db") as txn:
        txn.table("orders").write(new_orders)
        txn.table("stock").write(new_stock, mode="overwrite")

At the end of the block all tables have their new version, or none has; an error inside the block leaves all of them as
they were. The tables must be there and have this owner. Each is written at most once in a transaction.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import pyarrow as pa

from lakeseal.commit.isolation import IsolationLevel
from lakeseal.commit.transaction import CommitResult
from lakeseal.errors import InvalidArgument
from lakeseal.log.scan import Scan
from lakeseal.log.snapshot import Snapshot
from lakeseal.owner.connect import connect
from lakeseal.owner.messages import LedgerRecord
from lakeseal.owner.snapshots import snapshots as snapshots_of
from lakeseal.owner.transaction import JoinedTransaction, Transaction, TransactionResult
from lakeseal.storage import StoreSpec
from lakeseal.table import HOOKS, Owner, Table, runner_for
from lakeseal.write import write_command
from lakeseal.write.transactional_write import WriteOptions
from lakeseal.write.write_command import NothingToDo, WriteCommand

Location = str | os.PathLike[str] | Table


class TablePart:
    """One table in a transaction over several, as it was when it joined."""

    def __init__(self, txn: JoinedTransaction, spec: StoreSpec) -> None:
        self._txn, self._spec = txn, spec

    def snapshot(self) -> Snapshot:
        assert self._txn.snapshot is not None
        return self._txn.snapshot

    def to_arrow(self, columns: Sequence[str] | None = None, where: str | None = None) -> pa.Table:
        """The rows; that they were read is part of the transaction, so it fails if they change meanwhile."""
        files = self._txn.filter_files(where)
        return Scan(self.snapshot(), self._spec.open(), columns=columns, where=where, files=files).to_arrow()

    def write(
        self,
        data: Any,
        mode: str = "append",
        *,
        replace_where: str | None = None,
        partition_overwrite: str | None = None,
        merge_schema: bool = False,
        overwrite_schema: bool = False,
        txn: tuple[str, int] | None = None,
        user_metadata: str | None = None,
    ) -> CommitResult | NothingToDo:
        """As `Table.write`; what it returns is what will be, once the transaction has committed."""
        command = WriteCommand(
            mode=mode,
            replace_where=replace_where,
            partition_overwrite=partition_overwrite,
            overwrite_schema=overwrite_schema,
            txn=txn,
            user_metadata=user_metadata,
            options=WriteOptions(merge_schema=merge_schema),
        )
        return write_command.run(command, self._txn, data, runner=runner_for(data), store=self._spec)


class TablesTransaction:
    def __init__(self, owner: Owner, isolation_level: str | None = None) -> None:
        level = None if isolation_level is None else IsolationLevel.parse(isolation_level)
        self._transaction = Transaction(connect(owner), isolation_level=level, hooks=HOOKS)
        self._records: list[LedgerRecord] = []
        self.result: TransactionResult | None = None
        """What each table got, after the block."""

    def table(self, table: Location, storage_options: Mapping[str, str] | None = None) -> TablePart:
        spec = _spec(table, storage_options)
        return TablePart(self._transaction.table(spec.open()), spec)

    def record(self, record: LedgerRecord) -> None:
        """A row of the owner's ledger, such as a watermark, that becomes true with the commits."""
        self._records.append(record)

    def commit(self) -> TransactionResult:
        self.result = self._transaction.commit(records=self._records)
        return self.result

    def __enter__(self) -> TablesTransaction:
        return self

    def __exit__(self, kind: type[BaseException] | None, _error: object, _trace: TracebackType | None) -> None:
        if kind is None and self.result is None:
            self.commit()


def transaction(owner: Owner, isolation_level: str | None = None) -> TablesTransaction:
    """One commit over several tables of `owner`, made at the end of the `with` block."""
    return TablesTransaction(owner, isolation_level)


def snapshots(
    owner: Owner, tables: Sequence[Location], storage_options: Mapping[str, str] | None = None
) -> tuple[Snapshot, ...]:
    """The tables as they were at one moment: no transaction over them is in only some of the snapshots."""
    if not tables:
        raise InvalidArgument("No tables were named")
    return snapshots_of(connect(owner), [_spec(table, storage_options).open() for table in tables])


def _spec(table: Location, storage_options: Mapping[str, str] | None) -> StoreSpec:
    if isinstance(table, Table):
        return table.spec
    return StoreSpec(uri=os.fspath(table), storage_options=storage_options or {})


__all__ = ["TablePart", "TablesTransaction", "snapshots", "transaction"]
