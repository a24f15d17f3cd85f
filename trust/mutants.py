"""Mutants: the product with one guard taken away, and whether the tests notice.

Each mutant is one change of one line or a few in a copy of `src/`, which the tests that are named for it run against,
until the first that fails. Whoever is not noticed has survived: a guard that no test stands for. Before that, the same
tests have to pass on the copy as it is, or their failing would say nothing; and it is noted which of them come by which
lines, so that those that come by a change are asked first, the quickest before the others.

95 of 100 have to be noticed, and each survivor has its explanation in `mutants.toml`, which lists them all.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import tomllib
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from came_by import Came, Only, Watch
from children import side_by_side
from report import ROOT, Report

LISTED = Path(__file__).resolve().with_name("mutants.toml")

LEAST_NOTICED = 0.95
_SECONDS = 600
_FAILED, _NO_TESTS = 1, 5
"""What pytest says when a test failed, and where there is none. Anything else is no answer."""
_FIRST = 60
"""How many of the tests that come by a change are asked before all that are named for it."""
_FILES_AT_ONCE = 4
_LOADED = ("pyarrow.compute", "pyarrow.dataset", "pyarrow.parquet", "pandas", "sqlalchemy.dialects.sqlite")
_LOADED += ("sqlalchemy.dialects.postgresql.psycopg", "psycopg", "pyroaring", "msgspec", "obstore.store")
"""What each run would load by itself: all but Lakeseal, of which each has its own, and pytest's plugins."""


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
    with copied() as source:
        came = _undisturbed(source, wanted, report)
        outcomes: Counter[str] = Counter()
        jobs = list(enumerate(wanted))
        done = side_by_side(jobs, lambda job: notices(source, job[1], came))
        for number, ((_, mutant), noticed) in enumerate(done, start=1):
            outcomes["noticed" if noticed else "survived"] += 1
            said = f"noticed by {noticed}" if noticed else "SURVIVED"
            report.say(f"{number} of {len(wanted)}  {mutant.file}: {mutant.name}  {said}")
            if not noticed and not mutant.explained:
                report.violation(f"{mutant.file}: {mutant.name}, and no test notices")
    report.count("mutants", len(wanted))
    report.count("noticed by a test", outcomes["noticed"])
    report.count("survivors with an explanation", outcomes["survived"] - len(report.violations))
    if outcomes["noticed"] < LEAST_NOTICED * len(wanted):
        report.violation(f"only {outcomes['noticed']} of {len(wanted)} mutants are noticed")


@contextlib.contextmanager
def copied() -> Iterator[Path]:
    """The product's source, to be changed."""
    for name in _LOADED:
        importlib.import_module(name)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        yield source


def _undisturbed(source: Path, wanted: Sequence[Mutant], report: Report) -> list[Came]:
    """All tests that are named, and what they come by, where nothing is changed."""
    tests = sorted({test for mutant in wanted for test in mutant.tests})
    files = sorted({mutant.file for mutant in wanted})
    some = [tests[first : first + _FILES_AT_ONCE] for first in range(0, len(tests), _FILES_AT_ONCE)]

    def watched(tests: Sequence[str]) -> list[Came]:
        ended = _pytest(source, tests, Watch(files), seconds=3 * _SECONDS)
        if ended.code != 0:
            raise SystemExit(f"{' '.join(tests)} do not pass before anything is changed:\n{ended.output[-3000:]}")
        return ended.came

    came: list[Came] = []
    for _, said in side_by_side(some, watched):
        came += [Came(*one) for one in said]
        report.say(f"{len(came)} tests pass before anything is changed")
    return came


def notices(source: Path, mutant: Mutant, came: Sequence[Came]) -> str:
    """The test that fails; nothing if all pass."""
    folder = Path(tempfile.mkdtemp(prefix="mutant-", dir=source.parent))
    mutated = folder / "src"
    shutil.copytree(source, mutated, copy_function=os.link)
    path = mutated / "lakeseal" / mutant.file
    text = path.read_text()
    if text.count(mutant.before) != 1:
        raise SystemExit(f"{mutant.file} no longer has the text of {mutant.name!r} once: bring mutants.toml up to date")
    path.unlink()
    path.write_text(text.replace(mutant.before, mutant.after))
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
        compiled.unlink()
    first = text[: text.index(mutant.before)].count("\n") + 1
    lines = range(first, first + mutant.before.count("\n") + 1)
    asked = _who_comes_by(mutant, lines, came)
    files = sorted({test.partition("::")[0].removeprefix("tests/") for test in asked})
    try:
        for tests, only in ((files, Only(asked)), (mutant.tests, None)):
            if not tests:
                continue
            ended = _pytest(mutated, tests, only, seconds=_SECONDS)
            if ended.code == _FAILED:
                return ended.failed or "a run that does not end"
            if ended.code not in (0, _NO_TESTS):
                raise SystemExit(
                    f"the tests of {mutant.name!r} could not be run (pytest says {ended.code}):\n{ended.output[-3000:]}"
                )
        return ""
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _who_comes_by(mutant: Mutant, lines: range, came: Sequence[Came]) -> list[str]:
    """Of the tests that are named for it, the quickest first."""
    named = tuple(f"tests/{test}::" for test in mutant.tests)
    by = [
        one for one in came if one.test.startswith(named) and not set(one.lines.get(mutant.file, ())).isdisjoint(lines)
    ]
    return [one.test for one in sorted(by, key=lambda one: one.seconds)[:_FIRST]]


class Ended(NamedTuple):
    code: int
    came: list[Came]
    output: str

    @property
    def failed(self) -> str:
        """The test that did."""
        told = (line.split()[1] for line in self.output.splitlines() if line.startswith(("FAILED ", "ERROR ")))
        return next(told, "")


def _pytest(source: Path, tests: Sequence[str], plugin: Watch | Only | None, *, seconds: float) -> Ended:
    """In a process of its own, forked from this one. Tests that hang are noticed as those that fail are, and end with
    all that they have started."""
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=source.parent))
    child = os.fork()
    if child == 0:
        code = 2
        try:
            os.setpgrp()
            output = os.open(folder / "output", os.O_WRONLY | os.O_CREAT)
            os.dup2(output, 1)
            os.dup2(output, 2)
            code = _run(source, tests, folder, plugin)
            if isinstance(plugin, Watch):
                (folder / "came").write_text(json.dumps(plugin.came))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    until = time.monotonic() + seconds
    while (done := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < until:
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(done[1]) if done[0] else _FAILED
    if not done[0]:
        os.waitpid(child, 0)
    try:
        came = [Came(*one) for one in json.loads((folder / "came").read_text())] if (folder / "came").exists() else []
        return Ended(code, came, (folder / "output").read_text(errors="replace"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(source: Path, tests: Sequence[str], folder: Path, plugin: object | None) -> int:
    loaded = [name for name in sys.modules if name.partition(".")[0] == "lakeseal"]
    assert not loaded, f"a run would have these as they are: {loaded}"
    os.chdir(ROOT)
    sys.path[:] = [str(source), *(path for path in sys.path if path not in (str(ROOT / "tests"), str(ROOT / "trust")))]
    os.environ.update(PYTHONPATH=str(source), CI="true")
    options = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not stress and not peers and not spark", "--timeout=120"]
    options += [f"--basetemp={folder}/tests", *(f"tests/{one}" for one in tests)]
    return int(pytest.main(options, plugins=[] if plugin is None else [plugin]))
