"""Figures that are kept: what a run of `make trust` or `make bench` found, as JSON and as a page that is made from it.

A folder has one `figures.json`, with an entry for each part that was ever run, and one `figures.md`, written anew from
all of them whenever a part is kept. A part keeps its own shape; who writes it says how it looks on the page.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, kw_only=True)
class Figures:
    folder: Path
    head: Callable[[dict[str, Any]], list[str]]
    """The page's lines above the parts, of all figures."""
    section: Callable[[dict[str, Any]], list[str]]
    """The lines of one part."""
    drawings: Callable[[dict[str, Any]], dict[str, str]] = lambda found: {}
    """What a part's lines show beside them: SVG by the file's name."""

    def read(self) -> dict[str, Any]:
        path = self.folder / "figures.json"
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        return found

    def keep(self, part: str, found: dict[str, Any]) -> None:
        """In the place of what the part had before; the page is written again."""
        self.folder.mkdir(parents=True, exist_ok=True)
        figures = dict(sorted({**self.read(), part: found}.items()))
        for name, drawn in self.drawings(found).items():
            (self.folder / name).write_text(drawn, encoding="utf-8")
        text = json.dumps(figures, indent=1, ensure_ascii=False) + "\n"
        (self.folder / "figures.json").write_text(text, encoding="utf-8")
        (self.folder / "figures.md").write_text(self.page(figures), encoding="utf-8")

    def page(self, figures: dict[str, Any]) -> str:
        lines = self.head(figures)
        for part, found in sorted(figures.items()):
            lines += ["", f"## {part.replace('-', ' ').capitalize()}", *self.section(found)]
        return "\n".join(lines) + "\n"


def table(headings: Iterable[str], rows: Iterable[Iterable[object]]) -> list[str]:
    """In Markdown."""
    headings = list(headings)
    lines = [headings, ["---"] * len(headings), *rows]
    return [f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in line)} |" for line in lines]


def today() -> str:
    return time.strftime("%Y-%m-%d")


def machine() -> dict[str, Any]:
    """What the figures were seen on."""
    return {
        "system": f"{platform.system()} {platform.release().split('-')[0]}, {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "python": platform.python_version(),
    }


def versions(*packages: str) -> dict[str, str]:
    """Of those that are installed, and the commit that was run."""
    found = {}
    for package in ("lakeseal", *packages):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    asked = ["git", "describe", "--always", "--dirty"]
    told = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    return found | ({"commit": told.stdout.strip()} if told.returncode == 0 else {})


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
