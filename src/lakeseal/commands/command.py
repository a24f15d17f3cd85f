"""A command: what changes a table, in one transaction and three steps.

1. `decide` looks at the table, notes in the transaction what it has read of it, and gives a `PlannedChange`, or
   `NothingToDo`.
2. The engine's tasks write the files that the change asks for.
3. The change says of what was written which actions they make, and they are committed, all of them or none.

A command is a value, so it can be run again from the beginning as long as nothing is committed. Until then nothing of
it is visible, and whatever fails leaves at most files that no version names. What a failed commit has written stays:
its outcome may be unknown.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from typing import Any, ClassVar, Protocol

import msgspec
from msgspec import Struct

from lakeseal.commands.transactional_write import TransactionalWrite, WriteOptions
from lakeseal.commit.proposal import Operation
from lakeseal.commit.transaction import CommitResult, OptimisticTransaction
from lakeseal.errors import located
from lakeseal.jobs.engine import Engine
from lakeseal.jobs.progress import SILENT, Progress, progress
from lakeseal.protocol.actions import Action, AddCDCFile, AddFile
from lakeseal.storage import StoreSpec

EVERY_TIME = ("scanTimeMs", "rewriteTimeMs", "executionTimeMs")
"""How long it took to decide, to write, and both."""

Written = Sequence[AddFile | AddCDCFile]
Finish = Callable[[Written], tuple[Sequence[Action], Operation]]


class NothingToDo(Struct, frozen=True, kw_only=True):
    """The table was there (ignore), has seen this transaction before, or has no row or file that it is about."""

    version: int
    reason: str
    metrics: Mapping[str, int | str] = msgspec.field(default_factory=dict)


class FilesToWrite(Struct, frozen=True, kw_only=True):
    """What one job is to write: data that the engine opens, or has opened, or a `Rewrite`."""

    data: Any
    options: WriteOptions = msgspec.field(default_factory=WriteOptions)
    is_optimize: bool = False


class PlannedChange(Struct, frozen=True, kw_only=True):
    """What a command has decided on."""

    finish: Finish
    """Of all that was written, what is to be committed."""
    writes: tuple[FilesToWrite, ...] = ()
    rewritten: int = 0
    """How many files tasks read for it."""
    nothing: str | None = None
    """Why nothing is committed, should there be no action and no new metadata; None to commit all the same."""


class CommandContext(Struct, frozen=True, kw_only=True):
    """What a command decides with."""

    txn: OptimisticTransaction
    engine: Engine
    store: StoreSpec
    """Where the table is, as tasks are to open it."""
    progress: Progress = SILENT
    until_end: ExitStack
    """Closed when the command has ended, well or not."""


class Command(Protocol):
    shown: ClassVar[str | None]
    """As what a terminal shows it; None for what is not worth a bar."""
    times: ClassVar[tuple[str, ...]]
    """Which of `EVERY_TIME` its metrics have."""

    def decide(self, context: CommandContext) -> PlannedChange | NothingToDo: ...


def run(
    command: Command, txn: OptimisticTransaction, *, engine: Engine, store: StoreSpec
) -> CommitResult | NothingToDo:
    shown = nullcontext(SILENT) if command.shown is None else progress(command.shown)
    with located(table=txn.table), shown as bar, ExitStack() as until_end:
        watch = _Stopwatch()
        context = CommandContext(txn=txn, engine=engine, store=store, progress=bar, until_end=until_end)
        change = command.decide(context)
        if isinstance(change, NothingToDo):
            return change
        scan_time = watch.lap()
        if change.rewritten:
            bar.stage("rewriting", change.rewritten)
        files = TransactionalWrite(txn, engine, store=store, progress=bar)
        written: list[AddFile | AddCDCFile] = []
        for write in change.writes:
            written += files.write_files(write.data, write.options, is_optimize=write.is_optimize)
        actions, operation = change.finish(written)
        times = dict(zip(EVERY_TIME, (scan_time, watch.lap(), watch.total), strict=True))
        metrics = {**operation.metrics, **{name: times[name] for name in command.times}}
        if change.nothing is not None and not actions and not _changes_metadata(txn):
            return NothingToDo(version=txn.read_version, reason=change.nothing, metrics=metrics)
        bar.stage("committing")
        return txn.commit(actions, msgspec.structs.replace(operation, metrics=metrics))


def _changes_metadata(txn: OptimisticTransaction) -> bool:
    return txn.snapshot is None or txn.metadata != txn.snapshot.metadata


class _Stopwatch:
    """Milliseconds since it was made, and since it was last asked for a lap."""

    def __init__(self) -> None:
        self._start = self._lap = time.monotonic_ns()

    def lap(self) -> int:
        now = time.monotonic_ns()
        passed, self._lap = now - self._lap, now
        return passed // 1_000_000

    @property
    def total(self) -> int:
        return (time.monotonic_ns() - self._start) // 1_000_000
