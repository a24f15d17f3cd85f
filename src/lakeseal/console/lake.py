"""What there is to show, and to whom.

A `Lake` is given by whoever serves the pages: a service, which opens tables in its roots only, or one user.
A `Viewer` sees what they may read; all that is asked for goes through the lake, which checks it first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

import sqlalchemy as sa
from msgspec import Struct

from lakeseal.branches import embedded
from lakeseal.branches.embedded.heads import REPOSITORY as _REPOSITORY
from lakeseal.catalog.names import NamedTable
from lakeseal.catalogs import Catalog
from lakeseal.errors import NotAllowed, NotFound
from lakeseal.ledger import Ledger
from lakeseal.ledger.schema import heads
from lakeseal.repository import Repository
from lakeseal.table import Table

RoleName = Literal["reader", "writer", "admin"]
_MOST_ROWS = 5_000


class Viewer(Struct, frozen=True, kw_only=True):
    """Who looks at pages."""

    name: str | None
    """None where nobody has to sign in."""
    may: Callable[[RoleName, str], bool]
    """Whether they have a role for the table at a URI."""
    everywhere: Callable[[RoleName], bool]

    def check(self, role: RoleName, uri: str) -> None:
        if not self.may(role, uri):
            raise NotAllowed(f"{self.name or 'This viewer'} needs the role {role} for this", table=uri)

    def check_everywhere(self, role: RoleName) -> None:
        if not self.everywhere(role):
            raise NotAllowed(f"{self.name or 'This viewer'} needs the role {role} for everything")


class Owned(Protocol):
    """How far a table is that an owner has; `service.wire.TableStatus` is one."""

    @property
    def table(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def latest(self) -> int: ...
    @property
    def backfilled(self) -> int: ...
    @property
    def unbackfilled(self) -> int: ...
    @property
    def lag_ms(self) -> int: ...
    @property
    def updated(self) -> int: ...


class ShownTable(Struct, frozen=True, kw_only=True):
    uri: str
    name: str = ""
    kind: str = "filesystem"
    owned: Owned | None = None


class ShownCall(Protocol):
    """What a service was asked lately; `service.finished_calls.FinishedCall` is one."""

    @property
    def at_ms(self) -> int: ...
    @property
    def call(self) -> str: ...
    @property
    def who(self) -> str: ...
    @property
    def tables(self) -> Sequence[str]: ...
    @property
    def versions(self) -> Sequence[int]: ...
    @property
    def conflicts(self) -> int: ...
    @property
    def refused(self) -> str | None: ...


class ShownToken(Protocol):
    """What the page of grants shows; `service.tokens.AccessToken` is one."""

    @property
    def token_id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def grants(self) -> Sequence[object]: ...
    @property
    def created(self) -> int: ...
    @property
    def expires(self) -> int | None: ...
    @property
    def revoked(self) -> int | None: ...


def repositories_in(ledger: Ledger, storage_options: Mapping[str, str] | None) -> dict[str, Callable[[], Repository]]:
    """Those whose heads are in a ledger, by where they are."""
    if not ledger.is_made:
        return {}
    query = sa.select(heads.c.info).where(heads.c.kind == _REPOSITORY).limit(_MOST_ROWS)
    found = [row.info.get("uri") for row in ledger.read(lambda tx: tx.rows(query, lock=False))]

    def opener(uri: str) -> Callable[[], Repository]:
        options = None if uri.startswith("file://") else storage_options
        return lambda: Repository(embedded.open(uri, ledger=ledger, storage_options=options))

    return {uri: opener(uri) for uri in sorted(one for one in found if isinstance(one, str))}


class Lake(Struct, frozen=True, kw_only=True):
    title: str
    catalog: Catalog
    ledger: Ledger | None
    """Where pipelines, grants and owned tables are; None where there is none."""
    open_table: Callable[[str], Table]
    """Checks first that it is to be shown here."""
    owned: Callable[[], Sequence[Owned]] = tuple
    tokens: Callable[[], Sequence[ShownToken]] = tuple
    calls: Callable[[], Sequence[ShownCall]] = tuple
    """The last ones that decided something or were refused, oldest first."""
    lags: Callable[[], Sequence[tuple[int, int]]] = tuple
    """When, and by how many milliseconds logs were behind then."""
    lags_of: Callable[[str], Sequence[tuple[int, int]]] = lambda uri: ()
    """The same of the last commits of one table: when each was made, and how long its copy in the log took."""
    places: Sequence[str] = ()
    """Tables to show that neither the catalog nor an owner knows."""
    repositories: Callable[[], Mapping[str, Callable[[], Repository]]] = dict

    def names(self, viewer: Viewer) -> list[NamedTable]:
        return [one for one in self.catalog.tables() if viewer.may("reader", one.uri)]

    def tables(self, viewer: Viewer, search: str = "") -> list[ShownTable]:
        """All that the viewer may read, by name and then by place; those with all words of `search` in either."""
        owned = {one.table: one for one in self.owned()}
        named = {one.uri: one for one in self.catalog.tables()}
        rows = [
            ShownTable(
                uri=uri,
                name="" if uri not in named else str(named[uri].name),
                kind=str(named[uri].kind) if uri in named else "managed" if uri in owned else "filesystem",
                owned=owned.get(uri),
            )
            for uri in {**owned, **named, **dict.fromkeys(self.places)}
            if viewer.may("reader", uri)
        ]
        words = search.lower().split()
        found = [row for row in rows if all(word in f"{row.name} {row.uri}".lower() for word in words)]
        return sorted(found, key=lambda row: (not row.name, row.name.lower(), row.uri))

    def table(self, viewer: Viewer, uri: str) -> Table:
        """One that they may read. Whether there is another nobody is told."""
        viewer.check("reader", uri)
        return self.open_table(uri)

    def name_of(self, uri: str) -> NamedTable | None:
        return next((one for one in self.catalog.tables() if one.uri == uri), None)

    def repository(self, viewer: Viewer, uri: str, role: RoleName = "reader") -> Repository:
        viewer.check(role, uri)
        opens = self.repositories().get(uri)
        if opens is None:
            raise NotFound("There is no such repository here", hint="The page of branches lists those that there are")
        return opens()

    def book(self, viewer: Viewer, role: RoleName = "reader") -> Ledger:
        """Of pipelines, which are about no single table."""
        viewer.check_everywhere(role)
        if self.ledger is None:
            raise NotFound("There is no ledger here")
        return self.ledger
