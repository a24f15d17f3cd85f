"""What clients of a simulation do: one job after the other, by the product's own ways to read and write tables.

A job asks for its commit until it knows what came of it, or gives up; what it knows it tells the `Story`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from lakeseal import clock
from lakeseal.commit.attempts import Patience, Retry
from lakeseal.commit.isolation import IsolationLevel
from lakeseal.commit.transaction import AlreadyApplied, OptimisticTransaction
from lakeseal.errors import (
    AlreadyExists,
    CommitOutcomeUnknown,
    ConcurrentModification,
    LakesealError,
    OwnedElsewhere,
    StorageUnavailable,
    UnknownOutcome,
)
from lakeseal.owner.handover import release, take_over
from lakeseal.owner.routing import Route, Router
from lakeseal.owner.snapshots import snapshots
from lakeseal.owner.transaction import Transaction
from lakeseal.protocol.actions import Action, RemoveFile
from support.managed_tables import WRITE, add, remove

if TYPE_CHECKING:
    from simulated.store import SimulatedStore
    from simulated.world import World

_MAY_FAIL = (ConcurrentModification, StorageUnavailable, UnknownOutcome, CommitOutcomeUnknown, OwnedElsewhere)
"""What may come of a job when others are in the way, or nobody answers. Whatever else is raised is a finding."""
_SOON = Retry(deadline_s=30.0)
COUNTER = "counter-"


class Client:
    """A process with a clock of its own. Killed, it begins again with the job that it was at, as if it knew nothing."""

    def __init__(self, world: World, name: str, jobs: Sequence[str]) -> None:
        self._world, self.name = world, name
        self._todo = list(jobs)
        self.skew_ms = 0
        self.starts = 0
        self.is_busy = True
        self._batch = 0
        """Of numbered writes: this one is under way, or has come to its end."""
        self._files = 0

    def start(self) -> None:
        self.starts += 1
        self._world.scheduler.spawn(self.name, self.name, self._work)

    def kill(self) -> None:
        self._world.scheduler.kill(self.name)

    def clock(self) -> int:
        return clock.now_ms() + self.skew_ms

    def _work(self) -> None:
        world = self._world
        self.connect()
        while self._todo:
            job = JOBS[self._todo[0]]
            with contextlib.suppress(_MAY_FAIL):
                job(self)
            self._todo.pop(0)
            world.scheduler.step("next job")
        self.is_busy = False

    def connect(self) -> None:
        self.endpoint = self._world.endpoint()
        self.routers = {
            uri: Router(store, {self.endpoint.name: self.endpoint}) for uri, store in self._world.stores.items()
        }

    def one_table(self) -> str:
        return self._world.dice.choice(list(self.routers))

    def store(self, uri: str) -> SimulatedStore:
        return self._world.stores[uri]

    def new_file(self, what: str = "file") -> str:
        self._files += 1
        return f"{what}-{self.name[-1]}-{self.starts}-{self._files}"

    def run(self, uri: str, do: Callable[[OptimisticTransaction], Sequence[Action] | None]) -> None:
        """As `Table` runs a command: where the table has moved it is begun anew, on the table as it is by then. `do`
        says what it wants, or None for nothing."""
        story = self._world.story

        def once(route: Route) -> None:
            patience = Patience(_SOON)
            for tried in range(1, 20):
                attempt = story.begins(self.name)
                txn = OptimisticTransaction.begin(route.log, route.owner, retry=_SOON, clock=self.clock)
                attempt.txns[uri] = txn.txn_id
                assert txn.snapshot is not None
                if not route.leads_to(txn.snapshot):
                    raise OwnedElsewhere("the table has another owner")
                try:
                    actions = do(txn)
                    if actions is not None:
                        attempt.landed({uri: txn.commit(actions, WRITE).version})
                    return
                except (CommitOutcomeUnknown, UnknownOutcome):
                    raise
                except ConcurrentModification:
                    attempt.failed()
                    if not patience.wait(tried):
                        raise
                except LakesealError:
                    attempt.failed()
                    raise

        self.routers[uri].run(once)

    # The jobs.

    def appends(self) -> None:
        self.run(self.one_table(), lambda txn: [add(self.new_file())])

    def counts(self) -> None:
        """What is read decides on what is written: no update may be lost."""

        def do(txn: OptimisticTransaction) -> Sequence[Action]:
            there = [path for path in _paths(txn) if path.startswith(COUNTER)]
            assert len(there) <= 1, f"a count is there twice: {there}"
            count = int(there[0].split("-")[1]) if there else 0
            gone: list[RemoveFile] = [remove(path) for path in there]
            return [*gone, add(f"{COUNTER}{count + 1}-{self.new_file()}")]

        self.run(self.one_table(), do)

    def writes_numbered(self) -> None:
        """Again and again under its own number, until it is known to be there; it must be there once."""
        uri = sorted(self.routers)[0]
        self._batch += 1
        number = self._batch
        story, patience = self._world.story, Patience(Retry(deadline_s=200.0))
        story.numbered(self.name, number)

        def do(txn: OptimisticTransaction) -> Sequence[Action] | None:
            if isinstance(txn.set_transaction(self.name, number), AlreadyApplied):
                return None
            return [add(f"numbered-{self.name[-1]}-{number}-{self.new_file()}")]

        for tried in range(1, 30):
            try:
                self.run(uri, do)
            except _MAY_FAIL:
                if not patience.wait(tried, in_doubt=True):
                    return
            else:
                story.is_there(self.name, number)
                return

    def sets_a_property(self) -> None:
        def do(txn: OptimisticTransaction) -> Sequence[Action]:
            metadata = txn.metadata
            count = int(metadata.configuration.get("set", "0") or 0) + 1
            txn.update_metadata(replace(metadata, configuration={**metadata.configuration, "set": str(count)}))
            return []

        self.run(self.one_table(), do)

    def reads(self) -> None:
        story, uri = self._world.story, self.one_table()
        attempt = story.begins(self.name)
        snapshot = self.routers[uri].snapshot()
        assert snapshot is not None
        attempt.saw({uri: (snapshot.version, frozenset(snapshot.files["path"].to_pylist()))})

    def reads_all(self) -> None:
        story, stores = self._world.story, [self.store(uri) for uri in sorted(self.routers)]
        attempt = story.begins(self.name)
        found = snapshots(self.endpoint, stores)
        attempt.saw(
            {
                store.uri: (snapshot.version, frozenset(snapshot.files["path"].to_pylist()))
                for store, snapshot in zip(stores, found, strict=True)
            }
        )

    def writes_to_all(self) -> None:
        """Two tables or more in one commit, or one that was read whole and another that is written."""
        story, dice = self._world.story, self._world.dice
        stores = [self.store(uri) for uri in sorted(self.routers)]
        attempt = story.begins(self.name)
        only_read = dice.random() < 0.4 and len(stores) > 1
        level = IsolationLevel.SERIALIZABLE if only_read else None
        whole = Transaction(self.endpoint, isolation_level=level, retry=_SOON, clock=self.clock)
        parts = {store.uri: whole.table(store) for store in stores}
        read: dict[str, tuple[int, frozenset[str]]] = {}
        for uri, part in parts.items():
            if only_read and not read:
                read[uri] = (part.read_version, frozenset(part.filter_files(None)["path"].to_pylist()))
                continue
            attempt.txns[uri] = part.txn_id
            part.commit([add(self.new_file("joined"))], WRITE)
        if read:
            # A table that joined late may have moved the others on.
            uri = next(iter(read))
            read[uri] = (parts[uri].read_version, frozenset(parts[uri].filter_files(None)["path"].to_pylist()))
        try:
            result = whole.commit()
        except (CommitOutcomeUnknown, UnknownOutcome):
            raise
        except LakesealError:
            attempt.failed()
            raise
        attempt.landed({uri: one.version for uri, one in result.tables.items()}, saw=read)

    def takes_over(self) -> None:
        uri = self.one_table()
        attempt = self._world.story.begins(self.name)
        try:
            version = take_over(self.endpoint, self.store(uri), retry=_SOON, clock=self.clock)
        except AlreadyExists:
            return
        attempt.landed({uri: version})

    def releases(self) -> None:
        """One that somebody else began is joined, so its version may have several who say that they made it."""
        uri = self.one_table()
        attempt = self._world.story.begins(self.name)
        version = release(self.endpoint, self.store(uri), retry=_SOON, clock=self.clock)
        attempt.joined(uri, version)

    def asks_to_backfill(self) -> None:
        uri = self.one_table()
        self.endpoint.backfill(uri)


def _paths(txn: OptimisticTransaction) -> list[str]:
    return sorted(txn.filter_files(None)["path"].to_pylist())


JOBS: dict[str, Callable[[Client], None]] = {
    "append": Client.appends,
    "count": Client.counts,
    "number": Client.writes_numbered,
    "set": Client.sets_a_property,
    "read": Client.reads,
    "read all": Client.reads_all,
    "write to all": Client.writes_to_all,
    "take over": Client.takes_over,
    "release": Client.releases,
    "backfill": Client.asks_to_backfill,
}
