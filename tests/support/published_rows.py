"""Datasets whose rows are numbers, for tests of publishing: task output and job output in directories, watermarks in a
ledger, and runs that can be killed at each of their effects.

The watermark of partition "0" tells how many rows have been published, so that after any recovery the rows that are
visible must be exactly those below it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

import support.loaded  # noqa: F401  for all children
from lakeseal import ledger as ledgers
from lakeseal.errors import StorageUnavailable
from lakeseal.ledger import Ledger
from lakeseal.ledger.schema import leases as lease_table
from lakeseal.steps import leases
from lakeseal.steps.context import StepContext
from lakeseal.steps.file_store import FileStepStore
from lakeseal.steps.fs_rename import FsRenameCommitStep, Rename, checksum
from lakeseal.steps.high_watermark import HighWatermarkCommitStep
from lakeseal.steps.ledger_store import LedgerStepStore
from lakeseal.steps.publishing import SequencePublisher, Verdict
from lakeseal.steps.recovery import Recovery, recover
from lakeseal.steps.sequence import CommitSequence
from lakeseal.steps.step import CommitStep, register
from lakeseal.steps.store import CommitStepStore
from lakeseal.steps.task_states import FileTaskStates, LedgerTaskStates, TaskState, TaskStateStore
from lakeseal.steps.turn import Turn
from lakeseal.steps.watermarks import WatermarkChange, Watermarks
from lakeseal.storage import Store, open_store
from lakeseal.testing.faults import FaultyStore
from support.crashes import CrashingLedger, CrashingStore, Effects, When

PIPELINE = "clicks"
STORE = "clicks"
URN = "urn:events"
LEASE = leases.of_pipeline(PIPELINE)


class Place(Struct, frozen=True, kw_only=True):
    """Where a world lives, so that several processes can open it."""

    root: str
    ledger: str
    files: bool = False
    """Whether sequences are recorded as files, not in the ledger."""
    copies: bool = False
    """Whether the store can't move objects by itself."""


class World:
    """May be opened any number of times; with `effects`, everything that it does to stores and ledger is one."""

    def __init__(self, place: Place, effects: Effects | None = None, *, ledger: Ledger | None = None) -> None:
        self.place = place
        self._effects = effects
        opened: Any = ledgers.open(place.ledger) if ledger is None else ledger
        self.ledger: Ledger = opened if effects is None else CrashingLedger(opened, effects)  # type: ignore[assignment]
        self.files = self._store(f"{place.root}/data")
        self.steps: CommitStepStore = (
            FileStepStore(self._store(f"{place.root}/steps")) if place.files else LedgerStepStore(self.ledger)
        )

    @property
    def task_states(self) -> TaskStateStore:
        if self.place.files:
            return FileTaskStates(self._store(f"{self.place.root}/tasks"))
        return LedgerTaskStates(self.ledger)

    def _store(self, uri: str) -> Store:
        store = open_store(uri)
        if self.place.copies:
            store = _Copies(store)
        return store if self._effects is None else CrashingStore(store, self._effects)

    def take_turn(self) -> int:
        """The epoch of a new run, which has waited until the lease of the one before ran out."""
        self.ledger.write(lambda tx: tx.update(lease_table, {"name": LEASE}, {"expires": 0}))
        return leases.Leases(self.ledger).acquire(LEASE, holder=str(uuid.uuid4())).epoch

    def context(self, epoch: int | None = None) -> StepContext:
        turn = None if epoch is None else Turn(name=LEASE, epoch=epoch)
        return StepContext(ledger=self.ledger, owners={}, turn=turn, open_store=self._store)

    def stage(self, first: int, rows: int, **options: Any) -> CommitSequence:
        return stage(self.files, first, rows, **options)

    def recover(self, epoch: int | None = None, **options: Any) -> Recovery:
        return recover(self.steps, STORE, self.context(epoch), sleep=lambda _: None, **options)

    def published(self, dataset: str = URN) -> list[int]:
        return rows_in(self.files, f"job-output/{dataset}/")

    def watermark(self, dataset: str = URN) -> int:
        return int(Watermarks(self.ledger).read(PIPELINE, dataset).get("0", 0))

    def all_files(self) -> list[str]:
        return [meta.key for meta in self.files.list(recursive=True)]

    def check(self, rows: int, dataset: str = URN) -> None:
        """Every row is visible once, and the watermark says so."""
        assert self.published(dataset) == list(range(rows)), self.published(dataset)
        assert self.watermark(dataset) == rows


class _Copies(FaultyStore):
    def move(self, pairs: Any, to: Store) -> list[tuple[str, str]]:
        return list(pairs)


def stage(
    store: Store, first: int, rows: int, *, files: int = 3, run: str = "run-1", dataset: str = URN, epoch: int = 0
) -> CommitSequence:
    """Task output with the rows from `first` on, and the sequence that publishes it."""
    renames = []
    for number in range(files):
        data = "".join(f"{row}\n" for row in range(first + number, first + rows, files)).encode()
        source = f"task-output/{run}/{dataset}/{number}.txt"
        store.put(source, data)
        target = f"job-output/{dataset}/day={number}/{run}-{number}.txt"
        renames.append(Rename(source, target, len(data), checksum(data)))
    change = WatermarkChange(partition="0", expected=first or None, value=first + rows)
    # Two places, or the two steps would be made one.
    below = [Rename(one.source, one.target.removeprefix("job-output/"), one.size, one.checksum) for one in renames[1:]]
    return (
        CommitSequence.builder(STORE, dataset, epoch=epoch)
        .add(FsRenameCommitStep(source=store.uri, target=store.uri, files=tuple(renames[:1])))
        .add(FsRenameCommitStep(source=store.uri, target=f"{store.uri}/job-output", files=tuple(below)))
        .add(HighWatermarkCommitStep(pipeline=PIPELINE, dataset=dataset, changes=(change,)))
        .then_remove(store.uri, f"task-output/{run}/{dataset}/")
        .build()
    )


def rows_in(store: Store, prefix: str) -> list[int]:
    keys = [meta.key for meta in store.list(prefix, recursive=True)]
    return sorted(int(line) for data in store.get_many(keys) for line in data.split())


TASKS = 3


def run_task(world: World, task: int, rows: int, *, attempt: int = 0, dataset: str = URN) -> TaskState:
    """Leaves every third row as task output, in the words of this attempt; what the task then reports."""
    data = "".join(f"{row:0{attempt + 1}}\n" for row in range(task, rows, TASKS)).encode()
    source = f"task-output/run-1/{dataset}/{task}-{attempt}.txt"
    open_store(f"{world.place.root}/data").put(source, data)
    rename = Rename(source, f"job-output/{dataset}/{task}.txt", len(data), checksum(data))
    return TaskState(task=task, tasks=TASKS, output={"rows": rows, "rename": msgspec.to_builtins(rename)})


def publisher(world: World, *, run: str = "run-1", epoch: int = 0) -> SequencePublisher:
    """What tasks use to report, and to publish once all have."""

    def decide(dataset: str, states: tuple[TaskState, ...]) -> Verdict:
        finished = [state for state in states if state.state == "finished"]
        if len(finished) < TASKS:
            return Verdict(error=StorageUnavailable(f"{len(finished)} of {TASKS} tasks finished").to_json())
        renames = tuple(Rename(*state.output["rename"]) for state in states)
        change = WatermarkChange(partition="0", expected=None, value=states[0].output["rows"])
        sequence = (
            CommitSequence.builder(STORE, dataset, epoch=epoch)
            .add(FsRenameCommitStep(source=world.files.uri, target=world.files.uri, files=renames))
            .add(HighWatermarkCommitStep(pipeline=PIPELINE, dataset=dataset, changes=(change,)))
            .then_remove(world.files.uri, f"task-output/run-1/{dataset}/")
            .build()
        )
        return Verdict(record=sequence.record())

    context = world.context(epoch or None)
    return SequencePublisher(world.steps, world.task_states, context, store=STORE, run=run, decide=decide)


def report_until(place: Place, rows: int, at: int | None, when: When) -> int:
    """As `publish_until`, with tasks: each reports, and the last one publishes."""

    def do(world: World) -> None:
        for task in range(TASKS):
            publisher(world).report(URN, run_task(world, task, rows))
            publisher(world).publish(URN, TASKS)

    return _until(place, at, when, do)


def publish_until(place: Place, first: int, rows: int, run: str, at: int | None, when: When) -> int:
    """Publishes rows in this process, which dies at an effect; otherwise says how many there were."""
    return _until(place, at, when, lambda world: _publish(world, first, rows, run))


def recover_until(place: Place, at: int | None, when: When) -> int:
    """As `publish_until`, with a recovery."""
    return _until(place, at, when, lambda world: world.recover())


def _publish(world: World, first: int, rows: int, run: str) -> None:
    # Written before anything counts: a crash there is the task's.
    sequence = stage(open_store(f"{world.place.root}/data"), first, rows, run=run)
    sequence.commit(world.steps, world.context())


def _until(place: Place, at: int | None, when: When, do: Callable[[World], object]) -> int:
    effects = Effects(at, when)
    with ledgers.open(place.ledger) as ledger:
        do(World(place, effects, ledger=ledger))
    return effects.count


@register
class Say(CommitStep, frozen=True, kw_only=True, tag="test-say"):
    """A step of a user: leaves a word in a file, and fails while a file `broken` is beside it."""

    directory: str
    word: str

    def verify(self, context: StepContext) -> bool:
        path = Path(self.directory, "said")
        return path.exists() and self.word in path.read_text().split()

    def execute(self, context: StepContext) -> None:
        if Path(self.directory, "broken").exists():
            raise RuntimeError(f"cannot say {self.word}")
        Path(self.directory).mkdir(parents=True, exist_ok=True)
        with Path(self.directory, "said").open("a") as file:
            file.write(f"{self.word}\n")


def saying(directory: Path, word: str, *, dataset: str = URN, epoch: int = 0, store: str = STORE) -> CommitSequence:
    step = Say(directory=str(directory), word=word)
    return CommitSequence.builder(store, dataset, epoch=epoch).add(step).build()
