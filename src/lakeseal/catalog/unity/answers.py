"""What catalogs of others answer: as much of it as is needed here, and as little as they promise.

Fields that a catalog may leave out, or send as null, are optional. What is not a value of its type, or is longer than
it may be, is no answer of such a catalog.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from lakeseal.catalog.unity.messages import MAX_INT, Milliseconds, StagedCommit, Text, Uri, Version

DELTA = "DELTA"
CATALOG_MANAGED = "delta.feature.catalogManaged"
# Of the map of properties: what a catalog derives from other parts of the log, and is never written back.
DERIVED_PROPERTIES = frozenset(
    {
        "delta.minReaderVersion",
        "delta.minWriterVersion",
        "delta.clusteringColumns",
        "delta.rowTracking.rowIdHighWaterMark",
        "delta.lastUpdateVersion",
        "delta.lastCommitTimestamp",
    }
)
FEATURE_PREFIX = "delta.feature."

Commits = Annotated[tuple[StagedCommit, ...], Meta(max_length=100_000)]


class TheirMetadata(Struct, frozen=True, kw_only=True, rename="kebab"):
    table_uuid: Text
    location: Uri
    table_type: Text = ""
    created_time: int | None = None
    updated_time: int | None = None
    properties: dict[str, str | None] | None = None
    partition_columns: tuple[str, ...] | None = None


class TheirTable(Struct, frozen=True, kw_only=True, rename="kebab"):
    """A table at one moment."""

    metadata: TheirMetadata
    commits: Commits | None = None
    latest_table_version: Annotated[int, Meta(ge=-1, le=MAX_INT)] | None = None


class TheirProtocol(Struct, frozen=True, kw_only=True, rename="kebab"):
    min_reader_version: Version = 0
    min_writer_version: Version = 0
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None


class TheirCredential(Struct, frozen=True, kw_only=True, rename="kebab"):
    prefix: Uri
    operation: Text | None = None
    expiration_time_ms: Milliseconds | None = None
    config: dict[str, str | None]

    def __repr__(self) -> str:
        return f"credential({self.prefix!r}, {self.operation})"


class TheirCredentials(Struct, frozen=True, kw_only=True, rename="kebab"):
    storage_credentials: tuple[TheirCredential, ...] | None = None


class TheirStagingTable(Struct, frozen=True, kw_only=True, rename="kebab"):
    table_id: Text
    location: Uri
    storage_credentials: tuple[TheirCredential, ...] | None = None
    required_protocol: TheirProtocol = TheirProtocol()
    required_properties: dict[str, str | None] | None = None


class TheirSchema(Struct, frozen=True, kw_only=True):
    name: Text
    catalog_name: Text
    schema_id: Text | None = None
    created_at: int | None = None


class TheirSchemas(Struct, frozen=True, kw_only=True):
    schemas: tuple[TheirSchema, ...] | None = None
    next_page_token: str | None = None


class TheirTableInfo(Struct, frozen=True, kw_only=True):
    name: Text
    catalog_name: Text
    schema_name: Text
    table_type: Text | None = None
    data_source_format: Text | None = None
    storage_location: Uri | None = None
    table_id: Text | None = None
    properties: dict[str, str | None] | None = None
    created_at: int | None = None
    updated_at: int | None = None


class TheirTables(Struct, frozen=True, kw_only=True):
    tables: tuple[TheirTableInfo, ...] | None = None
    next_page_token: str | None = None


class TheirCatalog(Struct, frozen=True, kw_only=True):
    name: Text


class TheirCatalogs(Struct, frozen=True, kw_only=True):
    catalogs: tuple[TheirCatalog, ...] | None = None
    next_page_token: str | None = None


class Anything(Struct, frozen=True, kw_only=True):
    """An answer of which nothing is needed."""


class TheirError(Struct, frozen=True, kw_only=True):
    message: str | None = None
    type: str | None = None


class TheirErrorReply(Struct, frozen=True, kw_only=True):
    """Of UC Delta API v1; other calls have `error_code` and `message`."""

    error: TheirError | None = None
    error_code: Any = None
    message: str | None = None
