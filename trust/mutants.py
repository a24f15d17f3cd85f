"""Mutants: the product with one guard taken away, and whether the tests notice.

Each mutant is one change of one line or a few in a copy of `src/`, which the tests that are named for it run against,
until the first that fails. Whoever is not noticed has survived: a guard that no test stands for. Before that, the same
tests have to pass on the copy as it is, or their failing would say nothing.

95 of 100 have to be noticed, and each survivor has its explanation in `mutants.toml`, which lists them all.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from report import ROOT, Report

LISTED = Path(__file__).resolve().with_name("mutants.toml")

LEAST_NOTICED = 0.95
_SECONDS = 600
_FAILED = 1
"""What pytest says when a test failed. Anything else is no answer."""


class Mutant(NamedTuple):
    name: str
    file: str
    """Below `src/lakeseal/`."""
    before: str
    after: str
    tests: tuple[str, ...]
    """Below `tests/`."""
    explained: str = ""
    """Why it may survive."""


def mutants() -> Iterator[Mutant]:
    for group in tomllib.loads(LISTED.read_text())["group"]:
        for one in group["mutant"]:
            yield Mutant(file=group["file"], tests=tuple(group["tests"]), **one)


def main(report: Report) -> None:
    wanted = [one for one in mutants() if report.only in one.name]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        for tests in sorted({one.tests for one in wanted}):
            if (code := _run(source, tests, folder)) != 0:
                raise SystemExit(f"{' '.join(tests)} do not pass before anything is changed (pytest says {code})")
        outcomes: Counter[str] = Counter()
        for number, mutant in enumerate(wanted, start=1):
            noticed = _is_noticed(source, mutant, folder)
            outcomes["noticed" if noticed else "survived"] += 1
            report.say(
                f"{number} of {len(wanted)}  {'noticed ' if noticed else 'SURVIVED'}  {mutant.file}: {mutant.name}"
            )
            if not noticed and not mutant.explained:
                report.violation(f"{mutant.file}: {mutant.name}, and no test notices")
    report.count("mutants", len(wanted))
    report.count("noticed by a test", outcomes["noticed"])
    report.count("survivors with an explanation", outcomes["survived"] - len(report.violations))
    if outcomes["noticed"] < LEAST_NOTICED * len(wanted):
        report.violation(f"only {outcomes['noticed']} of {len(wanted)} mutants are noticed")


def _is_noticed(source: Path, mutant: Mutant, folder: str) -> bool:
    path = source / "lakeseal" / mutant.file
    text = path.read_text()
    if text.count(mutant.before) != 1:
        raise SystemExit(f"{mutant.file} no longer has the text of {mutant.name!r} once: bring mutants.toml up to date")
    path.write_text(text.replace(mutant.before, mutant.after))
    try:
        code = _run(source, mutant.tests, folder)
    finally:
        path.write_text(text)
    if code not in (0, _FAILED):
        raise SystemExit(f"the tests of {mutant.name!r} could not be run (pytest says {code})")
    return code == _FAILED


def _run(source: Path, tests: tuple[str, ...], folder: str) -> int:
    """What pytest says. Tests that hang are noticed as those that fail are."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "not stress and not peers and not spark",
    ]
    command += ["--timeout=120", f"--basetemp={folder}/tests", *(f"tests/{one}" for one in tests)]
    environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1", "CI": "true"}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, timeout=_SECONDS, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        return _FAILED
    return done.returncode
