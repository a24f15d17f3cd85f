"""How far a run is, dataset by dataset: a table that keeps changing, for people at a terminal; nothing
elsewhere, nor where `LAKESEAL_PROGRESS=0`.

`behind` is about how much of the source waits to be published; rows and bytes are what was read of it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from msgspec import Struct

from lakeseal.jobs.progress import watched


class Reached(Struct, frozen=True, kw_only=True):
    """How far a dataset is."""

    rows: int | None = None
    bytes: int | None = None
    behind: int | None = None
    """Bytes, about."""
    seconds: float = 0.0

    @property
    def rate(self) -> str:
        return per_second(self.rows, self.seconds)


def per_second(rows: int | None, seconds: float) -> str:
    return "" if not rows or seconds <= 0 else f"{rows / seconds:,.0f} rows/s"


def size_text(count: int | None) -> str:
    if count is None:
        return ""
    size, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            break
        size /= 1000
    return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"


class RunProgress:
    """Is told, and shows nothing."""

    every_s: float | None = None
    """How often it is to be told how far a dataset's tasks are while they read; if not, only when that is over."""

    def stage(self, dataset: str, what: str, reached: Reached) -> None:
        """What is being done with a dataset now. May be called from any thread."""


_SHOWN = 20
_EVERY_S = 1.0
_OVER = ("published", "nothing new", "failed", "set aside")


@contextmanager
def run_progress(pipeline: str, datasets: Sequence[str]) -> Iterator[RunProgress]:
    if watched() != "terminal":
        yield RunProgress()
        return
    from rich.console import Console  # costs a tenth of a second that only a terminal is worth
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

    lock = threading.Lock()
    stages: dict[str, tuple[str, Reached]] = dict.fromkeys(datasets, ("waiting", Reached()))

    def table() -> Table:
        shown = Table(title=pipeline, header_style="bold")
        for heading in ("dataset", "state", "rows", "bytes", "behind", "rate"):
            shown.add_column(heading, justify="left" if heading in ("dataset", "state") else "right")
        # Those that are at work first: of hundreds only they fit.
        listed = sorted(stages.items(), key=lambda item: (item[1][0] in _OVER, item[1][0] == "waiting"))
        for name, (what, reached) in listed[:_SHOWN]:
            rows = "" if reached.rows is None else f"{reached.rows:,}"
            sizes = (size_text(reached.bytes), size_text(reached.behind))
            shown.add_row(Text(name), Text(what), rows, *sizes, reached.rate)
        if len(listed) > _SHOWN:
            done = sum(what in _OVER for what, _ in stages.values())
            shown.caption = f"{done} of {len(stages)} datasets are done"
        return shown

    with Live(table(), console=Console(stderr=True), refresh_per_second=4, transient=True) as live:

        class RunTable(RunProgress):
            every_s = _EVERY_S

            def stage(self, dataset: str, what: str, reached: Reached) -> None:
                with lock:
                    stages[dataset] = (what, reached)
                    live.update(table())

        yield RunTable()
