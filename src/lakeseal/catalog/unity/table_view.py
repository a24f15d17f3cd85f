"""`TableView`: what a catalog tells of a table beside its commits, and `TableViews`, which keeps them.

A view holds until the table's metadata or protocol changes, however many commits come; so does its etag. An owner knows
which version did that last, so a view that is kept costs no look at the table's files. Of a table that the owner does
not have, the log is looked at each time.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict

from msgspec import Struct

from lakeseal.catalog.names import NamedTable
from lakeseal.catalog.unity.columns import column_infos, with_hyphens
from lakeseal.catalog.unity.messages import ColumnInfo, TableMetadata
from lakeseal.errors import TableNotFound
from lakeseal.log.delta_log import DeltaLog
from lakeseal.log.snapshot import Snapshot
from lakeseal.owner.ledger_owner import LedgerOwner
from lakeseal.owner.messages import TableCommits
from lakeseal.protocol.features import reader_features, writer_features
from lakeseal.protocol.schema import StructType

_MOST_KEPT = 20_000
MANAGED = "MANAGED"
EXTERNAL = "EXTERNAL"


class TableView(Struct, frozen=True, kw_only=True):
    etag: str
    table_type: str
    """`MANAGED` where commits go through the catalog, `EXTERNAL` where they do not."""
    table_uuid: str
    schema: StructType
    partition_columns: tuple[str, ...]
    properties: dict[str, str]
    created_ms: int
    version: int
    """At which it was looked at."""
    timestamp_ms: int

    @classmethod
    def of(cls, named: NamedTable, snapshot: Snapshot, told: TableCommits) -> TableView:
        is_ours = told.kind.speaks_to_all and told.is_owned
        metadata, protocol = snapshot.metadata, snapshot.protocol
        known = {key: text for key, text in metadata.configuration.items() if text is not None}
        features = reader_features(protocol) | writer_features(protocol)
        properties = {
            **known,
            "delta.minReaderVersion": str(protocol.min_reader_version),
            "delta.minWriterVersion": str(protocol.min_writer_version),
            **{f"delta.feature.{name}": "supported" for name in sorted(features)},
        }
        table_id = snapshot.properties.catalog_table_id if is_ours else None
        changed = told.metadata_version if is_ours else snapshot.version
        mark = f"{table_id or named.table_id}:{told.epoch}:{changed}".encode()
        return cls(
            etag=hashlib.sha256(mark).hexdigest()[:32],
            table_type=MANAGED if is_ours else EXTERNAL,
            table_uuid=table_id or named.table_id,
            schema=snapshot.schema,
            partition_columns=snapshot.partition_columns,
            properties=properties,
            created_ms=metadata.created_time or named.created_ms,
            version=snapshot.version,
            timestamp_ms=snapshot.in_commit_timestamp or 0,
        )

    def metadata(self, named: NamedTable, *, version: int, timestamp_ms: int) -> TableMetadata:
        return TableMetadata(
            etag=self.etag,
            table_type=self.table_type,
            table_uuid=self.table_uuid,
            location=named.uri,
            created_time=self.created_ms,
            updated_time=max(self.created_ms, timestamp_ms),
            columns=with_hyphens(self.schema),
            partition_columns=self.partition_columns,
            properties=self.properties,
            last_commit_version=version,
            last_commit_timestamp_ms=timestamp_ms,
        )

    @property
    def columns(self) -> tuple[ColumnInfo, ...]:
        return column_infos(self.schema, self.partition_columns)


class TableViews:
    """For any thread."""

    def __init__(self, owner: LedgerOwner) -> None:
        self._owner = owner
        self._kept: OrderedDict[tuple[str, str, int, int], TableView] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, named: NamedTable, told: TableCommits) -> TableView:
        """As of `told`."""
        if not (told.kind.speaks_to_all and told.is_owned):
            return self._of_log(named, told)
        key = (named.uri, named.table_id, told.epoch, told.metadata_version)
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                return found
        # Nothing but metadata is taken from it, which is that of this version at any later one.
        view = TableView.of(named, self._owner.snapshot_at(told.table, told.latest), told)
        with self._lock:
            self._kept[key] = view
            while len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        return view

    def _of_log(self, named: NamedTable, told: TableCommits) -> TableView:
        snapshot = DeltaLog(self._owner.store(named.uri)).update()
        if snapshot is None:
            raise TableNotFound(f"The table {named.name} is not at its place", table=named.uri)
        return TableView.of(named, snapshot, told)
