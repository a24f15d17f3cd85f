"""How far a run is, dataset by dataset: a table that keeps changing, for people at a terminal; nothing elsewhere."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class RunProgress:
    """Is told, and shows nothing."""

    def stage(self, dataset: str, what: str, rows: int | None = None) -> None:
        """What is being done with a dataset now. May be called from any thread."""


_SHOWN = 20
_OVER = ("published", "nothing new", "failed", "set aside")


@contextmanager
def run_progress(pipeline: str, datasets: Sequence[str]) -> Iterator[RunProgress]:
    if not sys.stderr.isatty():
        yield RunProgress()
        return
    from rich.console import Console  # costs a tenth of a second that only a terminal is worth
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

    lock = threading.Lock()
    stages: dict[str, tuple[str, int | None]] = dict.fromkeys(datasets, ("waiting", None))

    def table() -> Table:
        shown = Table(title=pipeline, header_style="bold")
        for heading in ("dataset", "state", "rows"):
            shown.add_column(heading, justify="right" if heading == "rows" else "left")
        # Those that are at work first: of hundreds only they fit.
        listed = sorted(stages.items(), key=lambda item: (item[1][0] in _OVER, item[1][0] == "waiting"))
        for name, (what, rows) in listed[:_SHOWN]:
            shown.add_row(Text(name), Text(what), "" if rows is None else f"{rows:,}")
        if len(listed) > _SHOWN:
            done = sum(what in _OVER for what, _ in stages.values())
            shown.caption = f"{done} of {len(stages)} datasets are done"
        return shown

    with Live(table(), console=Console(stderr=True), refresh_per_second=4, transient=True) as live:

        class Shown(RunProgress):
            def stage(self, dataset: str, what: str, rows: int | None = None) -> None:
                with lock:
                    stages[dataset] = (what, rows)
                    live.update(table())

        yield Shown()
