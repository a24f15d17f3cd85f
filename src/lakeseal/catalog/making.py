"""`making`: around whatever makes a table that is to have a name.

The name is the table's when it is there, and not before; where it is being made stands in the catalog from before its
first byte on. What was not made, for certain, leaves nothing; of everything else the catalog tells where to look.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakeseal.catalog.endpoint import KeepsNames, OpenCatalog
from lakeseal.catalog.names import CommitKind, StagedTable
from lakeseal.catalog.place import Place, locate
from lakeseal.catalog.table_name import TableName, may_be_name
from lakeseal.errors import AlreadyExists, InvalidInput, Refused, TableNotFound, Unsupported

if TYPE_CHECKING:
    from lakeseal.catalog.connect import CatalogLike

NOT_MADE = (InvalidInput, AlreadyExists, Refused, Unsupported)
"""What says that nothing was made."""


@contextmanager
def making(catalog: OpenCatalog, name: TableName, uri: str | None) -> Iterator[str]:
    """Where the table is to be made: at `uri`, or where the catalog says."""
    staged = catalog.names.stage(name, uri, CommitKind.FILESYSTEM)
    try:
        yield staged.uri
    except NOT_MADE:
        unstage(catalog, staged)
        raise
    catalog.names.register(name, staged.uri, CommitKind.FILESYSTEM, table_id=staged.table_id)


@contextmanager
def made_or_there(table: str | os.PathLike[str] | Place, catalog: CatalogLike | None) -> Iterator[Place]:
    """The place of a table by its URI or its name, which is given to it if nothing has it yet."""
    if isinstance(table, Place):
        yield table
    elif not isinstance(table, str) or not may_be_name(table):
        yield Place(uri=os.fspath(table))
    elif (found := _there(table, catalog)) is not None:
        yield found
    else:
        from lakeseal.catalog.connect import open_catalog  # whoever gives URIs needs no database's libraries

        with making(open_catalog(catalog), TableName.parse(table), None) as uri:
            yield Place(uri=uri)


def _there(name: str, catalog: CatalogLike | None) -> Place | None:
    try:
        return locate(name, catalog)
    except TableNotFound:
        return None


def unstage(catalog: OpenCatalog, staged: StagedTable) -> None:
    """Forgets what was begun, where a catalog can."""
    if isinstance(catalog.names, KeepsNames):
        catalog.names.unstage(staged.table_id)
