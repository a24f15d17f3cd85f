"""Cutting a run's work into orders and tasks: pure."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from typing import TypeVar

from lakeseal.ingest.config import CommitPolicy
from lakeseal.ingest.reports import Order
from lakeseal.ingest.source import WorkUnit

T = TypeVar("T")

# Less than this is one task's work: a second one would only make a second file.
_WORTHWHILE = 8 * 2**20


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
