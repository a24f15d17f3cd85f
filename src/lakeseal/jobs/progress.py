"""How far a long command is: a bar for people at a terminal, nothing for pipes and programs.

A command opens one `progress` and tells it what it is at and how much of it there is. Where standard error is neither
a terminal nor a notebook's every call does nothing, and rich is not even imported; `LAKESEAL_PROGRESS=0` turns bars
off everywhere.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Progress(Protocol):
    def stage(self, what: str, total: int | None = None) -> None:
        """The next thing that the command does; `total` is how many steps it has, if that is known."""

    def advance(self, steps: int = 1) -> None:
        """May be called from any thread."""


class _Silent:
    def stage(self, what: str, total: int | None = None) -> None: ...

    def advance(self, steps: int = 1) -> None: ...


SILENT: Progress = _Silent()


@contextmanager
def progress(command: str) -> Iterator[Progress]:
    if os.environ.get("LAKESEAL_PROGRESS", "") == "0" or not (sys.stderr.isatty() or _is_notebook()):
        yield SILENT
        return
    from rich.console import Console  # costs a tenth of a second that only a terminal is worth
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # Where rich knows by itself that this is a notebook, it draws into the cell.
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:

        class ProgressBar:
            def __init__(self) -> None:
                self._task = bar.add_task(command, total=None)

            def stage(self, what: str, total: int | None = None) -> None:
                bar.remove_task(self._task)
                self._task = bar.add_task(f"{command}: {what}", total=total)
                bar.refresh()  # short stages would never be seen otherwise

            def advance(self, steps: int = 1) -> None:
                bar.advance(self._task, steps)

        yield ProgressBar()


def _is_notebook() -> bool:
    """Whether this process is the kernel of one. Asked without importing anything."""
    shell = sys.modules.get("IPython")
    found = None if shell is None else shell.get_ipython()
    return type(found).__name__ == "ZMQInteractiveShell"
