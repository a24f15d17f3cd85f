"""`locate`: from what a user calls a table, by a name or by its URI, to the place where it is.

A text is a name if it has two or three parts with dots between them, each a plain word or between backticks
(`sales.orders`, ``lake.`größe`.t``), and everything else is a path or a URI: it has a slash, a scheme, other characters
or no dot. Where a directory of this working directory has such a text for its name, and the catalog has such a table
too, nobody can tell which is meant, and that is an error. `./sales.orders` is always the directory, and
`` `sales`.`orders` `` always the name; so is every name that is asked for together with a catalog.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from lakeseal.catalog.table_name import TableName, may_be_name
from lakeseal.errors import InvalidArgument, LakesealError, TableNotFound

if TYPE_CHECKING:
    from lakeseal.catalog.connect import CatalogLike
    from lakeseal.catalog.endpoint import OpenCatalog
    from lakeseal.catalog.names import NamedTable
    from lakeseal.commit.owner import CommitOwner
    from lakeseal.owner.endpoint import OwnerEndpoint
    from lakeseal.storage.base import Store


class Place(Struct, frozen=True, kw_only=True):
    uri: str
    """As it was given, if it is no name."""
    table: NamedTable | None = None
    """What the catalog knows, if it is one."""
    catalog: OpenCatalog | None = None

    @property
    def owner(self) -> OwnerEndpoint | None:
        """Whoever decides on commits to the catalog's tables, to be known to whoever opens this one: the table itself
        says whether it has an owner."""
        return None if self.catalog is None else self.catalog.owner

    def committer(self, store: Store) -> CommitOwner | None:
        """Whoever decides on commits to this very table, if that is a catalog of others; the store is where it is."""
        if self.table is None or self.catalog is None or self.catalog.by_table is None or not self.is_owned:
            return None
        return self.catalog.by_table.committer(self.table, store)

    def credentials(self) -> Mapping[str, str]:
        """Storage options that a catalog of others lends for the table's files; else none."""
        if self.table is None or self.catalog is None or self.catalog.by_table is None:
            return {}
        return self.catalog.by_table.credentials(self.table)

    @property
    def is_owned(self) -> bool:
        """Whether that owner is also to decide if the table has to be made anew."""
        return self.table is not None and self.table.kind != "filesystem"

    @property
    def table_id(self) -> str | None:
        """What the catalog calls the table, if it is one of a catalog."""
        return None if self.table is None else self.table.table_id

    def check_not_dropped(self) -> None:
        """See `check_not_dropped`."""
        if self.table is not None and self.catalog is not None:
            check_not_dropped(self.catalog, self.table.name, self.table.table_id, self.uri)

    def note_kind(self, kind: str) -> None:
        """Tells the catalog who decides on the table's commits now. The table's log says it too, and counts."""
        if self.table is None or self.catalog is None:
            return
        from lakeseal.catalog.endpoint import KeepsNames  # as below
        from lakeseal.catalog.names import CommitKind

        if isinstance(self.catalog.names, KeepsNames):
            self.catalog.names.set_kind(self.table.name, CommitKind(kind), table_id=self.table.table_id)


def locate(
    table: str | os.PathLike[str] | Place, catalog: CatalogLike | None = None, *, usual: CatalogLike | None = None
) -> Place:
    """Where a table is that somebody names, or gives the URI of. `TableNotFound` if the catalog has no such name;
    without a `catalog`, the `usual` one is asked, or else the one that is configured."""
    if isinstance(table, Place):
        return table
    text = os.fspath(table)
    if not isinstance(table, str) or not may_be_name(text):
        if catalog is not None and isinstance(table, str) and text.isidentifier():
            TableName.parse(text)  # says what is missing
        return Place(uri=text)
    name = TableName.parse(text)
    is_directory = catalog is None and "`" not in text and os.path.isdir(text)
    try:
        found = named(name, usual if catalog is None else catalog)
    except LakesealError as error:
        if is_directory and isinstance(error, TableNotFound):
            return Place(uri=text)
        if isinstance(error, TableNotFound):
            error.hint = f"lakeseal catalog list shows what there is. If a directory is meant, write ./{text}"
        raise
    if is_directory:
        raise InvalidArgument(
            f"{text} is a directory here and a table of the catalog, at {found.uri}",
            hint=f"Write ./{text} for the directory, or {_quoted(name)} for the table",
        )
    return found


def named(name: TableName, catalog: CatalogLike | None = None) -> Place:
    """Where a catalog's table is."""
    from lakeseal.catalog.connect import open_catalog  # whoever gives URIs needs no database's libraries

    opened = open_catalog(catalog)
    table = opened.names.resolve(name)
    return Place(uri=table.uri, table=table, catalog=opened)


def check_not_dropped(catalog: OpenCatalog, name: TableName, table_id: str, uri: str) -> None:
    """For whoever is about to make a named table anew, as its files are gone: the name must still be its own, or nobody
    would find what is written there. Catalogs of others decide on that themselves."""
    if catalog.by_table is not None:
        return
    try:
        now = catalog.names.resolve(name)
    except TableNotFound:
        now = None
    if now is None or now.table_id != table_id:
        became = "was dropped" if now is None else "is the name of another table by now"
        raise TableNotFound(f"{name} {became}, and its files are gone", table=uri, hint="Open it by its name again")


def _quoted(name: TableName) -> str:
    return ".".join(f"`{part}`" for part in (name.catalog, name.schema, name.table))
