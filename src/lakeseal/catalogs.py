"""`Catalog`: tables by their names. The face that users see of `catalog/`.

    catalog = lakeseal.Catalog()                      # embedded, or where LAKESEAL_CATALOG points
    catalog.create("sales.orders", schema)
    lakeseal.Table("sales.orders").write(rows)

A table is made first and gets its name then, so that a name always means a table that was there. Where a table is being
made stands in the catalog from before its first byte on: `unfinished` tells of those that a crash left without a name.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Unpack

from lakeseal import table as tables
from lakeseal.catalog.connect import CatalogLike, open_catalog
from lakeseal.catalog.endpoint import KeepsNames
from lakeseal.catalog.making import NOT_MADE, making, unstage
from lakeseal.catalog.names import CommitKind, NamedTable, StagedTable
from lakeseal.catalog.place import Place
from lakeseal.catalog.table_name import DEFAULT_CATALOG, SchemaName, TableName, may_be_name
from lakeseal.display import Card, Grid, card, clean
from lakeseal.errors import (
    AlreadyExists,
    InvalidArgument,
    LakesealError,
    Refused,
    UnsupportedFeature,
)
from lakeseal.ledger import Ledger
from lakeseal.owner import enablement
from lakeseal.owner.endpoint import OwnerEndpoint
from lakeseal.owner.kinds import Kind as OwnedKind
from lakeseal.protocol.actions import Metadata, Protocol
from lakeseal.protocol.features import has_catalog
from lakeseal.protocol.paths import LOG_DIR
from lakeseal.storage import HasDirectories, Store, identity, open_store
from lakeseal.table import Owner, Table, TableSays

_log = logging.getLogger(__name__)
_CATALOG_MANAGED = "catalogManaged"
_TABLE_ID = "io.unitycatalog.tableId"


class Catalog:
    def __init__(
        self,
        url: CatalogLike | None = None,
        token: str | None = None,
        *,
        kind: str | None = None,
        root: str | os.PathLike[str] | None = None,
    ) -> None:
        """`url` is that of a ledger (`sqlite:///…`, `postgresql://…`) or of a service (`https://…`, with a `token`), or
        a name in LAKESEAL_OWNERS; without one it is that of LAKESEAL_CATALOG, or else the embedded catalog in the
        user's folder. `kind` is for catalogs of others. `root` is where tables go that are created without a location.
        """
        self.opened = open_catalog(url, token=token, kind=kind, root=None if root is None else os.fspath(root))

    def __repr__(self) -> str:
        return f"Catalog({self._shown!r})"

    def _repr_html_(self) -> str:
        """For notebooks: its tables. None of them is opened."""

        def made() -> Card:
            found = self.tables()
            rows = [(str(one.name), str(one.kind), one.uri, _day(one.created_ms)) for one in found]
            schemas = {str(one.name).rpartition(".")[0] for one in found}
            return Card(
                kind="Catalog",
                title=self._shown,
                facts=[("tables", f"{len(found):,}"), ("schemas with tables", f"{len(schemas):,}")],
                grids=[Grid(headings=("table", "kind", "place", "since"), rows=rows)],
            )

        return card("Catalog", self._shown, made)

    @property
    def _shown(self) -> str:
        """Where it is, without passwords."""
        ledger = getattr(self.opened.owner, "ledger", None)
        return ledger.url.public if isinstance(ledger, Ledger) else self.opened.url

    def create(
        self,
        name: str,
        schema: Any,
        location: str | os.PathLike[str] | None = None,
        kind: str = CommitKind.FILESYSTEM,
        partition_by: Sequence[str] | str = (),
        properties: Mapping[str, Any] | None = None,
        storage_options: Mapping[str, str] | None = None,
        **says: Unpack[TableSays],
    ) -> Table:
        """A new, empty table with a name; its schema in the catalog is made if it is not there. `kind` says who decides
        on its commits: the file system, or with `managed` this catalog, or with `catalog` too, so that other engines
        commit to it by the catalog's protocol. Fails if the name is taken, or if there is a
        table at the location.

        >>> catalog.create("sales.clicks", pa.schema([("id", pa.int64())])).name
        'main.sales.clicks'
        """
        parsed, wanted = TableName.parse(name), _kind(kind)
        owner = self._owner_for(wanted)
        uri = None if location is None else _place(location, storage_options)
        staged = self.opened.names.stage(parsed, uri, wanted)
        try:
            form = OwnedKind.CATALOG if wanted is CommitKind.CATALOG else OwnedKind.MANAGED
            made = tables.create(
                self._staged_place(staged),
                schema,
                partition_by,
                properties,
                owner,
                storage_options,
                kind=form,
                table_id=staged.table_id,
                **says,
            )
        except NOT_MADE as error:
            unstage(self.opened, staged)
            if isinstance(error, AlreadyExists):
                error.hint = f"Give it the name: Catalog.register({name!r}, {staged.uri!r})"
            raise
        try:
            named = self.opened.names.register(parsed, staged.uri, wanted, table_id=staged.table_id)
        except AlreadyExists:
            if location is None:
                # Nobody else knows of it. What can't be deleted stays among the unfinished.
                with suppress(LakesealError):
                    delete_table(made, owner)
                    unstage(self.opened, staged)
            raise
        self._tell("%s is the name of a new table at %s", named.name, named.uri)
        return self._named(named, storage_options)

    @contextmanager
    def making(
        self,
        name: str,
        location: str | os.PathLike[str] | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> Iterator[str]:
        """Where a table is to be made, which gets this name when it is there. Around whatever makes it.

        >>> with catalog.making("sales.copy") as place:
        ...     made = catalog.table("sales.orders").clone(place)
        >>> catalog.show("sales.copy").uri == place
        True
        """
        parsed = TableName.parse(name)
        uri = None if location is None else _place(location, storage_options)
        with making(self.opened, parsed, uri) as place:
            yield place
        self._tell("%s is the name of a new table at %s", parsed, place)

    def register(
        self, name: str, uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None
    ) -> Table:
        """A name for a table that is there. It stays as it is, and whoever decides on its commits goes on doing so.

        >>> done = lakeseal.Table("old").write(pa.table({"id": [1]}))
        >>> catalog.register("sales.old", "old").version()
        0
        """
        parsed = TableName.parse(name)
        place = _place(uri, storage_options)
        snapshot = Table(place, owner=self.opened.owner, storage_options=storage_options).snapshot()
        kind = _kind_of(snapshot.protocol, snapshot.metadata)
        table_id = _table_id_of(snapshot.protocol, snapshot.metadata) or self._begun_at(parsed, place)
        named = self.opened.names.register(parsed, place, kind, table_id=table_id)
        self._tell("%s is the name of the table at %s", named.name, named.uri)
        return self._named(named, storage_options)

    def table(self, name: str, storage_options: Mapping[str, str] | None = None) -> Table:
        """The table with this name; `TableNotFound` if there is none.

        >>> catalog.table("sales.orders").version()
        0
        """
        return Table(str(TableName.parse(name)), storage_options=storage_options, catalog=self.opened)

    def show(self, name: str) -> NamedTable:
        """What the catalog knows of a table: where it is, its UUID, who decides on its commits.

        >>> str(catalog.show("sales.orders").kind)
        'filesystem'
        """
        return self.opened.names.resolve(TableName.parse(name))

    def tables(self, schema: str | None = None) -> list[NamedTable]:
        """Those of a schema (`sales`, `lake.sales`), or all, by name.

        >>> [str(one.name) for one in catalog.tables("sales")]
        ['main.sales.orders']
        """
        names = self.opened.names
        wanted = [SchemaName.parse(schema)] if schema is not None else self._all_schemas()
        found: list[NamedTable] = []
        for one in wanted:
            page = names.tables(one)
            found += page.tables
            while page.next_token is not None:
                page = names.tables(one, token=page.next_token)
                found += page.tables
        return found

    def schemas(self, catalog: str = DEFAULT_CATALOG) -> list[str]:
        """The schemas of a catalog, by name.

        >>> catalog.schemas()
        ['sales']
        """
        return [one.schema for one in self._schemas_of(catalog)]

    def catalogs(self) -> list[str]:
        """Those that have a schema.

        >>> catalog.catalogs()
        ['main']
        """
        return self.opened.names.catalogs()

    def create_schema(self, name: str) -> None:
        """An empty schema; `AlreadyExists` if there is one.

        >>> catalog.create_schema("raw")
        >>> catalog.schemas()
        ['raw', 'sales']
        """
        parsed = SchemaName.parse(name)
        self.opened.names.create_schema(parsed)
        self._tell("%s is a new schema", parsed)

    def drop_schema(self, name: str) -> None:
        """Only if there are no tables in it.

        >>> catalog.create_schema("raw")
        >>> catalog.drop_schema("raw")
        >>> catalog.schemas()
        ['sales']
        """
        parsed = SchemaName.parse(name)
        self._keeper("drop schemas").drop_schema(parsed)
        self._tell("the schema %s was dropped", parsed)

    def rename(self, name: str, new_name: str) -> Table:
        """Files stay where they are, and the table its UUID.

        >>> catalog.rename("sales.orders", "sales.all_orders").name
        'main.sales.all_orders'
        """
        parsed = TableName.parse(name)
        found = self.opened.names.resolve(parsed)
        renamed = self._keeper("rename tables").rename(parsed, TableName.parse(new_name), table_id=found.table_id)
        self._tell("%s was renamed to %s", found.name, renamed.name)
        return self._named(renamed)

    def drop(
        self, name: str, delete_files: bool = False, storage_options: Mapping[str, str] | None = None
    ) -> NamedTable:
        """Forget a name, and with `delete_files` the table itself; what it was. Files go first: after a crash on the
        way the name is still there, to drop it again.

        >>> str(catalog.drop("sales.orders", delete_files=True).name)
        'main.sales.orders'
        """
        parsed = TableName.parse(name)
        found = self.opened.names.resolve(parsed)
        if delete_files:
            owner = None if found.kind is CommitKind.FILESYSTEM else self.opened.owner
            delete_table(self._named(found, storage_options), owner)
        self.opened.names.drop(parsed, table_id=found.table_id)
        self._tell("%s was dropped, %s its files at %s", found.name, "with" if delete_files else "not", found.uri)
        return found

    def grant(self, name: str, role: str, to: str) -> list[str]:
        """Give a token, by its id, a role (reader, writer, admin) for this table; all that it may do then. Needs the
        ledger itself, or the role admin for the table.

        >>> catalog.grant("sales.orders", "reader", to=token_id)[-1].startswith("reader:file:///")
        True
        """
        keeper = self._keeper("give tokens roles", hint="Use its own way of granting")
        granted = list(keeper.grant(TableName.parse(name), role, to))
        self._tell("the token %s was made %s of %s", to, role, name)
        return granted

    def unfinished(self) -> list[StagedTable]:
        """Tables whose creation was begun and has not ended, the oldest first: somebody is at it, or has died at it.
        One that is there gets its name by `register`; `abandon` forgets it.

        >>> catalog.unfinished()
        []
        """
        return self._keeper("tell of them").staged()

    def abandon(
        self, table_id: str, delete_files: bool = False, storage_options: Mapping[str, str] | None = None
    ) -> bool:
        """Forget a table that was begun, and with `delete_files` what there is of it; whether there was one.

        >>> [catalog.abandon(one.table_id, delete_files=True) for one in catalog.unfinished()]
        []
        """
        keeper = self._keeper("tell of them")
        staged = keeper.staged(table_id)
        if staged and delete_files:
            owner = self._owner_for(staged[0].kind)
            table = Table(staged[0].uri, owner=owner, storage_options=storage_options)
            delete_table(table, owner)
        was_there = keeper.unstage(table_id)
        if was_there:
            self._tell("the table %s, which was begun, was forgotten", table_id)
        return was_there

    def _tell(self, did: str, *about: object) -> None:
        """What was done, for a log that people read."""
        _log.info(f"%s: {did}", self._shown, *(clean(one, 500) for one in about))

    def _named(self, table: NamedTable, storage_options: Mapping[str, str] | None = None) -> Table:
        """That very table, whatever its name means by now."""
        return Table(Place(uri=table.uri, table=table, catalog=self.opened), storage_options=storage_options)

    def _all_schemas(self) -> Iterator[SchemaName]:
        for catalog in self.catalogs():
            yield from self._schemas_of(catalog)

    def _schemas_of(self, catalog: str) -> Iterator[SchemaName]:
        page = self.opened.names.schemas(catalog)
        yield from (one.name for one in page.schemas)
        while page.next_token is not None:
            page = self.opened.names.schemas(catalog, token=page.next_token)
            yield from (one.name for one in page.schemas)

    def _begun_at(self, name: TableName, uri: str) -> str | None:
        """The UUID that a table was to get when its creation was broken off."""
        names = self.opened.names
        staged = names.staged() if isinstance(names, KeepsNames) else []
        return next((one.table_id for one in staged if one.uri == uri and one.name.folded == name.folded), None)

    def _staged_place(self, staged: StagedTable) -> Place:
        if self.opened.by_table is None:
            return Place(uri=staged.uri)
        now = staged.created_ms
        table = NamedTable(
            name=staged.name, uri=staged.uri, table_id=staged.table_id, kind=staged.kind, created_ms=now, updated_ms=now
        )
        return Place(uri=staged.uri, table=table, catalog=self.opened)

    def _owner_for(self, kind: CommitKind) -> OwnerEndpoint | None:
        if self.opened.by_table is not None:
            return None
        if kind is not CommitKind.FILESYSTEM and self.opened.owner is None:
            raise InvalidArgument("This catalog decides on no commits", hint="Use the kind filesystem")
        return None if kind is CommitKind.FILESYSTEM else self.opened.owner

    def _keeper(self, what: str, *, hint: str | None = None) -> KeepsNames:
        if isinstance(self.opened.names, KeepsNames):
            return self.opened.names
        raise UnsupportedFeature(f"This catalog does not {what}", hint=hint)


def delete_table(table: Table, owner: OwnerEndpoint | None) -> None:
    """All of its files, and what its owner knows of it."""
    store = table.spec.open()
    if owner is None:
        delete_all(store)
    else:
        known = owner.attach(store)
        told = owner.get_commits(known)
        if told.backfilled < told.latest:
            owner.backfill(known)  # what was never in a log is never forgotten
        delete_all(store)
        owner.drop(known)
    if isinstance(store, HasDirectories):
        store.prune("")


def create(
    uri: str | os.PathLike[str],
    schema: Any,
    partition_by: Sequence[str] | str = (),
    properties: Mapping[str, Any] | None = None,
    owner: Owner | None = None,
    storage_options: Mapping[str, str] | None = None,
    *,
    catalog: CatalogLike | None = None,
    kind: str | None = None,
    **says: Unpack[TableSays],
) -> Table:
    """A new, empty table, at a URI or with a name (`sales.orders`). `schema` is pyarrow's or Spark's. Fails if there is
    a table already.

    `defaults` are SQL texts or constants by column, for rows that do not say it; `generated` are SQL texts over the
    row; `identity` names a column that the table numbers, or several with what is asked of them. `constraints` are
    conditions by name, `comments` texts by column, `comment` is the table's; `cluster_by` are columns to keep rows
    together by. Expressions that only Spark knows need a session, `spark`. `kind` says in which form the table is its
    owner's; see `Table` and `Catalog.create`.

    >>> made = lakeseal.create("prices", pa.schema([("id", pa.int64())]), constraints={"positive": "id > 0"})
    >>> made.write(pa.table({"id": [1, 2]})).version
    1
    """
    text = os.fspath(uri)
    if not isinstance(uri, str) or not may_be_name(text):
        if catalog is not None:
            TableName.parse(text)  # says what is wrong with it
        form = kind or OwnedKind.MANAGED
        return tables.create(uri, schema, partition_by, properties, owner, storage_options, kind=form, **says)
    if catalog is None and "`" not in text and os.path.isdir(text):
        raise InvalidArgument(
            f"{text} has the form of a table's name, and is a directory here",
            hint=f"Write ./{text} for the directory, or give the name together with its catalog",
        )
    if owner is not None:
        raise InvalidArgument(
            f"{text} is a name, and its catalog decides on the commits of its tables",
            hint=f"Leave the owner out: Catalog.create({text!r}, …, kind='managed'); or write ./{text} for a directory",
        )
    return Catalog(catalog).create(
        text,
        schema,
        kind=kind or CommitKind.FILESYSTEM,
        partition_by=partition_by,
        properties=properties,
        storage_options=storage_options,
        **says,
    )


def delete_all(store: Store) -> None:
    """All files of a table, its log first: nobody then reads a table of which only a part is there."""
    keys = [one.key for one in store.list(recursive=True)]
    other = next((key for key in keys if f"/{LOG_DIR}" in f"/{key}" and not key.startswith(LOG_DIR)), None)
    if other is not None:
        raise Refused(
            "There is another table below this one, whose files are not deleted with it",
            table=store.uri,
            file=other,
            hint="Move the table below away first, or drop the name only",
        )
    store.delete(sorted(keys, key=lambda key: not key.startswith(LOG_DIR)))


def _day(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d}"


def _place(uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None) -> str:
    """The one name of a table's place."""
    return identity(open_store(uri, storage_options))


def _kind(text: str) -> CommitKind:
    try:
        return CommitKind(text)
    except ValueError:
        raise InvalidArgument(
            f"There is no kind of table {text!r}", hint=f"There are {', '.join(sorted(CommitKind))}"
        ) from None


def _kind_of(protocol: Protocol, metadata: Metadata) -> CommitKind:
    """What kind of table a log says that it is: who decides on its commits."""
    if _CATALOG_MANAGED in (protocol.writer_features or ()):
        return CommitKind.CATALOG
    return CommitKind.MANAGED if enablement.is_managed(protocol, metadata) else CommitKind.FILESYSTEM


def _table_id_of(protocol: Protocol, metadata: Metadata) -> str | None:
    """The UUID that a catalog gave the table, which it has to keep: other engines know it by that."""
    return metadata.configuration.get(_TABLE_ID) if has_catalog(protocol) else None


__all__ = ["Catalog", "create"]
