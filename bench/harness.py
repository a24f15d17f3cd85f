"""Measuring side by side.

A *subject* is a function `subject(timer, **arguments) -> facts` in a benchmark's module. Each measurement runs it in a
fresh process: what it does inside `with timer:` is timed, the process's peak memory is read when it returns, and the
facts it returns (how many files it saw, say) must be the same for all subjects of a case, or the comparison is refused.
Subjects take turns (A B A B …), so that whatever else the machine does falls on all of them alike.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"


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

    @property
    def median_seconds(self) -> float:
        return statistics.median(self.seconds)

    @property
    def median_cpu_seconds(self) -> float:
        return statistics.median(self.cpu_seconds)

    @property
    def median_peak_mb(self) -> float:
        return statistics.median(self.peak_mb)


class Report:
    """Collects the cases of one benchmark, shows them, and keeps them as JSON."""

    def __init__(self, name: str, repeats: int, only: str = "") -> None:
        """`only` is a part of the names of the cases that are wanted."""
        self.name = name
        self.repeats = repeats
        self.only = only
        self.console = Console()
        self.cases: list[tuple[str, list[Measured]]] = []

    def say(self, text: str) -> None:
        self.console.print(text, style="dim", highlight=False)

    def compare(self, case: str, subjects: Sequence[Subject]) -> list[Measured]:
        """Measure all subjects in turns; the first one is ours, the others are its peers. Nothing for a case that is
        not wanted."""
        if self.only not in case:
            return []
        answers: dict[str, list[dict[str, Any]]] = {subject.name: [] for subject in subjects}
        for _ in range(self.repeats):
            for subject in subjects:
                answers[subject.name].append(_in_fresh_process(subject))
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
        for peer in measured[1:]:
            if peer.facts != measured[0].facts:
                raise SystemExit(f"{case}: {peer.subject} saw {peer.facts}, {measured[0].subject} {measured[0].facts}")
        self.cases.append((case, measured))
        ratios = ", ".join(
            f"{peer.subject} {peer.median_seconds:.3f} s ({measured[0].median_seconds / peer.median_seconds:.2f}×)"
            for peer in measured[1:]
        )
        self.say(f"{case}: {measured[0].median_seconds:.3f} s{f' against {ratios}' if ratios else ''}")
        return measured

    def close(self) -> Path:
        table = Table(title=f"{self.name}: medians of {self.repeats}, in turns", header_style="bold")
        for heading in ("case", "who", "seconds", "ours / peer", "CPU s", "peak MB"):
            table.add_column(heading, justify="left" if heading in ("case", "who") else "right")
        for case, measured in self.cases:
            ours = measured[0]
            for one in measured:
                ratio = "" if one is ours else f"{ours.median_seconds / one.median_seconds:.2f}×"
                table.add_row(
                    case if one is ours else "",
                    one.subject,
                    f"{one.median_seconds:.3f}",
                    ratio,
                    f"{one.median_cpu_seconds:.3f}",
                    f"{one.median_peak_mb:,.0f}",
                    end_section=one is measured[-1],
                )
        self.console.print(table)
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"{self.name}-{time.strftime('%Y%m%d-%H%M%S')}.json"
        path.write_text(
            json.dumps(
                {
                    "benchmark": self.name,
                    "machine": {
                        "python": platform.python_version(),
                        "system": platform.platform(),
                        "cores": os.cpu_count(),
                    },
                    "cases": [{"case": case, "measured": [asdict(one) for one in runs]} for case, runs in self.cases],
                },
                indent=1,
            ),
            encoding="utf-8",
        )
        return path


def data_folder(name: str, build: Callable[..., None], **arguments: Any) -> Path:
    """The folder that `build(folder, **arguments)` fills, kept between runs; built in a process of its own."""
    base = Path(os.environ.get("LAKESEAL_BENCH_DATA", Path(tempfile.gettempdir()) / "lakeseal-bench"))
    folder = base / name
    if not folder.exists():
        base.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(dir=base, prefix=f"{name}.building-"))
        _in_fresh_process(
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


def _in_fresh_process(subject: Subject) -> dict[str, Any]:
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
