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

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, ClassVar, Protocol

import msgspec
from msgspec import Struct

from lakeseal.commands.transactional_write import WriteOptions
from lakeseal.commit.proposal import Operation
from lakeseal.commit.transaction import OptimisticTransaction
from lakeseal.jobs.engine import Engine
from lakeseal.jobs.progress import SILENT, Progress
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
