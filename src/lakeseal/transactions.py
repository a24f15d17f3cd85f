"""Several tables at once, for users: `lakeseal.transaction` and `lakeseal.snapshots`.

    with lakeseal.transaction("sqlite:///ledger.db") as txn:
        txn.table("orders").write(new_orders)
        txn.table("stock").write(new_stock, mode="overwrite")

At the end of the block all tables have their new version, or none has; an error that leaves the block leaves all of
them as they were. The tables must have this owner. Those of its catalog may be created and dropped, too: `create` and
`drop` give and take names together with the commit. Each may be written, deleted from, updated and merged
into as often as you like, and gets one version for all of it; a statement that fails and is caught counts for nothing.

Reads see all tables as they were at one moment, and what the block itself has done to them. The moment is that at which
the last table joined: if another transaction has changed what was read before then, joining fails. Tables that are
named at the beginning, `transaction(owner, tables=["orders", "stock"])`, join there and then. What was read still
counts when the block ends: it must be as it was, as far as the isolation level asks for it, also if nothing was
written.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa
from msgspec.structs import replace

from lakeseal.catalog.connect import CatalogLike, HasNames, open_catalog
from lakeseal.catalog.endpoint import Names
from lakeseal.catalog.place import locate
from lakeseal.catalog.table_name import TableName, may_be_name
from lakeseal.commands.command import Command, NothingToDo
from lakeseal.commands.delete import DeleteCommand
from lakeseal.commands.merge.builder import MergeBuilder
from lakeseal.commands.merge.clauses import MergeCommand
from lakeseal.commands.running import compact_behind, run
from lakeseal.commands.transactional_write import WriteOptions
from lakeseal.commands.update import UpdateCommand
from lakeseal.commands.write import Write, WriteCommand
from lakeseal.commit.isolation import IsolationLevel
from lakeseal.commit.proposal import Operation
from lakeseal.commit.transaction import CommitResult
from lakeseal.engines import engine_for, engine_of, in_session, merge_in_session, read_by
from lakeseal.errors import CommitOutcomeUnknown, InvalidArgument, TableNotFound
from lakeseal.jobs.engine import Engine
from lakeseal.jobs.in_process import InProcessEngine
from lakeseal.ledger import Ledger
from lakeseal.log.delta_log import DeltaLog
from lakeseal.log.scan import Scan
from lakeseal.log.snapshot import Snapshot
from lakeseal.names_in_transaction import DROPPED, NamesInTransaction
from lakeseal.owner.connect import connect
from lakeseal.owner.endpoint import OwnerEndpoint
from lakeseal.owner.messages import LedgerRecord
from lakeseal.owner.snapshots import snapshots as snapshots_of
from lakeseal.owner.transaction import JoinedTransaction, Transaction, TransactionResult
from lakeseal.storage import StoreSpec
from lakeseal.table import HOOKS, Owner, Table, TableSays, log_told_by, merge_with, outside_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Location = str | os.PathLike[str] | Table


class TablePart:
    """One table in a transaction over several, as it was at the transaction's moment; what `TablesTransaction.table`
    gives.

    >>> part.write(pa.table({"id": [4], "shop": ["west"], "price": [1.0]})).version
    2
    >>> part.to_arrow().num_rows, orders.to_arrow().num_rows
    (4, 3)
    """

    def __init__(self, txn: JoinedTransaction, spec: StoreSpec) -> None:
        self._txn, self._spec = txn, spec

    def snapshot(self) -> Snapshot:
        """All of the table, and so it counts as read.

        >>> part.snapshot().version
        1
        """
        self._txn.read_whole_table()
        return self._seen()

    def to_arrow(self, columns: Sequence[str] | None = None, where: str | None = None) -> pa.Table:
        """The rows; that they were read is part of the transaction, so it fails if they change meanwhile.

        >>> part.to_arrow(columns=["id"], where="price > 5").to_pylist()
        [{'id': 3}]
        """
        files = self._txn.filter_files(where)
        store = self._spec.open()
        return Scan(
            self._seen(), store, columns=columns, where=where, files=files, outside=outside_of(self._spec)
        ).to_arrow()

    def to_spark(
        self, spark: SparkSession, columns: Sequence[str] | None = None, where: str | None = None
    ) -> DataFrame:
        """The rows; all of the table counts as read, whatever Spark makes of the condition. A frame is of the table as
        it is now, and not of what the block does to it later.

        >>> part.to_spark(spark, where="price > 5").count()
        1
        """
        from lakeseal.spark.scan import to_spark  # pyspark is an extra

        return to_spark(spark, self.snapshot(), self._spec, where=read_by(spark, where), columns=columns)

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
        """As `Table.write`; what it returns is what will be, once the transaction has committed. `replace_where` is
        judged by the session of a DataFrame, and of other data in UTC with ANSI mode on.

        >>> part.write(pa.table({"id": [4], "shop": ["west"], "price": [1.0]})).version
        2
        """
        command = WriteCommand(
            mode=mode,
            replace_where=replace_where,
            partition_overwrite=partition_overwrite,
            overwrite_schema=overwrite_schema,
            txn=txn,
            user_metadata=user_metadata,
            options=WriteOptions(merge_schema=merge_schema),
        )
        return self._run(Write(asked=in_session(command, data), data=data), engine_for(data))

    def delete(
        self, where: str | None = None, *, spark: SparkSession | None = None, user_metadata: str | None = None
    ) -> CommitResult | NothingToDo:
        """As `Table.delete`: without `spark` in UTC with ANSI mode on.

        >>> part.delete("id = 1").metrics["numDeletedRows"]
        1
        """
        command = DeleteCommand(where=read_by(spark, where), user_metadata=user_metadata)
        return self._run(command, engine_of(spark))

    def update(
        self,
        values: Mapping[str, Any],
        where: str | None = None,
        *,
        spark: SparkSession | None = None,
        user_metadata: str | None = None,
    ) -> CommitResult | NothingToDo:
        """As `Table.update`: without `spark` in UTC with ANSI mode on.

        >>> part.update({"price": "price * 2"}, "id = 1").metrics["numUpdatedRows"]
        1
        """
        values, where = read_by(spark, values), read_by(spark, where)
        command = UpdateCommand(values=values, where=where, user_metadata=user_metadata)
        return self._run(command, engine_of(spark))

    def merge(
        self,
        source: Any,
        on: str,
        *,
        merge_schema: bool = False,
        source_alias: str | None = None,
        target_alias: str | None = None,
        user_metadata: str | None = None,
    ) -> MergeBuilder:
        """As `Table.merge`.

        >>> news = pa.table({"id": [4], "shop": ["west"], "price": [1.0]})
        >>> done = part.merge(news, "t.id = s.id").when_not_matched_insert("*").execute()
        >>> part.to_arrow().num_rows
        4
        """

        def execute(command: MergeCommand) -> CommitResult | NothingToDo:
            return self._run(merge_with(source, merge_in_session(command, source)), engine_for(source))

        names = {"source_alias": source_alias, "target_alias": target_alias}
        return MergeBuilder(execute, on, merge_schema=merge_schema, user_metadata=user_metadata, **names)

    @property
    def uri(self) -> str:
        """Where it is, as `TransactionResult.tables` names it.

        >>> part.uri == orders.uri
        True
        """
        return self._txn.table

    def _state(self, operation: Operation, **properties: str) -> None:
        """A version that says something of the table, and changes no row."""
        with self._txn.statement():
            if properties:
                metadata = self._txn.metadata
                self._txn.update_metadata(replace(metadata, configuration={**metadata.configuration, **properties}))
            self._txn.commit([], operation)

    @property
    def _is_stated(self) -> bool:
        return self._txn.stated is not None

    def _compact_behind(self, result: CommitResult) -> None:
        """What the table wants done once the transaction has committed."""
        compact_behind(result.snapshot, self._txn, engine=InProcessEngine(), store=self._spec)

    def _run(self, command: Command, engine: Engine) -> CommitResult | NothingToDo:
        with self._txn.statement():
            return run(command, self._txn, engine=engine, store=self._spec)

    def _seen(self) -> Snapshot:
        assert self._txn.snapshot is not None, "a part of a transaction is of a table that is there"
        return self._txn.snapshot


class TablesTransaction:
    """One commit over several tables: all of them have their new version, or none has. Made by `transaction`.

    >>> with lakeseal.transaction("sqlite:///ledger.db") as txn:
    ...     moved = txn.table(orders).to_arrow(where="id = 1")
    ...     done = txn.table(orders).delete("id = 1")
    ...     done = txn.table(archive).write(moved)
    >>> sorted(one.version for one in txn.result.tables.values())
    [1, 2]
    """

    def __init__(
        self,
        owner: Owner | None = None,
        isolation_level: str | None = None,
        tables: Sequence[Location] = (),
        *,
        catalog: CatalogLike | None = None,
    ) -> None:
        level = None if isolation_level is None else IsolationLevel.parse(isolation_level)
        self._catalog = catalog
        self._endpoint = endpoint = _endpoint(owner, catalog)
        self._transaction = Transaction(endpoint, isolation_level=level, hooks=HOOKS)
        self._names = NamesInTransaction(lambda: _names(catalog, endpoint), endpoint)
        self._parts: dict[str, TablePart] = {}
        self._records: list[LedgerRecord] = []
        self.result: TransactionResult | None = None
        """What each table got, after the block."""
        for table in tables:
            self.table(table)

    def table(self, table: Location, storage_options: Mapping[str, str] | None = None) -> TablePart:
        """One of the tables, which joins if it has not. What an open `Table` knows of its log is not read again, so who
        has many transactions over the same tables gives those.

        >>> with lakeseal.transaction("sqlite:///ledger.db") as txn:
        ...     done = txn.table(orders).delete("id = 1")
        >>> orders.to_arrow().num_rows
        2
        """
        known = log_told_by(self._endpoint, table) if isinstance(table, Table) else None
        return self._join(self._place(table, storage_options), known)

    def create(
        self,
        name: str,
        schema: Any,
        partition_by: Sequence[str] | str = (),
        properties: Mapping[str, Any] | None = None,
        storage_options: Mapping[str, str] | None = None,
        **says: Unpack[TableSays],
    ) -> TablePart:
        """A new table, which gets its name in the catalog with the commit; as `Catalog.create`.

        >>> with lakeseal.transaction("sqlite:///ledger.db") as txn:
        ...     done = txn.create("sales.daily", pa.schema([("id", pa.int64())])).write(pa.table({"id": [1]}))
        >>> lakeseal.Catalog("sqlite:///ledger.db").table("sales.daily").to_arrow().num_rows
        1
        """
        says_all = {"partition_by": partition_by, "properties": properties, **says}
        return self._join(self._names.create(name, schema, storage_options, says_all))

    def drop(self, name: str, delete_files: bool = False, storage_options: Mapping[str, str] | None = None) -> None:
        """Takes a table's name away with the commit, and with `delete_files` the table itself behind it.

        >>> with lakeseal.transaction("sqlite:///ledger.db") as txn:
        ...     done = txn.create("sales.daily", pa.schema([("id", pa.int64())]))
        >>> with lakeseal.transaction("sqlite:///ledger.db") as txn:
        ...     txn.drop("sales.daily", delete_files=True)
        >>> lakeseal.Catalog("sqlite:///ledger.db").tables()
        []
        """
        undone = self._names.undone(name)
        if undone is not None:
            self._transaction.forget(undone.open())
            return
        part = self._join(self._names.drop(name, delete_files, storage_options))
        part._state(Operation(name="DROP TABLE", parameters={"name": name}), **{DROPPED: name})

    def _place(self, table: Location, storage_options: Mapping[str, str] | None) -> StoreSpec:
        name = TableName.parse(table) if isinstance(table, str) and may_be_name(table) else None
        if name is not None and (created := self._names.place(name)) is not None:
            return created
        if name is not None and self._names.is_dropped(name):
            raise TableNotFound(f"The transaction has dropped {name}")
        spec = _spec(table, storage_options, self._catalog)
        if self._names.is_dropped_place(spec.uri):
            raise TableNotFound("The transaction has dropped the table", table=spec.uri)
        return spec

    def _join(self, spec: StoreSpec, known: DeltaLog | None = None) -> TablePart:
        part = TablePart(self._transaction.table(spec.open(), known), spec)
        self._parts[part.uri] = part
        return part

    def record(self, record: LedgerRecord) -> None:
        """A row of the owner's ledger, such as a watermark, that becomes true with the commits.

        >>> from lakeseal.owner.messages import LedgerRecord
        >>> mark = {"pipeline": "mine", "dataset": "orders", "partition": ""}
        >>> values = {"value": 3, "epoch": 1, "updated": 1}
        >>> with lakeseal.transaction("sqlite:///ledger.db") as txn:
        ...     txn.record(LedgerRecord(table="watermarks", key=mark, values=values))
        ...     done = txn.table(orders).delete("id = 1")
        """
        self._records.append(record)

    def commit(self) -> TransactionResult:
        """What the end of the block does, for those who have none. It is done once.

        >>> txn = lakeseal.transaction("sqlite:///ledger.db", tables=[orders])
        >>> done = txn.table(orders).delete("id = 1")
        >>> [one.version for one in txn.commit().tables.values()]
        [2]
        """
        created = {self._join(spec).uri for spec in self._names.created}
        for uri in created:
            if not self._parts[uri]._is_stated:
                self._parts[uri]._state(Operation(name="CREATE TABLE"))
        try:
            self.result = self._transaction.commit(records=[*self._records, *self._names.records()])
        except CommitOutcomeUnknown:
            raise
        except BaseException:
            self._names.failed()
            raise
        self._names.committed()
        for uri, result in self.result.tables.items():
            self._parts[uri]._compact_behind(result)
        return self.result

    def __enter__(self) -> TablesTransaction:
        return self

    def __exit__(self, kind: type[BaseException] | None, _error: object, _trace: TracebackType | None) -> None:
        if kind is None and self.result is None:
            self.commit()
        elif self.result is None:
            self._names.failed()


def transaction(
    owner: Owner | None = None,
    isolation_level: str | None = None,
    tables: Sequence[Location] = (),
    *,
    catalog: CatalogLike | None = None,
) -> TablesTransaction:
    """One commit over several tables of `owner`, made at the end of the `with` block. `tables` join at its beginning;
    others, and those that need storage options, when they are first asked for. Tables that have names are looked up in
    the `catalog`, or in the one that is configured; without an `owner`, that catalog's decides.

    >>> with lakeseal.transaction("sqlite:///ledger.db") as txn:
    ...     done = txn.table(archive).write(txn.table(orders).to_arrow(where="id = 1"))
    ...     done = txn.table(orders).delete("id = 1")
    >>> archive.to_arrow().num_rows, orders.to_arrow().num_rows
    (1, 2)
    """
    return TablesTransaction(owner, isolation_level, tables, catalog=catalog)


def snapshots(
    owner: Owner | None,
    tables: Sequence[Location],
    storage_options: Mapping[str, str] | None = None,
    *,
    catalog: CatalogLike | None = None,
) -> tuple[Snapshot, ...]:
    """The tables as they were at one moment: no transaction over them is in only some of the snapshots.

    >>> [one.version for one in lakeseal.snapshots("sqlite:///ledger.db", ["orders", "archive"])]
    [1, 0]
    """
    if not tables:
        raise InvalidArgument("No tables were named")
    specs = [_spec(table, storage_options, catalog) for table in tables]
    return snapshots_of(_endpoint(owner, catalog), [spec.open() for spec in specs])


def _endpoint(owner: Owner | None, catalog: CatalogLike | None) -> OwnerEndpoint:
    if owner is not None:
        return connect(owner)
    found = open_catalog(catalog).owner
    if found is None:
        raise InvalidArgument(
            "This catalog decides on each table by itself, and makes no commit over several",
            hint="Name the owner of the tables: a ledger or a service of Lakeseal's",
        )
    return found


def _names(catalog: CatalogLike | None, endpoint: OwnerEndpoint) -> Names:
    """Those where it is decided, unless a catalog is named."""
    ledger = getattr(endpoint, "ledger", None)
    if catalog is None and isinstance(ledger, Ledger) and ledger.url.kind != "memory":
        return open_catalog(ledger.url.connect).names
    if catalog is None and isinstance(endpoint, HasNames):
        return endpoint.names()
    return open_catalog(catalog).names


def _spec(table: Location, storage_options: Mapping[str, str] | None, catalog: CatalogLike | None = None) -> StoreSpec:
    if isinstance(table, Table):
        return table.spec
    return StoreSpec(uri=locate(table, catalog).uri, storage_options=storage_options or {})


__all__ = ["TablePart", "TablesTransaction", "snapshots", "transaction"]
