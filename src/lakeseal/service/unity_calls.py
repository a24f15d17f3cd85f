"""What engines ask a catalog for about a table of theirs: UC Delta API v1, and preview commits."""

from __future__ import annotations

import re
from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from msgspec import Meta, structs

from lakeseal.catalog.names import NamedTable
from lakeseal.catalog.table_name import TableName
from lakeseal.catalog.unity.messages import (
    ApiConfig,
    AskForCommits,
    LoadedTable,
    NeededProtocol,
    NewName,
    Nothing,
    PreviewCommit,
    PreviewCommits,
    SendCommit,
    StagedCommit,
    StagingRequest,
    StagingTable,
    StorageCredentials,
    TableCreation,
    UpdateTable,
)
from lakeseal.catalog.unity.server import commit_of
from lakeseal.catalog.unity.table_view import MANAGED
from lakeseal.errors import InvalidArgument, TableNotFound
from lakeseal.service.access import Caller, Role
from lakeseal.service.call import calls_of
from lakeseal.service.credentials import READ_WRITE
from lakeseal.service.unity_call import OfTable, Part, Question, UnityCall
from lakeseal.service.unity_lists import LIST_CALLS

if TYPE_CHECKING:
    from lakeseal.service.service import Service

_SCHEMA = "/delta/v1/catalogs/{catalog}/schemas/{schema}"
_TABLE = _SCHEMA + "/tables/{table}"


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

    def committed(self, reply: LoadedTable) -> tuple[str, int] | None:
        staged = commit_of(self.body)
        return None if staged is None else (reply.metadata.location, staged.version)


class TableIsThere(_OfDeltaTable, OfTable[None], frozen=True, kw_only=True):
    """Whether there is a table of this name."""

    method: ClassVar[str] = "HEAD"
    route: ClassVar[str] = _TABLE
    status: ClassVar[int] = 204

    def perform(self, service: Service, caller: Caller) -> None:
        self.found(service, caller)


class TableCredentials(_OfDeltaTable, OfTable[StorageCredentials], frozen=True, kw_only=True):
    """What the table's files are reached with."""

    route: ClassVar[str] = _TABLE + "/credentials"
    operation: Annotated[str, Meta(max_length=20)] = "READ"

    def perform(self, service: Service, caller: Caller) -> StorageCredentials:
        found = self.found(service, caller)
        if self.operation != "READ":
            caller.check(Role.WRITER, (found.uri,))
        return StorageCredentials(storage_credentials=service.credentials.of(found.uri, self.operation, caller))


class DropDeltaTable(_OfDeltaTable, OfTable[None], frozen=True, kw_only=True):
    """Forget a table's name; its files stay."""

    method: ClassVar[str] = "DELETE"
    route: ClassVar[str] = _TABLE
    status: ClassVar[int] = 204
    role: ClassVar[Role] = Role.WRITER
    decides: ClassVar[bool] = True

    def perform(self, service: Service, caller: Caller) -> None:
        found = self.found(service, caller)
        service.names.drop(found.name, table_id=found.table_id)


class RenameDeltaTable(_OfDeltaTable, OfTable[None], frozen=True, kw_only=True):
    """Give a table another name in its schema."""

    method: ClassVar[str] = "POST"
    route: ClassVar[str] = _TABLE + "/rename"
    status: ClassVar[int] = 204
    role: ClassVar[Role] = Role.WRITER
    decides: ClassVar[bool] = True
    body: NewName

    def perform(self, service: Service, caller: Caller) -> None:
        found = self.found(service, caller)
        new_name = TableName(catalog=self.catalog, schema=self.schema, table=self.body.new_name)
        service.names.rename(found.name, new_name, table_id=found.table_id)


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
    body: StagingRequest

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


class StagingTableCredentials(UnityCall[StorageCredentials], frozen=True, kw_only=True):
    """What the files of a table that is about to be made are reached with."""

    route: ClassVar[str] = "/delta/v1/staging-tables/{table_id}/credentials"
    role: ClassVar[Role] = Role.WRITER
    table_id: Part

    def check(self, service: Service, caller: Caller) -> None:
        self._place(service, caller)

    def perform(self, service: Service, caller: Caller) -> StorageCredentials:
        place = self._place(service, caller)
        return StorageCredentials(storage_credentials=service.credentials.of(place, READ_WRITE, caller))

    def _place(self, service: Service, caller: Caller) -> str:
        staged = service.names.staged(self.table_id.lower())
        if not staged or not caller.may(self.role, staged[0].uri):
            raise TableNotFound(f"No table {self.table_id} is being made")
        _check_place(service, caller, self.role, staged[0].uri)
        return staged[0].uri


class PlaceCredentials(UnityCall[StorageCredentials], frozen=True, kw_only=True):
    """What files at a place are reached with, for a table that is to be there."""

    route: ClassVar[str] = "/delta/v1/temporary-path-credentials"
    location: Annotated[str, Meta(max_length=4096)]
    operation: Annotated[str, Meta(max_length=20)] = "READ"

    def check(self, service: Service, caller: Caller) -> None:
        role = Role.READER if self.operation == "READ" else Role.WRITER
        _check_place(service, caller, role, _place(self.location))

    def perform(self, service: Service, caller: Caller) -> StorageCredentials:
        found = service.credentials.of(_place(self.location), self.operation, caller)
        return StorageCredentials(storage_credentials=found)


class CreateTable(UnityCall[LoadedTable], frozen=True, kw_only=True):
    """Make a table of the catalog of one that was staged, and whose version 0 is there."""

    method: ClassVar[str] = "POST"
    route: ClassVar[str] = _SCHEMA + "/tables"
    role: ClassVar[Role] = Role.WRITER
    decides: ClassVar[bool] = True
    catalog: Part
    schema: Part
    body: TableCreation

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


class DeltaConfig(Question, UnityCall[ApiConfig], frozen=True, kw_only=True):
    """Which part of the protocol is spoken here."""

    route: ClassVar[str] = "/delta/v1/config"

    def perform(self, service: Service, caller: Caller) -> ApiConfig:
        return ApiConfig(endpoints=tuple(f"{call.method} {call.route}" for call in UNITY_CALLS))


class _OfTableId(UnityCall[Any], frozen=True, kw_only=True):
    """By the UUID and the place of a table: clients of the preview know no names."""

    def check(self, service: Service, caller: Caller) -> None:
        """Done when the table is found, which is once."""

    @abstractmethod
    def asked(self) -> tuple[str, str]:
        """The table's UUID, and its place as the client writes it."""

    def found(self, service: Service, caller: Caller) -> NamedTable:
        table_id, uri = self.asked()
        found = service.names.by_uri(_place(uri))
        if found is not None and caller.may(Role.READER, found.uri):
            caller.check(self.role, (found.uri,))
            service.places.check_name(found.uri)
            service.places.check(found.uri)
            if service.unity.is_called(found, table_id.lower()):
                return found
        raise TableNotFound(f"There is no table {table_id} at this place")


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

    def committed(self, reply: Nothing) -> tuple[str, int] | None:
        commit = self.body.commit_info
        return None if commit is None else (_place(self.body.table_uri), commit.version)


def _place(uri: str) -> str:
    """As tables are known; Hadoop writes file:/x."""
    return (f"file://{uri.removeprefix('file:')}" if re.match("file:/[^/]", uri) else uri).rstrip("/")


def _check_place(service: Service, caller: Caller, role: Role, uri: str) -> None:
    service.places.check_name(uri)
    caller.check(role, (uri,))
    service.places.check(uri)


UNITY_CALLS: tuple[type[UnityCall[Any]], ...] = (*calls_of(__name__), *LIST_CALLS)  # type: ignore[arg-type]
