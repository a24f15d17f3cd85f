"""Lines over two axes as SVG: enough to see whether something grows. The same points always give the same text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 36, 44
COLOURS = ("#00796b", "#c2185b", "#455a64", "#ef6c00", "#5e35b1")

Points = Sequence[tuple[float, float]]


def lines(title: str, across: str, up: str, series: Mapping[str, Points]) -> str:
    """Both axes are logarithmic, so that what follows a power of the size is a straight line, and flat is flat. Points
    at or below zero are left out."""
    shown = {name: [(x, y) for x, y in points if x > 0 and y > 0] for name, points in series.items()}
    every = [point for points in shown.values() for point in points]
    if not every:
        raise ValueError(f"there is nothing to draw for {title!r}")
    xs, ys = _decades(x for x, _ in every), _decades(y for _, y in every)

    def place(x: float, y: float) -> tuple[float, float]:
        along = (math.log10(x) - xs[0]) / (xs[1] - xs[0])
        above = (math.log10(y) - ys[0]) / (ys[1] - ys[0])
        return LEFT + along * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - above * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="16" font-size="13">{escape(title)}</text>',
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 8}" text-anchor="end">{escape(across)}</text>',
        f'<text x="{LEFT}" y="{TOP - 6}" text-anchor="start">{escape(up)}</text>',
    ]
    for power in range(xs[0], xs[1] + 1):
        x, y = place(10**power, 10 ** ys[0])
        parts.append(f'<path d="M{x:.1f} {TOP}V{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.1f}" y="{y + 14:.1f}" text-anchor="middle">{_number(power)}</text>')
    for power in range(ys[0], ys[1] + 1):
        x, y = place(10 ** xs[0], 10**power)
        parts.append(f'<path d="M{x:.1f} {y:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        parts.append(f'<text x="{x - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">{_number(power)}</text>')
    for number, (name, points) in enumerate(shown.items()):
        colour = COLOURS[number % len(COLOURS)]
        placed = [place(x, y) for x, y in sorted(points)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in placed]
        parts.append(f'<text x="{LEFT + 8}" y="{TOP + 14 + 14 * number}" fill="{colour}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _decades(values: Iterator[float]) -> tuple[int, int]:
    """The powers of ten around them."""
    logs = [math.log10(value) for value in values]
    low, high = math.floor(min(logs)), math.ceil(max(logs))
    return low, max(high, low + 1)


def _number(power: int) -> str:
    return f"{10**power:,}" if power >= 0 else f"{10.0**power:.{-power}f}"
