"""Numbers for Prometheus, by its own client; those of several workers are added up.

Several workers share a folder, which prometheus_client learns of by the environment when a worker starts: each has a
file of its own in it, and what a worker that died has counted stays.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

BACKLOG = {
    "lakeseal_tables": "Tables that are owned.",
    "lakeseal_unbackfilled_commits": "Commits that wait for their backfill.",
    "lakeseal_unbackfilled_commits_max": "The most of them in one table.",
    "lakeseal_backfill_lag_seconds": "How long the oldest has been waiting.",
}
"""Asked of the ledger at each look."""

disable_created_metrics()  # type: ignore[no-untyped-call]


@contextmanager
def shared_folder() -> Iterator[None]:
    """For the workers that are started meanwhile."""
    folder = tempfile.mkdtemp(prefix="lakeseal-metrics-")
    os.environ[FOLDER_VARIABLE] = folder
    try:
        yield
    finally:
        del os.environ[FOLDER_VARIABLE]
        shutil.rmtree(folder, ignore_errors=True)


class Metrics:
    def __init__(self, calls: Iterable[str]) -> None:
        """`calls` are all that there are: whatever else is asked for must not make series without end."""
        self._calls = frozenset(calls)
        self._folder = os.environ.get(FOLDER_VARIABLE)
        self._registry = CollectorRegistry()
        self._requests = self._counter("requests", "Requests, by call and status.", "call", "status")
        self._seconds = Histogram(
            "lakeseal_request_seconds",
            "Time to answer, by call.",
            ("call",),
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self._commits = self._counter("commits", "Versions ratified.")
        self._conflicts = self._counter("conflicts", "Commits that came too late for their version.")
        self._refusals = self._counter("refusals", "Requests that were answered with an error, by its kind.", "kind")
        self.is_first = self._folder is None or self._holds(Path(self._folder, "first"))
        """Whether no other worker of the service is here before this one."""

    def _counter(self, name: str, words: str, *labels: str) -> Counter:
        return Counter(f"lakeseal_{name}", words, labels, registry=self._registry)

    def answered(self, call: str, status: int, seconds: float, kind: str | None) -> None:
        """One request is over; `kind` is that of its error."""
        if call in self._calls:
            self._requests.labels(call, f"{status // 100}xx").inc()
            self._seconds.labels(call).observe(seconds)
        if kind is not None:
            self._refusals.labels(kind).inc()

    def ratified(self) -> None:
        self._commits.inc()

    def conflicted(self) -> None:
        self._conflicts.inc()

    def families(self) -> Iterable[Metric]:
        """What this process has counted."""
        return self._registry.collect()

    def text(self, backlog: Mapping[str, float]) -> bytes:
        """In Prometheus' format; `backlog` has values for names of `BACKLOG`."""
        shown = CollectorRegistry()
        if self._folder is None:
            shown.register(_Of(self.families))
        else:
            MultiProcessCollector(shown, self._folder)  # type: ignore[no-untyped-call]
        shown.register(_Of(lambda: [GaugeMetricFamily(name, BACKLOG[name], value) for name, value in backlog.items()]))
        return generate_latest(shown)

    def _holds(self, path: Path) -> bool:
        # Stays open: the lock ends with the process.
        self._file = path.open("a")
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True


class _Of(Collector):
    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterable[Metric]:
        return self._collect()
