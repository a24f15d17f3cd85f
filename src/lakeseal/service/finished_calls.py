"""What a service keeps of calls that are over: numbers for Prometheus, and the last ones for its pages.

Numbers are kept by Prometheus' own client. Of calls that decided something or were refused the last are remembered, and
how far the backfill was behind: bounded; the log and `/metrics` have all of it.

Several workers share a folder, which prometheus_client learns of by the environment when a worker starts: each has
files of its own in it, and whoever is asked reads those of all. So it is the same whoever answers, and what a worker
that died has counted stays. A worker without others keeps it in memory.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct
from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from lakeseal.clock import now_ms
from lakeseal.owner.messages import Answer, Ratified, Taken

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

_CALLS, _LAGS = 2_000, 720
Lag = tuple[int, int]
"""When, and how many milliseconds."""
T = TypeVar("T")

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


class FinishedCall(Struct, frozen=True, kw_only=True):
    """As pages tell of it."""

    at_ms: int
    call: str
    who: str
    """The name of the token."""
    tables: tuple[str, ...]
    versions: tuple[int, ...] = ()
    """Of these tables, if they were ratified."""
    conflicts: int = 0
    """Of these tables, how many had gone on."""
    refused: str | None = None
    """The kind of the error."""


class FinishedCalls:
    """Used by the event loop and by threads."""

    def __init__(self, calls: Iterable[str]) -> None:
        """`calls` are all that there are: whatever else is asked for must not make series without end."""
        self._calls = frozenset(calls)
        self._folder = os.environ.get(FOLDER_VARIABLE)
        self._last: _Last[FinishedCall] = _Last("calls", FinishedCall, _CALLS, lambda one: one.at_ms, self._folder)
        self._lags: _Last[Lag] = _Last("lags", Lag, _LAGS, lambda one: one[0], self._folder)
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

    def count(self, call: str, status: int, seconds: float, kind: str | None, decided: Sequence[Answer] = ()) -> None:
        """One request is over; `kind` is that of its error, `decided` what became of commits."""
        if call in self._calls:
            self._requests.labels(call, f"{status // 100}xx").inc()
            self._seconds.labels(call).observe(seconds)
        if kind is not None:
            self._refusals.labels(kind).inc()
        for answer in decided:
            match answer:
                case Ratified():
                    self._commits.inc()
                case Taken():
                    self._conflicts.inc()

    def remember(self, call: FinishedCall) -> None:
        """One that is worth it, for the pages."""
        self._last.add(call)

    def behind(self, lag_ms: int) -> None:
        self._lags.add((now_ms(), lag_ms))

    def last(self) -> tuple[FinishedCall, ...]:
        """Oldest first."""
        return self._last.all()

    def lags(self) -> tuple[Lag, ...]:
        return self._lags.all()

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
        file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True


class _Of(Collector):
    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterable[Metric]:
        return self._collect()


class _Last(Generic[T]):
    """The last values, of all workers if they share a folder. Each writes two files of lines, one after the other, and
    begins the older one anew when the newer one is full."""

    def __init__(self, name: str, kind: Any, most: int, at: Callable[[T], int], folder: str | None) -> None:
        self._name, self._most, self._at = name, most, at
        self._folder = None if folder is None else Path(folder)
        self._own: deque[T] = deque(maxlen=most)
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind)
        self._written = 0

    def add(self, one: T) -> None:
        if self._folder is None:
            self._own.append(one)
            return
        half = self._most // 2
        path = self._folder / f"{self._name}-{os.getpid()}-{self._written // half % 2}"
        how = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (os.O_TRUNC if self._written % half == 0 else 0)
        self._written += 1
        with suppress(OSError):  # a disk that is full must not fail a commit
            file = os.open(path, how, 0o600)
            try:
                os.write(file, msgspec.json.encode(one) + b"\n")
            finally:
                os.close(file)

    def all(self) -> tuple[T, ...]:
        if self._folder is None:
            return tuple(self._own)
        found: list[T] = []
        for path in self._folder.glob(f"{self._name}-*"):
            for line in path.read_bytes().splitlines():
                with suppress(msgspec.DecodeError):  # one that is being written
                    found.append(self._decoder.decode(line))
        return tuple(sorted(found, key=self._at)[-self._most :])
