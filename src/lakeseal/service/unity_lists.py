"""What engines ask a catalog for beside commits: its catalogs, schemas and tables, as older parts of the protocol have
them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from msgspec import Meta

from lakeseal.catalog.names import NamedSchema
from lakeseal.catalog.table_name import SchemaName, TableName
from lakeseal.catalog.unity.messages import (
    CatalogInfo,
    CatalogList,
    Metastore,
    NewSchema,
    Nothing,
    SchemaInfo,
    SchemaList,
    TableInfo,
    TableInfoList,
)
from lakeseal.errors import InvalidArgument, NotAllowed, SchemaNotFound
from lakeseal.service.access import Caller, Role
from lakeseal.service.call import calls_of
from lakeseal.service.unity_call import OfTable, Part, Question, UnityCall

if TYPE_CHECKING:
    from lakeseal.service.service import Service

_MOST = 100
PageSize = Annotated[int, Meta(ge=0, le=1000)]
Token = Annotated[str, Meta(max_length=255)]
FullName = Annotated[str, Meta(max_length=600)]


class MetastoreSummary(Question, UnityCall[Metastore], frozen=True, kw_only=True):
    """The identity of the ledger."""

    route: ClassVar[str] = "/metastore_summary"

    def perform(self, service: Service, caller: Caller) -> Metastore:
        return Metastore(metastore_id=service.identity or "")


class UnityListCatalogs(Question, UnityCall[CatalogList], frozen=True, kw_only=True):
    """The catalogs that have a schema."""

    route: ClassVar[str] = "/catalogs"

    def perform(self, service: Service, caller: Caller) -> CatalogList:
        return CatalogList(catalogs=tuple(CatalogInfo(name=name, id=name) for name in service.names.catalogs()))


class GetCatalog(Question, UnityCall[CatalogInfo], frozen=True, kw_only=True):
    """A catalog."""

    route: ClassVar[str] = "/catalogs/{catalog}"
    catalog: Part

    def perform(self, service: Service, caller: Caller) -> CatalogInfo:
        if self.catalog.lower() not in (name.lower() for name in service.names.catalogs()):
            raise SchemaNotFound(f"There is no catalog {self.catalog}")
        return CatalogInfo(name=self.catalog, id=self.catalog)


class UnityListSchemas(Question, UnityCall[SchemaList], frozen=True, kw_only=True):
    """The schemas of a catalog."""

    route: ClassVar[str] = "/schemas"
    catalog_name: Part
    max_results: PageSize = 0
    page_token: Token = ""

    def perform(self, service: Service, caller: Caller) -> SchemaList:
        page = service.names.schemas(self.catalog_name, token=self.page_token or None, limit=self.max_results or _MOST)
        return SchemaList(schemas=tuple(map(_schema, page.schemas)), next_page_token=page.next_token)


class _ChangesSchemas(UnityCall[Any], frozen=True, kw_only=True):
    """A schema belongs to no place: whoever writes anywhere may make one, and drop one that is empty."""

    role: ClassVar[Role] = Role.WRITER
    decides: ClassVar[bool] = True

    def check(self, service: Service, caller: Caller) -> None:
        if not any(grant.role.includes(self.role) for grant in caller.grants):
            raise NotAllowed(f"{caller.principal or 'This caller'} needs the role {self.role}")


class UnityCreateSchema(_ChangesSchemas, UnityCall[SchemaInfo], frozen=True, kw_only=True):
    """Make a schema."""

    method: ClassVar[str] = "POST"
    route: ClassVar[str] = "/schemas"
    body: NewSchema

    def perform(self, service: Service, caller: Caller) -> SchemaInfo:
        name = SchemaName(catalog=self.body.catalog_name, schema=self.body.name)
        return _schema(service.names.create_schema(name))


class UnityDropSchema(_ChangesSchemas, UnityCall[Nothing], frozen=True, kw_only=True):
    """Forget a schema, if there are no tables in it."""

    method: ClassVar[str] = "DELETE"
    route: ClassVar[str] = "/schemas/{full_name}"
    full_name: FullName

    def perform(self, service: Service, caller: Caller) -> Nothing:
        found = service.names.schema(_schema_name(self.full_name))
        service.names.drop_schema(found.name, schema_id=found.schema_id)
        return Nothing()


class UnityGetSchema(Question, UnityCall[SchemaInfo], frozen=True, kw_only=True):
    """A schema."""

    route: ClassVar[str] = "/schemas/{full_name}"
    full_name: FullName

    def perform(self, service: Service, caller: Caller) -> SchemaInfo:
        return _schema(service.names.schema(_schema_name(self.full_name)))


class ListTables(Question, UnityCall[TableInfoList], frozen=True, kw_only=True):
    """The tables of a schema that the caller may read."""

    route: ClassVar[str] = "/tables"
    catalog_name: Part
    schema_name: Part
    max_results: PageSize = 0
    page_token: Token = ""

    def perform(self, service: Service, caller: Caller) -> TableInfoList:
        name = SchemaName(catalog=self.catalog_name, schema=self.schema_name)
        page = service.names_in(name, caller, token=self.page_token or None, limit=self.max_results or _MOST)
        shown = tuple(service.unity.info(one) for one in page.tables)
        return TableInfoList(tables=shown, next_page_token=page.next_token)


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
    role: ClassVar[Role] = Role.WRITER
    decides: ClassVar[bool] = True

    def perform(self, service: Service, caller: Caller) -> Nothing:
        found = self.found(service, caller)
        service.names.drop(found.name, table_id=found.table_id)
        return Nothing()


def _schema_name(full_name: str) -> SchemaName:
    catalog, _, schema = full_name.partition(".")
    return SchemaName(catalog=catalog, schema=schema)


def _schema(found: NamedSchema) -> SchemaInfo:
    name = found.name
    return SchemaInfo(
        name=name.schema,
        catalog_name=name.catalog,
        full_name=f"{name.catalog}.{name.schema}",
        schema_id=found.schema_id,
        created_at=found.created_ms,
    )


LIST_CALLS: tuple[type[UnityCall[Any]], ...] = calls_of(__name__)  # type: ignore[assignment]
