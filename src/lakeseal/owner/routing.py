"""Finding out who decides on a table's commits, and following the table when that changes.

A table names its owner; which owners there are, the user says. A name that the user has not configured is never looked
up anywhere, and whatever else the table's metadata holds (endpoints, say) is never used to reach anybody. Such a table
can be read as far as it is backfilled, with a `StaleReadWarning`, and not written to. One that is a catalog's cannot be
read either: what is in its log proves nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import TypeVar

from msgspec import Struct

from lakeseal.commit.filesystem_owner import FilesystemOwner
from lakeseal.commit.owner import CommitOwner, OwnedCommits
from lakeseal.errors import OwnedElsewhere, WrongLedger
from lakeseal.log.delta_log import DeltaLog
from lakeseal.log.snapshot import Snapshot
from lakeseal.owner import enablement
from lakeseal.owner.endpoint import OwnerEndpoint, vanished
from lakeseal.owner.kinds import NEW_TABLE, NewTable
from lakeseal.owner.managed_owner import ManagedOwner
from lakeseal.owner.ownership import State
from lakeseal.protocol.paths import LOG_DIR
from lakeseal.storage.base import Store
from lakeseal.trust import Trust

T = TypeVar("T")
_MOVES = 100
_STRANGE = 3


class StaleReadWarning(UserWarning):
    """What is read may be behind: the table's owner, who knows of newer commits, is not configured."""


class Route(Struct, frozen=True, kw_only=True):
    """How a table is read and written while `owner_name` is its owner (None: the file system)."""

    log: DeltaLog
    owner: CommitOwner
    owner_name: str | None

    def leads_to(self, snapshot: Snapshot | None) -> bool:
        """False once the table has another owner, so that others know of newer commits."""
        return snapshot is None or snapshot.properties.owner_name == self.owner_name


class Router:
    """One table, wherever it goes. May be shared by threads."""

    def __init__(
        self,
        store: Store,
        owners: Mapping[str, OwnerEndpoint],
        *,
        creator: OwnerEndpoint | None = None,
        new: NewTable = NEW_TABLE,
        trust: Trust | None = None,
    ) -> None:
        """`owners` by name; `creator` is the owner of a table that is not there yet and is created through this, in the
        form of `new`."""
        self._store = store
        self._trust = trust
        self._owners = owners
        self._creator = creator
        self._new = new
        self._route: Route | None = None
        self._has_warned = False

    def route(self) -> Route:
        found = self._route
        if found is None:
            found = self._route = self._find()
        return found

    def owner(self, name: str) -> OwnerEndpoint:
        """A configured owner."""
        endpoint = self._owners.get(name)
        if endpoint is None:
            raise OwnedElsewhere(
                f"The table's owner {name!r} is not configured here",
                table=self._store.uri,
                hint="Open the table with its owner: lakeseal.Table(uri, owner=…)",
            )
        return endpoint

    def reopen(self) -> Route:
        self._route = None
        return self.route()

    def snapshot(self) -> Snapshot | None:
        """The newest version that this client can know of; None where there is no table."""
        for _ in range(_MOVES):
            route = self.route()
            newest = route.log.update()
            if newest is None:
                if route.owner_name is None or self._creator is not None:
                    return None
            elif route.leads_to(newest) and not (isinstance(route.owner, ManagedOwner) and route.owner.is_stranger):
                return newest
            self.reopen()
        raise _restless(self._store.uri)

    def run(self, do: Callable[[Route], T]) -> T:
        """`do` with the route as it is now, and again if the table changed hands while it ran.

        `OwnedElsewhere` says that nothing was committed, so `do` can run again from its beginning."""
        for _ in range(_MOVES):
            route = self.route()
            try:
                return do(route)
            except OwnedElsewhere:
                if not self._has_moved(route, self.reopen()):
                    raise
        raise _restless(self._store.uri)

    @staticmethod
    def _has_moved(before: Route, after: Route) -> bool:
        if not isinstance(after.owner, ManagedOwner):
            # To the file system, perhaps by way of an owner, or to one that is not configured.
            return after.owner_name is None
        if not isinstance(before.owner, ManagedOwner) or before.owner_name != after.owner_name:
            return True
        return before.owner.epoch() != after.owner.epoch()

    def _find(self) -> Route:
        strangers = 0
        for _ in range(_MOVES):
            log = DeltaLog(self._store, trust=self._trust)
            snapshot = log.update()
            if snapshot is None:
                return self._to_new() if self._creator is not None else self._to_files(log, None)
            name = snapshot.properties.owner_name
            endpoint = None
            if name is not None and enablement.is_managed(snapshot.protocol, snapshot.metadata):
                endpoint = self._owners.get(name)
            if endpoint is None:
                enablement.check_path_is_enough(snapshot)
                if name is not None:
                    self._warn(snapshot)
                return self._to_files(log, name)
            route = self._to(endpoint)
            newest = route.log.update()
            if not route.leads_to(newest):
                continue
            wrong = None if newest is None else _stranger(endpoint, route.owner, newest)
            if wrong is None:
                return route
            # A release and a take-over between two questions look the same, once.
            strangers += 1
            if strangers >= _STRANGE:
                raise wrong
        raise _restless(self._store.uri)

    def _to(self, endpoint: OwnerEndpoint) -> Route:
        owner = ManagedOwner(endpoint, self._store, new=self._new)
        log = DeltaLog(self._store, commit_source=OwnedCommits(owner), trust=self._trust)
        return Route(log=log, owner=owner, owner_name=endpoint.name)

    def _to_new(self) -> Route:
        """There is no table here, and there must be none that the owner knows: absent is not deleted."""
        assert self._creator is not None
        told = self._creator.get_commits(self._creator.attach(self._store))
        if told.state in (State.ACTIVE, State.RELEASING) and not self._store.list_keys(LOG_DIR):
            raise vanished(self._store.uri, self._creator.name, told.latest)
        return self._to(self._creator)

    def _to_files(self, log: DeltaLog, name: str | None) -> Route:
        return Route(log=log, owner=FilesystemOwner(self._store), owner_name=name)

    def _warn(self, snapshot: Snapshot) -> None:
        if not self._has_warned:
            self._has_warned = True
            warn_stale(snapshot, stacklevel=5)


class CatalogRouter(Router):
    """To a table that a catalog of others decides on: the catalog is asked, and nobody else."""

    def __init__(self, store: Store, owner: CommitOwner, *, trust: Trust | None = None) -> None:
        super().__init__(store, {}, trust=trust)
        self._owner = owner

    def snapshot(self) -> Snapshot | None:
        return self.route().log.update()

    def run(self, do: Callable[[Route], T]) -> T:
        return do(self.route())

    def _find(self) -> Route:
        log = DeltaLog(self._store, commit_source=OwnedCommits(self._owner), trust=self._trust)
        return Route(log=log, owner=self._owner, owner_name=None)


def _stranger(endpoint: OwnerEndpoint, owner: CommitOwner, newest: Snapshot) -> WrongLedger | None:
    """Why the owner that was asked cannot be the one that the table names; None if it is."""
    named, asked = enablement.ledger_id(newest.metadata), endpoint.identity()
    what = None
    if named is not None and asked is not None and named != asked:
        what = f"The table's commits are in the ledger {named}, and {endpoint!r} is the ledger {asked}"
    elif isinstance(owner, ManagedOwner) and owner.is_stranger:
        there = "is not there yet" if asked is None else "does not know the table"
        what = f"The table names {endpoint.name!r} as its owner, and the ledger of {endpoint!r} {there}"
    if what is None:
        return None
    return WrongLedger(f"{what}: there may be newer versions than {newest.version}", table=newest.table)


def warn_stale(snapshot: Snapshot, *, stacklevel: int = 2) -> None:
    """Warns if the snapshot is of a table whose owner was not asked, so that it may be stale."""
    name = snapshot.properties.owner_name
    if name is not None:
        warnings.warn(
            f"The commits of {snapshot.table} are managed by {name!r}, which is not configured here: version "
            f"{snapshot.version} is the newest that is backfilled, and there may be newer ones. Open "
            "the table with its owner: lakeseal.Table(uri, owner=…)",
            StaleReadWarning,
            stacklevel=stacklevel + 1,
        )


def _restless(table: str) -> OwnedElsewhere:
    return OwnedElsewhere(
        f"The table changed its owner {_MOVES} times while it was being opened", table=table, hint="Run it again"
    )
