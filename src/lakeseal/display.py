"""How things look in a notebook: small cards of HTML, and a chart of bars as SVG.

Names, comments and messages come from tables that others wrote. Whatever is given here is cut to a length that a
person reads, and escaped; a card has no scripts, no links and loads nothing. Colours are those of the page around it,
so it is readable in light and in dark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from html import escape

from msgspec import Struct

from lakeseal.errors import LakesealError

_MOST_TEXT = 120
_MOST_ROWS = 30
_MOST_BARS = 40
# Control characters, and those that turn the direction of all that follows.
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb]")

# Those of them that lines of text have.
_OF_LINES = "\n\t"

_BAR, _GAP, _HIGH = 9, 3, 36
_ACCENT = "#2f7d6d"
_CARD = "font:13px/1.45 system-ui,sans-serif;max-width:56rem;overflow-x:auto"
_CELL = "text-align:left;padding:1px 14px 1px 0;vertical-align:top"


class Bar(Struct, frozen=True, kw_only=True):
    """One thing that happened: how much it was, and what is said of it when it is pointed at."""

    amount: int
    told: str


class Grid(Struct, frozen=True, kw_only=True):
    """Rows of texts below their headings, of which the first are shown."""

    headings: tuple[str, ...]
    rows: Sequence[Sequence[object]]
    total: int | None = None
    """How many there are, where `rows` has not all of them."""


class Card(Struct, frozen=True, kw_only=True):
    kind: str
    title: str
    facts: Sequence[tuple[str, object]] = ()
    grids: Sequence[Grid] = ()
    bars: Sequence[Bar] = ()
    """The oldest first."""
    bars_told: str = ""

    def html(self) -> str:
        parts = [f'<div style="{_CARD}"><div><b>{shown(self.kind)}</b> {shown(self.title)}</div>']
        facts = [f"{shown(name)} <b>{shown(value)}</b>" for name, value in self.facts if value not in (None, "")]
        if facts:
            parts.append(f'<div style="opacity:.8">{" · ".join(facts)}</div>')
        if self.bars:
            parts.append(f'<div style="margin:6px 0">{chart(self.bars, self.bars_told)}</div>')
        parts += [_table(grid) for grid in self.grids if grid.rows]
        return "".join([*parts, "</div>"])


def card(kind: str, title: str, make: Callable[[], Card]) -> str:
    """The card that `make` gives, as HTML; or one that says why there is none, for a notebook shows what it can."""
    try:
        return make().html()
    except LakesealError as error:
        return Card(kind=kind, title=title, facts=[("cannot be shown:", str(error))]).html()


def shown(value: object, most: int = _MOST_TEXT) -> str:
    """Any text as HTML, cut and escaped."""
    return escape(clean(value, most))


def clean(value: object, most: int = _MOST_TEXT) -> str:
    """Any text on one line, without what a reader does not see."""
    text = _UNSEEN.sub("\N{REPLACEMENT CHARACTER}", str(value)[: most + 1])
    return text if len(text) <= most else f"{text[:most]}…"


def visible(text: str) -> str:
    """Text for a terminal, with what it would obey, or hide, written as Python writes it: `\\x1b`."""
    return _UNSEEN.sub(lambda one: one[0] if one[0] in _OF_LINES else one[0].encode("unicode_escape").decode(), text)


def chart(bars: Sequence[Bar], told: str) -> str:
    """Bars beside each other. Heights are square roots, so that small commits are seen beside large ones."""
    last = bars[-_MOST_BARS:]
    most = max((bar.amount for bar in last), default=0) or 1
    drawn = []
    for place, bar in enumerate(last):
        high = max(2, round(_HIGH * (max(0, bar.amount) / most) ** 0.5))
        drawn.append(
            f'<rect x="{place * (_BAR + _GAP)}" y="{_HIGH - high}" width="{_BAR}" height="{high}" rx="1.5" '
            f'fill="{_ACCENT}"><title>{shown(bar.told)}</title></rect>'
        )
    wide = max(1, len(last) * (_BAR + _GAP) - _GAP)
    return (
        f'<svg role="img" aria-label="{shown(told)}" width="{wide}" height="{_HIGH}" viewBox="0 0 {wide} {_HIGH}">'
        f"{''.join(drawn)}</svg>"
    )


def counted(count: int, what: str) -> str:
    """How many, and of what: `what` is one of them."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def size(count: int) -> str:
    """Bytes, as people say them."""
    amount = float(count)
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if amount < 1000 or unit == "TB":
            return counted(count, "byte") if unit == "bytes" else f"{amount:,.1f} {unit}"
        amount /= 1000
    raise AssertionError("the last unit is returned")


def _table(grid: Grid) -> str:
    def row(tag: str, cells: Sequence[object]) -> str:
        return "<tr>" + "".join(
            f'<{tag} style="{_CELL}">{"" if cell is None else shown(cell)}</{tag}>' for cell in cells
        ) + "</tr>"  # fmt: skip

    rows = "".join(row("td", cells) for cells in grid.rows[:_MOST_ROWS])
    left = (len(grid.rows) if grid.total is None else grid.total) - min(len(grid.rows), _MOST_ROWS)
    more = f'<div style="opacity:.7">and {left:,} more</div>' if left > 0 else ""
    head = row("th", grid.headings)
    return f'<table style="border-collapse:collapse;margin:4px 0">{head}{rows}</table>{more}'
