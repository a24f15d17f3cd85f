"""Run parts of `make trust`: `python trust/run.py [--case TEXT] [part …]`; without a name, all of them.

A part is a module beside this one with `main(report)` and a docstring that says what it shows. It counts what it looked
at and tells of every violation. The figures are kept under `docs/trust/`; a violation of any part fails the run.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PARTS = (
    "bad-files",
    "bad-requests",
    "crash-points",
    "histories",
    "model-walks",
    "mutants",
    "power-cuts",
    "simulation",
    "upkeep",
)


def main() -> None:
    parser = argparse.ArgumentParser(description="Show that Lakeseal can be trusted, and how far that was looked at.")
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(PARTS)}; all if none is given")
    parser.add_argument("--case", default="", help="only cases with this in their names; their figures are not kept")
    wanted = parser.parse_args()
    unknown = sorted(set(wanted.parts) - set(PARTS))
    if unknown:
        parser.error(f"there is no part {', '.join(unknown)}; there is {', '.join(PARTS)}")
    sys.path[:0] = [str(HERE), str(HERE.parent / "tests")]
    kept = importlib.import_module("report")
    violations = 0
    for part in wanted.parts or PARTS:
        module = importlib.import_module(part.replace("-", "_"))
        about = inspect.cleandoc(module.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
        report = kept.Report(part, about, wanted.case)
        module.main(report)
        found = report.close()
        violations += len(found["violations"])
        if not wanted.case:
            kept.KEPT.keep(part, found)
        report.say(f"{part}: {found['counts']}, {len(found['violations'])} violations, {found['seconds']} s")
    sys.exit(1 if violations else 0)


if __name__ == "__main__":
    main()
