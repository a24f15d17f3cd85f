"""Tables that a transaction creates and drops, by their names in the catalog whose ledger decides on the commits.

A name is a row of the ledger, so that it comes and goes in the ledger transaction that ratifies the commits. A table
that is created is made at once, at a place that nobody knows of, and gets its name with the commit; if there is none,
what was made goes again. A table that is dropped gets a last version that changes its metadata, so that whoever writes
to it at the same time is told; then its name goes, and its files only where that was asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from lakeseal import table as tables
from lakeseal.catalog.endpoint import KeepsNamesWithCommits, Names
from lakeseal.catalog.name_records import record_of_drop, record_of_name
from lakeseal.catalog.names import CommitKind, NamedTable, StagedTable
from lakeseal.catalog.place import Place
from lakeseal.catalog.table_name import TableName
from lakeseal.catalogs import delete_table
from lakeseal.errors import AlreadyExists, InvalidArgument, LakesealError, TableNotFound, UnsupportedFeature
from lakeseal.owner.endpoint import OwnerEndpoint
from lakeseal.owner.messages import LedgerRecord
from lakeseal.storage import StoreSpec
from lakeseal.table import Table

_log = logging.getLogger(__name__)
DROPPED = "lakeseal.droppedName"
"""A property of the last version of a table that a transaction dropped: the name that it had."""

Name = tuple[str, str, str]


class _Created(Struct, frozen=True, kw_only=True):
    staged: StagedTable
    spec: StoreSpec


class _Dropped(Struct, frozen=True, kw_only=True):
    table: NamedTable
    spec: StoreSpec
    delete_files: bool


class NamesInTransaction:
    def __init__(self, names: Callable[[], Names], endpoint: OwnerEndpoint) -> None:
        self._names, self._endpoint = names, endpoint
        self._changes: list[_Created | _Dropped] = []

    @property
    def created(self) -> list[StoreSpec]:
        return [one.spec for one in self._changes if isinstance(one, _Created)]

    def create(
        self, name: str, schema: Any, storage_options: Mapping[str, str] | None, says: Mapping[str, Any]
    ) -> StoreSpec:
        """Where the table is that gets this name with the commit. Fails if the name is taken, unless by one that the
        transaction has dropped."""
        parsed, book = TableName.parse(name), self._book()
        if self.place(parsed) is not None:
            raise AlreadyExists(f"The transaction has created {parsed} already")
        staged = book.stage(parsed, None, CommitKind.MANAGED, may_be_taken=self.is_dropped(parsed))
        spec = StoreSpec(uri=staged.uri, storage_options=dict(storage_options or {}))
        try:
            tables.create(Place(uri=staged.uri), schema, owner=self._endpoint, storage_options=storage_options, **says)
        except LakesealError:
            self._undo(_Created(staged=staged, spec=spec))
            raise
        self._changes.append(_Created(staged=staged, spec=spec))
        return spec

    def undone(self, name: str) -> StoreSpec | None:
        """The table that the transaction had created by this name, and that is gone now; None if there was none."""
        created = self._created(TableName.parse(name))
        if created is None:
            return None
        self._changes.remove(created)
        self._undo(created)
        return created.spec

    def drop(self, name: str, delete_files: bool, storage_options: Mapping[str, str] | None) -> StoreSpec:
        """The table whose name goes with the commit."""
        parsed, book = TableName.parse(name), self._book()
        if self.is_dropped(parsed):
            raise TableNotFound(f"The transaction has dropped {parsed}")
        found = book.resolve(parsed)
        if found.kind is CommitKind.FILESYSTEM:
            raise UnsupportedFeature(
                f"The owner does not decide on the commits of {parsed}, so that a transaction cannot drop it",
                hint="Drop it by Catalog.drop, or let the owner take it over first",
            )
        spec = StoreSpec(uri=found.uri, storage_options=dict(storage_options or {}))
        self._changes.append(_Dropped(table=found, spec=spec, delete_files=delete_files))
        return spec

    def place(self, name: TableName) -> StoreSpec | None:
        created = self._created(name)
        return None if created is None else created.spec

    def is_dropped(self, name: TableName) -> bool:
        last = [one for one in self._changes if _name(one) == name.folded]
        return bool(last) and isinstance(last[-1], _Dropped)

    def is_dropped_place(self, uri: str) -> bool:
        return any(isinstance(one, _Dropped) and one.spec.uri == uri for one in self._changes)

    def records(self) -> list[LedgerRecord]:
        if not self._changes:
            return []
        book = self._book()
        return [
            record_of_name(one.staged, book.make_schema(one.staged.name.in_schema))
            if isinstance(one, _Created)
            else record_of_drop(one.table, book.schema(one.table.name.in_schema))
            for one in self._changes
        ]

    def committed(self) -> None:
        """Files of dropped tables go behind the commit; what is left of them after a failure is only garbage."""
        for one in self._changes:
            if isinstance(one, _Dropped) and one.delete_files:
                table = Table(Place(uri=one.spec.uri), owner=self._endpoint, storage_options=one.spec.storage_options)
                try:
                    delete_table(table, self._endpoint)
                except LakesealError as error:
                    _log.warning("The files of %s, which was dropped, are still there: %s", one.table.name, error)

    def failed(self) -> None:
        """Nothing was committed, for certain."""
        for one in self._changes:
            if isinstance(one, _Created):
                self._undo(one)
        self._changes.clear()

    def _created(self, name: TableName) -> _Created | None:
        return next((c for c in self._changes if isinstance(c, _Created) and _name(c) == name.folded), None)

    def _undo(self, created: _Created) -> None:
        """What cannot be undone is among the catalog's unfinished."""
        table = Table(Place(uri=created.spec.uri), owner=self._endpoint, storage_options=created.spec.storage_options)
        try:
            if table.exists():
                delete_table(table, self._endpoint)
            self._book().unstage(created.staged.table_id)
        except LakesealError as error:
            _log.warning("The table %s was made for nothing, and is still there: %s", created.staged.uri, error)

    def _book(self) -> KeepsNamesWithCommits:
        names = self._names()
        if not isinstance(names, KeepsNamesWithCommits):
            raise UnsupportedFeature(
                "In this catalog, names do not come and go with commits",
                hint="Create or drop the table before or behind the transaction",
            )
        if not names.is_kept_by(self._endpoint):
            raise InvalidArgument(
                "The catalog's names are in another ledger than the transaction's commits",
                hint="Leave the owner out: the catalog's own decides",
            )
        return names


def _name(change: _Created | _Dropped) -> Name:
    return change.staged.name.folded if isinstance(change, _Created) else change.table.name.folded
