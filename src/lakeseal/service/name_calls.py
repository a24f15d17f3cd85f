"""The calls of `catalog.endpoint`, done on the names in the service's own ledger.

A table's name is where its role is: whoever may read the table's place may know its name, and for everybody else there
is none; who gives, changes or takes a name needs to be a writer there. A schema belongs to no place: whoever may write
anything may make one, and drop one that is empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Generic

from msgspec import Meta, Struct

from lakeseal.catalog.names import (
    MOST_OF_A_PAGE,
    CommitKind,
    NamedSchema,
    NamedTable,
    SchemaPage,
    StagedTable,
    TablePage,
)
from lakeseal.catalog.table_name import MOST_CHARACTERS, SchemaName, TableName
from lakeseal.errors import NotAllowed, TableNotFound
from lakeseal.owner.messages import TableName as TableUri
from lakeseal.service import tokens
from lakeseal.service.access import Caller, Role
from lakeseal.service.book_calls import YesOrNo
from lakeseal.service.call import Reply, ServiceCall, calls_of

if TYPE_CHECKING:
    from lakeseal.service.service import Service

Uuid = Annotated[str, Meta(min_length=36, max_length=36)]
Catalog = Annotated[str, Meta(min_length=1, max_length=MOST_CHARACTERS)]
Token = Annotated[str, Meta(min_length=1, max_length=MOST_CHARACTERS)]
Limit = Annotated[int, Meta(ge=1, le=MOST_OF_A_PAGE)]
TokenId = Annotated[str, Meta(min_length=1, max_length=100)]


class NameCall(ServiceCall[Reply], Generic[Reply], frozen=True, kw_only=True):
    def check(self, service: Service, caller: Caller) -> None:
        if not any(grant.role.includes(self.role) for grant in caller.grants):
            raise NotAllowed(f"Names need the role {self.role} for some table")


class NameQuestion(NameCall[Reply], Generic[Reply], frozen=True, kw_only=True):
    """Changes nothing."""

    role: ClassVar[Role] = Role.READER
    decides: ClassVar[bool] = False


class ListCatalogs(NameQuestion[tuple[str, ...]], frozen=True, kw_only=True):
    """The catalogs that have a schema."""

    def perform(self, service: Service, caller: Caller) -> tuple[str, ...]:
        return tuple(service.names.catalogs())


class ListSchemas(NameQuestion[SchemaPage], frozen=True, kw_only=True):
    """A page of the schemas of a catalog."""

    catalog: Catalog
    token: Token | None = None
    limit: Limit = MOST_OF_A_PAGE

    def perform(self, service: Service, caller: Caller) -> SchemaPage:
        return service.names.schemas(self.catalog, token=self.token, limit=self.limit)


class GetSchema(NameQuestion[NamedSchema], frozen=True, kw_only=True):
    """One schema."""

    schema: SchemaName

    def perform(self, service: Service, caller: Caller) -> NamedSchema:
        return service.names.schema(self.schema)


class CreateSchema(NameCall[NamedSchema], frozen=True, kw_only=True):
    """Make an empty schema."""

    schema: SchemaName
    schema_id: Uuid | None = None

    def perform(self, service: Service, caller: Caller) -> NamedSchema:
        return service.names.create_schema(self.schema, schema_id=self.schema_id)


class DropSchema(NameCall[YesOrNo], frozen=True, kw_only=True):
    """Drop a schema without tables."""

    schema: SchemaName
    schema_id: Uuid | None = None

    def perform(self, service: Service, caller: Caller) -> YesOrNo:
        return YesOrNo(yes=service.names.drop_schema(self.schema, schema_id=self.schema_id))


class ListNames(NameQuestion[TablePage], frozen=True, kw_only=True):
    """A page of the tables of a schema that the caller may read."""

    schema: SchemaName
    token: Token | None = None
    limit: Limit = MOST_OF_A_PAGE

    def perform(self, service: Service, caller: Caller) -> TablePage:
        return service.names_in(self.schema, caller, token=self.token, limit=self.limit)


class ResolveName(NameQuestion[NamedTable], frozen=True, kw_only=True):
    """Which table a name means."""

    table: TableName

    def perform(self, service: Service, caller: Caller) -> NamedTable:
        return _readable(service, caller, self.table)


class RegisterName(NameCall[NamedTable], frozen=True, kw_only=True):
    """Give a table its name."""

    table: TableName
    uri: TableUri
    kind: CommitKind
    table_id: Uuid | None = None
    make_schema: bool = True

    def check(self, service: Service, caller: Caller) -> None:
        _check_place(service, caller, self.uri)

    def perform(self, service: Service, caller: Caller) -> NamedTable:
        return service.names.register(
            self.table, self.uri, self.kind, table_id=self.table_id, make_schema=self.make_schema
        )


class RenameTable(NameCall[NamedTable], frozen=True, kw_only=True):
    """Give a table another name."""

    table: TableName
    new_name: TableName
    table_id: Uuid

    def perform(self, service: Service, caller: Caller) -> NamedTable:
        _check_writer(service, caller, self.table_id)
        return service.names.rename(self.table, self.new_name, table_id=self.table_id)


class SetKind(NameCall[NamedTable], frozen=True, kw_only=True):
    """Note who decides on a table's commits now."""

    table: TableName
    kind: CommitKind
    table_id: Uuid

    def perform(self, service: Service, caller: Caller) -> NamedTable:
        _check_writer(service, caller, self.table_id)
        return service.names.set_kind(self.table, self.kind, table_id=self.table_id)


class DropName(NameCall[YesOrNo], frozen=True, kw_only=True):
    """Forget a name; the files stay."""

    table: TableName
    table_id: Uuid

    def perform(self, service: Service, caller: Caller) -> YesOrNo:
        try:
            _check_writer(service, caller, self.table_id)
        except TableNotFound:
            return YesOrNo(yes=False)
        return YesOrNo(yes=service.names.drop(self.table, table_id=self.table_id))


class StageTable(NameCall[StagedTable], frozen=True, kw_only=True):
    """Note that a table is about to be made; without a place, below the first root of the service."""

    table: TableName
    kind: CommitKind
    uri: TableUri | None = None
    table_id: Uuid
    may_be_taken: bool = False

    def perform(self, service: Service, caller: Caller) -> StagedTable:
        place = service.names.place_for(self.table_id) if self.uri is None else self.uri
        _check_place(service, caller, place)
        return service.names.stage(self.table, place, self.kind, table_id=self.table_id, may_be_taken=self.may_be_taken)


class ListStaged(NameQuestion[tuple[StagedTable, ...]], frozen=True, kw_only=True):
    """Tables that were begun and have no name yet, of those that the caller may read."""

    table_id: Uuid | None = None

    def perform(self, service: Service, caller: Caller) -> tuple[StagedTable, ...]:
        return tuple(one for one in service.names.staged(self.table_id) if caller.may(Role.READER, one.uri))


class UnstageTable(NameCall[YesOrNo], frozen=True, kw_only=True):
    """Forget a table that was begun."""

    table_id: Uuid

    def perform(self, service: Service, caller: Caller) -> YesOrNo:
        found = service.names.staged(self.table_id)
        caller.check(Role.WRITER, [one.uri for one in found])
        return YesOrNo(yes=service.names.unstage(self.table_id))


class Granted(Struct, frozen=True, kw_only=True):
    grants: tuple[str, ...]
    """All of the token's."""


class GrantRole(NameCall[Granted], frozen=True, kw_only=True):
    """Give a token a role for a table."""

    role: ClassVar[Role] = Role.ADMIN
    table: TableName
    wanted: Role
    to: TokenId

    def perform(self, service: Service, caller: Caller) -> Granted:
        uri = _readable(service, caller, self.table).uri
        caller.check(Role.ADMIN, [uri])
        return Granted(grants=tuple(map(str, tokens.grant(service.ledger, self.to, self.wanted, uri))))


NAME_CALLS = calls_of(__name__)


def _readable(service: Service, caller: Caller, name: TableName) -> NamedTable:
    found = service.names.resolve(name)
    if not caller.may(Role.READER, found.uri):
        raise TableNotFound(f"There is no table named {name}", hint="lakeseal catalog list shows what there is")
    return found


def _check_writer(service: Service, caller: Caller, table_id: str) -> None:
    """Of the table that is meant, wherever its name went meanwhile."""
    uri = service.names.by_id(table_id).uri
    if not caller.may(Role.READER, uri):
        raise TableNotFound(f"There is no table with the id {table_id}")
    caller.check(Role.WRITER, [uri])


def _check_place(service: Service, caller: Caller, uri: str) -> None:
    service.places.check_name(uri)
    caller.check(Role.WRITER, [uri])
    service.places.check(uri)
