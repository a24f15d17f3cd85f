"""The seam of catalogs: what anything that knows tables by names can be asked, wherever it is.

`NameBook` says what each of these promises. `Names` is what every catalog answers, ours and those of others; a catalog
that also renames, gives roles, and tells what was left half made, is one that `KeepsNames`. Arguments and results are
values that travel as JSON. `OpenCatalog` puts the names together with whoever decides on commits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from msgspec import Struct

from lakeseal.catalog.names import CommitKind, NamedSchema, NamedTable, SchemaPage, StagedTable, TablePage
from lakeseal.catalog.table_name import SchemaName, TableName
from lakeseal.commit.owner import CommitOwner
from lakeseal.owner.endpoint import OwnerEndpoint
from lakeseal.storage.base import Store


class Names(Protocol):
    """May be shared by threads."""

    def catalogs(self) -> list[str]: ...

    def resolve(self, name: TableName) -> NamedTable: ...

    def schemas(self, catalog: str, *, token: str | None = None, limit: int = 1000) -> SchemaPage: ...

    def tables(self, schema: SchemaName, *, token: str | None = None, limit: int = 1000) -> TablePage: ...

    def create_schema(self, name: SchemaName) -> NamedSchema: ...

    def stage(self, name: TableName, uri: str | None, kind: CommitKind) -> StagedTable:
        """Before a table is made. What it answers with says where to make it, and of which kind."""

    def register(
        self, name: TableName, uri: str, kind: CommitKind, *, table_id: str | None = None, make_schema: bool = True
    ) -> NamedTable:
        """After it is made, with the UUID that it was staged with; or of a table that was there before."""

    def drop(self, name: TableName, *, table_id: str | None = None) -> bool: ...


@runtime_checkable
class KeepsNames(Names, Protocol):
    def drop_schema(self, name: SchemaName) -> bool: ...

    def rename(self, name: TableName, new_name: TableName, *, table_id: str | None = None) -> NamedTable: ...

    def set_kind(self, name: TableName, kind: CommitKind, *, table_id: str | None = None) -> NamedTable: ...

    def staged(self, table_id: str | None = None) -> list[StagedTable]: ...

    def unstage(self, table_id: str) -> bool: ...

    def grant(self, name: TableName, role: str, to: str) -> Sequence[str]:
        """Gives a token, by its id, a role for a table; all that it may do then."""


@runtime_checkable
class KeepsNamesWithCommits(KeepsNames, Protocol):
    """In a ledger that decides on commits too, so that names come and go together with them (`name_records`)."""

    def is_kept_by(self, owner: OwnerEndpoint) -> bool: ...

    def make_schema(self, name: SchemaName) -> NamedSchema: ...

    def schema(self, name: SchemaName) -> NamedSchema: ...

    def stage(
        self, name: TableName, uri: str | None, kind: CommitKind, *, may_be_taken: bool = False
    ) -> StagedTable: ...


class DecidesByTable(Protocol):
    """A catalog of others, that decides on commits to its own tables, each by itself."""

    def committer(self, table: NamedTable, store: Store) -> CommitOwner:
        """Of a table of the kind `catalog`; the store is where it is."""

    def credentials(self, table: NamedTable) -> Mapping[str, str]:
        """Storage options that the catalog lends for the table's files."""


class OpenCatalog(Struct, frozen=True, kw_only=True):
    url: str
    """By which it can be opened again, in another process too; without a token."""
    names: Names
    owner: OwnerEndpoint | None
    """Who decides on commits to its tables, but those of the kind `filesystem`; None for catalogs of others."""
    by_table: DecidesByTable | None = None
    """Of a catalog of others."""

    def __repr__(self) -> str:
        return f"OpenCatalog({self.names!r})"


@runtime_checkable
class HasCatalog(Protocol):
    """What a user holds: `lakeseal.Catalog`."""

    @property
    def opened(self) -> OpenCatalog: ...
