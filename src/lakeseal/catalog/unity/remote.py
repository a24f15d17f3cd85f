"""The seam to a catalog of others: its calls, over whatever wire.

What a caller may rely on: answers are decoded and bounded. Errors are typed: `TableNotFound`, `SchemaNotFound`,
`NotAuthenticated`, `NotAllowed`, `AlreadyExists`, `ConcurrentModification` (409, whatever it was about), `OwnerBusy`
(429), `Refused` (every other no that is final), `UnknownOutcome` where a call may have changed something and no answer
of the catalog came, `StorageUnavailable` where it changed nothing. Questions are asked again for a few seconds first.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar
from urllib.parse import quote

from lakeseal.catalog.table_name import SchemaName, TableName

T = TypeVar("T")


class Remote(Protocol):
    """May be shared by threads."""

    @property
    def url(self) -> str: ...

    def ask(self, path: str, reply: type[T], **query: str | int | None) -> T:
        """A question, which changes nothing. `path` is below the protocol's base."""

    def change(self, method: str, path: str, reply: type[T], body: Any = None) -> T:
        """What may change something: asked once, but for what was told to wait."""


def schema_path(name: SchemaName) -> str:
    return f"/delta/v1/catalogs/{_part(name.catalog)}/schemas/{_part(name.schema)}"


def table_path(name: TableName) -> str:
    return f"{schema_path(name.in_schema)}/tables/{_part(name.table)}"


def full_name(name: TableName | SchemaName) -> str:
    """As a part of a path; the parts hold no dots."""
    parts = [name.catalog, name.schema, *([name.table] if isinstance(name, TableName) else [])]
    return ".".join(map(_part, parts))


def _part(text: str) -> str:
    return quote(text, safe="")
