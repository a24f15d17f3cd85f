"""Run benchmarks: `python bench/run.py [--repeats N] [--case TEXT] [name …]`; without a name, all of them.

A benchmark is a module beside this one with `main(report)` and a docstring that says what is compared and why that is
fair. Its name is the module's, with dashes. The figures are kept under `docs/bench/`, those beside Delta Spark (`make
bench-peers`) as parts of their own; a target that was missed fails the run.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
BENCHMARKS = (
    "branch-job",
    "branches",
    "catalog",
    "change",
    "ducklake",
    "growth",
    "ingest",
    "log-load",
    "owner",
    "scan",
    "steps",
    "upserts",
    "write",
)
WITH_PEERS = ("branch-job", "change", "tpch", "upserts", "write")
"""Those that have more to stand beside when peers beyond PyPI are set up."""


def main() -> None:
    beyond_pypi = bool(os.environ.get("LAKESEAL_BENCH_PEERS"))
    benchmarks = WITH_PEERS if beyond_pypi else BENCHMARKS
    parser = argparse.ArgumentParser(description="Run benchmarks.")
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(benchmarks)}; all if none is given")
    parser.add_argument("--repeats", type=int, default=3, help="measurements of each subject (3)")
    parser.add_argument("--case", default="", help="only cases with this in their names")
    wanted = parser.parse_args()
    unknown = sorted(set(wanted.names) - set(benchmarks))
    if unknown:
        parser.error(f"there is no benchmark {', '.join(unknown)}; there is {', '.join(benchmarks)}")
    # What makes small tables is shared with the tests, also in the processes that measure.
    shared = [str(HERE), str(HERE.parent / "tests")]
    sys.path[:0] = shared
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (*shared, os.environ.get("PYTHONPATH"))))
    report_class = importlib.import_module("harness").Report
    kept = importlib.import_module("page").KEPT
    missed = []
    for name in wanted.names or benchmarks:
        module = importlib.import_module(name.replace("-", "_"))
        about = inspect.cleandoc(module.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
        report = report_class(name, wanted.repeats, wanted.case, about.partition(": ")[2] or about)
        module.main(report)
        report.close()
        part = f"{name}-beside-peers" if beyond_pypi else name
        kept.keep(part, report.figures(kept.read().get(part, {})))
        missed += [one for one in report.targets if not one.met]
    for one in missed:
        report.say(f"MISSED  {one.name}: {one.ratio:.2f}, to reach: {one.target:.2f}. {one.reason}")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
