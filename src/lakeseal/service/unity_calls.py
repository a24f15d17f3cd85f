"""What engines ask a catalog for: UC Delta API v1, and the lists of schemas and tables."""

from __future__ import annotations

import re
from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from msgspec import Meta, structs

from lakeseal.catalog.names import NamedSchema, NamedTable
from lakeseal.catalog.table_name import SchemaName, TableName
from lakeseal.catalog.unity.messages import (
    ApiConfig,
    AskForCommits,
    CatalogInfo,
    CatalogList,
    Credentials,
    LoadedTable,
    Metastore,
    NeededProtocol,
    NewSchema,
    NewTable,
    Nothing,
    PreviewCommit,
    PreviewCommits,
    SchemaInfo,
    SchemaList,
    SendCommit,
    StagedCommit,
    StageTable,
    StagingTable,
    TableInfo,
    TableInfoList,
    UpdateTable,
)
from lakeseal.catalog.unity.table_view import MANAGED
from lakeseal.errors import InvalidArgument, NotAllowed, SchemaNotFound, TableNotFound
from lakeseal.service.access import Caller, Role
from lakeseal.service.call import calls_of
from lakeseal.service.credentials import READ_WRITE
from lakeseal.service.unity_call import OfTable, Part, UnityCall

if TYPE_CHECKING:
    from lakeseal.service.service import Service

_SCHEMA = "/delta/v1/catalogs/{catalog}/schemas/{schema}"
_TABLE = _SCHEMA + "/tables/{table}"
_MOST = 100
PageSize = Annotated[int, Meta(ge=0, le=1000)]
Token = Annotated[str, Meta(max_length=255)]


class _OfDeltaTable(OfTable[Any], frozen=True, kw_only=True):
    catalog: Part
    schema: Part
    table: Part

    def named(self) -> TableName:
        return TableName(catalog=self.catalog, schema=self.schema, table=self.table)


class LoadTable(_OfDeltaTable, OfTable[LoadedTable], frozen=True, kw_only=True):
    """A table at one moment: its metadata, latest version, and commits that are not published."""

    route: ClassVar[str] = _TABLE

    def perform(self, service: Service, caller: Caller) -> LoadedTable:
        return service.unity.load(self.found(service, caller))


class CommitTable(_OfDeltaTable, OfTable[LoadedTable], frozen=True, kw_only=True):
    """Make a staged file the next version of a table."""

    method: ClassVar[str] = "POST"
    route: ClassVar[str] = _TABLE
    role: ClassVar[Role] = Role.WRITER
    decides: ClassVar[bool] = True
    body: UpdateTable

    def perform(self, service: Service, caller: Caller) -> LoadedTable:
        return service.unity.update(self.found(service, caller), self.body, principal=caller.principal)


class TableIsThere(_OfDeltaTable, OfTable[None], frozen=True, kw_only=True):
    """Whether there is a table of this name."""

    method: ClassVar[str] = "HEAD"
    route: ClassVar[str] = _TABLE
    status: ClassVar[int] = 204

    def perform(self, service: Service, caller: Caller) -> None:
        self.found(service, caller)


class TableCredentials(_OfDeltaTable, OfTable[Credentials], frozen=True, kw_only=True):
    """What the table's files are reached with."""

    route: ClassVar[str] = _TABLE + "/credentials"
    operation: Annotated[str, Meta(max_length=20)] = "READ"

    def perform(self, service: Service, caller: Caller) -> Credentials:
        found = self.found(service, caller)
        if self.operation != "READ":
            caller.check(Role.WRITER, (found.uri,))
        return Credentials(storage_credentials=service.credentials.of(found.uri, self.operation, caller))


class ReportMetrics(_OfDeltaTable, OfTable[None], frozen=True, kw_only=True):
    """Take note of nothing: numbers of clients are not kept."""

    method: ClassVar[str] = "POST"
    route: ClassVar[str] = _TABLE + "/metrics"
    status: ClassVar[int] = 204

    def perform(self, service: Service, caller: Caller) -> None:
        self.found(service, caller)


class CreateStagingTable(UnityCall[StagingTable], frozen=True, kw_only=True):
    """Give a table that is about to be made its place, below the first root of the service."""

    method: ClassVar[str] = "POST"
    route: ClassVar[str] = _SCHEMA + "/staging-tables"
    role: ClassVar[Role] = Role.WRITER
    decides: ClassVar[bool] = True
    catalog: Part
    schema: Part
    body: StageTable

    def check(self, service: Service, caller: Caller) -> None:
        """Done with the place."""

    def perform(self, service: Service, caller: Caller) -> StagingTable:
        name = TableName(catalog=self.catalog, schema=self.schema, table=self.body.name)
        table_id, place = service.creation.place()
        _check_place(service, caller, self.role, place)
        staged = service.creation.stage(name, table_id)
        protocol, properties = service.creation.required(table_id)
        return StagingTable(
            table_id=table_id,
            table_type=MANAGED,
            location=staged.uri,
            storage_credentials=service.credentials.of(staged.uri, READ_WRITE, caller),
            required_protocol=NeededProtocol(
                min_reader_version=protocol.min_reader_version,
                min_writer_version=protocol.min_writer_version,
                reader_features=protocol.reader_features or (),
                writer_features=protocol.writer_features or (),
            ),
            required_properties=properties,
        )


class CreateTable(UnityCall[LoadedTable], frozen=True, kw_only=True):
    """Make a table of the catalog of one that was staged, and whose version 0 is there."""

    method: ClassVar[str] = "POST"
    route: ClassVar[str] = _SCHEMA + "/tables"
    role: ClassVar[Role] = Role.WRITER
    decides: ClassVar[bool] = True
    catalog: Part
    schema: Part
    body: NewTable

    @property
    def about_table(self) -> str | None:
        return f"{self.catalog}.{self.schema}.{self.body.name}"

    def check(self, service: Service, caller: Caller) -> None:
        _check_place(service, caller, self.role, _place(self.body.location))

    def perform(self, service: Service, caller: Caller) -> LoadedTable:
        if self.body.table_type != MANAGED:
            raise InvalidArgument(
                f"A table of the type {self.body.table_type} is not made here",
                hint="Give one that is there its name: lakeseal catalog register",
            )
        name = TableName(catalog=self.catalog, schema=self.schema, table=self.body.name)
        made = service.creation.create(name, _place(self.body.location), principal=caller.principal)
        return service.unity.load(made)


class _Question(UnityCall[Any], frozen=True, kw_only=True):
    """About no table: everybody who is known may ask, and is told of what they may read."""

    def check(self, service: Service, caller: Caller) -> None:
        pass


class DeltaConfig(_Question, UnityCall[ApiConfig], frozen=True, kw_only=True):
    """Which part of the protocol is spoken here."""

    route: ClassVar[str] = "/delta/v1/config"

    def perform(self, service: Service, caller: Caller) -> ApiConfig:
        return ApiConfig(endpoints=tuple(f"{call.method} {call.route}" for call in UNITY_CALLS))


class MetastoreSummary(_Question, UnityCall[Metastore], frozen=True, kw_only=True):
    """The identity of the ledger."""

    route: ClassVar[str] = "/metastore_summary"

    def perform(self, service: Service, caller: Caller) -> Metastore:
        return Metastore(metastore_id=service.identity or "")


class UnityListCatalogs(_Question, UnityCall[CatalogList], frozen=True, kw_only=True):
    """The catalogs that have a schema."""

    route: ClassVar[str] = "/catalogs"

    def perform(self, service: Service, caller: Caller) -> CatalogList:
        return CatalogList(catalogs=tuple(CatalogInfo(name=name, id=name) for name in service.names.catalogs()))


class GetCatalog(_Question, UnityCall[CatalogInfo], frozen=True, kw_only=True):
    """A catalog."""

    route: ClassVar[str] = "/catalogs/{catalog}"
    catalog: Part

    def perform(self, service: Service, caller: Caller) -> CatalogInfo:
        if self.catalog.lower() not in (name.lower() for name in service.names.catalogs()):
            raise SchemaNotFound(f"There is no catalog {self.catalog}")
        return CatalogInfo(name=self.catalog, id=self.catalog)


class UnityListSchemas(_Question, UnityCall[SchemaList], frozen=True, kw_only=True):
    """The schemas of a catalog."""

    route: ClassVar[str] = "/schemas"
    catalog_name: Part
    max_results: PageSize = 0
    page_token: Token = ""

    def perform(self, service: Service, caller: Caller) -> SchemaList:
        page = service.names.schemas(self.catalog_name, token=self.page_token or None, limit=self.max_results or _MOST)
        return SchemaList(schemas=tuple(map(_schema, page.schemas)), next_page_token=page.next_token)


class UnityCreateSchema(UnityCall[SchemaInfo], frozen=True, kw_only=True):
    """Make a schema. It belongs to no place: whoever writes anywhere may."""

    method: ClassVar[str] = "POST"
    route: ClassVar[str] = "/schemas"
    role: ClassVar[Role] = Role.WRITER
    decides: ClassVar[bool] = True
    body: NewSchema

    def check(self, service: Service, caller: Caller) -> None:
        if not any(grant.role.includes(self.role) for grant in caller.grants):
            raise NotAllowed(f"{caller.principal or 'This caller'} needs the role {self.role}")

    def perform(self, service: Service, caller: Caller) -> SchemaInfo:
        name = SchemaName(catalog=self.body.catalog_name, schema=self.body.name)
        return _schema(service.names.create_schema(name))


class UnityGetSchema(_Question, UnityCall[SchemaInfo], frozen=True, kw_only=True):
    """A schema."""

    route: ClassVar[str] = "/schemas/{full_name}"
    full_name: Annotated[str, Meta(max_length=600)]

    def perform(self, service: Service, caller: Caller) -> SchemaInfo:
        catalog, _, schema = self.full_name.partition(".")
        return _schema(service.names.schema(SchemaName(catalog=catalog, schema=schema)))


class ListTables(_Question, UnityCall[TableInfoList], frozen=True, kw_only=True):
    """The tables of a schema that the caller may read."""

    route: ClassVar[str] = "/tables"
    catalog_name: Part
    schema_name: Part
    max_results: PageSize = 0
    page_token: Token = ""

    def perform(self, service: Service, caller: Caller) -> TableInfoList:
        name = SchemaName(catalog=self.catalog_name, schema=self.schema_name)
        page = service.names.tables(name, token=self.page_token or None, limit=self.max_results or _MOST)
        seen = [one for one in page.tables if caller.may(Role.READER, one.uri)]
        return TableInfoList(tables=tuple(service.unity.info(one) for one in seen), next_page_token=page.next_token)


class _OfFullName(OfTable[Any], frozen=True, kw_only=True):
    full_name: Annotated[str, Meta(max_length=800)]

    def named(self) -> TableName:
        parts = self.full_name.split(".")
        if len(parts) != 3:
            raise InvalidArgument("This is no name of a table", hint="Write catalog.schema.table")
        return TableName(catalog=parts[0], schema=parts[1], table=parts[2])


class GetTable(_OfFullName, OfTable[TableInfo], frozen=True, kw_only=True):
    """A table, as lists show it."""

    route: ClassVar[str] = "/tables/{full_name}"

    def perform(self, service: Service, caller: Caller) -> TableInfo:
        return service.unity.info(self.found(service, caller))


class DropTable(_OfFullName, OfTable[Nothing], frozen=True, kw_only=True):
    """Forget a table's name; its files stay."""

    method: ClassVar[str] = "DELETE"
    route: ClassVar[str] = "/tables/{full_name}"
    role: ClassVar[Role] = Role.ADMIN
    decides: ClassVar[bool] = True

    def perform(self, service: Service, caller: Caller) -> Nothing:
        found = self.found(service, caller)
        service.names.drop(found.name, table_id=found.table_id)
        return Nothing()


class _OfTableId(UnityCall[Any], frozen=True, kw_only=True):
    """By the UUID and the place of a table: clients of the preview know no names."""

    def check(self, service: Service, caller: Caller) -> None:
        self.found(service, caller)

    @abstractmethod
    def asked(self) -> tuple[str, str]:
        """The table's UUID, and its place as the client writes it."""

    def found(self, service: Service, caller: Caller) -> NamedTable:
        table_id, uri = self.asked()
        found = service.names.by_id(table_id.lower())
        if found.uri != _place(uri) or not caller.may(Role.READER, found.uri):
            raise TableNotFound(f"There is no table {table_id} at this place")
        caller.check(self.role, (found.uri,))
        service.places.check_name(found.uri)
        service.places.check(found.uri)
        return found


class GetPreviewCommits(_OfTableId, UnityCall[PreviewCommits], frozen=True, kw_only=True):
    """A table's commits that are not published, for clients of the preview."""

    route: ClassVar[str] = "/delta/preview/commits"
    body: AskForCommits

    def asked(self) -> tuple[str, str]:
        return self.body.table_id, self.body.table_uri

    def perform(self, service: Service, caller: Caller) -> PreviewCommits:
        loaded = service.unity.load(self.found(service, caller))
        end = loaded.latest_table_version if self.body.end_version is None else self.body.end_version
        told = [one for one in reversed(loaded.commits) if self.body.start_version <= one.version <= end]
        commits = tuple(PreviewCommit(**structs.asdict(one)) for one in told)
        return PreviewCommits(commits=commits, latest_table_version=loaded.latest_table_version)


class PostPreviewCommit(_OfTableId, UnityCall[Nothing], frozen=True, kw_only=True):
    """Make a staged file the next version of a table, for clients of the preview."""

    method: ClassVar[str] = "POST"
    route: ClassVar[str] = "/delta/preview/commits"
    role: ClassVar[Role] = Role.WRITER
    decides: ClassVar[bool] = True
    body: SendCommit

    def asked(self) -> tuple[str, str]:
        return self.body.table_id, self.body.table_uri

    def perform(self, service: Service, caller: Caller) -> Nothing:
        found = self.found(service, caller)
        if self.body.commit_info is not None:
            staged = StagedCommit(**structs.asdict(self.body.commit_info))
            service.unity.commit(found, staged, principal=caller.principal)
        if self.body.latest_backfilled_version is not None:
            service.unity.published(found, self.body.latest_backfilled_version)
        return Nothing()


def _place(uri: str) -> str:
    """As tables are known; Hadoop writes file:/x."""
    return (f"file://{uri.removeprefix('file:')}" if re.match("file:/[^/]", uri) else uri).rstrip("/")


def _check_place(service: Service, caller: Caller, role: Role, uri: str) -> None:
    service.places.check_name(uri)
    caller.check(role, (uri,))
    service.places.check(uri)


def _schema(found: NamedSchema) -> SchemaInfo:
    name = found.name
    return SchemaInfo(
        name=name.schema,
        catalog_name=name.catalog,
        full_name=f"{name.catalog}.{name.schema}",
        schema_id=found.schema_id,
        created_at=found.created_ms,
    )


UNITY_CALLS: tuple[type[UnityCall[Any]], ...] = calls_of(__name__)  # type: ignore[assignment]
