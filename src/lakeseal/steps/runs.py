"""Runs in the ledger: what ran, when, and what came of it, in the words of whoever ran.

A run is written when it begins and when it ends. One that died in between stays `running` until the next run of its
pipeline, which holds the lease and so knows better.
"""

from __future__ import annotations

from typing import Annotated, Any

import sqlalchemy as sa
from msgspec import Meta, Struct

from lakeseal.clock import now_ms
from lakeseal.ledger import Ledger, Row, Tx, key
from lakeseal.ledger.schema import runs

RUNNING, DIED = "running", "died"


class RunRecord(Struct, frozen=True, kw_only=True):
    run_id: Annotated[str, Meta(max_length=255)]
    pipeline: Annotated[str, Meta(max_length=10_000)]
    state: Annotated[str, Meta(max_length=100)]
    started_ms: int
    ended_ms: int | None = None
    detail: dict[str, Any] = {}


class RunRecords:
    """Those in a ledger. May be shared by threads."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def begin(self, pipeline: str, run_id: str, epoch: int) -> bool:
        """Whether an earlier run of the pipeline has died: whoever begins holds the lease, so none is at work."""
        now = now_ms()

        def do(tx: Tx) -> bool:
            died = False
            stale = sa.select(runs).where(runs.c.pipeline_key == key(pipeline), runs.c.state == RUNNING)
            for row in tx.rows(stale):
                if row.run_id != run_id:
                    died = tx.update(runs, {"run_id": row.run_id}, {"state": DIED, "ended": now})
            tx.put(runs, run_id=run_id, pipeline=pipeline, state=RUNNING, started=now, detail={"epoch": epoch})
            return died

        return self._ledger.write(do, idempotent=True)

    def end(self, run: RunRecord) -> None:
        """Its beginning stays as it was recorded."""
        values = {"state": run.state, "ended": run.ended_ms, "detail": run.detail}
        name = {"run_id": run.run_id, "pipeline": run.pipeline}
        self._ledger.write(lambda tx: tx.update(runs, name, values), idempotent=True)

    def history(self, pipeline: str, limit: int = 20) -> list[RunRecord]:
        """Newest first."""
        query = sa.select(runs).where(runs.c.pipeline_key == key(pipeline)).order_by(runs.c.started.desc()).limit(limit)
        return [_from_row(row) for row in self._ledger.read(lambda tx: tx.rows(query, lock=False))]


def _from_row(row: Row) -> RunRecord:
    return RunRecord(
        run_id=row.run_id,
        pipeline=row.pipeline,
        state=row.state,
        started_ms=row.started,
        ended_ms=row.ended,
        detail=row.detail,
    )
