"""Numbers for Prometheus, shared by all workers of a service without a lock.

All series are known beforehand, so each worker has a row of numbers in one shared file and adds to its own row; whoever
is asked sums up the rows. A worker that takes the place of a dead one goes on counting in its row.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import tempfile
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from lakeseal import errors
from lakeseal.errors import LakesealError

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_BOUNDS = (*(f"{seconds:g}" for seconds in _BUCKETS), "+Inf")
_STATUSES = ("2xx", "3xx", "4xx", "5xx")
_KINDS = tuple(
    value.kind for value in vars(errors).values() if isinstance(value, type) and issubclass(value, LakesealError)
)
_WIDTH = 8

Labels = tuple[tuple[str, str], ...]
Series = tuple[str, Labels]

_HELP = {
    "lakeseal_requests_total": ("counter", "Requests, by call and status."),
    "lakeseal_request_seconds": ("histogram", "Time to answer, by call."),
    "lakeseal_commits_total": ("counter", "Versions ratified."),
    "lakeseal_conflicts_total": ("counter", "Commits that came too late for their version."),
    "lakeseal_refusals_total": ("counter", "Requests that were answered with an error, by its kind."),
}


def shared_file() -> str:
    """A new file for the numbers of several workers; its maker removes it."""
    handle, path = tempfile.mkstemp(prefix="lakeseal-metrics-")
    os.close(handle)
    return path


class Metrics:
    """Adding is for one thread of each process."""

    def __init__(self, calls: Iterable[str], *, path: str | None = None, rows: int = 1) -> None:
        """`rows` is the most workers there can be at a time, and the same for all that use the file."""
        self._calls = tuple(calls)
        self._places = {series: place for place, series in enumerate(self._all_series())}
        size = max(1, len(self._places)) * _WIDTH
        self._rows = rows if path is not None else 1
        self.row = 0
        """This worker's: the first one that nobody else has."""
        if path is None:
            memory = mmap.mmap(-1, size)
        else:
            # Stays open: the lock on the row ends with the process.
            self._file = open(path, "r+b")  # noqa: SIM115
            self._file.truncate(size * rows)
            memory = mmap.mmap(self._file.fileno(), size * rows)
            self.row = self._free_row()
        self._numbers = memoryview(memory).cast("d")
        self._first = self.row * len(self._places)

    def answered(self, call: str, status: int, seconds: float, kind: str | None) -> None:
        """One request is over; `kind` is that of its error."""
        self._add("lakeseal_requests_total", (("call", call), ("status", f"{status // 100}xx")))
        self._add("lakeseal_request_seconds_bucket", (("call", call), ("le", _BOUNDS[bisect_left(_BUCKETS, seconds)])))
        self._add("lakeseal_request_seconds_sum", (("call", call),), seconds)
        if kind is not None:
            self._add("lakeseal_refusals_total", (("kind", kind),))

    def ratified(self, versions: int = 1) -> None:
        self._add("lakeseal_commits_total", (), versions)

    def conflicted(self, versions: int = 1) -> None:
        self._add("lakeseal_conflicts_total", (), versions)

    def text(self, gauges: Mapping[str, tuple[str, float]]) -> str:
        """In Prometheus' format; `gauges` have a help text and a value each."""
        lines: list[str] = []
        for name, (kind, words) in _HELP.items():
            lines += [f"# HELP {name} {words}", f"# TYPE {name} {kind}"]
            lines += self._histogram(name) if kind == "histogram" else self._counter(name)
        for name, (words, value) in gauges.items():
            lines += [f"# HELP {name} {words}", f"# TYPE {name} gauge", f"{name} {_number(value)}"]
        return "\n".join(lines) + "\n"

    def _counter(self, name: str) -> Iterable[str]:
        for series in self._places:
            value = self._sum(series)
            # A label that never occurred would only make noise; a plain counter starts at 0.
            if series[0] == name and (value or not series[1]):
                yield _line(name, series[1], value)

    def _histogram(self, name: str) -> Iterable[str]:
        for call in self._calls:
            count = 0.0
            lines = []
            for bound in _BOUNDS:
                labels: Labels = (("call", call), ("le", bound))
                count += self._sum((f"{name}_bucket", labels))
                lines.append(_line(f"{name}_bucket", labels, count))
            if count:
                yield from lines
                yield _line(f"{name}_sum", (("call", call),), self._sum((f"{name}_sum", (("call", call),))))
                yield _line(f"{name}_count", (("call", call),), count)

    def _all_series(self) -> Iterable[Series]:
        for call in self._calls:
            for status in _STATUSES:
                yield "lakeseal_requests_total", (("call", call), ("status", status))
            for bound in _BOUNDS:
                yield "lakeseal_request_seconds_bucket", (("call", call), ("le", bound))
            yield "lakeseal_request_seconds_sum", (("call", call),)
        for kind in _KINDS:
            yield "lakeseal_refusals_total", (("kind", kind),)
        yield "lakeseal_commits_total", ()
        yield "lakeseal_conflicts_total", ()

    def _add(self, name: str, labels: Labels, value: float = 1) -> None:
        place = self._places.get((name, labels))
        if place is not None:
            self._numbers[self._first + place] += value

    def _sum(self, series: Series) -> float:
        place, width = self._places[series], len(self._places)
        return sum(self._numbers[row * width + place] for row in range(self._rows))

    def _free_row(self) -> int:
        for row in range(self._rows):
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, row)
            except OSError:
                continue
            return row
        return self._rows - 1


def _line(name: str, labels: Sequence[tuple[str, str]], value: float) -> str:
    inside = ",".join(f'{key}="{text}"' for key, text in labels)
    return f"{name}{{{inside}}} {_number(value)}" if inside else f"{name} {_number(value)}"


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))
