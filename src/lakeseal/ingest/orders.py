"""What tasks are told and what they tell. An *order* is work for one dataset, and has one report; both are JSON.

`DatasetWork` is what all orders of a dataset have in common. `orders` cuts a dataset's units into orders, and `tasks`
deals all orders of a run out to tasks: pure functions.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from lakeseal import typed_json
from lakeseal.ingest.config import Check, CommitPolicy, Dataset
from lakeseal.ingest.live_counts import CountsPlace
from lakeseal.ingest.quality import Measured
from lakeseal.ingest.sources.source import WorkUnit
from lakeseal.ingest.targets import Destination, Provenance, error_spec
from lakeseal.jobs.file_commit_protocol import TaskCommitMessage
from lakeseal.jobs.job import WriteJobSpec
from lakeseal.steps.watermarks import WatermarkChange

T = TypeVar("T")

# Less than this is one task's work: a second one would only make a second file.
_WORTHWHILE = 8 * 2**20


class DatasetWork(Struct, frozen=True, kw_only=True):
    """A dataset in one attempt; pickled with the plan, as it carries the store's credentials."""

    dataset: Dataset
    """Without its transform, which is the driver's, and by absolute URIs: tasks work in other directories."""
    provenance: Provenance
    destination: Destination
    schema: str | None
    """Of the rows that rules judge; None if Spark has marked them."""
    is_for_spark: bool = False
    """Rows wait for Spark to transform and judge them; each says which partition it is from, in a column of its own."""
    orders: int = 0
    """How many the dataset has."""
    counts: CountsPlace | None = None
    """Where its tasks tell how far they are, if somebody watches."""

    @property
    def name(self) -> str:
        return self.dataset.name

    @property
    def checks(self) -> tuple[Check, ...]:
        return () if self.is_for_spark else self.dataset.rules

    @property
    def error_spec(self) -> WriteJobSpec:
        return error_spec(self.dataset, self.destination.spec)


class Order(Struct, frozen=True, kw_only=True):
    dataset: int
    """Its number in the job."""
    number: int
    """Among the dataset's own."""
    units: tuple[WorkUnit, ...]
    places: tuple[int, ...]
    """Of the units, in the dataset's plan."""

    @property
    def size(self) -> int:
        return sum(unit.size for unit in self.units)

    def results(self) -> list[UnitResult]:
        """Of units that were not read, or not to the end."""
        return [
            UnitResult(partition=unit.partition, place=place, low=unit.low)
            for unit, place in zip(self.units, self.places, strict=True)
        ]


class UnitResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    partition: str
    place: int
    """In the dataset's plan."""
    low: Any = None
    """What was published before."""
    high: Any = None
    """How far it is read; None if nothing of it is."""
    is_whole: bool = False
    error: dict[str, Any] | None = None


class OrderReport(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="order"):
    dataset: int
    number: int
    units: tuple[UnitResult, ...] = ()
    """All of the order's."""
    message: TaskCommitMessage | None = None
    error_message: TaskCommitMessage | None = None
    """Of files of the error table."""
    measured: Measured = msgspec.field(default_factory=Measured)
    error: dict[str, Any] | None = None
    """Why nothing of the order counts."""
    is_transient: bool = False
    """Whether trying again may help."""

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str) -> OrderReport:
        return typed_json.decode(text, cls)


class Summary(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What there is to know of a dataset besides whether it was published."""

    measured: Measured = msgspec.field(default_factory=Measured)
    changes: tuple[WatermarkChange, ...] = ()
    left_over: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    steps: int = 0


class DatasetOutcome(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="dataset"):
    """What became of a dataset that tasks publish."""

    dataset: str
    state: Literal["published", "failed", "set_aside"]
    summary: Summary = msgspec.field(default_factory=Summary)
    version: int | None = None
    """Of the target, if that is a table."""
    error: dict[str, Any] | None = None
    may_retry: bool = False
    """Whether it was decided that nothing of it is published, so that it may be extracted again in the same run."""

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()


Report = OrderReport | DatasetOutcome


def read_report(text: str) -> Report:
    report: Report = typed_json.decode(text, Report)
    return report


def orders(
    dataset: int, units: Sequence[WorkUnit], policy: CommitPolicy, *, task_bytes: int, parallel: int
) -> list[Order]:
    """Where the dataset is published whole or not at all, units are dealt out by size. Where parts of it may fail by
    themselves, each partition is an order, in the order of its units."""
    placed = list(enumerate(units))
    if policy != "full":
        chains: dict[str, list[tuple[int, WorkUnit]]] = {}
        for place, unit in placed:
            chains.setdefault(unit.partition, []).append((place, unit))
        return [_order(dataset, n, chain) for n, chain in enumerate(chains.values())]
    total = sum(unit.size for unit in units)
    count = max(min(parallel, total // _WORTHWHILE), math.ceil(total / task_bytes), 1)
    parts = dealt(placed, [unit.size for unit in units], min(count, len(units)))
    return [_order(dataset, n, part) for n, part in enumerate(parts)]


def _order(dataset: int, number: int, part: Sequence[tuple[int, WorkUnit]]) -> Order:
    places, units = zip(*part, strict=True)
    return Order(dataset=dataset, number=number, units=units, places=places)


def tasks(made: Iterable[Order], *, task_bytes: int, parallel: int) -> list[list[Order]]:
    """Orders dealt out to tasks, so that all have about the same to do."""
    listed = list(made)
    total = sum(order.size for order in listed)
    count = max(parallel, math.ceil(total / task_bytes))
    return [part for part in dealt(listed, [order.size for order in listed], min(count, len(listed))) if part]


def dealt(items: Sequence[T], sizes: Sequence[int], count: int) -> list[list[T]]:
    """The largest first, each to whoever has least; within a part the given order is kept."""
    heap = [(0, part) for part in range(count)]
    parts: list[list[int]] = [[] for _ in range(count)]
    for item in sorted(range(len(items)), key=lambda n: -sizes[n]):
        load, part = heapq.heappop(heap)
        parts[part].append(item)
        heapq.heappush(heap, (load + sizes[item], part))
    return [[items[n] for n in sorted(part)] for part in parts]
