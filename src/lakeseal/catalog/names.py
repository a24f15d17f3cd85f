"""`NameBook`: which table a name means, in the ledger.

What a caller may rely on, on every database:

- A name means one table, a table has one name, and a place has one table: names are compared as `TableName` says, and
  URIs in their normal form. Of two who register the same name, one wins and the other is told (`AlreadyExists`).
- A table is known by its UUID, which stays with it through `rename`. Changes that say which UUID they mean are the same
  when done twice, so that a lost answer is settled by asking again; without one, that of the moment is meant.
- Reading makes no ledger, and every answer is of one moment. Lists come in pages, in the order of the folded names; a
  page's token is where the next one goes on, whatever was added or dropped meanwhile.
- Nothing here looks at files. `kind` is what was told last of who decides on the table's commits; the table's own log
  has the last word.

A table that is being created has no name until it is there: `stage` notes where it will be, `register` with the same
UUID ends that. What a crash leaves between the two is told by `staged`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from enum import StrEnum
from importlib import import_module
from typing import Any, TypeVar

import sqlalchemy as sa
from msgspec import Struct

from lakeseal.catalog.table_name import SchemaName, TableName, fold
from lakeseal.clock import now_ms
from lakeseal.errors import AlreadyExists, BrokenLedger, InvalidArgument, Refused, SchemaNotFound, TableNotFound
from lakeseal.ledger import Ledger, Row, Tx
from lakeseal.ledger.schema import schemas, staged_tables, table_names
from lakeseal.owner.endpoint import OwnerEndpoint

T = TypeVar("T")

MOST_OF_A_PAGE = 1000
# A room above this one.
_TOKENS = "lakeseal.service.tokens"


class CommitKind(StrEnum):
    """Who decides on a table's commits."""

    FILESYSTEM = "filesystem"
    MANAGED = "managed"
    """The owner that the table names, by managed commits."""
    CATALOG = "catalog"
    """The catalog, by `catalogManaged`."""


class NamedSchema(Struct, frozen=True, kw_only=True):
    name: SchemaName
    schema_id: str
    created_ms: int


class NamedTable(Struct, frozen=True, kw_only=True):
    name: TableName
    uri: str
    table_id: str
    """A UUID; of a `catalogManaged` table its `io.unitycatalog.tableId`."""
    kind: CommitKind
    created_ms: int
    updated_ms: int


class StagedTable(Struct, frozen=True, kw_only=True):
    name: TableName
    uri: str
    table_id: str
    kind: CommitKind
    created_ms: int


class SchemaPage(Struct, frozen=True, kw_only=True):
    schemas: tuple[NamedSchema, ...]
    next_token: str | None = None


class TablePage(Struct, frozen=True, kw_only=True):
    tables: tuple[NamedTable, ...]
    next_token: str | None = None


_NAMED = sa.select(table_names, schemas.c.catalog, schemas.c.schema).join_from(table_names, schemas)
_BY_NAME = _NAMED.where(
    schemas.c.catalog_folded == sa.bindparam("catalog"),
    schemas.c.schema_folded == sa.bindparam("schema"),
    table_names.c.name_folded == sa.bindparam("name"),
)
_BY_ID = _NAMED.where(table_names.c.table_uuid == sa.bindparam("table_id"))
_PAGE = (
    _NAMED.where(
        table_names.c.schema_id == sa.bindparam("schema_id"), table_names.c.name_folded > sa.bindparam("after")
    )
    .order_by(table_names.c.name_folded)
    .limit(sa.bindparam("most"))
)
_SCHEMA_PAGE = (
    sa.select(schemas)
    .where(schemas.c.catalog_folded == sa.bindparam("catalog"), schemas.c.schema_folded > sa.bindparam("after"))
    .order_by(schemas.c.schema_folded)
    .limit(sa.bindparam("most"))
)
_CATALOGS = sa.select(schemas.c.catalog_folded, sa.func.min(schemas.c.catalog).label("catalog")).group_by(
    schemas.c.catalog_folded
)


class NameBook:
    """Those in a ledger. May be shared by threads."""

    def __init__(self, ledger: Ledger, *, root: str | None = None) -> None:
        """`root` is where tables go that are staged without a place."""
        self._ledger = ledger
        self._root = root

    def catalogs(self) -> list[str]:
        """Those that have a schema, sorted."""
        rows = self._ledger.read(lambda tx: tx.rows(_CATALOGS, lock=False))
        return [row.catalog for row in sorted(rows, key=lambda row: str(row.catalog_folded))]

    def create_schema(self, name: SchemaName, *, schema_id: str | None = None) -> NamedSchema:
        """`AlreadyExists` if it is there."""
        given = _given(schema_id)

        def do(tx: Tx) -> NamedSchema:
            found = _make_schema(tx, name, given)
            if found.schema_id != given:
                raise AlreadyExists(f"The schema {name} is there already")
            return found

        return self._write(do)

    def make_schema(self, name: SchemaName) -> NamedSchema:
        """The one that is there, or a new one."""
        return self._write(lambda tx: _make_schema(tx, name, str(uuid.uuid4())))

    def schema(self, name: SchemaName) -> NamedSchema:
        return self._ledger.read(lambda tx: _schema(tx, name))

    def schemas(self, catalog: str, *, token: str | None = None, limit: int = MOST_OF_A_PAGE) -> SchemaPage:
        values = {"catalog": fold(catalog), "after": _after(token), "most": _most(limit) + 1}
        rows = self._ledger.read(lambda tx: tx.rows(_SCHEMA_PAGE, values, lock=False))
        more = len(rows) > limit
        found = tuple(_schema_from_row(row) for row in rows[:limit])
        return SchemaPage(schemas=found, next_token=rows[limit - 1].schema_folded if more else None)

    def drop_schema(self, name: SchemaName, *, schema_id: str | None = None) -> bool:
        """`Refused` while there are names in it. False if the one that is meant was dropped before."""
        meant = self.schema(name).schema_id if schema_id is None else schema_id

        def do(tx: Tx) -> bool:
            if tx.get(schemas, schema_id=meant) is None:
                return False
            if tx.rows(_PAGE, {"schema_id": meant, "after": "", "most": 1}, lock=False):
                raise Refused(f"The schema {name} has tables in it", hint="Drop or rename them first")
            return tx.delete(schemas, schema_id=meant) > 0

        return self._write(do)

    def register(
        self, name: TableName, uri: str, kind: CommitKind, *, table_id: str | None = None, make_schema: bool = True
    ) -> NamedTable:
        """Gives a table its name, and ends the staging of `table_id`. `uri` is in its normal form. The schema is made
        if it is not there, unless it is not to be (`SchemaNotFound`)."""
        given = _given(table_id)
        now = now_ms()

        def do(tx: Tx) -> NamedTable:
            staged = tx.get(staged_tables, table_uuid=given)
            if staged is not None and staged.uri != uri:
                raise InvalidArgument(f"The table {given} is being made at another place: {staged.uri}", table=uri)
            schema = _make_schema(tx, name.in_schema, str(uuid.uuid4())) if make_schema else _schema(tx, name.in_schema)
            values = {"table_uuid": given, "schema_id": schema.schema_id, "name": name.table}
            values |= {"name_folded": fold(name.table), "uri": uri, "kind": kind.value}
            if not tx.insert(table_names, **values, created=now, updated=now):
                return _same(tx, name, uri, given)
            tx.delete(staged_tables, table_uuid=given)
            return _by_id(tx, given)

        return self._write(do)

    def resolve(self, name: TableName) -> NamedTable:
        """`TableNotFound` if it has no such name."""
        return self._ledger.look(lambda tx: _resolve(tx, name))

    def by_id(self, table_id: str) -> NamedTable:
        """`TableNotFound` if it has no such table."""
        return self._ledger.read(lambda tx: _by_id(tx, table_id))

    def by_uri(self, uri: str) -> NamedTable | None:
        """The table at a place, if it has a name."""

        def do(tx: Tx) -> NamedTable | None:
            row = tx.get(table_names, uri=uri)
            return None if row is None else _by_id(tx, row.table_uuid)

        return self._ledger.read(do)

    def tables(self, schema: SchemaName, *, token: str | None = None, limit: int = MOST_OF_A_PAGE) -> TablePage:
        """`SchemaNotFound` if there is no such schema."""
        after, most = _after(token), _most(limit) + 1

        def do(tx: Tx) -> TablePage:
            values = {"schema_id": _schema(tx, schema).schema_id, "after": after, "most": most}
            rows = tx.rows(_PAGE, values, lock=False)
            more = len(rows) > limit
            found = tuple(_from_row(row) for row in rows[:limit])
            return TablePage(tables=found, next_token=rows[limit - 1].name_folded if more else None)

        return self._ledger.read(do)

    def rename(self, name: TableName, new_name: TableName, *, table_id: str | None = None) -> NamedTable:
        """The files stay where they are."""
        meant = self.resolve(name).table_id if table_id is None else table_id
        now = now_ms()

        def do(tx: Tx) -> NamedTable:
            _lock(tx, name.in_schema, new_name.in_schema)
            found = _by_id(tx, meant)
            if found.name == new_name:
                return found
            if found.name.folded != name.folded:
                raise _no_table(name)
            schema = _make_schema(tx, new_name.in_schema, str(uuid.uuid4()))
            folded = fold(new_name.table)
            other = tx.get(table_names, schema_id=schema.schema_id, name_folded=folded)
            if other is not None and other.table_uuid != meant:
                raise _taken(new_name)
            values = {"schema_id": schema.schema_id, "name": new_name.table, "name_folded": folded, "updated": now}
            tx.update(table_names, {"table_uuid": meant}, values)
            return _by_id(tx, meant)

        return self._write(do)

    def set_kind(self, name: TableName, kind: CommitKind, *, table_id: str | None = None) -> NamedTable:
        meant = self.resolve(name).table_id if table_id is None else table_id
        values = {"kind": kind.value, "updated": now_ms()}

        def do(tx: Tx) -> NamedTable:
            tx.update(table_names, {"table_uuid": meant}, values)
            return _by_id(tx, meant)

        return self._write(do)

    def drop(self, name: TableName, *, table_id: str | None = None) -> bool:
        """Forgets the name; the files stay. False if the table that is meant was dropped before. A table that has
        another name by now is left alone (`TableNotFound`)."""
        meant = self.resolve(name).table_id if table_id is None else table_id

        def do(tx: Tx) -> bool:
            found = _find(tx, meant)
            if found is None:
                return False
            if found.name.folded != name.folded:
                raise _no_table(name)
            return tx.delete(table_names, table_uuid=meant) > 0

        return self._write(do)

    def stage(
        self,
        name: TableName,
        uri: str | None,
        kind: CommitKind,
        *,
        table_id: str | None = None,
        may_be_taken: bool = False,
    ) -> StagedTable:
        """Notes that a table is about to be made at `uri`, or at a place of its own below the root, and is to get this
        name; `AlreadyExists` if the name is taken, unless it may be until then. Several may be on their way to one
        name: the first to be registered gets it."""
        given = _given(table_id)
        place = self.place_for(given) if uri is None else uri
        now = now_ms()
        parts = {"catalog": name.catalog, "schema": name.schema, "name": name.table}

        def do(tx: Tx) -> StagedTable:
            if not may_be_taken and tx.rows(_BY_NAME, _parts(name), lock=False):
                raise _taken(name)
            tx.insert(staged_tables, table_uuid=given, **parts, uri=place, kind=kind.value, created=now)
            row = tx.get(staged_tables, table_uuid=given)
            assert row is not None, "it was inserted, or was there"
            return _staged_from_row(row)

        return self._write(do)

    def staged(self, table_id: str | None = None) -> list[StagedTable]:
        """Those that were begun and have no name yet, the oldest first; or one of them."""
        query = sa.select(staged_tables).order_by(staged_tables.c.created, staged_tables.c.table_uuid)
        if table_id is not None:
            query = query.where(staged_tables.c.table_uuid == table_id)
        return [_staged_from_row(row) for row in self._ledger.read(lambda tx: tx.rows(query, lock=False))]

    def unstage(self, table_id: str) -> bool:
        """Whether there was such a table."""
        return self._write(lambda tx: tx.delete(staged_tables, table_uuid=table_id) > 0)

    def grant(self, name: TableName, role: str, to: str) -> Sequence[str]:
        """Gives a token, by its id, a role for a table; all that it may do then."""
        uri = self.resolve(name).uri
        granted = import_module(_TOKENS).grant(self._ledger, to, role, uri)
        return [str(one) for one in granted]

    def is_kept_by(self, owner: OwnerEndpoint) -> bool:
        """Whether they are in the ledger that this owner decides in."""
        return getattr(owner, "ledger", None) is self._ledger

    def place_for(self, table_id: str) -> str:
        """Where a table goes that is created without a location."""
        if self._root is None:
            raise InvalidArgument(
                "The catalog has no root for tables without a location",
                hint="Give the table a location, or the catalog a root: lakeseal.Catalog(url, root=…), or --root of "
                "lakeseal serve",
            )
        return f"{self._root.rstrip('/')}/{table_id}"

    def _write(self, do: Callable[[Tx], T]) -> T:
        return self._ledger.write(do, idempotent=True)


def _make_schema(tx: Tx, name: SchemaName, schema_id: str) -> NamedSchema:
    """The schema, locked; made under this id if it is not there."""
    catalog, schema = name.folded
    folded = {"catalog_folded": catalog, "schema_folded": schema}
    while True:
        tx.insert(schemas, schema_id=schema_id, catalog=name.catalog, schema=name.schema, **folded, created=now_ms())
        # One that was there may have been dropped before it is locked.
        if (row := tx.get(schemas, **folded)) is not None:
            return _schema_from_row(row)


def _schema(tx: Tx, name: SchemaName) -> NamedSchema:
    catalog, schema = name.folded
    row = tx.get(schemas, catalog_folded=catalog, schema_folded=schema)
    if row is None:
        raise SchemaNotFound(f"There is no schema {name}")
    return _schema_from_row(row)


def _lock(tx: Tx, *names: SchemaName) -> None:
    """Names come and go in a schema only while its row is locked; in one order, so that no two wait for each other."""
    for catalog, schema in sorted({name.folded for name in names}):
        tx.get(schemas, catalog_folded=catalog, schema_folded=schema)


def _parts(name: TableName) -> dict[str, str]:
    return dict(zip(("catalog", "schema", "name"), name.folded, strict=True))


def _resolve(tx: Tx, name: TableName) -> NamedTable:
    rows = tx.rows(_BY_NAME, _parts(name), lock=False)
    if not rows:
        raise _no_table(name)
    return _from_row(rows[0])


def _find(tx: Tx, table_id: str) -> NamedTable | None:
    """The table's row is locked alone: whoever waits for a lock on two rows that belong together, while a rename makes
    the one belong to a third, is told by PostgreSQL that neither is there."""
    if tx.get(table_names, table_uuid=table_id) is None:
        return None
    rows = tx.rows(_BY_ID, {"table_id": table_id}, lock=False)
    return _from_row(rows[0]) if rows else None


def _by_id(tx: Tx, table_id: str) -> NamedTable:
    found = _find(tx, table_id)
    if found is None:
        raise TableNotFound(
            f"There is no table with the id {table_id}", hint="lakeseal catalog list shows what there is"
        )
    return found


def _same(tx: Tx, name: TableName, uri: str, table_id: str) -> NamedTable:
    """The table that is in the way of registering one, if it is the very same one; else why not."""
    rows = tx.rows(_BY_ID, {"table_id": table_id}, lock=False)
    if rows and rows[0].uri == uri and _from_row(rows[0]).name.folded == name.folded:
        return _from_row(rows[0])
    if rows:
        raise AlreadyExists(f"The table {table_id} has the name {_from_row(rows[0]).name} already", table=rows[0].uri)
    if tx.rows(_BY_NAME, _parts(name), lock=False):
        raise _taken(name)
    at = tx.get(table_names, uri=uri)
    of = "another table" if at is None else str(_by_id(tx, at.table_uuid).name)
    raise AlreadyExists(f"The place has the name {of} already", table=uri, hint="A table has one name: rename it")


def _after(token: str | None) -> str:
    if token is not None and not 0 < len(token) <= 255:
        raise InvalidArgument("This is no token of a page", hint="Give the one that the page before it came with")
    return token or ""


def _most(limit: int) -> int:
    if not 1 <= limit <= MOST_OF_A_PAGE:
        raise InvalidArgument(f"A page has 1 to {MOST_OF_A_PAGE:,} entries, not {limit}")
    return limit


def _given(uuid_text: str | None) -> str:
    """A new one, if none was given."""
    if uuid_text is None:
        return str(uuid.uuid4())
    try:
        if str(uuid.UUID(uuid_text)) == uuid_text.lower():
            return uuid_text.lower()
    except (ValueError, AttributeError, TypeError):
        pass
    raise InvalidArgument(f"{str(uuid_text)[:100]!r} is no UUID")


def _no_table(name: TableName) -> TableNotFound:
    return TableNotFound(f"There is no table named {name}", hint="lakeseal catalog list shows what there is")


def _taken(name: TableName) -> AlreadyExists:
    return AlreadyExists(f"There is a table named {name} already", hint="Choose another name, or drop that one")


def _schema_from_row(row: Row) -> NamedSchema:
    name = SchemaName(catalog=row.catalog, schema=row.schema)
    return NamedSchema(name=name, schema_id=row.schema_id, created_ms=row.created)


def _from_row(row: Row) -> NamedTable:
    return NamedTable(
        **_common(row),
        created_ms=row.created,
        updated_ms=row.updated,
    )


def _staged_from_row(row: Row) -> StagedTable:
    return StagedTable(**_common(row), created_ms=row.created)


def _common(row: Row) -> dict[str, Any]:
    try:
        return {
            "name": TableName(catalog=row.catalog, schema=row.schema, table=row.name),
            "uri": row.uri,
            "table_id": row.table_uuid,
            "kind": CommitKind(row.kind),
        }
    except (ValueError, InvalidArgument) as error:
        raise BrokenLedger(f"The ledger's table {row.table_uuid} has a name or a kind that is none: {error}") from None
