"""Several tables as they were at one moment: all of a transaction over them is in the snapshots, or nothing of it.

The owner is asked once for all tables, in one read of its ledger. Each table is then read at exactly the version that
was its latest then, whatever has happened since.
"""

from __future__ import annotations

from collections.abc import Sequence

from lakeseal.errors import OwnedElsewhere, TableNotFound
from lakeseal.log.delta_log import DeltaLog
from lakeseal.log.snapshot import Snapshot
from lakeseal.owner.endpoint import OwnerEndpoint
from lakeseal.owner.messages import TableCommits
from lakeseal.owner.ownership import State
from lakeseal.owner.sources import ToldCommits
from lakeseal.storage.base import Store


def snapshots(endpoint: OwnerEndpoint, stores: Sequence[Store]) -> tuple[Snapshot, ...]:
    """In the order of `stores`. Every table must be owned by `endpoint`: nobody else can tell of a common moment."""
    told = at_one_moment(endpoint, [endpoint.attach(store) for store in stores])
    return tuple(_snapshot(endpoint, store, one) for store, one in zip(stores, told, strict=True))


def at_one_moment(endpoint: OwnerEndpoint, tables: Sequence[str]) -> tuple[TableCommits, ...]:
    """What the owner knows of the tables, in one read of its ledger and in their order."""
    told = endpoint.get_commits_of(tables)
    unsettled = [one for one in told if one.state is State.PENDING and one.change_id is not None]
    for one in unsettled:
        endpoint.confirm_takeover(one.table, one.change_id or "")
    return endpoint.get_commits_of(tables) if unsettled else told


def _snapshot(endpoint: OwnerEndpoint, store: Store, told: TableCommits) -> Snapshot:
    if told.state not in (State.ACTIVE, State.RELEASING):
        if DeltaLog(store).update() is None:
            raise TableNotFound("There is no table here", table=store.uri)
        raise not_owned(endpoint, store.uri)
    return DeltaLog(store, commit_source=ToldCommits(told)).snapshot(told.latest)


def not_owned(endpoint: OwnerEndpoint, table: str) -> OwnedElsewhere:
    return OwnedElsewhere(
        f"The table is not owned by {endpoint.name!r}",
        table=table,
        hint="Only tables of one owner can be read together; let it take over this one first",
    )
