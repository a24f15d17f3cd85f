"""`HttpNames`: the names in a service's ledger, as `catalog.endpoint` promises them. Made by `HttpOwner.names`.

Every change says which UUID it means, so that one whose answer was lost is made again.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from lakeseal.catalog.names import (
    MOST_OF_A_PAGE,
    CommitKind,
    NamedSchema,
    NamedTable,
    SchemaPage,
    StagedTable,
    TablePage,
)
from lakeseal.catalog.table_name import SchemaName, TableName
from lakeseal.errors import AlreadyExists, InvalidArgument, SchemaNotFound
from lakeseal.owner.endpoint import OwnerEndpoint
from lakeseal.service import name_calls as calls
from lakeseal.service.access import Role

if TYPE_CHECKING:
    from lakeseal.service.client import HttpOwner


class HttpNames:
    """A `KeepsNamesWithCommits`."""

    def __init__(self, service: HttpOwner, *, root: str | None = None) -> None:
        """`root` is where tables go that are staged without a place, instead of where the service says."""
        self._service = service
        self._ask = service.repeat
        self._root = root

    def __repr__(self) -> str:
        return f"HttpNames({self._service!r})"

    def is_kept_by(self, owner: OwnerEndpoint) -> bool:
        """Whether they are in the ledger that this owner decides in."""
        known = owner.identity()
        return known is not None and known == self._service.identity()

    def catalogs(self) -> list[str]:
        return list(self._ask(calls.ListCatalogs()))

    def schemas(self, catalog: str, *, token: str | None = None, limit: int = MOST_OF_A_PAGE) -> SchemaPage:
        return self._ask(calls.ListSchemas(catalog=catalog, token=token, limit=limit))

    def schema(self, name: SchemaName) -> NamedSchema:
        return self._ask(calls.GetSchema(schema=name))

    def create_schema(self, name: SchemaName, *, schema_id: str | None = None) -> NamedSchema:
        return self._ask(calls.CreateSchema(schema=name, schema_id=_given(schema_id)))

    def make_schema(self, name: SchemaName) -> NamedSchema:
        """The one that is there, or a new one."""
        with suppress(SchemaNotFound):
            return self.schema(name)
        try:
            return self.create_schema(name)
        except AlreadyExists:
            return self.schema(name)

    def drop_schema(self, name: SchemaName, *, schema_id: str | None = None) -> bool:
        meant = self.schema(name).schema_id if schema_id is None else schema_id
        return self._ask(calls.DropSchema(schema=name, schema_id=meant)).yes

    def resolve(self, name: TableName) -> NamedTable:
        return self._ask(calls.ResolveName(table=name))

    def tables(self, schema: SchemaName, *, token: str | None = None, limit: int = MOST_OF_A_PAGE) -> TablePage:
        return self._ask(calls.ListNames(schema=schema, token=token, limit=limit))

    def register(
        self, name: TableName, uri: str, kind: CommitKind, *, table_id: str | None = None, make_schema: bool = True
    ) -> NamedTable:
        given = _given(table_id)
        call = calls.RegisterName(table=name, uri=uri, kind=kind, table_id=given, make_schema=make_schema)
        return self._ask(call)

    def rename(self, name: TableName, new_name: TableName, *, table_id: str | None = None) -> NamedTable:
        meant = self.resolve(name).table_id if table_id is None else table_id
        return self._ask(calls.RenameTable(table=name, new_name=new_name, table_id=meant))

    def set_kind(self, name: TableName, kind: CommitKind, *, table_id: str | None = None) -> NamedTable:
        meant = self.resolve(name).table_id if table_id is None else table_id
        return self._ask(calls.SetKind(table=name, kind=kind, table_id=meant))

    def drop(self, name: TableName, *, table_id: str | None = None) -> bool:
        meant = self.resolve(name).table_id if table_id is None else table_id
        return self._ask(calls.DropName(table=name, table_id=meant)).yes

    def stage(
        self,
        name: TableName,
        uri: str | None,
        kind: CommitKind,
        *,
        table_id: str | None = None,
        may_be_taken: bool = False,
    ) -> StagedTable:
        given = _given(table_id)
        place = f"{self._root.rstrip('/')}/{given}" if uri is None and self._root is not None else uri
        call = calls.StageTable(table=name, uri=place, kind=kind, table_id=given, may_be_taken=may_be_taken)
        return self._ask(call)

    def staged(self, table_id: str | None = None) -> list[StagedTable]:
        return list(self._ask(calls.ListStaged(table_id=table_id)))

    def unstage(self, table_id: str) -> bool:
        return self._ask(calls.UnstageTable(table_id=table_id)).yes

    def grant(self, name: TableName, role: str, to: str) -> Sequence[str]:
        try:
            wanted = Role(role)
        except ValueError:
            raise InvalidArgument(f"There is no role {role!r}", hint=f"There are {', '.join(Role)}") from None
        return self._ask(calls.GrantRole(table=name, wanted=wanted, to=to)).grants


def _given(uuid_text: str | None) -> str:
    return str(uuid.uuid4()) if uuid_text is None else uuid_text
