"""What a part of `make trust` found: counts, and what must not be. Kept under `docs/trust/`."""

from __future__ import annotations

import platform
import time
from importlib.metadata import version
from typing import Any

from support.figures import ROOT, Figures, table, today


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
            "when": today(),
            "lakeseal": version("lakeseal"),
            "python": platform.python_version(),
        }


def head(figures: dict[str, Any]) -> list[str]:
    return [
        "# Trust, in figures",
        "",
        "Written by `make trust`, which fails on a violation. `make trust ONLY=mutants` runs one part.",
    ]


def section(found: dict[str, Any]) -> list[str]:
    rows: list[tuple[str, str]] = [(what, f"{number:,}") for what, number in found["counts"].items()]
    rows += [("violations", f"{len(found['violations'])}"), ("seconds", f"{found['seconds']:,}")]
    rows += [("run", f"{found['when']}, Lakeseal {found['lakeseal']}, Python {found['python']}")]
    violations = [f"- **Violation**: {one}" for one in found["violations"]]
    return [found["about"], "", *table(("", ""), rows), *([""] if violations else []), *violations]


KEPT = Figures(folder=ROOT / "docs" / "trust", head=head, section=section)
