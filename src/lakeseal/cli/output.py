"""Answers on the terminal: tables for people, JSON for programs.

Names, rows and messages come from tables that others wrote: what a terminal would obey is shown, not sent.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lakeseal.display import visible
from lakeseal.errors import LakesealError

# A pipe has no width: lines there are as long as what they hold.
_UNBOUNDED = 10_000


class Output:
    """Where a command puts its answer. `json` is set by the command's `--json`."""

    def __init__(self) -> None:
        self.json = False

    @property
    def console(self) -> Console:
        terminal = sys.stdout.isatty()
        return Console(file=sys.stdout, width=None if terminal else _UNBOUNDED, highlight=False, emoji=False)

    def say(self, text: str, style: str = "") -> None:
        """A line for people only."""
        if not self.json:
            self.console.print(Text(visible(text), style=style))

    def record(self, value: Mapping[str, Any]) -> None:
        """One object: a line of JSON, or one `name  value` line per part."""
        if self.json:
            self._json_line(value)
            return
        grid = Table.grid(padding=(0, 2))
        for name, part in value.items():
            grid.add_row(Text(visible(name), style="bold"), Text(_shown(part)))
        self.console.print(grid)

    def rows(self, rows: Iterable[Mapping[str, Any]], columns: Sequence[str], *, none: str = "none") -> None:
        """Many objects of one shape: lines of JSON, or a table. `none` is what people get in place of a table without
        rows; with "" they get its heads."""
        if self.json:
            for row in rows:
                self._json_line(row)
            return
        table = Table(header_style="bold")
        for name in columns:
            table.add_column(Text(visible(name)))
        for row in rows:
            table.add_row(*(Text(_shown(row.get(name))) for name in columns))
        self.console.print(table if table.row_count or not none else Text(none))

    def error(self, error: LakesealError) -> None:
        sys.stdout.flush()
        if self.json:
            print(msgspec.json.encode(error.to_json()).decode(), file=sys.stderr)
        else:
            print(f"error: {visible(str(error))}", file=sys.stderr)

    def _json_line(self, value: Mapping[str, Any]) -> None:
        sys.stdout.write(msgspec.json.encode(_in_json(value), enc_hook=str).decode() + "\n")


def _in_json(value: Any) -> Any:
    """JSON has no NaN and no infinity, and null is another value: they are texts, as Spark's `to_json` has them."""
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case Mapping():
            return {name: _in_json(part) for name, part in value.items()}
        case list() | tuple():
            return [_in_json(part) for part in value]
        case _:
            return value


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, (dict, list, tuple)):
        return visible(msgspec.json.encode(_in_json(value), enc_hook=str).decode())
    return visible(str(value))
