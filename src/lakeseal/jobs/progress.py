"""How far a long command is: a bar for people at a terminal, a line in a notebook, nothing for pipes and programs.

A command opens one `progress` and tells it what it is at and how much of it there is. Where standard error is neither
a terminal nor a notebook's every call does nothing, and rich is not even imported; `LAKESEAL_PROGRESS=0` turns it
off everywhere. What is shown is gone when the command has ended.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Literal, Protocol

from lakeseal.display import shown


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
    place = watched()
    if place is None:
        yield SILENT
        return
    if place == "notebook":
        line = _Line(command)
        try:
            yield line
        finally:
            line.end()
        return
    from rich.console import Console  # costs a tenth of a second that only a terminal is worth
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
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


def watched() -> Literal["terminal", "notebook"] | None:
    """Where somebody sees how far a command is; None where nobody does, or wants to."""
    if os.environ.get("LAKESEAL_PROGRESS", "") == "0":
        return None
    if _is_notebook():
        return "notebook"
    return "terminal" if sys.stderr.isatty() else None


def _is_notebook() -> bool:
    """Whether this process is the kernel of one. Asked without importing anything."""
    shell = sys.modules.get("IPython")
    found = None if shell is None else shell.get_ipython()
    return any(kind.__name__ == "ZMQInteractiveShell" for kind in type(found).__mro__)


class _Line:
    """A line of HTML below a notebook's cell, which IPython keeps up to date. It needs no widgets."""

    _EVERY_S = 0.2

    def __init__(self, command: str) -> None:
        self._command, self._what = command, ""
        self._total: int | None = None
        self._steps = 0
        self._told = 0.0
        self._lock = threading.Lock()
        self._handle: Any = import_module("IPython.display").display(self, display_id=True)

    def stage(self, what: str, total: int | None = None) -> None:
        with self._lock:
            self._what, self._total, self._steps = what, total, 0
            self._tell()

    def advance(self, steps: int = 1) -> None:
        with self._lock:
            self._steps += steps
            if time.monotonic() - self._told >= self._EVERY_S:
                self._tell()

    def end(self) -> None:
        with self._lock:
            self._command = ""
            self._tell()

    def _tell(self) -> None:
        self._told = time.monotonic()
        self._handle.update(self)

    def __repr__(self) -> str:
        if not self._command:
            return ""
        counted = "" if self._total is None else f" {self._steps:,}/{self._total:,}"
        return f"{self._command}: {self._what}{counted}" if self._what else self._command

    def _repr_html_(self) -> str:
        line = shown(repr(self))
        if not self._command or not self._total:
            return line
        return f'{line} <progress value="{min(self._steps, self._total)}" max="{self._total}"></progress>'
