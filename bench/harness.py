"""Measuring side by side.

A *subject* is a function `subject(timer, **arguments) -> facts` in a benchmark's module. Each measurement runs it in a
fresh process: what it does inside `with timer:` is timed, the process's peak memory is read when it returns, and the
facts it returns (how many files it saw, say) must be the same for all subjects of a case, or the comparison is refused.
Subjects take turns (A B A B …), so that whatever else the machine does falls on all of them alike; how much that was is
kept with the case.

A *target* is a ratio that was promised. One that is missed fails the run, and stays in the figures with its reason.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from support.figures import machine, today, versions

HERE = Path(__file__).resolve().parent
BESIDE = ("pyspark", "pyarrow", "deltalake", "duckdb", "polars", "confluent-kafka")
"""Packages whose version a figure depends on."""


def delta_spark_is_wanted() -> bool:
    """Whether a benchmark shall run beside Delta Spark, too: `make bench-peers` asked for it and could set it up."""
    ready = HERE.parent / ".venv-peers" / "delta-jars.txt"
    return bool(os.environ.get("LAKESEAL_BENCH_PEERS")) and ready.exists()


class Timer:
    seconds = 0.0
    cpu_seconds = 0.0
    peak_mb = 0.0
    """Of other processes that did the work, if there are any."""

    def __enter__(self) -> Timer:
        self._start = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._start[0]
        self.cpu_seconds += time.process_time() - self._start[1]


@dataclass(frozen=True, kw_only=True)
class Subject:
    name: str
    function: Callable[..., Any]
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Measured:
    subject: str
    seconds: list[float]
    cpu_seconds: list[float]
    """Of all threads: what is left of a comparison when the machine is busy with something else."""
    peak_mb: list[float]
    facts: Any

    def as_json(self) -> dict[str, Any]:
        return {
            "subject": self.subject,
            "median": round(self.median_seconds, 4),
            "seconds": [round(one, 4) for one in self.seconds],
            "cpu_seconds": round(self.median_cpu_seconds, 3),
            "peak_mb": round(self.median_peak_mb),
            "facts": self.facts,
        }

    @property
    def median_seconds(self) -> float:
        return statistics.median(self.seconds)

    @property
    def median_cpu_seconds(self) -> float:
        return statistics.median(self.cpu_seconds)

    @property
    def median_peak_mb(self) -> float:
        return statistics.median(self.peak_mb)


@dataclass(frozen=True, kw_only=True)
class Target:
    """A ratio that was promised: how many times as fast as a peer, or as a limit that was set. More is better."""

    case: str
    name: str
    ratio: float
    target: float
    reason: str = ""
    """Why it can be missed, where that is known."""

    @property
    def met(self) -> bool:
        return self.ratio >= self.target

    def as_json(self) -> dict[str, Any]:
        told = {"name": self.name, "ratio": round(self.ratio, 3), "target": self.target, "met": self.met}
        return {"case": self.case, **told, **({"reason": self.reason} if self.reason and not self.met else {})}


@dataclass(frozen=True, kw_only=True)
class Growth:
    """How a cost goes with a size: for each series its points, and what explains their slope."""

    case: str
    across: str
    up: str
    series: dict[str, list[tuple[float, float]]]
    explained: str


class Report:
    """Collects the cases of one benchmark and shows them. What they came to is what `figures` returns."""

    def __init__(self, name: str, repeats: int, only: str = "", about: str = "") -> None:
        """`only` is a part of the names of the cases that are wanted."""
        self.name = name
        self.repeats = repeats
        self.only = only
        self.about = about
        self.console = Console()
        self.targets: list[Target] = []
        self._cases: dict[str, dict[str, Any]] = {}
        self._shown: list[tuple[str, list[Measured]]] = []

    def say(self, text: str) -> None:
        self.console.print(text, style="dim", highlight=False)

    def wants(self, case: str) -> bool:
        return self.only in case

    def compare(
        self,
        case: str,
        subjects: Sequence[Subject],
        *,
        targets: Mapping[str, float] | None = None,
        of_fastest: float | None = None,
        reason: str = "",
        warm_up: bool = True,
        repeats: int | None = None,
    ) -> list[Measured]:
        """Measure all subjects in turns; the first one is ours, the others are its peers. Nothing for a case that is
        not wanted.

        `targets` says for a peer how many times as fast as it ours is to be, and `of_fastest` the same beside whichever
        was the fastest of them. One turn goes before that does not count, and has files cached and code compiled
        for all alike, unless the subjects do that for themselves (`warm_up=False`)."""
        if not self.wants(case):
            return []
        answers: dict[str, list[dict[str, Any]]] = {subject.name: [] for subject in subjects}
        with self.watched(case) as watched:
            for turn in range(-1 if warm_up else 0, repeats or self.repeats):
                for subject in subjects:
                    answer = in_fresh_process(subject)
                    if turn >= 0:
                        answers[subject.name].append(answer)
        measured = [
            Measured(
                subject=name,
                seconds=[run["seconds"] for run in runs],
                cpu_seconds=[run["cpu_seconds"] for run in runs],
                peak_mb=[run["peak_mb"] for run in runs],
                facts=runs[0]["facts"],
            )
            for name, runs in answers.items()
        ]
        ours, *peers = measured
        for peer in peers:
            if peer.facts != ours.facts:
                raise SystemExit(f"{case}: {peer.subject} saw {peer.facts}, {ours.subject} {ours.facts}")
        watched["measured"] = [one.as_json() for one in measured]
        self._shown.append((case, measured))
        for peer in peers:
            if peer.subject in (targets or {}):
                name = f"{case}: {ours.subject} beside {peer.subject}"
                self.target(case, name, peer.median_seconds / ours.median_seconds, targets[peer.subject], reason)
        if of_fastest is not None:
            fastest = min(peers, key=lambda peer: peer.median_seconds)
            name = f"{case}: {ours.subject} beside the fastest, {fastest.subject}"
            self.target(case, name, fastest.median_seconds / ours.median_seconds, of_fastest, reason)
        ratios = ", ".join(
            f"{peer.subject} {peer.median_seconds:.3f} s ({peer.median_seconds / ours.median_seconds:.2f}×)"
            for peer in peers
        )
        self.say(f"{case}: {ours.median_seconds:.3f} s{f' against {ratios}' if ratios else ''}")
        return measured

    def target(self, case: str, name: str, ratio: float, target: float, reason: str = "") -> None:
        """A ratio that a case came to, and what it was to be at least."""
        one = Target(case=case, name=name, ratio=ratio, target=target, reason=reason)
        self.targets.append(one)
        self.say(f"{'met   ' if one.met else 'MISSED'}  {name}: {ratio:.2f}, to reach: {target:.2f}")

    def fact(self, case: str, **told: Any) -> None:
        """Beside what was measured: rates, percentiles."""
        self._cases.setdefault(case, {}).setdefault("told", {}).update(told)

    @contextlib.contextmanager
    def watched(self, case: str) -> Iterator[dict[str, Any]]:
        """A case that is measured in a way of its own; what it found goes into what this yields. How much of the
        machine's time went to others meanwhile stands beside it."""
        found = self._cases[case] = {"when": today()}
        began, spent, whole = time.monotonic(), _spent_here(), _spent_by_all()
        yield found
        seconds = time.monotonic() - began
        others = (_spent_by_all() - whole) - (_spent_here() - spent)
        found["seconds"] = round(seconds, 1)
        found["others"] = round(max(0.0, others) / (seconds * (os.cpu_count() or 1)), 2)

    def growth(self, growth: Growth) -> None:
        self._cases.setdefault(growth.case, {"when": today()})["growth"] = asdict(growth)

    def close(self) -> None:
        """Shows what was measured."""
        table = Table(title=f"{self.name}: medians of {self.repeats}, in turns", header_style="bold")
        for heading in ("case", "who", "seconds", "spread", "peer / ours", "CPU s", "peak MB"):
            table.add_column(heading, justify="left" if heading in ("case", "who") else "right")
        for case, measured in self._shown:
            ours = measured[0]
            for one in measured:
                ratio = "" if one is ours else f"{one.median_seconds / ours.median_seconds:.2f}×"
                table.add_row(
                    case if one is ours else "",
                    one.subject,
                    f"{one.median_seconds:.3f}",
                    f"{min(one.seconds):.3f}–{max(one.seconds):.3f}",
                    ratio,
                    f"{one.median_cpu_seconds:.3f}",
                    f"{one.median_peak_mb:,.0f}",
                    end_section=one is measured[-1],
                )
        self.console.print(table)

    def figures(self, former: dict[str, Any]) -> dict[str, Any]:
        """As they are kept. Of a run that was to have some cases only, the others are those of former runs."""
        cases, targets = dict(self._cases), [one.as_json() for one in self.targets]
        if self.only:
            cases = {**former.get("cases", {}), **cases}
            targets = [one for one in former.get("targets", []) if one["case"] not in self._cases] + targets
        return {
            "about": self.about,
            "machine": machine(),
            "versions": versions(*BESIDE),
            "targets": targets,
            "cases": cases,
        }


def _spent_here() -> float:
    """Seconds of CPU of this process and of all that it started, ended or not: Spark's goes on between cases."""
    spent = sum(
        used.ru_utime + used.ru_stime
        for used in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            used = child.cpu_times()
            spent += used.user + used.system + used.children_user + used.children_system
    return spent


def _spent_by_all() -> float:
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0))


def data_folder(name: str, build: Callable[..., None], **arguments: Any) -> Path:
    """The folder that `build(folder, **arguments)` fills, kept between runs; built in a process of its own."""
    base = Path(os.environ.get("LAKESEAL_BENCH_DATA", Path(tempfile.gettempdir()) / "lakeseal-bench"))
    folder = base / name
    if not folder.exists():
        base.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(dir=base, prefix=f"{name}.building-"))
        in_fresh_process(
            Subject(
                name=name, function=_build, arguments={"build": _name(build), "folder": str(unfinished)} | arguments
            )
        )
        try:
            unfinished.rename(folder)
        except OSError:  # another run was faster
            shutil.rmtree(unfinished)
    return folder


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder on the disk that the benchmarks' data is on, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="lakeseal-bench-", dir=os.environ.get("LAKESEAL_BENCH_DATA")) as folder:
        yield Path(folder)


@contextlib.contextmanager
def cpu_of_children(timer: Timer) -> Iterator[None]:
    """Adds to the timer what processes below this one burn: a JVM, its workers, servers."""
    before = _children_cpu()
    yield
    timer.cpu_seconds += _children_cpu() - before


def _children_cpu() -> float:
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            total += sum(process.cpu_times()[:4])
    return total


def _build(timer: Timer, build: str, folder: str, **arguments: Any) -> None:
    _resolve(build)(Path(folder), **arguments)


def in_fresh_process(subject: Subject) -> dict[str, Any]:
    asked = json.dumps({"function": _name(subject.function), "arguments": subject.arguments})
    ended = subprocess.run([sys.executable, __file__, asked], stdout=subprocess.PIPE, text=True, cwd=HERE, check=False)
    if ended.returncode:
        raise SystemExit(f"{subject.name} failed with exit code {ended.returncode}; its reason is above")
    answer: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return answer


def _name(function: Callable[..., Any]) -> str:
    return f"{function.__module__}:{function.__qualname__}"


def _resolve(name: str) -> Callable[..., Any]:
    module, _, function = name.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return found


def peak_mb(process: int | str = "self") -> float:
    try:
        # Of this program only: getrusage also counts what the parent had when it started us.
        status = Path(f"/proc/{process}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 1024
    except (OSError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)


def _child(asked: dict[str, Any]) -> None:
    timer = Timer()
    facts = _resolve(asked["function"])(timer, **asked["arguments"])
    peak = timer.peak_mb or peak_mb()
    measured = {"seconds": timer.seconds, "cpu_seconds": timer.cpu_seconds, "peak_mb": peak, "facts": facts}
    print(json.dumps(measured))


if __name__ == "__main__":
    # Run under its importable name, so that a benchmark's `harness.Timer` is this one.
    importlib.import_module("harness")._child(json.loads(sys.argv[1]))
