"""Watermarks: how far each partition of each dataset has been published, in the ledger.

A value is any JSON that its source understands: an offset, a timestamp, a map of files. What a caller may rely on:

- `advance` moves all of its changes in one ledger transaction or none of them, each only from the value that it
  expects (`expected`, None where there is none yet). Advancing again is fine: what has the new value already stays.
- A watermark never goes back: where two values have an order (`compare`), a smaller one is refused, and a value that
  is neither the expected nor the new one is left alone (`WatermarkMoved`).
- With a `Turn`, the transaction also holds that no later epoch has the lease, and none has written the watermark
  (`Fenced`).
- Only `reset`, which a person asks for, sets anything to anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import sqlalchemy as sa
from msgspec import Meta, Struct

from lakeseal.clock import now_ms
from lakeseal.errors import Fenced, InvalidArgument, WatermarkMoved
from lakeseal.ledger import Ledger, Tx, key
from lakeseal.ledger.schema import watermarks
from lakeseal.owner.messages import LedgerRecord
from lakeseal.steps import leases
from lakeseal.steps.turn import Turn

Value = Any
"""JSON, and not null."""


class WatermarkChange(Struct, frozen=True, kw_only=True):
    partition: Annotated[str, Meta(max_length=10_000)]
    expected: Value | None
    """Where it stands before; None if it has never been set."""
    value: Value


class Watermark(Struct, frozen=True, kw_only=True):
    dataset: str
    partition: str
    value: Value
    epoch: int
    updated_ms: int


def compare(one: Value, other: Value) -> int | None:
    """Negative, zero or positive as `one` is before, equal to or after `other`; None where they have no order.

    Numbers and texts have theirs; lists of the same length and maps compare by their members (a member that is
    missing is before any other), and have none where some members are before and others after."""
    if isinstance(one, bool) or isinstance(other, bool):
        return 0 if one is other else None
    if (isinstance(one, int | float) and isinstance(other, int | float)) or (
        isinstance(one, str) and isinstance(other, str)
    ):
        return (one > other) - (one < other)  # type: ignore[operator]
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return _by_members(compare(a, b) for a, b in zip(one, other, strict=True)) if len(one) == len(other) else None
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        names = one.keys() | other.keys()
        return _by_members(
            1 if name not in other else -1 if name not in one else compare(one[name], other[name]) for name in names
        )
    return 0 if one is None and other is None else None


def _by_members(orders: Iterable[int | None]) -> int | None:
    seen = set(orders)
    if None in seen or {-1, 1} <= seen:
        return None
    return 1 if 1 in seen else -1 if -1 in seen else 0


def check_forward(change: WatermarkChange) -> None:
    if change.value is None:
        raise InvalidArgument(f"The watermark of {change.partition!r} can't be null")
    if change.expected is not None and (compare(change.value, change.expected) or 0) < 0:
        raise InvalidArgument(
            f"The watermark of {change.partition!r} would go back from {change.expected!r} to {change.value!r}",
            hint="A watermark only grows; use reset to set it back on purpose",
        )


class Watermarks:
    """The watermarks in a ledger. May be shared by threads."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def read(self, pipeline: str, dataset: str) -> dict[str, Value]:
        """By partition."""
        return {mark.partition: mark.value for mark in self.of_pipeline(pipeline, dataset)}

    def of_pipeline(self, pipeline: str, dataset: str | None = None) -> list[Watermark]:
        """Sorted by dataset and partition."""
        return self._ledger.read(lambda tx: _rows(tx, pipeline, dataset))

    def advance(
        self, pipeline: str, dataset: str, changes: Iterable[WatermarkChange], *, turn: Turn | None = None
    ) -> None:
        wanted = tuple(changes)
        for change in wanted:
            check_forward(change)
        self._ledger.write(lambda tx: advance(tx, pipeline, dataset, wanted, turn=turn), idempotent=True)

    def reset(self, pipeline: str, dataset: str, values: Mapping[str, Value], *, epoch: int = 0) -> None:
        """Exactly these partitions, at these values, are left. That the dataset has no open sequence, which would
        then find its watermark moved, is for the caller to see to."""

        def do(tx: Tx) -> None:
            tx.delete(watermarks, pipeline=pipeline, dataset=dataset)
            now = now_ms()
            for partition, value in sorted(values.items()):
                tx.insert(
                    watermarks,
                    pipeline=pipeline,
                    dataset=dataset,
                    partition=partition,
                    value=value,
                    epoch=epoch,
                    updated=now,
                )

        self._ledger.write(do, idempotent=True)


def advance(
    tx: Tx, pipeline: str, dataset: str, changes: Iterable[WatermarkChange], *, turn: Turn | None = None
) -> None:
    """As `Watermarks.advance`, as part of a ledger transaction that does more."""
    if turn is not None:
        leases.check(tx, turn)
    epoch = 0 if turn is None else turn.epoch
    # In one order, so that two of them never wait for each other.
    for change in sorted(changes, key=lambda change: change.partition):
        _advance_one(tx, pipeline, dataset, change, epoch)


def moves(pipeline: str, dataset: str, changes: Iterable[WatermarkChange], *, turn: Turn) -> list[LedgerRecord]:
    """The changes as records that ride along with commits. Unlike `advance`, a watermark that has its new value already
    is refused: it would mean that the very rows of these commits are published. Goes together with `leases.held`."""
    wanted = sorted(changes, key=lambda change: change.partition)
    for change in wanted:
        check_forward(change)
    now = now_ms()
    return [
        LedgerRecord(
            table=str(watermarks.name),
            key={"pipeline": pipeline, "dataset": dataset, "partition": change.partition},
            values={"value": change.value, "epoch": turn.epoch, "updated": now},
            expected=None if change.expected is None else {"value": change.expected},
            insert=change.expected is None,
        )
        for change in wanted
    ]


def _advance_one(tx: Tx, pipeline: str, dataset: str, change: WatermarkChange, epoch: int) -> None:
    name = {"pipeline": pipeline, "dataset": dataset, "partition": change.partition}
    values = {"value": change.value, "epoch": epoch, "updated": now_ms()}
    if change.expected is None and tx.insert(watermarks, **name, **values):
        return
    row = tx.get(watermarks, **name)
    if row is not None and row.epoch > epoch:
        raise Fenced(f"The watermark of {change.partition!r} of {dataset!r} was set by a later run")
    if row is not None and row.value == change.value:
        return
    if row is None or change.expected is None or row.value != change.expected:
        raise WatermarkMoved(
            f"The watermark of {change.partition!r} of {dataset!r} stands at {None if row is None else row.value!r}, "
            f"not at {change.expected!r}, and is left there"
        )
    tx.update(watermarks, name, values)


def _rows(tx: Tx, pipeline: str, dataset: str | None) -> list[Watermark]:
    query = sa.select(watermarks).where(watermarks.c.pipeline_key == key(pipeline))
    if dataset is not None:
        query = query.where(watermarks.c.dataset_key == key(dataset))
    found = [
        Watermark(
            dataset=row.dataset, partition=row.partition, value=row.value, epoch=row.epoch, updated_ms=row.updated
        )
        for row in tx.rows(query, lock=False)
    ]
    return sorted(found, key=lambda mark: (mark.dataset, mark.partition))
