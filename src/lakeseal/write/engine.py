"""The seam of engines: who runs the tasks of a command that changes rows of files.

Such a command has two kinds of tasks: a `Search` says which files have rows to change, and a write job makes the new
files. Both are told files, not rows.
"""

from __future__ import annotations

import datetime
from typing import Protocol, runtime_checkable

from lakeseal.commit.transaction import CommitResult, OptimisticTransaction
from lakeseal.storage import StoreSpec
from lakeseal.write.merge_clauses import Clause
from lakeseal.write.progress import NoProgress, Progress
from lakeseal.write.runner import InProcessRunner, WriteRunner
from lakeseal.write.search import Found, Search
from lakeseal.write.write_command import NothingToDo


class Engine(Protocol):
    def runner(self, progress: Progress) -> WriteRunner: ...

    def search(self, search: Search, progress: Progress) -> list[Found]:
        """What all splits found."""


@runtime_checkable
class PlansChanges(Protocol):
    """An engine that can evaluate what `expr` cannot, in a plan of its own."""

    def change_in_plan(
        self,
        clause: Clause,
        txn: OptimisticTransaction,
        *,
        store: StoreSpec,
        user_metadata: str | None,
        now: datetime.datetime,
        progress: Progress,
    ) -> CommitResult | NothingToDo:
        """Deletes or updates all rows that the clause's condition holds for."""


class InProcessEngine:
    """Threads of this process."""

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads

    def runner(self, progress: Progress | None = None) -> WriteRunner:
        return InProcessRunner(self._threads, progress=progress or NoProgress())

    def search(self, search: Search, progress: Progress) -> list[Found]:
        return [found for split in range(len(search.splits)) for found in search.run(split, progress.advance)]
