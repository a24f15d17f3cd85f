"""A lake in one thread: tables in a store, an owner's processes and publishers over one ledger, and clients that do
what the product's own code does, in the order that a seed says, while messages, processes and clocks fail.

`run(plan)` makes one run and raises an `AssertionError` where an invariant is broken. What is asked of each:

- at every put and every ledger transaction, what `watch` looks at;
- at the end, when nothing fails any more and everything that was interrupted is taken up: each log as `check_history`
  wants it, one order of all that was done over all tables, no update lost, every numbered write there once, the ledger
  of one mind with the logs.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from unittest.mock import patch

from msgspec import Struct

from lakeseal import backoff, clock, ledger
from lakeseal.commit import attempts
from lakeseal.errors import LakesealError
from lakeseal.log import delta_log
from lakeseal.owner import backfill, ledger_owner, publisher, queue
from lakeseal.owner.ledger_owner import LedgerOwner
from lakeseal.owner.publisher import Publisher, recover
from lakeseal.owner.routing import Router
from simulated.clients import JOBS, Client
from simulated.endpoint import SimulatedEndpoint
from simulated.faults import KINDS, Faults
from simulated.ledger import SimulatedLedger
from simulated.scheduler import Clocks, ReentrantLock, Scheduler, Threading
from simulated.store import SimulatedStore
from simulated.story import Story
from simulated.watch import Watch
from support.managed_tables import create

START_MS = 1_700_000_000_000
DAY_MS = 86_400_000
OWNER = "owner"
_CHAOS_S = 2.0
THEMES = (
    ("append", "count", "number", "read"),
    ("append", "release", "take over"),
    ("append", "read", "read all", "release", "take over"),
    ("append", "count", "read all", "write to all"),
)


class Plan(Struct, frozen=True, kw_only=True):
    """What a run is made of. Everything else the seed says."""

    seed: int
    owned: tuple[bool, ...]
    """For each table whether it begins with the owner."""
    jobs: tuple[tuple[str, ...], ...]
    """Of each client, one after the other; see `clients.JOBS`."""
    faults: tuple[str, ...]
    share: float
    kills: int = 0
    jumps: int = 0
    processes: int = 1
    """Of the owner."""
    backfills: bool = True
    """Whether the owner does it behind commits; otherwise a publisher does."""
    batch_size: int = 1
    is_small: bool = True
    """Whether commits travel in the request; otherwise they are in files."""
    most_unbackfilled: int = 1000

    @classmethod
    def of(cls, seed: int) -> Plan:
        dice = random.Random(seed)
        # Of all that a client can do a few kinds at a time: together they would be in each other's way.
        some = dice.choice((*THEMES, tuple(dice.sample(sorted(JOBS), dice.randint(2, 4)))))
        faults = tuple(kind for kind in KINDS if dice.random() < 0.5) if dice.random() < 0.85 else ()
        return cls(
            seed=seed,
            owned=tuple(dice.random() < 0.7 for _ in range(dice.choice((1, 1, 1, 2, 2, 3)))),
            jobs=tuple(
                tuple(dice.choice(some) for _ in range(dice.randint(1, 3))) for _ in range(dice.choice((2, 2, 2, 3, 4)))
            ),
            faults=faults,
            share=dice.choice((0.02, 0.05, 0.1, 0.2)) if faults else 0.0,
            kills=dice.choice((0, 0, 1, 2, 4)),
            jumps=dice.choice((0, 0, 2)),
            processes=dice.choice((1, 1, 2)),
            backfills=dice.random() < 0.5,
            batch_size=dice.choice((1, 2, 3, 10)),
            is_small=dice.random() < 0.7,
            most_unbackfilled=dice.choice((1000, 1000, 2)),
        )


class OwnerProcess:
    """One of those that are the owner; several may be at the same time."""

    def __init__(self, world: World, name: str) -> None:
        self._world, self.name = world, name
        self.owner: LedgerOwner | None = None
        self.skew_ms = 0
        self.starts = 0

    def start(self) -> None:
        """As a service does: it takes up what was interrupted, and publishes from then on."""
        world, plan = self._world, self._world.plan
        self.starts += 1
        owner = self.owner = LedgerOwner(
            world.ledger,
            name=OWNER,
            batch_size=plan.batch_size,
            stores=lambda table: world.stores[table],
            inline_bytes=world.inline_bytes,
            most_unbackfilled=plan.most_unbackfilled,
            backfills=plan.backfills,
            clock=lambda: clock.now_ms() + self.skew_ms,
        )
        scheduler = world.scheduler
        scheduler.spawn(f"{self.name}'s start", self.name, lambda: recover(owner))
        if not plan.backfills:
            scheduler.spawn(f"{self.name}'s publisher", self.name, lambda: self._publish(owner))

    def kill(self) -> None:
        self.owner = None
        self._world.scheduler.kill(self.name)

    def _publish(self, owner: LedgerOwner) -> None:
        works = Publisher(owner, every_s=1.0, tidy_every_s=5.0, grace_ms=3_600_000)
        while self._world.is_busy:
            try:
                if works._holds_lease():
                    works.run_once()
            except LakesealError:
                pass  # as the publisher's own thread does: the next round follows
            self._world.scheduler.sleep(self._world.dice.choice((0.05, 0.5, 2.0)))


class World:
    def __init__(self, plan: Plan, on: SimulatedLedger, scheduler: Scheduler) -> None:
        self.plan, self.ledger, self.scheduler = plan, on, scheduler
        self.dice = random.Random(plan.seed * 13 + 5)
        self.faults = Faults(self.dice, plan.faults, plan.share, lambda: self.scheduler.running is not None)
        self.watch = Watch(on.database)
        self.story = Story(self.scheduler)
        self.stores = {
            uri: SimulatedStore(uri, self.scheduler, self.faults, self.watch, clock.now_ms)
            for uri in (f"file:///lake/{number}" for number in range(len(plan.owned)))
        }
        self.watch.stores = self.stores
        self.identity = ""
        self.inline_bytes = 1 << 16 if plan.is_small else 0
        self.processes = [OwnerProcess(self, f"owner {number}") for number in range(plan.processes)]
        self.clients = [Client(self, f"client {number}", jobs) for number, jobs in enumerate(plan.jobs)]
        self.is_busy = True

    def endpoint(self) -> SimulatedEndpoint:
        return SimulatedEndpoint(
            self.scheduler,
            self.faults,
            lambda: self.dice.choice(self.processes),
            name=OWNER,
            batch_size=self.plan.batch_size,
            inline_bytes=self.inline_bytes,
            identity=self.identity,
        )

    def create(self) -> Beginning:
        """Tables with nothing in them yet."""
        self.ledger.begin(self.scheduler, self.faults, self.watch.has_written)
        for store, is_owned in zip(self.stores.values(), self.plan.owned, strict=True):
            create(store, self._last_owner() if is_owned else None, enableInCommitTimestamps="true")
        objects = {uri: dict(store.objects) for uri, store in self.stores.items()}
        return Beginning(objects=objects, rows=self.ledger.rows())

    def run(self, beginning: Beginning) -> None:
        self.ledger.begin(self.scheduler, self.faults, self.watch.has_written, beginning.rows)
        self.identity = self.ledger.identity()
        for uri, objects in beginning.objects.items():
            self.stores[uri].objects = dict(objects)
        for process in self.processes:
            process.start()
        for client in self.clients:
            client.start()
        if self.plan.kills or self.plan.jumps:
            self.scheduler.spawn("chaos", "chaos", self._make_chaos)
        self.scheduler.spawn("the end", "the end", self._end)
        self.scheduler.run()
        self._check()

    def _make_chaos(self) -> None:
        todo = ["kill"] * self.plan.kills + ["jump"] * self.plan.jumps
        self.dice.shuffle(todo)
        for one in todo:
            self.scheduler.sleep(self.dice.random() ** 2 * _CHAOS_S)
            if self.faults.is_over:
                return
            mortal: OwnerProcess | Client = self.dice.choice([*self.processes, *self.clients])
            if one == "jump":
                mortal.skew_ms = self.dice.choice((-DAY_MS, -1000, 0, 1000, DAY_MS))
                continue
            self.scheduler.step(f"kills {mortal.name}")
            mortal.kill()
            self.scheduler.sleep(self.dice.random() * 0.5)
            mortal.start()

    def _end(self) -> None:
        """When the clients have done what they had to do: nothing fails from then on, what is under way arrives, and
        the owner takes up what is left."""
        while any(client.is_busy for client in self.clients):
            self.scheduler.sleep(0.5)
        self.faults.is_over = True
        while any(process.owner is None for process in self.processes):
            self.scheduler.sleep(0.5)
        self._check_goes_on()
        self.is_busy = False
        self.scheduler.sleep(100.0)
        for process in self.processes:
            process.kill()
        owner = self._last_owner()
        for _ in range(2):
            # The second has nothing left to do, however far the first came.
            found = recover(owner)
            assert found.failed == {}, f"what was interrupted cannot be taken up: {found.failed}"
        assert not [row for row in owner.book.open_work().values() if row.ownership.state.value == "releasing"]

    def _check_goes_on(self) -> None:
        """Whatever happened, whoever comes now is served."""
        client = Client(self, "client z", ())
        client.connect()
        client.appends()

    def _last_owner(self) -> LedgerOwner:
        return LedgerOwner(
            self.ledger,
            name=OWNER,
            batch_size=self.plan.batch_size,
            stores=self.stores.__getitem__,
            inline_bytes=self.inline_bytes,
        )

    def _check(self) -> None:
        self.watch.check_end()
        self.story.check(self.stores)
        owner = self._last_owner()
        for store in self.stores.values():
            snapshot = Router(store, {OWNER: owner}).snapshot()
            assert snapshot is not None
            assert snapshot.version == self.story.latest(store), "B5: a new reader sees the newest version"
            told = owner.get_commits(store.uri)
            named = snapshot.properties.owner_name
            assert (named == OWNER) == told.is_owned, f"O1, O6: the log names {named}, the owner says {told.state}"


class Beginning(Struct, frozen=True, kw_only=True):
    """How a run begins: made once for all that begin so, since to make tables takes longer than the rest of a run."""

    objects: dict[str, dict[str, tuple[bytes, int]]]
    rows: list[tuple[object, ...]]


class Outcome(Struct, frozen=True, kw_only=True):
    seed: int
    steps: int
    operations: int
    commits: int
    faults: int
    kills: int
    digest: int
    """The same for the same run."""


def run(plan: Plan, *, trace: list[str] | None = None) -> Outcome:
    """`trace` is filled with who did what at each step."""
    opened = _opened()
    beginning = _beginning(plan.owned, plan.batch_size, plan.is_small)
    scheduler = Scheduler(random.Random(plan.seed * 7919 + 1))
    if trace is not None:
        scheduler.trace = trace
    with _simulated(scheduler, random.Random(plan.seed * 31 + 7)):
        world = World(plan, opened, scheduler)
        try:
            world.run(beginning)
        finally:
            world.faults.is_over = True
            scheduler.close()
        return Outcome(
            seed=plan.seed,
            steps=scheduler.steps,
            operations=len(world.story.done),
            commits=sum(world.story.latest(store) for store in world.stores.values()),
            faults=sum(world.faults.struck.values()),
            kills=sum(one.starts - 1 for one in [*world.processes, *world.clients]),
            digest=world.story.digest(world.stores),
        )


@cache
def _opened() -> SimulatedLedger:
    return SimulatedLedger(ledger.open("sqlite://"))


@cache
def _beginning(owned: tuple[bool, ...], batch_size: int, is_small: bool) -> Beginning:
    plan = Plan(seed=0, owned=owned, jobs=(), faults=(), share=0.0, batch_size=batch_size, is_small=is_small)
    scheduler = Scheduler(random.Random(0))
    with _simulated(scheduler, random.Random(0)):
        return World(plan, _opened(), scheduler).create()


@contextmanager
def _simulated(scheduler: Scheduler, dice: random.Random) -> Iterator[None]:
    """Time, chance and locks of the product's modules are those of the simulation in here."""
    clocks, threads = Clocks(scheduler, START_MS), Threading(scheduler)
    with ExitStack() as patched:
        for module in (backoff, attempts, backfill, publisher, clock):
            patched.enter_context(patch.object(module, "time", clocks))
        for module in (queue, ledger_owner):
            patched.enter_context(patch.object(module, "threading", threads))
        patched.enter_context(patch.object(delta_log, "RLock", lambda: ReentrantLock(scheduler)))
        patched.enter_context(patch.object(backoff, "_chance", dice))
        patched.enter_context(patch.object(uuid, "uuid4", lambda: uuid.UUID(int=dice.getrandbits(128), version=4)))
        yield
