"""Options of `format("lakeseal")` on their way in: text by names, from which each reader and writer makes one value.

Names match without regard to case, as everywhere in Spark. Storage options go in under their own names where these
have a vendor's prefix (`aws_region`, `google_…`, `azure_…`), and under `storage.<name>` always (`storage.timeout`).
A name that nobody knows is refused with the ones that it is close to: a misspelt option must not be a silent one.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from msgspec import Struct

from lakeseal.catalog.place import check_not_dropped, locate, named
from lakeseal.catalog.table_name import TableName
from lakeseal.errors import InvalidArgument
from lakeseal.owner.connect import Owners, connect
from lakeseal.owner.routing import CatalogRouter, Router
from lakeseal.storage import StoreSpec

TABLE_OPTIONS = ("path", "table", "catalog", "owner")
_STORAGE = "storage."
_VENDORS = ("aws_", "google_", "azure_")
_TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def is_of_storage(name: str) -> bool:
    return name.lower().startswith((_STORAGE, *_VENDORS))


class GivenOptions(Struct, frozen=True, kw_only=True):
    """What the user gave, sorted out by whom it is for."""

    own: Mapping[str, str]
    """By lower-case name."""
    storage: Mapping[str, str]

    @classmethod
    def of(cls, options: Mapping[str, str], known: Iterable[str]) -> GivenOptions:
        names = {name.lower(): name for name in known}
        own: dict[str, str] = {}
        storage: dict[str, str] = {}
        for name, value in options.items():
            lower = name.lower()
            if lower in names:
                own[lower] = value
            elif is_of_storage(lower):
                storage[lower.removeprefix(_STORAGE)] = value
            else:
                raise _unknown(name, names)
        return cls(own=own, storage=storage)

    def text(self, name: str) -> str | None:
        return self.own.get(name.lower())

    def flag(self, name: str, default: bool = False) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.strip().lower() not in _TRUTH:
            raise InvalidArgument(f"The option {name} cannot be {text!r}", hint="Use true or false")
        return _TRUTH[text.strip().lower()]

    def number(self, name: str, *, least: int = 0) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if not text.strip().isdecimal() or int(text) < least:
            raise InvalidArgument(f"The option {name} cannot be {text!r}", hint=f"Use a whole number from {least} on")
        return int(text)


class GivenTable(Struct, frozen=True, kw_only=True):
    """Which table the user means, by its place or by its name: `path`, `table`, `catalog` and `owner`. A name is looked
    up once, where it comes in."""

    uri: str
    storage_options: dict[str, str] = {}
    owner: str | None = None
    catalog: str | None = None
    """That has the name."""
    is_catalogs: bool = False
    """Whether the catalog decides on the table's commits."""
    name: str | None = None
    """By which the catalog knows it."""
    table_id: str | None = None
    """What the catalog calls the table that had the name."""

    @classmethod
    def of(cls, given: GivenOptions, *, hint: str) -> GivenTable:
        path, name, catalog = (given.text(option) for option in TABLE_OPTIONS[:3])
        if not path and not name:
            raise InvalidArgument("The table's location is missing", hint=hint)
        if path and name:
            raise InvalidArgument("The table is named by its path and by its name", hint="Give one of them")
        place = locate(path, catalog) if path else named(TableName.parse(name or ""), catalog)
        return cls(
            uri=place.uri,
            storage_options=dict(given.storage or place.credentials()),
            owner=given.text("owner"),
            catalog=None if place.catalog is None else place.catalog.url,
            is_catalogs=place.is_owned,
            name=None if place.table is None else str(place.table.name),
            table_id=place.table_id,
        )

    @property
    def store(self) -> StoreSpec:
        return StoreSpec(uri=self.uri, storage_options=self.storage_options)

    def check_not_dropped(self) -> None:
        """Before the table is made anew: that its name is still its own."""
        if self.catalog is None or self.name is None or self.table_id is None:
            return
        from lakeseal.catalog.connect import open_catalog  # whoever gives URIs needs no database's libraries

        check_not_dropped(open_catalog(self.catalog), TableName.parse(self.name), self.table_id, self.uri)

    def open(self, *, creates: bool) -> Router:
        """The table, with the owner that was named, or those of the catalog and of the environment. `creates`: whether
        it is made if it is not there."""
        named_owner = None if self.owner is None else connect(self.owner)
        catalogs = None
        if self.catalog is not None:
            from lakeseal.catalog.connect import open_catalog  # whoever gives URIs needs no database's libraries

            opened = open_catalog(self.catalog)
            if opened.by_table is not None and self.is_catalogs and self.name is not None:
                store, table = self.store.open(), opened.names.resolve(TableName.parse(self.name))
                return CatalogRouter(store, opened.by_table.committer(table, store))
            catalogs = opened.owner
        creator = named_owner or (catalogs if self.is_catalogs else None)
        owners = Owners(*(one for one in (catalogs, named_owner) if one is not None))
        return Router(self.store.open(), owners, creator=creator if creates else None)


def _unknown(name: str, names: Mapping[str, str]) -> InvalidArgument:
    close = [names[found] for found in difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.6)]
    hint = f"Did you mean {' or '.join(close)}?" if close else f"There are {', '.join(sorted(names.values()))}"
    return InvalidArgument(f"The option {name!r} is not known", hint=f"{hint} Storage options start with storage.")
