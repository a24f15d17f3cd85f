"""Several tables as they were at one moment: all of a transaction over them is in the snapshots, or nothing of it.

The owner is asked once for all tables, in one read of its ledger. Each table is then read at exactly the version that
was its latest then, whatever has happened since.
"""

from __future__ import annotations

from collections.abc import Sequence

from lakeseal.errors import OwnedElsewhere, TableNotFound
from lakeseal.log.delta_log import DeltaLog
from lakeseal.log.ratified_commit import Told
from lakeseal.log.snapshot import Snapshot
from lakeseal.owner.endpoint import OwnerEndpoint
from lakeseal.owner.messages import TableCommits
from lakeseal.owner.ownership import State
from lakeseal.storage.base import Store


def snapshots(endpoint: OwnerEndpoint, stores: Sequence[Store]) -> tuple[Snapshot, ...]:
    """In the order of `stores`. Every table must be owned by `endpoint`: nobody else can tell of a common moment."""
    told = at_one_moment(endpoint, [endpoint.attach(store) for store in stores])
    return tuple(_snapshot(endpoint, store, one) for store, one in zip(stores, told, strict=True))


def at_one_moment(endpoint: OwnerEndpoint, tables: Sequence[str]) -> tuple[TableCommits, ...]:
    """What the owner knows of the tables, in one read of its ledger and in their order.

    A take-over or release that is in the log holds before the owner knows of it, and others may have written on since
    then. What was told before the owner looked, and found none, is true of the moment when it was told."""
    while True:
        told = endpoint.get_commits_of(tables)
        # All of them, though one that has moved is enough to ask again: each is a look that is due anyway.
        moved = [_has_moved(endpoint, one) for one in told]
        if not any(moved):
            return told


def _has_moved(endpoint: OwnerEndpoint, told: TableCommits) -> bool:
    if told.change_id is None:
        return False
    match told.state:
        case State.PENDING:
            now = endpoint.confirm_takeover(told.table, told.change_id)
        case State.RELEASING:
            now = endpoint.finish_release(told.table)
        case _:
            return False
    return (now.state, now.change_id) != (told.state, told.change_id)


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


class ToldCommits:
    """What an owner told at one moment, as the log's source of commits that are not in it under their own names yet.

    Always the same answer, so that a snapshot made of it is of that moment."""

    def __init__(self, told: TableCommits) -> None:
        self._told = told.told()

    def unbackfilled(self, start_version: int) -> Told:
        later = {version: commit for version, commit in self._told.commits.items() if version >= start_version}
        return Told(commits=later, up_to=self._told.up_to)
