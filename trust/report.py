"""What a part of `make trust` found: counts, and what must not be. Kept under `docs/trust/`."""

from __future__ import annotations

import json
import platform
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "docs" / "trust"
FIGURES = KEPT / "figures.json"
PAGE = KEPT / "figures.md"


class Report:
    def __init__(self, part: str, about: str, only: str = "") -> None:
        self.part = part
        self.about = about
        self.only = only
        """Only cases with this in their names; figures of some cases only are not kept."""
        self.violations: list[str] = []
        self._counts: dict[str, int] = {}
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        print(text, flush=True)

    def count(self, what: str, number: int) -> None:
        self._counts[what] = self._counts.get(what, 0) + number

    def violation(self, what: str) -> None:
        self.violations.append(what)
        self.say(f"VIOLATION  {what}")

    def close(self) -> dict[str, Any]:
        return {
            "about": self.about,
            "counts": self._counts,
            "violations": self.violations,
            "seconds": round(time.monotonic() - self._began),
            "when": time.strftime("%Y-%m-%d"),
            "lakeseal": version("lakeseal"),
            "python": platform.python_version(),
        }


def keep(part: str, found: dict[str, Any]) -> None:
    """The figures of one part take the place of its former ones, and the page is written again."""
    KEPT.mkdir(parents=True, exist_ok=True)
    figures = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    figures[part] = found
    FIGURES.write_text(json.dumps(dict(sorted(figures.items())), indent=2, ensure_ascii=False) + "\n")
    PAGE.write_text(page(figures))


def page(figures: dict[str, Any]) -> str:
    lines = [
        "# Trust, in figures",
        "",
        "Written by `make trust`, which fails on a violation. `make trust ONLY=mutants` runs one part.",
    ]
    for part, found in sorted(figures.items()):
        lines += ["", f"## {part.replace('-', ' ').capitalize()}", found["about"], "", "| | |", "| --- | --- |"]
        lines += [f"| {what} | {number:,} |" for what, number in found["counts"].items()]
        lines += [f"| violations | {len(found['violations'])} |", f"| seconds | {found['seconds']:,} |"]
        lines += [f"| run | {found['when']}, Lakeseal {found['lakeseal']}, Python {found['python']} |"]
        lines += ["", *(f"- **Violation**: {one}" for one in found["violations"])] if found["violations"] else []
    return "\n".join(lines) + "\n"
