"""The seam of engines: who runs the tasks of a command that changes rows of files, and who judges its expressions.

Such a command has two kinds of tasks: a `Search` says which files have rows to change, and a write job makes the new
files. Both are told files, not rows. Expressions are `expr`'s wherever it answers as the engine does; elsewhere a
`Search` or a `Rewrite` says that it is `in_plan`, and the engine evaluates the text as it was written.
"""

from __future__ import annotations

from typing import Protocol

from lakeseal.expr import bind, bind_predicate, parse
from lakeseal.protocol.schema import DataType, StructType
from lakeseal.write.progress import NoProgress, Progress
from lakeseal.write.runner import InProcessRunner, WriteRunner
from lakeseal.write.search import Found, Search


class Engine(Protocol):
    def runner(self, progress: Progress) -> WriteRunner: ...

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


class InProcessEngine:
    """Threads of this process. There is no session: the zone is UTC, ANSI mode is on."""

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads

    def runner(self, progress: Progress | None = None) -> WriteRunner:
        return InProcessRunner(self._threads, progress=progress or NoProgress())

    def search(self, search: Search, progress: Progress) -> list[Found]:
        return [found for split in range(len(search.splits)) for found in search.run(split, progress.advance)]

    def judged(self, where: str, schema: StructType) -> str | None:
        bind_predicate(parse(where), schema)
        return where

    def understood(self, where: str, schema: StructType) -> str | None:
        return self.judged(where, schema)

    def evaluates(self, text: str, schema: StructType, target: DataType | None = None) -> bool:
        bind(parse(text), schema)
        return True
