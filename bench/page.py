"""The page of what `make bench` found: `docs/bench/figures.md`, from the JSON beside it, plots of what grows."""

from __future__ import annotations

import re
from typing import Any

from support import plots
from support.figures import ROOT, Figures, table

FOLDER = ROOT / "docs" / "bench"
BUSY = 0.1
"""Of the machine's time. Where others had more of it, the page says so."""


def head(figures: dict[str, Any]) -> list[str]:
    targets = [(part, one) for part, found in figures.items() for one in found["targets"]]
    met = sum(one["met"] for _, one in targets)
    lines = [
        "# Speed, in figures",
        "",
        "Written by `make bench` and `make bench-peers`, which fail where a target is missed; `make bench ONLY=scan`",
        "runs one part. Everything stands beside a peer that did the same work in the same run, in turns, each in a",
        "fresh process. Seconds are medians, with the least and the most behind them. Ratios are the peer's time by",
        "ours: more is better. *Others* is the share of the machine's CPU that other work had meanwhile: above a tenth",
        "the machine was busy: seconds say little then, and ratios less than on a quiet one; seconds of CPU say most.",
        "",
        f"{met} of {len(targets)} targets are met.",
        "",
    ]
    rows = [
        (f"[{part}](#{part})", one["name"], f"{one['ratio']:.2f}", f"{one['target']:.2f}", _outcome(one))
        for part, one in targets
    ]
    return lines + table(("part", "target", "ratio", "to reach", ""), rows)


def section(found: dict[str, Any]) -> list[str]:
    machine = found["machine"]
    packages = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    lines = [found["about"], ""]
    rows: list[tuple[object, ...]] = []
    for case, one in found["cases"].items():
        for number, measured in enumerate(one.get("measured", ())):
            first, seconds = one["measured"][0], measured["seconds"]
            rows.append(
                (
                    case if number == 0 else "",
                    measured["subject"],
                    f"{_short(measured['median'])} ({_short(min(seconds))}–{_short(max(seconds))})",
                    f"{measured['median'] / first['median']:.2f}×" if number else "",
                    _short(measured["cpu_seconds"]),
                    f"{measured['peak_mb']:,}",
                    "" if number else _others(one),
                )
            )
    if rows:
        lines += [*table(("case", "who", "seconds", "peer / ours", "CPU s", "peak MB", "others"), rows), ""]
    told = [(case, _told(one["told"]), _others(one)) for case, one in found["cases"].items() if "told" in one]
    if told:
        lines += [*table(("case", "", "others"), told), ""]
    for case, one in found["cases"].items():
        if "growth" in one:
            lines += [*_growth(case, one), ""]
    days = ", ".join(sorted({one["when"] for one in found["cases"].values()}))
    lines += [
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gb']} GB, {machine['system']}, "
        f"Python {machine['python']}; {packages}; {days}."
    ]
    return lines


def _growth(case: str, one: dict[str, Any]) -> list[str]:
    growth = one["growth"]
    sizes = sorted({x for points in growth["series"].values() for x, _ in points})
    rows = [
        (name, *(_short(dict(map(tuple, points)).get(size)) for size in sizes))
        for name, points in growth["series"].items()
    ]
    return [
        f"### {case}",
        f"![{case}]({_drawing(case)})",
        "",
        *table((f"{growth['up']}, by {growth['across']}", *(f"{size:,}" for size in sizes)), rows),
        "",
        f"{growth['explained']} Others: {_others(one)}.",
    ]


def drawings(found: dict[str, Any]) -> dict[str, str]:
    grown = {case: one["growth"] for case, one in found["cases"].items() if "growth" in one}
    return {_drawing(case): plots.lines(case, one["across"], one["up"], one["series"]) for case, one in grown.items()}


def _drawing(case: str) -> str:
    return f"{re.sub(r'[^a-z0-9]+', '-', case.lower()).strip('-')}.svg"


def _outcome(target: dict[str, Any]) -> str:
    return "met" if target["met"] else f"**missed** {target.get('reason', '')}".strip()


def _others(case: dict[str, Any]) -> str:
    return f"{case['others']:.0%}{' (busy)' if case['others'] > BUSY else ''}" if "others" in case else ""


def _told(told: dict[str, Any]) -> str:
    return "; ".join(f"{name} {_short(value) if isinstance(value, float) else value}" for name, value in told.items())


def _short(value: float | None) -> str:
    """Three figures are more than any of them is worth."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


KEPT = Figures(folder=FOLDER, head=head, section=section, drawings=drawings)
