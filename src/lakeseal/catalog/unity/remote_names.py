"""`RemoteNames`: the names in a catalog of others, and its tables, as `catalog.endpoint` has them.

As far as the protocol goes: tables and schemas are listed and looked up, tables of the kind `catalog` are made where
the catalog says, and names are dropped. Nothing is renamed, and what was left half made is not told. A table that is
the catalog's (`catalogManaged`) is of the kind `catalog`; of every other one its own log says who commits.

`credentials` are what the catalog lends for a table's files. They are asked for where a table is opened, and hold for
as long as the catalog says; whoever keeps a table open for longer opens it again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from lakeseal.catalog.names import (
    MOST_OF_A_PAGE,
    CommitKind,
    NamedSchema,
    NamedTable,
    SchemaPage,
    StagedTable,
    TablePage,
)
from lakeseal.catalog.table_name import SchemaName, TableName, fold
from lakeseal.catalog.unity.answers import (
    CATALOG_MANAGED,
    DELTA,
    Anything,
    TheirCatalogs,
    TheirCredential,
    TheirCredentials,
    TheirSchema,
    TheirSchemas,
    TheirStagingTable,
    TheirTable,
    TheirTableInfo,
    TheirTables,
)
from lakeseal.catalog.unity.columns import with_hyphens
from lakeseal.catalog.unity.metadata_updates import properties_of, protocol_json
from lakeseal.catalog.unity.remote import Remote, full_name, schema_path, table_path
from lakeseal.catalog.unity.remote_owner import NewRemoteTable, RemoteOwner
from lakeseal.clock import now_ms
from lakeseal.commit.owner import CommitOwner
from lakeseal.errors import (
    AlreadyExists,
    InvalidArgument,
    NotAllowed,
    TableNotFound,
    UnknownOutcome,
    UnsupportedFeature,
)
from lakeseal.log.delta_log import DeltaLog
from lakeseal.storage import Store, open_store
from lakeseal.storage.location import parse as parse_location

READ = "READ"
READ_WRITE = "READ_WRITE"
_MOST_STAGED = 1000
_OPTIONS = {
    "s3.access-key-id": "aws_access_key_id",
    "s3.secret-access-key": "aws_secret_access_key",
    "s3.session-token": "aws_session_token",
    "s3.endpoint": "aws_endpoint_url",
    "s3.region": "aws_region",
    "client.region": "aws_region",
    "azure.sas-token": "azure_storage_sas_token",
    "gcs.oauth-token": "google_bearer_token",
}
"""From the protocol's words to those of a store."""


class RemoteNames:
    """A `Names`, and a `DecidesByTable`."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self._staged: OrderedDict[str, TheirStagingTable] = OrderedDict()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"RemoteNames({self._remote!r})"

    def catalogs(self) -> list[str]:
        found: list[str] = []
        token = None
        while True:
            page = self._remote.ask("/catalogs", TheirCatalogs, page_token=token)
            found += [one.name for one in page.catalogs or ()]
            token = page.next_page_token
            if not token:
                return sorted(found, key=fold)

    def resolve(self, name: TableName) -> NamedTable:
        found = self._remote.ask(table_path(name), TheirTable).metadata
        return NamedTable(
            name=name,
            uri=_place(found.location),
            table_id=found.table_uuid.lower(),
            kind=_kind(found.properties),
            created_ms=found.created_time or 0,
            updated_ms=found.updated_time or found.created_time or 0,
        )

    def schemas(self, catalog: str, *, token: str | None = None, limit: int = MOST_OF_A_PAGE) -> SchemaPage:
        page = self._remote.ask("/schemas", TheirSchemas, catalog_name=catalog, page_token=token, max_results=limit)
        found = tuple(one for each in page.schemas or () if (one := _schema(each)) is not None)
        return SchemaPage(schemas=found, next_token=page.next_page_token or None)

    def tables(self, schema: SchemaName, *, token: str | None = None, limit: int = MOST_OF_A_PAGE) -> TablePage:
        asked = {"catalog_name": schema.catalog, "schema_name": schema.schema, "page_token": token}
        page = self._remote.ask("/tables", TheirTables, **asked, max_results=limit)
        found = tuple(one for each in page.tables or () if (one := _table(each)) is not None)
        return TablePage(tables=found, next_token=page.next_page_token or None)

    def create_schema(self, name: SchemaName) -> NamedSchema:
        body = {"name": name.schema, "catalog_name": name.catalog}
        made = _schema(self._remote.change("POST", "/schemas", TheirSchema, body))
        assert made is not None, "it has the name that was asked for"
        return made

    def stage(self, name: TableName, uri: str | None, kind: CommitKind) -> StagedTable:
        if kind is not CommitKind.CATALOG:
            raise UnsupportedFeature(
                f"This catalog makes no tables of the kind {kind.value}", hint="Use kind='catalog'"
            )
        if uri is not None:
            raise UnsupportedFeature("This catalog says itself where its tables are", hint="Leave the location out")
        path = f"{schema_path(name.in_schema)}/staging-tables"
        made = self._remote.change("POST", path, TheirStagingTable, {"name": name.table})
        with self._lock:
            self._staged[made.table_id.lower()] = made
            while len(self._staged) > _MOST_STAGED:
                self._staged.popitem(last=False)
        return StagedTable(
            name=name, uri=_place(made.location), table_id=made.table_id.lower(), kind=kind, created_ms=now_ms()
        )

    def register(
        self, name: TableName, uri: str, kind: CommitKind, *, table_id: str | None = None, make_schema: bool = True
    ) -> NamedTable:
        """Of a table that was staged here."""
        staging = self._staged.get(table_id or "")
        if staging is None or kind is not CommitKind.CATALOG:
            raise UnsupportedFeature(
                "A table that is there gets no name here", hint="Use the catalog's own way of registering tables"
            )
        options = _options(uri, staging.storage_credentials or ())
        snapshot = DeltaLog(open_store(uri, options)).snapshot(0)
        body = {
            "name": name.table,
            "location": staging.location,
            "table-type": "MANAGED",
            "columns": with_hyphens(snapshot.schema),
            "partition-columns": list(snapshot.partition_columns),
            "protocol": protocol_json(snapshot.protocol),
            "properties": properties_of(snapshot.metadata),
            "last-commit-timestamp-ms": snapshot.in_commit_timestamp or now_ms(),
            **({} if snapshot.metadata.description is None else {"comment": snapshot.metadata.description}),
        }
        try:
            self._remote.change("POST", f"{schema_path(name.in_schema)}/tables", TheirTable, body)
        except (UnknownOutcome, AlreadyExists) as error:
            # The answer may have been lost, to this request or to one before it.
            if not self._is(name, staging.table_id):
                raise error from None
        with self._lock:
            self._staged.pop(staging.table_id.lower(), None)
        return self.resolve(name)

    def drop(self, name: TableName, *, table_id: str | None = None) -> bool:
        """The protocol drops by name, so that the UUID is looked at before."""
        try:
            found = self.resolve(name)
        except TableNotFound:
            return False
        if table_id not in (None, found.table_id):
            return False
        try:
            self._remote.change("DELETE", f"/tables/{full_name(name)}", Anything)
        except TableNotFound:
            return False
        except UnknownOutcome:
            if self._is(name, found.table_id):
                raise
        return True

    def committer(self, table: NamedTable, store: Store) -> CommitOwner:
        staging = self._staged.get(table.table_id)
        if staging is not None:
            return NewRemoteTable(self._remote, table, store, staging)
        return RemoteOwner(self._remote, table, store)

    def credentials(self, table: NamedTable) -> Mapping[str, str]:
        """Storage options: those to write with, or else those to read with; none where the machine's own are meant."""
        if parse_location(table.uri).kind == "file":
            return {}
        staging = self._staged.get(table.table_id)
        if staging is not None:
            return _options(table.uri, staging.storage_credentials or ())
        path = f"{table_path(table.name)}/credentials"
        try:
            found = self._remote.ask(path, TheirCredentials, operation=READ_WRITE)
        except NotAllowed:
            found = self._remote.ask(path, TheirCredentials, operation=READ)
        return _options(table.uri, found.storage_credentials or ())

    def _is(self, name: TableName, table_id: str) -> bool:
        try:
            return self.resolve(name).table_id == table_id.lower()
        except TableNotFound:
            return False


def _kind(properties: Mapping[str, str | None] | None) -> CommitKind:
    return CommitKind.CATALOG if (properties or {}).get(CATALOG_MANAGED) == "supported" else CommitKind.FILESYSTEM


def _place(location: str) -> str:
    return parse_location(location).uri


def _schema(told: TheirSchema) -> NamedSchema | None:
    """None for one whose name no table's name could have here."""
    try:
        name = SchemaName(catalog=told.catalog_name, schema=told.name)
    except InvalidArgument:
        return None
    return NamedSchema(name=name, schema_id=told.schema_id or "", created_ms=told.created_at or 0)


def _table(told: TheirTableInfo) -> NamedTable | None:
    """None for what is no Delta table."""
    if told.data_source_format not in (None, DELTA) or not told.storage_location or not told.table_id:
        return None
    try:
        name = TableName(catalog=told.catalog_name, schema=told.schema_name, table=told.name)
    except InvalidArgument:
        return None
    return NamedTable(
        name=name,
        uri=_place(told.storage_location),
        table_id=told.table_id.lower(),
        kind=_kind(told.properties),
        created_ms=told.created_at or 0,
        updated_ms=told.updated_at or told.created_at or 0,
    )


def _options(uri: str, credentials: Iterable[TheirCredential]) -> dict[str, str]:
    """Of the one with the longest prefix that the table is below."""
    fitting = [one for one in credentials if _is_below(uri, one.prefix)]
    if not fitting or parse_location(uri).kind == "file":
        return {}
    best = max(fitting, key=lambda one: len(one.prefix))
    found = {_OPTIONS[key]: text for key, text in best.config.items() if key in _OPTIONS and text}
    if urlsplit(found.get("aws_endpoint_url", "")).hostname in ("localhost", "127.0.0.1", "::1"):
        found["allow_http"] = "true"
    return found


def _is_below(uri: str, prefix: str) -> bool:
    top = _place(prefix)
    return uri == top or uri.startswith(top.rstrip("/") + "/")
