"""The seam of engines: who runs the tasks of a command, and who judges its expressions.

A command has two kinds of tasks: a `Search` says which files have rows to change, and a write job makes the new files.

- An engine opens data of its kind once; the `WriteInput` then says which columns it has and runs a job over it. `run`
  calls `run_task` for every split with a task context of its own and returns one message per split that succeeded; if
  one fails for good, it raises. Work that is `InPlan` must be done before rows reach `run_task`, or refused.
- A `Search` and a `Rewrite` tell tasks files, not rows, and have splits of their own.
- Expressions are `expr`'s wherever it answers as the engine does; elsewhere a `Search` or a `Rewrite` says that it is
  `in_plan`, and the engine evaluates the text as it was written.
"""

from __future__ import annotations

from typing import Any, Protocol

from msgspec import Struct

from lakeseal.errors import LakesealError
from lakeseal.files.constraints import RefusedCheck
from lakeseal.files.expressions import Expressions
from lakeseal.files.normalize import PlannedColumn
from lakeseal.jobs.file_commit_protocol import TaskCommitMessage
from lakeseal.jobs.job import WriteJobSpec
from lakeseal.jobs.progress import SILENT, Progress
from lakeseal.jobs.search import Found, Search
from lakeseal.protocol.schema import DataType, StructType


class InPlan(Struct, frozen=True, kw_only=True):
    """What an engine must do itself: compute columns, then check rows."""

    columns: tuple[PlannedColumn, ...] = ()
    checks: tuple[RefusedCheck, ...] = ()

    @property
    def reasons(self) -> tuple[LakesealError, ...]:
        """Why `expr` cannot do it in tasks, each part's."""
        return (*(column.reason for column in self.columns), *(check.reason for check in self.checks))

    def refuse(self) -> None:
        """For who has no plan."""
        for reason in self.reasons:
            raise reason


class WriteInput(Protocol):
    """Data that is open, and who runs tasks over it."""

    @property
    def schema(self) -> StructType: ...

    @property
    def expressions(self) -> Expressions:
        """Who evaluates what the table makes of such data."""

    def run(self, spec: WriteJobSpec, in_plan: InPlan) -> list[TaskCommitMessage]: ...


class Engine(Protocol):
    def open(self, data: Any, progress: Progress = SILENT) -> WriteInput:
        """Data of the engine's kind, or a `Rewrite`, by whose files `progress` may advance; an input that is open
        already stays as it is."""

    def search(self, search: Search, progress: Progress) -> list[Found]:
        """What all splits found."""

    def judged(self, where: str, schema: StructType) -> str | None:
        """The condition as `expr` is to judge it in the engine's stead; None if only the engine can. Raises what is
        wrong with it if there is no other judge."""

    def understood(self, where: str, schema: StructType) -> str | None:
        """What holds, by `expr`, for all rows that the condition holds for; None if nothing is known of them."""

    def evaluates(self, text: str, schema: StructType, target: DataType | None = None) -> bool:
        """Whether `expr` gives an expression the engine's value, also in a column of type `target`. Raises what is
        wrong with it if nobody else could."""
