"""`Table`: a Delta table by its URI or its name. The face that users see; the work is done in the rooms below.

Every read looks at the newest version unless told otherwise, and an open table reads only what is new. Every change is
one transaction: it is there whole after the call returns, or an error says why it is not.

A location without a table is fine to open: the first write creates one.
"""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from lakeseal.catalog.place import Place, locate
from lakeseal.catalog.table_name import may_be_name
from lakeseal.clock import now_ms
from lakeseal.commands import alter, vacuum
from lakeseal.commands.alter import AlterCommand, FirstRow
from lakeseal.commands.clone import CloneCommand
from lakeseal.commands.cluster import ClusterCommand
from lakeseal.commands.command import Command, NothingToDo
from lakeseal.commands.convert import ConvertCommand
from lakeseal.commands.create import CreateCommand, InProcessJudge, TableDefinition
from lakeseal.commands.deep_clone import DeepCloneCommand
from lakeseal.commands.delete import DeleteCommand
from lakeseal.commands.detail import detail
from lakeseal.commands.drop_feature import DropFeatureCommand
from lakeseal.commands.feature_traces import EmptyCommand, FeatureRemoval, RemoveTraces
from lakeseal.commands.manifests import write_manifests
from lakeseal.commands.merge.builder import MergeBuilder
from lakeseal.commands.merge.clauses import MergeCommand
from lakeseal.commands.merge.command import ArrowMerge, read_source
from lakeseal.commands.optimize import OptimizeCommand
from lakeseal.commands.purge import PurgeCommand
from lakeseal.commands.restore import RestoreCommand
from lakeseal.commands.running import run
from lakeseal.commands.sync_identity import SyncIdentityCommand
from lakeseal.commands.transactional_write import WriteOptions
from lakeseal.commands.update import UpdateCommand
from lakeseal.commands.vacuum import VacuumCommand, VacuumReport
from lakeseal.commands.write import Mode, Write, WriteCommand
from lakeseal.commit.alter_columns import ColumnPlace, NewColumn, column_path
from lakeseal.commit.attempts import Patience, Retry
from lakeseal.commit.isolation import IsolationLevel
from lakeseal.commit.post_commit import Maintenance, PostCommit
from lakeseal.commit.transaction import CommitResult, OptimisticTransaction
from lakeseal.display import Card, card
from lakeseal.engines import engine_for, engine_of, in_session, is_spark, judge_of, merge_in_session, moment_by, read_by
from lakeseal.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteReadException,
    ConcurrentModification,
    InvalidArgument,
    InvalidExpression,
    MetadataChangedException,
    TableNotFound,
    Unsupported,
    UnsupportedExpression,
)
from lakeseal.expr.schema_text import parse_column_type
from lakeseal.extras import needed
from lakeseal.jobs.engine import Engine
from lakeseal.jobs.in_process import InProcessEngine, arrow_reader
from lakeseal.log import changes as change_feed
from lakeseal.log.checkpoint_writer import write_checkpoint
from lakeseal.log.cleanup import CleanupReport, clean_up_expired_logs
from lakeseal.log.commit_summary import summaries
from lakeseal.log.compaction import compact
from lakeseal.log.delta_log import DeltaLog
from lakeseal.log.history import HistoryEntry, history
from lakeseal.log.scan import Outside, Scan
from lakeseal.log.snapshot import Snapshot
from lakeseal.log.snapshot_card import snapshot_card
from lakeseal.log.timestamps import Timestamp, version_at
from lakeseal.owner import handover
from lakeseal.owner.config import OwnerConfig
from lakeseal.owner.connect import Owners, connect
from lakeseal.owner.endpoint import OwnerEndpoint
from lakeseal.owner.kinds import Kind, NewTable, parse_kind
from lakeseal.owner.managed_owner import ManagedOwner
from lakeseal.owner.routing import CatalogRouter, Route, Router
from lakeseal.protocol.arrow import from_arrow, from_arrow_type, to_arrow
from lakeseal.protocol.identity import Identity, IdentityColumn, differs_by_marks
from lakeseal.protocol.schema import DataType, StructField, StructType
from lakeseal.storage import Store, StoreSpec, open_store
from lakeseal.trust import Trust

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lakeseal.catalog.connect import CatalogLike

Owner = str | OwnerConfig | OwnerEndpoint
"""A commit owner: its URL (`sqlite:///…`, `postgresql://…`, `https://…`), its name in LAKESEAL_OWNERS, or itself."""

_logger = logging.getLogger(__name__)
_COMMITS_SHOWN = 20


class Table:
    def __init__(
        self,
        uri: str | os.PathLike[str] | Place,
        owner: Owner | None = None,
        storage_options: Mapping[str, str] | None = None,
        *,
        kind: str = Kind.MANAGED,
        table_id: str | None = None,
        trust: Trust | None = None,
        catalog: CatalogLike | None = None,
    ) -> None:
        """`owner` manages the commits of a table that is created here, and of one that names it; `kind` says in which
        form a new one is its (`managed`, `catalog` or `coordinated`), `table_id` what its catalog calls it. A table
        that names an owner which is not configured can be read, as far as it is backfilled, and not written; one that
        is a catalog's can be neither. `trust` says how far to believe what others wrote there. A name instead of
        the URI (`sales.orders`) is looked up in the `catalog`, or in the one that is configured."""
        self._place = locate(uri, catalog)
        options = self._place.credentials() if storage_options is None else storage_options
        self.spec = StoreSpec(uri=self._place.uri, storage_options=options)
        self._store = self.spec.open()
        endpoint = None if owner is None else connect(owner)
        known = [one for one in (self._place.owner, endpoint) if one is not None]
        self.trust = trust or Trust()
        creator = endpoint or (self._place.owner if self._place.is_owned else None)
        owners = Owners(*known)
        new = NewTable(kind=parse_kind(kind), table_id=table_id)
        committer = self._place.committer(self._store)
        self._router = (
            Router(self._store, owners, creator=creator, new=new, trust=self.trust)
            if committer is None
            else CatalogRouter(self._store, committer, trust=self.trust)
        )
        self._read_at: int | None = None

    @property
    def place(self) -> Place:
        """Where it is, with what its catalog knows, if it was opened by its name: opens the same table again.

        >>> lakeseal.Table(orders.place).version()
        1
        """
        return self._place

    @property
    def _log(self) -> DeltaLog:
        return self._router.route().log

    @property
    def uri(self) -> str:
        """Where it is, in the one form that URIs have here.

        >>> orders.uri.endswith("/orders")
        True
        """
        return self.spec.uri

    @property
    def name(self) -> str | None:
        """What it is called in the catalog, if it was opened by its name.

        >>> print(orders.name)
        None
        """
        return None if self._place.table is None else str(self._place.table.name)

    def __repr__(self) -> str:
        return f"Table({(self.name or self.uri)!r})"

    def _repr_html_(self) -> str:
        """For notebooks: columns, size and the last commits."""

        def made() -> Card:
            snapshot = self.snapshot()
            commits = summaries(self.commits(_COMMITS_SHOWN))
            return snapshot_card(snapshot, "Table", self.name or self.uri, commits=commits)

        return card("Table", self.name or self.uri, made)

    def exists(self) -> bool:
        """Whether there is a table at this place yet.

        >>> lakeseal.Table("elsewhere").exists()
        False
        """
        return self._router.snapshot() is not None

    def version(self) -> int:
        """The newest version.

        >>> orders.version()
        1
        """
        return self.snapshot().version

    def schema(self) -> pa.Schema:
        """The columns of the newest version, as Arrow has them.

        >>> orders.schema().names
        ['id', 'shop', 'price']
        """
        return to_arrow(self.snapshot().schema)

    def files(self) -> pa.Table:
        """The live files: path, size, partition values, statistics, …, as the log has them.

        >>> orders.files().num_rows
        1
        """
        return self.snapshot().files

    def history(self, limit: int | None = None) -> list[dict[str, Any]]:
        """What each version did, newest first.

        >>> orders.history(1)[0]["operation"]
        'WRITE'
        """
        return [entry.to_json() for entry in self.commits(limit)]

    def commits(self, limit: int | None = None) -> list[HistoryEntry]:
        """The same as values.

        >>> [one.version for one in orders.commits()]
        [1, 0]
        """
        self.snapshot()  # where there is no table there is no history either
        return history(self._log, limit)

    def detail(self) -> dict[str, Any]:
        """What the table is: its format, identity, size, layout, properties and features, as DESCRIBE DETAIL has it.

        >>> orders.detail()["numFiles"]
        1
        """
        snapshot = self.snapshot()
        newest = history(self._log, 1)
        return detail(snapshot, last_modified=newest[0].timestamp if newest else None)

    def snapshot(self, version: int | None = None, timestamp: Timestamp | None = None) -> Snapshot:
        """The table at its newest version, at a version, or as a moment saw it.

        >>> orders.snapshot(version=0).files.num_rows
        0
        """
        newest = self._router.snapshot()
        if newest is None:
            raise TableNotFound("There is no table here", table=self.uri)
        if timestamp is None:
            return newest if version is None else self._log.snapshot(version)
        if version is not None:
            raise InvalidArgument("Ask for a version or for a timestamp, not for both")
        return self._log.snapshot(version_at(self._log, timestamp))

    def to_arrow(
        self,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        *,
        row_ids: bool = False,
    ) -> pa.Table:
        """The rows, all in memory; `where` is a SQL condition. With `row_ids` each comes with its `_row_id`, which it
        keeps for life, and its `_row_commit_version`, that which last changed it; the table must track its rows.

        >>> orders.to_arrow(where="shop = 'north' AND price > 2", columns=['id']).to_pylist()
        [{'id': 3}]
        """
        return self._scan(version, timestamp, columns, where, row_ids=row_ids).to_arrow()

    def to_batches(
        self,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        *,
        row_ids: bool = False,
    ) -> pa.RecordBatchReader:
        """The rows as a stream that needs memory for a few batches only.

        >>> sum(batch.num_rows for batch in orders.to_batches())
        3
        """
        scan = self._scan(version, timestamp, columns, where, row_ids=row_ids)
        return pa.RecordBatchReader.from_batches(scan.schema, scan.batches())

    def to_pandas(
        self,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
    ) -> Any:
        """The rows as a pandas DataFrame. Needs `lakeseal[pandas]`. A column of longs with nulls is an `Int64`, as no
        float holds all longs; shorter integers with nulls are floats, as ever in pandas.

        >>> len(orders.to_pandas(where="id < 3"))
        2
        """
        return _in_pandas(self.to_arrow(version, timestamp, columns, where), needed("pandas"))

    def to_polars(
        self,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
    ) -> Any:
        """The rows as a polars DataFrame. Needs `lakeseal[polars]`.

        >>> orders.to_polars(columns=["id"]).height
        3
        """
        return needed("polars").from_arrow(self.to_arrow(version, timestamp, columns, where))

    def to_duckdb(
        self,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        *,
        connection: Any = None,
    ) -> Any:
        """The rows as a relation of DuckDB, which SQL of its connection can go on with; of a new one in memory where
        none is given. Needs `lakeseal[duckdb]`.

        >>> orders.to_duckdb().aggregate("max(price)").fetchall()
        [(9.9,)]
        """
        duckdb = needed("duckdb")
        rows = self.to_arrow(version, timestamp, columns, where)
        return (duckdb.connect() if connection is None else connection).from_arrow(rows)

    def to_spark(
        self,
        spark: SparkSession,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        *,
        row_ids: bool = False,
    ) -> DataFrame:
        """The rows as a DataFrame of one version, which it stays of. Needs `lakeseal[spark]`. A `timestamp` that is a
        text or a date without a zone is in the session's.

        >>> orders.to_spark(spark, where="id > 1").count()
        2
        """
        needed("pyspark")
        from lakeseal.spark.scan import to_spark  # pyspark is an extra

        snapshot = self.snapshot(version, moment_by(spark, timestamp))
        where = read_by(spark, where)
        return to_spark(spark, snapshot, self.spec, where=where, columns=columns, row_ids=row_ids)

    def changes(self, start: int | Timestamp, end: int | Timestamp | None = None) -> pa.Table:
        """The change feed from `start` to `end`, both included: numbers are versions, everything else a moment.

        >>> orders.changes(1)["_change_type"].to_pylist()
        ['insert', 'insert', 'insert']
        """
        first, last = change_feed.version_range(self._log, start, end)
        reader = change_feed.ChangeReader(self._log.snapshot(last), self._store, outside=self._outside)
        batches = (batch for one in change_feed.changes(self._log, first, last) for batch in reader.read(one))
        return pa.Table.from_batches(batches, schema=reader.schema)

    def changes_spark(
        self, spark: SparkSession, start: int | Timestamp, end: int | Timestamp | None = None
    ) -> DataFrame:
        """The same as a DataFrame. Moments that are texts or dates without a zone are in the session's.

        >>> orders.changes_spark(spark, 1).count()
        3
        """
        from lakeseal.spark.scan import changes_spark  # pyspark is an extra

        start, end = moment_by(spark, start), moment_by(spark, end)
        return changes_spark(spark, self._log, self.spec, start, end)

    def write(
        self,
        data: Any,
        mode: Mode = "append",
        partition_by: Sequence[str] | str | None = None,
        replace_where: str | None = None,
        partition_overwrite: Literal["static", "dynamic"] | None = None,
        merge_schema: bool = False,
        overwrite_schema: bool = False,
        txn: tuple[str, int] | None = None,
        user_metadata: str | None = None,
        *,
        cluster_by: Sequence[str] | str | None = None,
        properties: Mapping[str, Any] | None = None,
        comment: str | None = None,
        replace_table: bool = False,
        max_records_per_file: int | None = None,
        target_file_size: int | None = None,
        data_change: bool = True,
        isolation_level: str | None = None,
    ) -> CommitResult | NothingToDo:
        """Write a Spark DataFrame, or anything that Arrow reads: a table, batches, a reader, a dataset.

        Creates the table if there is none, with `partition_by` or `cluster_by`, `properties` and `comment`; with
        `replace_table`, which is for mode `overwrite`, one that is there is made anew by them. `txn` is (application
        id, version): a write that the table has seen does nothing. `data_change=False` says of an overwrite that the
        rows are those that it replaces, laid out otherwise: streams and the change feed pass over it. `replace_where`
        is judged by the session of a DataFrame, and of other data in UTC with ANSI mode on.

        >>> orders.write(pa.table({"id": [4], "shop": ["west"]}), txn=("nightly", 7)).version
        2
        >>> orders.write(pa.table({"id": [5]}), mode="overwrite", replace_where="id = 5").version
        3
        """
        command = WriteCommand(
            mode=mode,
            partition_by=_names(partition_by),
            cluster_by=_names(cluster_by),
            replace_where=replace_where,
            partition_overwrite=partition_overwrite,
            overwrite_schema=overwrite_schema,
            txn=txn,
            user_metadata=user_metadata,
            properties=properties or {},
            comment=comment,
            replaces_table=replace_table,
            options=WriteOptions(
                merge_schema=merge_schema,
                data_change=data_change,
                max_records_per_file=max_records_per_file,
                target_file_size=target_file_size,
            ),
        )
        write = Write(asked=in_session(command, data), data=data)
        return self._run(write, engine_for(data), isolation_level, again=_can_be_read_again(data))

    def delete(
        self,
        where: str | None = None,
        *,
        spark: SparkSession | None = None,
        user_metadata: str | None = None,
        isolation_level: str | None = None,
    ) -> CommitResult | NothingToDo:
        """Delete the rows for which a SQL condition is true; all rows without one. Without `spark` the condition
        means what it does in UTC with ANSI mode on.

        >>> orders.delete("shop = 'north'").metrics['numDeletedRows']
        2
        """
        command = DeleteCommand(where=read_by(spark, where), user_metadata=user_metadata)
        return self._run(command, engine_of(spark), isolation_level)

    def update(
        self,
        values: Mapping[str, Any],
        where: str | None = None,
        *,
        spark: SparkSession | None = None,
        user_metadata: str | None = None,
        isolation_level: str | None = None,
    ) -> CommitResult | NothingToDo:
        """Set columns of the rows that match. `values` are SQL texts over the row as it was, or constants. Without
        `spark` they mean what they do in UTC with ANSI mode on.

        >>> orders.update({'price': 'price * 1.1', 'shop': "'east'"}, 'id = 2').metrics['numUpdatedRows']
        1
        """
        values, where = read_by(spark, values), read_by(spark, where)
        command = UpdateCommand(values=values, where=where, user_metadata=user_metadata)
        return self._run(command, engine_of(spark), isolation_level)

    def merge(
        self,
        source: Any,
        on: str,
        *,
        merge_schema: bool = False,
        source_alias: str | None = None,
        target_alias: str | None = None,
        user_metadata: str | None = None,
        isolation_level: str | None = None,
    ) -> MergeBuilder:
        """Change, delete and add rows by a source, a Spark DataFrame or anything that Arrow reads: say what to do by
        clauses, then `execute`. `on` is a SQL condition over `t.…` (this table) and `s.…` (the source).

        A DataFrame whose rows Spark holds already, and that is small, is merged in this process where that means the
        same; `spark.lakeseal.localMerge=false` in the session leaves it to Spark.

        >>> news = pa.table({"id": [3, 4], "shop": ["south", "west"], "price": [1.0, 2.0]})
        >>> merge = orders.merge(news, "t.id = s.id").when_matched_update("*").when_not_matched_insert("*")
        >>> merge.execute().metrics["numTargetRowsInserted"]
        1
        """

        def execute(asked: MergeCommand) -> CommitResult | NothingToDo:
            command = merge_in_session(asked, source)
            rows = self._local_rows(source, command)
            if rows is not None:
                with suppress(InvalidExpression, UnsupportedExpression, Unsupported):  # nothing is committed then
                    return self._run(merge_with(rows, command), InProcessEngine(), isolation_level)
            return self._run(merge_with(source, command), engine_for(source), isolation_level)

        names = {"source_alias": source_alias, "target_alias": target_alias}
        return MergeBuilder(execute, on, merge_schema=merge_schema, user_metadata=user_metadata, **names)

    def optimize(
        self,
        where: str | None = None,
        zorder_by: Sequence[str] | str | None = None,
        *,
        full: bool = False,
        spark: SparkSession | None = None,
        target_file_size: int | None = None,
        user_metadata: str | None = None,
        isolation_level: str | None = None,
    ) -> CommitResult | NothingToDo:
        """Put small files together, drop hidden rows, and order rows by columns. `where` chooses files. A clustered
        table is clustered where it is not yet, or, in `full`, anew. It depends on the files that it takes alone, so
        that no `isolation_level` makes it conflict with what is added meanwhile.

        >>> done = orders.write(pa.table({"id": [4]}))
        >>> orders.optimize(zorder_by=["id"]).metrics["numRemovedFiles"]
        2
        """
        command = OptimizeCommand(
            where=read_by(spark, where),
            zorder_by=_names(zorder_by) or (),
            full=full,
            target_file_size=target_file_size,
            user_metadata=user_metadata,
        )
        return self._run(command, engine_of(spark), isolation_level)

    def purge(
        self, where: str | None = None, *, spark: SparkSession | None = None, user_metadata: str | None = None
    ) -> CommitResult | NothingToDo:
        """Write files anew in which there is what is gone from the table: rows that a deletion vector hides, columns
        that were dropped. `where` chooses files. `vacuum` deletes the old ones when their time has come.

        >>> done = orders.set_properties({"delta.enableDeletionVectors": "true"})
        >>> done = orders.delete("id = 1")
        >>> orders.purge().metrics["numDeletionVectorsRemoved"]
        1
        """
        command = PurgeCommand(where=read_by(spark, where), outside=self._outside, user_metadata=user_metadata)
        return self._run(command, engine_of(spark))

    def vacuum(
        self,
        hours: float | None = None,
        dry_run: bool = False,
        *,
        lite: bool = False,
        inventory: Any = None,
        enforce_retention_duration: bool = True,
    ) -> VacuumReport:
        """Delete files that no version of the last `hours` needs; a week's, unless the table keeps them for longer or
        shorter. Less than that must be insisted on. `lite` lists nothing: only files that the log says were removed go.
        `inventory` is a list of what is there instead: rows with `path`, `length`, `isDir`, `modificationTime` (ms).

        >>> orders.vacuum(dry_run=True).deleted
        ()
        """
        command = VacuumCommand(
            hours=hours,
            dry_run=dry_run,
            lite=lite,
            inventory=_inventory(inventory),
            enforce_retention_duration=enforce_retention_duration,
        )
        report = self._router.run(
            lambda route: vacuum.run(command, route.log, self._store, lambda: _begin(route), now_ms=now_ms())
        )
        did = "would delete" if dry_run else "deleted"
        _logger.info("VACUUM of %s %s %d files, %d bytes", self.uri, did, len(report.deleted), report.bytes)
        return report

    def restore(
        self,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        *,
        user_metadata: str | None = None,
        isolation_level: str | None = None,
    ) -> CommitResult | NothingToDo:
        """Make the table what it was at a version or a moment, as a new version.

        >>> orders.restore(version=0).version
        2
        """
        if version is None and timestamp is None:
            raise InvalidArgument("Say which version, or which moment, to restore")
        target = self.snapshot(version, timestamp)
        command = RestoreCommand(target=target, outside=self._outside, user_metadata=user_metadata)
        return self._run(command, InProcessEngine(), isolation_level)

    def clone(
        self,
        uri: str | os.PathLike[str] | Place,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        *,
        deep: bool = False,
        replace: bool = False,
        properties: Mapping[str, Any] | None = None,
        owner: Owner | None = None,
        storage_options: Mapping[str, str] | None = None,
        catalog: CatalogLike | None = None,
    ) -> Table:
        """A new table at `uri`, or with that name in the `catalog`, with this one's rows, which are not copied: a
        shallow clone. A deep one has files of its own; where it is there already, what this table has got and lost
        since is copied and taken out. With `replace` a table that is there becomes a shallow clone, in one version.
        It has the source's properties, and `properties`.

        >>> orders.clone("sandbox").to_arrow().num_rows
        3
        """
        if replace and deep:
            raise InvalidArgument("A deep clone follows its source and takes no table's place", table=str(uri))
        options = storage_options or self.spec.storage_options
        source = self.snapshot(version, timestamp)
        own = properties or {}
        made: Command = CloneCommand(source=source, replaces=replace, properties=own)
        if deep:
            made = DeepCloneCommand(source=source, store=self._store, outside=self._outside, properties=own)
        from lakeseal.catalog.making import made_or_there  # whoever gives URIs needs no database's libraries

        with made_or_there(uri, catalog) as place:
            table = Table(place, owner=owner, storage_options=options)
            table._run(made, InProcessEngine())
        if isinstance(uri, str) and may_be_name(uri) and table.name is None:
            return Table(uri, owner=owner, storage_options=options, catalog=catalog)  # it has its name now
        return table

    def cluster_by(self, columns: Sequence[str] | str | None) -> CommitResult:
        """Keep rows near each other that are near in these columns, from the next `optimize` on; None: no longer.

        >>> orders.cluster_by(["shop", "id"]).version
        2
        """
        return self._committed(ClusterCommand(columns=_names(columns) or ()))

    def set_properties(self, properties: Mapping[str, Any]) -> CommitResult:
        """Set table properties; None removes one.

        >>> orders.set_properties({"delta.logRetentionDuration": "interval 60 days"}).version
        2
        """
        return self._alter(alter.set_properties(properties))

    def add_feature(self, name: str) -> CommitResult:
        """List a table feature in the protocol, by its name: whoever does not know it is kept out from then on.

        >>> orders.add_feature("deletionVectors").version
        2
        """
        return self.set_properties({f"delta.feature.{name}": "supported"})

    def drop_feature(self, name: str, truncate_history: bool = False) -> CommitResult:
        """Take a feature out of the protocol, so that more clients may read and write the table.

        One that is for writers goes once nothing uses it. Of one that readers need (deletionVectors, columnMapping,
        typeWidening, v2Checkpoint, timestampNtz) the newest version is freed first: files are written anew. Older
        versions still need it, so that is all for now, and `Refused` says so; once that is
        `delta.dropFeatureTruncateHistory.retentionDuration` ago (a day), `truncate_history` deletes those versions
        from the log, and the feature goes.

        >>> done = orders.add_feature("appendOnly")
        >>> orders.drop_feature("appendOnly").version
        3
        """
        removal = FeatureRemoval(self._log, name, truncate_history=truncate_history)
        if not removal.leaves_traces:
            return self._committed(DropFeatureCommand(name=removal.feature))
        self._run(RemoveTraces(feature=removal.feature), InProcessEngine())
        if removal.needs_another_version():
            self._committed(EmptyCommand())
        removal.forget()
        return self._committed(DropFeatureCommand(name=removal.feature, is_forgotten=True))

    def upgrade(self, reader_version: int, writer_version: int) -> CommitResult:
        """Raise the protocol to these versions at least, with what they imply.

        >>> orders.upgrade(3, 7).version
        2
        """
        versions = {"delta.minReaderVersion": reader_version, "delta.minWriterVersion": writer_version}
        return self.set_properties(versions)

    def add_constraint(self, name: str, condition: str, *, spark: SparkSession | None = None) -> CommitResult:
        """A CHECK constraint, which the rows that are there must keep too: those of the version right before it. They
        are judged by Spark, if a session is given, and otherwise as with ANSI mode on, in UTC.

        >>> orders.add_constraint("positive", "price >= 0").version
        2
        """
        condition = read_by(spark, condition)
        return self._alter(alter.add_constraint(name, condition, self._first_row(spark), judge_of(spark)))

    def drop_constraint(self, name: str) -> CommitResult:
        """Rows to come need not keep it any more.

        >>> done = orders.add_constraint("positive", "price >= 0")
        >>> orders.drop_constraint("positive").version
        3
        """
        return self._alter(alter.drop_constraint(name))

    def add_columns(
        self, columns: Any, into: str | None = None, *, first: bool = False, after: str | None = None
    ) -> CommitResult:
        """New nullable columns, as a pyarrow or Spark schema, behind the others, `first`, or `after` one of them; new
        fields of a struct with `into` (`a`, `a.b`, `list.element`, `map.value`). Or `NewColumn`s, which say it.

        >>> orders.add_columns(pa.schema([("note", pa.string())]), after="id").version
        2
        """
        if isinstance(columns, list | tuple):
            return self._alter(alter.add_columns(columns))
        parents = () if into is None else column_path(into)
        place, added = ColumnPlace(first=first, after=after), []
        for field in _schema(columns).fields:
            added.append(NewColumn(field=field, parents=parents, place=place))
            place = ColumnPlace(after=field.name) if first or after is not None else place
        return self._alter(alter.add_columns(added))

    def move_column(self, name: str, *, first: bool = False, after: str | None = None) -> CommitResult:
        """A column, or a field as `a.b`, to another place among those beside it. Files stay as they are.

        >>> done = orders.move_column("price", first=True)
        >>> orders.schema().names
        ['price', 'id', 'shop']
        """
        if first == (after is not None):
            raise InvalidArgument("A column goes first, or after another one", column=name)
        return self._alter(alter.move_column(name, ColumnPlace(first=first, after=after)))

    def drop_column(self, name: str) -> CommitResult:
        """A column, or a field as `a.b`. Needs column mapping (`delta.columnMapping.mode=name`).

        >>> done = orders.drop_column("price")
        >>> orders.schema().names
        ['id', 'shop']
        """
        return self.drop_columns([name])

    def drop_columns(self, names: Sequence[str]) -> CommitResult:
        """Columns, or fields as `a.b`: all of them in one version, or none. Needs column mapping.

        >>> orders.drop_columns(["price", "shop"]).version
        2
        """
        return self._alter(alter.drop_columns(names))

    def rename_column(self, name: str, new_name: str) -> CommitResult:
        """A column, or a field as `a.b`; `new_name` is a plain name. Needs column mapping.

        >>> orders.rename_column("price", "gross").version
        2
        """
        return self._alter(alter.rename_column(name, new_name))

    def change_type(self, name: str, data_type: Any) -> CommitResult:
        """A wider type for a column, a field, or what an array (`a.element`) or a map (`a.value`) holds. Files stay as
        they are. Needs type widening (`delta.enableTypeWidening=true`).

        >>> done = orders.add_columns(pa.schema([("items", pa.int32())]))
        >>> orders.change_type("items", "bigint").version
        3
        """
        return self._alter(alter.change_type(name, _column_of(data_type)))

    def set_default(self, name: str, value: Any, *, spark: SparkSession | None = None) -> CommitResult:
        """What rows to come get that do not say a value: SQL text, or a constant.

        >>> done = orders.add_feature("allowColumnDefaults")
        >>> orders.set_default('shop', "'north'").version
        3
        """
        if value is None:
            raise InvalidArgument("A default is a value", column=name, hint="drop_default(…), or 'NULL'")
        return self._alter(alter.set_default(name, read_by(spark, value), judge_of(spark)))

    def drop_default(self, name: str) -> CommitResult:
        """Rows to come that do not say the column get null again.

        >>> done = orders.add_feature("allowColumnDefaults")
        >>> done = orders.set_default('shop', "'north'")
        >>> orders.drop_default("shop").version
        4
        """
        return self._alter(alter.set_default(name, None))

    def set_not_null(self, name: str, *, spark: SparkSession | None = None) -> CommitResult:
        """No nulls in a column or field from now on; there must be none.

        >>> orders.set_not_null("id").version
        2
        """
        return self._alter(alter.set_not_null(name, self.snapshot().schema, self._first_row(spark)))

    def drop_not_null(self, name: str) -> CommitResult:
        """Nulls are allowed in a column or field again.

        >>> done = orders.set_not_null("id")
        >>> orders.drop_not_null("id").version
        3
        """
        return self._alter(alter.drop_not_null(name))

    def sync_identity(self, name: str) -> CommitResult | NothingToDo:
        """Values that the table gives to an identity column come behind those that are there, whoever brought them.

        >>> numbered = lakeseal.create(
        ...     "numbered", pa.schema([("id", pa.int64())]), identity={"id": lakeseal.Identity(always=False)}
        ... )
        >>> done = numbered.write(pa.table({"id": [41]}))
        >>> numbered.sync_identity("id").version
        2
        """

        def farthest(snapshot: Snapshot, column: IdentityColumn) -> int | None:
            choose = pc.max if column.step > 0 else pc.min
            scan = Scan(snapshot, self._store, columns=[column.name], outside=self._outside)
            found = [value for batch in scan.batches() if (value := choose(batch.column(0)).as_py()) is not None]
            return choose(pa.array(found, pa.int64())).as_py() if found else None

        return self._run(SyncIdentityCommand(name=name, farthest=farthest), InProcessEngine())

    def set_comment(self, name: str | None, comment: str | None) -> CommitResult:
        """What is to be known about a column or field, or with None for the name about the table; None for nothing.

        >>> orders.set_comment("price", "gross, in euros").version
        2
        """
        return self._alter(alter.set_table_comment(comment) if name is None else alter.set_comment(name, comment))

    def generate(self, mode: Literal["symlink_format_manifest"] = "symlink_format_manifest") -> tuple[str, ...]:
        """Write manifests, lists of the newest version's files, for engines that read Parquet and not Delta; their keys
        below the table. They are of this version for ever: generate them again after a change.

        >>> plain = lakeseal.create("plain", pa.schema([("id", pa.int64())]))
        >>> plain.generate()
        ('_symlink_format_manifest/manifest',)
        """
        if mode != "symlink_format_manifest":
            raise InvalidArgument(f"There is no mode {mode!r}", hint="Use 'symlink_format_manifest'")
        snapshot = self.snapshot()
        keys = write_manifests(snapshot, self._store)
        _logger.info("GENERATE wrote %d manifests of version %d of %s", len(keys), snapshot.version, self.uri)
        return keys

    def checkpoint(self) -> int:
        """Write a checkpoint of the newest version, which is returned. An owner publishes it first.

        >>> orders.checkpoint()
        1
        """
        version = self.version()
        self._router.run(lambda route: route.owner.backfill_to_version(version))
        write_checkpoint(self._log, version, now_ms=now_ms())
        _logger.info("%s has a checkpoint of version %d", self.uri, version)
        return version

    def compact_log(self, start: int, end: int) -> str | None:
        """Write one file that stands for the commits `start` to `end`, so that readers open fewer. An owner publishes
        them first.

        >>> orders.compact_log(0, 1)
        '_delta_log/00000000000000000000.00000000000000000001.compacted.json'
        """
        self._router.run(lambda route: route.owner.backfill_to_version(min(end, self.version())))
        key = compact(self._log, start, end)
        did = "were left as they are" if key is None else f"are one file, {key}"
        _logger.info("the commits %d to %d of %s %s", start, end, self.uri, did)
        return key

    def cleanup(self, dry_run: bool = False) -> CleanupReport:
        """Delete what the log holds only for versions older than `delta.logRetentionDuration`.

        >>> orders.cleanup(dry_run=True).deleted
        ()
        """
        report = clean_up_expired_logs(self._log, now_ms=now_ms(), dry_run=dry_run)
        did = "would delete" if dry_run else "deleted"
        _logger.info("a cleanup of the log of %s %s %d files", self.uri, did, len(report.deleted))
        return report

    def take_over(self, owner: Owner, kind: str = Kind.MANAGED) -> int:
        """Hand the table's commits to an owner; the version that did it. `kind` is `managed`, `catalog` (so that other
        engines commit to it, through the owner's service) or `coordinated`. A table that this owner has in another form
        goes by way of the file system, in two commits.

        >>> orders.take_over("sqlite:///ledger.db")
        2
        """
        endpoint = connect(owner)
        version = handover.take_over_as(endpoint, self._store, parse_kind(kind), table_id=self._place.table_id)
        self._router = Router(self._store, Owners(endpoint), creator=endpoint, trust=self.trust)
        self._place.note_kind("managed" if parse_kind(kind) is Kind.MANAGED else "catalog")
        _logger.info("TAKE OVER is version %d of %s: %s", version, self.uri, kind)
        return version

    def release(self) -> int:
        """Hand the table's commits back to the file system; the version that did it.

        >>> orders.take_over("sqlite:///ledger.db")
        2
        >>> orders.release()
        3
        """
        name = self._router.reopen().owner_name
        if name is None:
            raise InvalidArgument("The table has no owner", table=self.uri)
        version = handover.release(self._router.owner(name), self._store)
        self._router.reopen()
        self._place.note_kind("filesystem")
        _logger.info("RELEASE is version %d of %s", version, self.uri)
        return version

    def _scan(
        self,
        version: int | None,
        timestamp: Timestamp | None,
        columns: Sequence[str] | None,
        where: str | None,
        *,
        row_ids: bool = False,
    ) -> Scan:
        snapshot = self.snapshot(version, timestamp)
        return Scan(snapshot, self._store, columns=columns, where=where, outside=self._outside, row_ids=row_ids)

    def _outside(self, uri: str) -> Store:
        return outside_of(self.spec)(uri)

    def _run(
        self, command: Command, engine: Engine, isolation_level: str | None = None, *, again: bool = True
    ) -> CommitResult | NothingToDo:
        """`again`: whether the command may be run once more, on the table as it is by then, should the table have
        another owner, or others have changed what it began with; one whose data can be read only once may not, nor one
        whose data is of a version of the table."""
        again = again and self._read_at is None

        def do(route: Route) -> CommitResult | NothingToDo:
            patience = Patience(Retry())
            for tried in count(1):
                txn = _begin(route, isolation_level, self._read_at)
                if txn.snapshot is None:
                    self._place.check_not_dropped()
                try:
                    return run(command, txn, engine=engine, store=self.spec)
                except ConcurrentModification as error:
                    if not (again and _begins_anew(command, txn, error) and patience.wait(tried)):
                        raise
            raise AssertionError("there is always another number")

        result = self._router.run(do) if again else do(self._router.route())
        if isinstance(result, NothingToDo):
            _logger.info("%s changed nothing, version %d: %s", self.uri, result.version, result.reason)
        return result

    def _local_rows(self, source: Any, command: MergeCommand) -> pa.Table | None:
        """Of a DataFrame that is merged faster without Spark. One that changes the schema may say more of a column
        than Arrow does."""
        if not is_spark(source) or command.merge_schema or not self.exists():
            return None
        from lakeseal.spark.local_source import local_rows  # pyspark is an extra

        return local_rows(source, self.snapshot())

    def _alter(self, command: AlterCommand) -> CommitResult:
        return self._committed(command)

    def _committed(self, command: Command) -> CommitResult:
        result = self._run(command, InProcessEngine())
        assert isinstance(result, CommitResult), "metadata is always committed"
        return result

    def _first_row(self, spark: SparkSession | None) -> FirstRow:
        """Spark looks at all that the snapshot has."""

        def found(snapshot: Snapshot, files: pa.Table, where: str) -> dict[str, Any] | None:
            if spark is not None:
                from lakeseal.spark.scan import first_row  # pyspark is an extra

                return first_row(spark, snapshot, self.spec, where)
            scan = Scan(snapshot, self._store, where=where, files=files, outside=self._outside)
            return next((batch.slice(0, 1).to_pylist()[0] for batch in scan.batches() if batch.num_rows), None)

        return found


class TableSays(TypedDict, total=False):
    """What `create` takes beside schema, partitions and properties."""

    defaults: Mapping[str, Any] | None
    generated: Mapping[str, str] | None
    identity: Mapping[str, Identity] | str | None
    constraints: Mapping[str, str] | None
    comments: Mapping[str, str] | None
    comment: str | None
    cluster_by: Sequence[str] | str
    replace: bool
    spark: SparkSession | None


def create(
    uri: str | os.PathLike[str] | Place,
    schema: Any,
    partition_by: Sequence[str] | str = (),
    properties: Mapping[str, Any] | None = None,
    owner: Owner | None = None,
    storage_options: Mapping[str, str] | None = None,
    *,
    defaults: Mapping[str, Any] | None = None,
    generated: Mapping[str, str] | None = None,
    identity: Mapping[str, Identity] | str | None = None,
    constraints: Mapping[str, str] | None = None,
    comments: Mapping[str, str] | None = None,
    comment: str | None = None,
    cluster_by: Sequence[str] | str = (),
    replace: bool = False,
    spark: SparkSession | None = None,
    kind: str = Kind.MANAGED,
    table_id: str | None = None,
) -> Table:
    """A new, empty table. `schema` is pyarrow's or Spark's. Fails if there is a table already, unless `replace`: then
    that one is made anew, in one commit.

    `defaults` are SQL texts or constants by column, for rows that do not say it; `generated` are SQL texts over the
    row; `identity` names a column that the table numbers, or several with what is asked of them. `constraints` are
    conditions by name, `comments` texts by column; `cluster_by` are columns to keep rows together by. Expressions that
    only Spark knows need a session, `spark`. In which form the table is its owner's, `kind` says.
    """
    table = Table(uri, owner=owner, storage_options=storage_options, kind=kind, table_id=table_id)
    definition = TableDefinition(
        schema=_schema(schema),
        partition_by=_names(partition_by) or (),
        cluster_by=_names(cluster_by) or (),
        properties=properties or {},
        defaults=read_by(spark, defaults or {}),
        generated=read_by(spark, generated or {}),
        identity={identity: Identity()} if isinstance(identity, str) else identity or {},
        constraints=read_by(spark, constraints or {}),
        comments=comments or {},
        comment=comment,
    )
    judge = judge_of(spark) or InProcessJudge()
    table._run(CreateCommand(definition=definition, judge=judge, replaces=replace), InProcessEngine())
    return table


def convert(
    uri: str | os.PathLike[str] | Place,
    partition_by: Sequence[str] | Mapping[str, Any] = (),
    properties: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, str] | None = None,
    *,
    owner: Owner | None = None,
    catalog: CatalogLike | None = None,
) -> Table:
    """Make a table of a directory of Parquet files, where they are. `partition_by` names the columns that only the
    directories have, with their types (pyarrow's, Spark's or SQL text) if they are not strings. `owner` is to decide on
    its commits; a name instead of the directory, of a table whose log is gone, is looked up in the `catalog`.

    >>> import pyarrow.parquet as pq
    >>> pq.write_to_dataset(pa.table({"id": [1, 2], "day": ["mon", "tue"]}), "plain", partition_cols=["day"])
    >>> lakeseal.convert("plain", partition_by="day").to_arrow(where="day = 'tue'").to_pylist()
    [{'id': 2, 'day': 'tue'}]
    """
    if isinstance(partition_by, Mapping):
        partition_by = {name: _column_of(kind).type for name, kind in partition_by.items()}
    table = Table(uri, owner=owner, storage_options=storage_options, catalog=catalog)
    table._run(ConvertCommand(partition_by=partition_by, properties=properties or {}), InProcessEngine())
    return table


def is_delta_table(uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> bool:
    """Whether there is a table, of any client of Delta.

    >>> lakeseal.is_delta_table("orders"), lakeseal.is_delta_table("nowhere")
    (True, False)
    """
    return Table(uri, storage_options=storage_options).exists()


HOOKS: tuple[PostCommit, ...] = (Maintenance(),)


def outside_of(spec: StoreSpec) -> Outside:
    """Opens the stores of files that a table's log names by absolute URIs outside of it, as shallow clones do."""
    return lambda uri: open_store(uri, spec.storage_options if _scheme(uri) == _scheme(spec.uri) else None)


def reading(table: Table, version: int) -> Table:
    """The table for a change that is made of what was read in it, anywhere, at this version. It is a change of that
    version, so whatever others have committed since is judged as something that they did while it was made."""
    made = copy.copy(table)
    made._read_at = version
    return made


def _begin(route: Route, isolation_level: str | None = None, read_at: int | None = None) -> OptimisticTransaction:
    """`read_at`: the version of which all has been read already; None for the newest, of which nothing has."""
    level = None if isolation_level is None else IsolationLevel.parse(isolation_level)
    if read_at is None:
        return OptimisticTransaction.begin(route.log, route.owner, isolation_level=level, hooks=HOOKS)
    seen = route.log.snapshot(read_at)
    txn = OptimisticTransaction(route.log, route.owner, seen, isolation_level=level, hooks=HOOKS)
    txn.read_whole_table()
    return txn


def _begins_anew(command: Command, txn: OptimisticTransaction, error: ConcurrentModification) -> bool:
    """Whether what came between is such that the same command, decided on anew, has the same meaning."""
    if isinstance(command, AlterCommand):
        # The rows that it looked at are others by now.
        return isinstance(error, ConcurrentAppendException | ConcurrentDeleteReadException)
    if not isinstance(error, MetadataChangedException) or txn.snapshot is None or error.version is None:
        return False
    # Others were given the numbers of identity columns that this was to get.
    newest = txn.newest()
    return newest is not None and differs_by_marks(txn.snapshot.metadata, newest.metadata)


def merge_with(source: Any, command: MergeCommand) -> Command:
    if not is_spark(source):
        return ArrowMerge(asked=command, source=read_source(source))
    from lakeseal.spark.merge import SparkMerge  # pyspark is an extra

    return SparkMerge(asked=command, source=source)


def log_told_by(endpoint: OwnerEndpoint, table: Table) -> DeltaLog | None:
    """What an open table knows of its log, if it has it from that owner; for transactions."""
    route = table._router.route()
    return route.log if isinstance(route.owner, ManagedOwner) and route.owner.endpoint is endpoint else None


def _in_pandas(rows: pa.Table, pandas: Any) -> Any:
    """No long becomes a float, which does not hold all of them."""
    frame = rows.to_pandas()
    for field in rows.schema:
        if field.type == pa.int64() and rows[field.name].null_count:
            frame[field.name] = rows[field.name].to_pandas(types_mapper={pa.int64(): pandas.Int64Dtype()}.get)
        elif pa.types.is_nested(field.type):
            frame[field.name] = rows[field.name].to_pandas(integer_object_nulls=True)
    return frame


def _can_be_read_again(data: Any) -> bool:
    return is_spark(data) or isinstance(data, pa.Table | pa.RecordBatch) or hasattr(data, "scanner")


def _schema(schema: Any) -> StructType:
    if isinstance(schema, StructType):
        return schema
    if isinstance(schema, pa.Schema):
        return from_arrow(schema)
    if is_spark(schema):
        from lakeseal.spark.schema import from_spark  # pyspark is an extra

        return from_spark(schema)
    raise InvalidArgument(f"A {type(schema).__name__} is not a schema", hint="Give a pyarrow or a Spark schema")


def _inventory(rows: Any) -> pa.Table | None:
    if rows is None:
        return None
    return rows.toArrow() if is_spark(rows) else arrow_reader(rows).read_all()


def _column_of(data_type: Any) -> StructField:
    """A column of a type of pyarrow, of Spark, or as SQL has it."""
    if isinstance(data_type, StructField):
        return data_type
    if isinstance(data_type, DataType):
        return StructField("it", data_type)
    if isinstance(data_type, pa.DataType):
        return StructField("it", from_arrow_type(data_type))
    text = data_type.simpleString() if is_spark(data_type) else data_type
    if not isinstance(text, str):
        raise InvalidArgument(f"A {type(data_type).__name__} is not a type", hint="Give one of pyarrow, Spark or SQL")
    try:
        return parse_column_type("it", text)
    except (InvalidExpression, UnsupportedExpression) as error:
        raise InvalidArgument(f"{text[:200]!r} is not a type: {error.message}", hint=error.hint) from None


def _names(names: Sequence[str] | str | None) -> tuple[str, ...] | None:
    return (names,) if isinstance(names, str) else None if names is None else tuple(names)


def _scheme(uri: str) -> str:
    return uri.partition(":")[0]


__all__ = ["Table", "convert", "create", "is_delta_table"]
