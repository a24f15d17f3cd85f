"""Run benchmarks: `python bench/run.py [--repeats N] [--case TEXT] [name …]`; without a name, all of them.

A benchmark is a module beside this one with `main(report)` and a docstring that says what is compared and why that is
fair. Its name is the module's, with dashes.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
BENCHMARKS = ("branch-job", "branches", "catalog", "change", "ingest", "log-load", "owner", "steps", "write")


def main() -> None:
    parser = argparse.ArgumentParser(description="Run benchmarks.")
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(BENCHMARKS)}; all if none is given")
    parser.add_argument("--repeats", type=int, default=3, help="measurements of each subject (3)")
    parser.add_argument("--case", default="", help="only cases with this in their names")
    wanted = parser.parse_args()
    unknown = sorted(set(wanted.names) - set(BENCHMARKS))
    if unknown:
        parser.error(f"there is no benchmark {', '.join(unknown)}; there is {', '.join(BENCHMARKS)}")
    # What makes small tables is shared with the tests, also in the processes that measure.
    shared = [str(HERE), str(HERE.parent / "tests")]
    sys.path[:0] = shared
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (*shared, os.environ.get("PYTHONPATH"))))
    report_class = importlib.import_module("harness").Report
    for name in wanted.names or BENCHMARKS:
        module = importlib.import_module(name.replace("-", "_"))
        report = report_class(name, wanted.repeats, wanted.case)
        module.main(report)
        report.say(f"kept as {report.close()}")


if __name__ == "__main__":
    main()
