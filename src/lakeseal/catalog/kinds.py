"""What kind of table a log says that it is: who decides on its commits."""

from __future__ import annotations

from lakeseal.catalog.names import CommitKind
from lakeseal.owner import enablement
from lakeseal.protocol.actions import Metadata, Protocol
from lakeseal.protocol.features import has_catalog

CATALOG_MANAGED = "catalogManaged"
TABLE_ID = "io.unitycatalog.tableId"


def kind_of(protocol: Protocol, metadata: Metadata) -> CommitKind:
    if CATALOG_MANAGED in (protocol.writer_features or ()):
        return CommitKind.CATALOG
    return CommitKind.MANAGED if enablement.is_managed(protocol, metadata) else CommitKind.FILESYSTEM


def table_id_of(protocol: Protocol, metadata: Metadata) -> str | None:
    """The UUID that a catalog gave the table, which it has to keep: other engines know it by that."""
    return metadata.configuration.get(TABLE_ID) if has_catalog(protocol) else None
