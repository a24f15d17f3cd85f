"""The seam of engines: who runs the tasks of a command that changes rows of files.

Such a command has two kinds of tasks: a `Search` says which files have rows to change, and a write job makes the new
files. Both are told files, not rows.
"""

from __future__ import annotations

from typing import Protocol

from lakeseal.write.progress import NoProgress, Progress
from lakeseal.write.runner import InProcessRunner, WriteRunner
from lakeseal.write.search import Found, Search


class Engine(Protocol):
    def runner(self, progress: Progress) -> WriteRunner: ...

    def search(self, search: Search, progress: Progress) -> list[Found]:
        """What all splits found."""


class InProcessEngine:
    """Threads of this process."""

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads

    def runner(self, progress: Progress | None = None) -> WriteRunner:
        return InProcessRunner(self._threads, progress=progress or NoProgress())

    def search(self, search: Search, progress: Progress) -> list[Found]:
        return [found for split in range(len(search.splits)) for found in search.run(split, progress.advance)]
