"""Plots as SVG, drawn on the server; texts in them are escaped by `display`."""

from __future__ import annotations

from collections.abc import Sequence

from lakeseal.display import counted, shown

_WIDE, _HIGH, _LOW = 640, 120, 18
_SLOTS = 48


def over_time(moments_ms: Sequence[int], now_ms: int, *, what: str) -> str:
    """How many of `moments` fell into each part of the time between the first and now. `what` is one of them."""
    if not moments_ms:
        return ""
    first = min(moments_ms)
    span = max(now_ms - first, 1)
    counts = [0] * _SLOTS
    for moment in moments_ms:
        counts[min(_SLOTS - 1, max(0, (moment - first) * _SLOTS // span))] += 1
    most = max(counts)
    wide = _WIDE / _SLOTS
    bars = []
    for place, count in enumerate(counts):
        if count:
            high = max(3, round((_HIGH - _LOW) * count / most))
            bars.append(
                f'<rect x="{place * wide + 1:.1f}" y="{_HIGH - high}" width="{wide - 2:.1f}" height="{high}" rx="2">'
                f"<title>{shown(counted(count, what))}</title></rect>"
            )
    told = f"{counted(len(moments_ms), what)} in {_span(span)}; at most {most} in {_span(span // _SLOTS)}"
    return (
        f'<figure class="plot"><svg role="img" aria-label="{shown(told)}" viewBox="0 0 {_WIDE} {_HIGH}" '
        f'preserveAspectRatio="none">{"".join(bars)}</svg><figcaption>{shown(told)}</figcaption></figure>'
    )


def line(points: Sequence[tuple[int, float]], *, what: str) -> str:
    """Seconds over time, as a line; the most of them is told. A line along the bottom would say no more than that."""
    if len(points) < 2:
        return ""
    first, last = points[0][0], points[-1][0]
    span, most = max(last - first, 1), max(value for _, value in points)
    told = f"{what}: {_span(points[-1][1] * 1000)} now, at most {_span(most * 1000)} in the last {_span(span)}"
    if most == 0:
        return f'<p class="told">{shown(told)}</p>'
    spots = " ".join(
        f"{(at - first) * _WIDE / span:.1f},{_HIGH - (_HIGH - _LOW) * value / most:.1f}" for at, value in points
    )
    return (
        f'<figure class="plot"><svg role="img" aria-label="{shown(told)}" viewBox="0 0 {_WIDE} {_HIGH}" '
        f'preserveAspectRatio="none"><polyline points="{spots}"/></svg><figcaption>{shown(told)}</figcaption></figure>'
    )


def _span(ms: float) -> str:
    seconds = ms / 1000
    for unit, of in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * of:
            return f"{seconds / of:,.0f} {unit}"
    return f"{seconds:,.1f} seconds"
