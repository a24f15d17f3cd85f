"""Runs in the ledger: what ran, when, and what came of each dataset.

A run is written when it begins and when it ends. One that died in between stays `running` until the next run of its
pipeline, which holds the lease and so knows better.
"""

from __future__ import annotations

import time
from typing import Any, Literal

import sqlalchemy as sa
from msgspec import Struct, to_builtins

from lakeseal.ledger import Ledger, Row, Tx, key
from lakeseal.ledger.schema import runs

RunState = Literal["running", "published", "nothing_new", "partly", "failed", "died"]
DatasetState = Literal["published", "nothing_new", "failed", "set_aside"]


class DatasetResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a run did with one dataset."""

    name: str
    state: DatasetState
    rows: int = 0
    """Published."""
    rows_read: int = 0
    bytes: int = 0
    bad_records: int = 0
    to_error_table: int = 0
    before: dict[str, Any] = {}
    """Watermarks that moved: where they stood."""
    after: dict[str, Any] = {}
    steps: int = 0
    """Of its commit sequence; none where rows and watermarks are one transaction."""
    version: int | None = None
    """Of the target, if that is a table."""
    recovered: int = 0
    """Steps of an earlier run's sequence that were finished first."""
    notes: tuple[str, ...] = ()
    error: dict[str, Any] | None = None
    left_over: tuple[str, ...] = ()
    """Partitions that could not be read, with their reasons, where the others were published."""
    seconds: float = 0.0


class RunResult(Struct, frozen=True, kw_only=True):
    run_id: str
    pipeline: str
    state: RunState
    started_ms: int
    ended_ms: int | None = None
    datasets: tuple[DatasetResult, ...] = ()
    error: dict[str, Any] | None = None
    """Why the run as a whole came to nothing."""

    @property
    def rows(self) -> int:
        return sum(dataset.rows for dataset in self.datasets)

    def dataset(self, name: str) -> DatasetResult:
        return next(dataset for dataset in self.datasets if dataset.name == name)

    def to_json(self) -> dict[str, Any]:
        told: dict[str, Any] = to_builtins(self)
        return told


class Runs:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def begin(self, pipeline: str, run_id: str, epoch: int) -> bool:
        """Runs of the pipeline that are still `running` have died, as this one has the lease: was there any?"""
        now = _now()

        def do(tx: Tx) -> bool:
            died = False
            stale = sa.select(runs).where(runs.c.pipeline_key == key(pipeline), runs.c.state == "running")
            for row in tx.rows(stale):
                if row.run_id != run_id:
                    died = tx.update(runs, {"run_id": row.run_id}, {"state": "died", "ended": now})
            tx.put(runs, run_id=run_id, pipeline=pipeline, state="running", started=now, detail={"epoch": epoch})
            return died

        return self._ledger.write(do, idempotent=True)

    def end(self, result: RunResult, epoch: int) -> None:
        told = result.to_json()
        detail = {"epoch": epoch, "datasets": told["datasets"], "error": result.error}
        values = {"state": result.state, "ended": result.ended_ms, "detail": detail}
        self._ledger.write(lambda tx: tx.update(runs, {"run_id": result.run_id}, values), idempotent=True)

    def history(self, pipeline: str, limit: int = 20) -> list[RunResult]:
        """Newest first."""
        query = sa.select(runs).where(runs.c.pipeline_key == key(pipeline)).order_by(runs.c.started.desc()).limit(limit)
        return [_result(row) for row in self._ledger.read(lambda tx: tx.rows(query, lock=False))]


def _result(row: Row) -> RunResult:
    detail = row.detail
    datasets = tuple(
        DatasetResult(**{**one, "notes": tuple(one.get("notes", ())), "left_over": tuple(one.get("left_over", ()))})
        for one in detail.get("datasets", ())
    )
    return RunResult(
        run_id=row.run_id,
        pipeline=row.pipeline,
        state=row.state,
        started_ms=row.started,
        ended_ms=row.ended,
        datasets=datasets,
        error=detail.get("error"),
    )


def _now() -> int:
    return time.time_ns() // 1_000_000
