"""What travels: UC Delta API v1 (names with hyphens), preview commits and the catalog's lists (names with underscores).

Texts and lists that somebody sends have bounds, which are looked at when they are decoded. Fields that nobody here
needs are let through.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

MAX_INT = 2**63 - 1
BASE = "/api/2.1/unity-catalog"

Version = Annotated[int, Meta(ge=0, le=MAX_INT)]
Milliseconds = Annotated[int, Meta(ge=0, le=MAX_INT)]
Text = Annotated[str, Meta(max_length=255)]
Uri = Annotated[str, Meta(max_length=4096)]


class StagedCommit(Struct, frozen=True, kw_only=True, rename="kebab"):
    """A commit by the name of its file."""

    version: Version
    timestamp: Milliseconds
    file_name: Text
    file_size: Version
    file_modification_timestamp: Milliseconds


class TableMetadata(Struct, frozen=True, kw_only=True, rename="kebab"):
    etag: str
    table_type: str
    table_uuid: str
    location: str
    created_time: int
    updated_time: int
    columns: dict[str, Any]
    partition_columns: tuple[str, ...]
    properties: dict[str, str]
    last_commit_version: int
    last_commit_timestamp_ms: int
    data_source_format: str = "DELTA"


class LoadedTable(Struct, frozen=True, kw_only=True, rename="kebab"):
    metadata: TableMetadata
    commits: tuple[StagedCommit, ...]
    """Newest first, contiguous, ending at the latest version."""
    latest_table_version: int


class Requirement(Struct, frozen=True, kw_only=True, rename="kebab"):
    type: Text
    uuid: Text | None = None
    etag: Text | None = None


class TableUpdate(Struct, frozen=True, kw_only=True, rename="kebab"):
    """One thing that is to change. Metadata is derived from the staged file: the log is the authority."""

    action: Text
    commit: StagedCommit | None = None
    latest_published_version: Version | None = None


class UpdateTable(Struct, frozen=True, kw_only=True, rename="kebab"):
    requirements: Annotated[tuple[Requirement, ...], Meta(max_length=10)] = ()
    updates: Annotated[tuple[TableUpdate, ...], Meta(max_length=20)] = ()


class ApiConfig(Struct, frozen=True, kw_only=True, rename="kebab"):
    endpoints: tuple[str, ...]
    protocol_version: str = "1.0"


class Credential(Struct, frozen=True, kw_only=True, rename="kebab"):
    prefix: str
    operation: str
    expiration_time_ms: int | None
    config: dict[str, str]


class StorageCredentials(Struct, frozen=True, kw_only=True, rename="kebab"):
    storage_credentials: tuple[Credential, ...]


class StagingRequest(Struct, frozen=True, kw_only=True, rename="kebab"):
    name: Text


class FeatureLists(Struct, frozen=True, kw_only=True, rename="kebab"):
    reader_features: tuple[str, ...] = ()
    writer_features: tuple[str, ...] = ()


class NeededProtocol(FeatureLists, frozen=True, kw_only=True, rename="kebab"):
    min_reader_version: int
    min_writer_version: int


class StagingTable(Struct, frozen=True, kw_only=True, rename="kebab"):
    """Where a table is to be made, and what its version 0 has to say."""

    table_id: str
    table_type: str
    location: str
    storage_credentials: tuple[Credential, ...]
    required_protocol: NeededProtocol
    suggested_protocol: FeatureLists = FeatureLists()
    required_properties: dict[str, str]
    suggested_properties: dict[str, str] = {}


class TableCreation(Struct, frozen=True, kw_only=True, rename="kebab"):
    """Columns, protocol and properties are let through: version 0, which is at the location, is the authority."""

    name: Text
    location: Uri
    table_type: Text = "MANAGED"


class NewName(Struct, frozen=True, kw_only=True, rename="kebab"):
    new_name: Text


class NewSchema(Struct, frozen=True, kw_only=True):
    name: Text
    catalog_name: Text


class SchemaInfo(Struct, frozen=True, kw_only=True):
    name: str
    catalog_name: str
    full_name: str
    schema_id: str
    created_at: int
    properties: dict[str, str] = {}


class SchemaList(Struct, frozen=True, kw_only=True):
    schemas: tuple[SchemaInfo, ...]
    next_page_token: str | None = None


class ColumnInfo(Struct, frozen=True, kw_only=True):
    name: str
    type_text: str
    type_json: str
    type_name: str
    position: int
    nullable: bool
    partition_index: int | None = None


class TableInfo(Struct, frozen=True, kw_only=True):
    name: str
    catalog_name: str
    schema_name: str
    table_type: str
    storage_location: str
    table_id: str
    columns: tuple[ColumnInfo, ...]
    properties: dict[str, str]
    created_at: int
    updated_at: int
    data_source_format: str = "DELTA"


class TableInfoList(Struct, frozen=True, kw_only=True):
    tables: tuple[TableInfo, ...]
    next_page_token: str | None = None


class CatalogInfo(Struct, frozen=True, kw_only=True):
    name: str
    id: str
    properties: dict[str, str] = {}


class CatalogList(Struct, frozen=True, kw_only=True):
    catalogs: tuple[CatalogInfo, ...]
    next_page_token: str | None = None


class Metastore(Struct, frozen=True, kw_only=True):
    metastore_id: str


class PreviewCommit(Struct, frozen=True, kw_only=True):
    version: Version
    timestamp: Milliseconds
    file_name: Text
    file_size: Version
    file_modification_timestamp: Milliseconds


class AskForCommits(Struct, frozen=True, kw_only=True):
    table_id: Text
    table_uri: Uri
    start_version: Version = 0
    end_version: Version | None = None


class SendCommit(Struct, frozen=True, kw_only=True):
    """`metadata` is let through: the log is the authority."""

    table_id: Text
    table_uri: Uri
    commit_info: PreviewCommit | None = None
    latest_backfilled_version: Version | None = None


class PreviewCommits(Struct, frozen=True, kw_only=True):
    commits: tuple[PreviewCommit, ...]
    latest_table_version: int


class Nothing(Struct, frozen=True, kw_only=True):
    """An empty object."""


class Refusal(Struct, frozen=True, kw_only=True):
    message: str
    type: str
    """One of those that the protocol lists, which clients go by."""
    code: int
    """The status."""


class RefusedReply(Struct, frozen=True, kw_only=True):
    error: Refusal
