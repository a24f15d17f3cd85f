"""Pipelines as pages show them: runs, rows, quality, what was set aside and why, from the ledger alone."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

import msgspec
import sqlalchemy as sa
from msgspec import Struct

from lakeseal.clock import now_ms
from lakeseal.console import plots
from lakeseal.display import Bar, chart, clean, counted
from lakeseal.errors import BrokenLedger, LakesealError, NotFound
from lakeseal.expr.render import quote_string
from lakeseal.ingest.runs import DatasetResult, RunResult
from lakeseal.ingest.turn import is_at_work
from lakeseal.ledger import Ledger
from lakeseal.ledger.schema import runs, sequences
from lakeseal.steps import leases, recovery
from lakeseal.steps.books import LedgerBooks
from lakeseal.steps.holder import take_turn, this_process
from lakeseal.steps.runs import RUNNING
from lakeseal.steps.store import SequenceState
from lakeseal.table import Table

_RUNS, _PIPELINES = 40, 500
_SHOWN_ASIDE, _ERROR_ROWS = 20, 10
_LEASE_SECONDS = 30.0


class SetAside(Struct, frozen=True, kw_only=True):
    """That a run put rows or records of a dataset into its error table."""

    dataset: str
    run_id: str
    error_table: str


def pipelines_view(ledger: Ledger) -> list[dict[str, Any]]:
    newest = (
        sa.select(runs.c.pipeline, sa.func.count().label("count"), sa.func.max(runs.c.started).label("last"))
        .group_by(runs.c.pipeline)
        .order_by(runs.c.pipeline)
        .limit(_PIPELINES)
    )
    aside = (
        sa.select(sequences.c.store, sa.func.count().label("count"))
        .where(sequences.c.state == SequenceState.SET_ASIDE.value)
        .group_by(sequences.c.store)
    )
    found, waits = ledger.read(lambda tx: (tx.rows(newest, lock=False), tx.rows(aside, lock=False)))
    waiting = {row.store: row.count for row in waits}
    books = LedgerBooks(ledger)
    rows = []
    for row in found:
        last = next(iter(_history(books, row.pipeline, 1)), None)
        rows.append(
            {
                "name": row.pipeline,
                "runs": row.count,
                "last": row.last,
                "state": "" if last is None else last.state,
                "rows": 0 if last is None else last.rows,
                "aside": waiting.get(row.pipeline, 0),
            }
        )
    return rows


def pipeline_view(ledger: Ledger, name: str) -> dict[str, Any]:
    books = LedgerBooks(ledger)
    history = _history(books, name, _RUNS)
    if not history:
        raise NotFound(f"The ledger knows no run of {clean(name)!r}")
    bars = [Bar(amount=one.rows, told=f"{counted(one.rows, 'row')}, {one.state}") for one in reversed(history)]
    broken: dict[str, int] = {}
    for one in history:
        for dataset in one.datasets:
            for rule, count in dataset.broken.items():
                broken[clean(rule, 200)] = broken.get(clean(rule, 200), 0) + count
    return {
        "name": name,
        "rows": chart(bars, "Rows that each of the last runs published"),
        "rate": plots.over_time([one.started_ms for one in history], now_ms(), what="run"),
        "runs": [_run(one) for one in history],
        "flows": _flows(history),
        "behind": plots.line(_behind(history, now_ms()), what="Behind the sources"),
        "set_aside": _set_aside(history),
        "broken": sorted(broken.items(), key=lambda pair: -pair[1])[:50],
        "sequences": [
            {
                "dataset": one.dataset,
                "state": one.state.value,
                "steps": one.count,
                "tries": one.tries,
                "reason": clean(one.reason or "", 500),
                "recorded": one.created_ms,
            }
            for one in books.sequences.statuses(name)[:200]
        ],
        "watermarks": [
            {"dataset": clean(one.dataset), "partition": clean(one.partition), "value": _position(one.value)}
            for one in books.watermarks.of_pipeline(name)[:200]
        ],
    }


def error_rows(row: SetAside, open_table: Callable[[str], Table]) -> dict[str, Any]:
    """The first of the rows and records that a run set aside, each with its reason; or why they are not shown."""
    told: dict[str, Any] = {"dataset": clean(row.dataset), "uri": row.error_table, "rows": [], "wrong": ""}
    try:
        found = open_table(row.error_table).to_batches(
            columns=["dataset", "rule", "reason", "record"], where=f"run_id = {quote_string(row.run_id)}"
        )
        rows = (one for batch in found for one in batch.to_pylist() if one["dataset"] == row.dataset)
        for one in islice(rows, _ERROR_ROWS):
            told["rows"].append({name: clean(one[name] or "", 300) for name in ("rule", "reason", "record")})
    except LakesealError as error:
        told["wrong"] = error.message
    return told


def _set_aside(history: list[RunResult]) -> list[SetAside]:
    """Of each dataset the last run that set something aside."""
    newest: dict[str, SetAside] = {}
    for run in history:
        for one in run.datasets:
            if one.error_table:
                row = SetAside(dataset=one.name, run_id=run.run_id, error_table=one.error_table)
                newest.setdefault(one.name, row)
    return [newest[name] for name in sorted(newest)[:_SHOWN_ASIDE]]


def _is_through(one: DatasetResult) -> bool:
    """Whether a run left nothing in its source of what was there when it began."""
    return one.state in ("published", "nothing_new") and not one.has_more and not one.left_over


def _behind(history: list[RunResult], now: int) -> list[tuple[int, float]]:
    """Whenever all that was there had been published, and now: how many seconds had passed since the time before."""
    through = [
        (run.started_ms, run.ended_ms)
        for run in reversed(history)
        if run.ended_ms is not None and run.datasets and all(map(_is_through, run.datasets))
    ]
    ends = [*(ended for _, ended in through[1:]), now] if through else []
    return [(end, max(0, end - began) / 1000) for (began, _), end in zip(through, ends, strict=True)]


def _flows(history: list[RunResult]) -> list[dict[str, Any]]:
    """Each dataset as it last ran: what it reads, where its rows go, and as of when they are all there."""
    newest: dict[str, DatasetResult] = {}
    as_of: dict[str, int] = {}
    for run in history:
        for one in run.datasets:
            newest.setdefault(one.name, one)
            if _is_through(one):
                as_of.setdefault(one.name, run.started_ms)
    return [
        {
            "name": clean(one.name),
            "source": clean(one.source, 300),
            "target": clean(one.target, 300),
            "state": one.state,
            "rows": one.rows,
            "as_of": as_of.get(one.name),
            "has_more": one.has_more or bool(one.left_over),
            "aside": one.to_error_table + one.bad_records,
            "why": [(clean(rule, 200), count) for rule, count in one.broken.items() if count],
        }
        for one in sorted(newest.values(), key=lambda one: str(one.name))[:200]
    ]


def _position(value: Any) -> str:
    """Of a source that tells several things of a partition: each by its name."""
    if not isinstance(value, dict):
        return clean(value if isinstance(value, str) else msgspec.json.encode(value).decode(), 200)
    return clean(", ".join(f"{name} {_position(part)}" for name, part in value.items()), 200)


def open_again(ledger: Ledger, pipeline: str, dataset: str) -> None:
    """A sequence that was set aside is done by the pipeline's next run. Waits for nobody: `LeaseHeld` if one runs."""
    books = LedgerBooks(ledger)
    if books.sequences.status(pipeline, dataset) is None:
        raise NotFound("The dataset has no steps that wait")
    lease = take_turn(
        books.leases, leases.of_pipeline(pipeline), holder=this_process("lakeseal console"), seconds=_LEASE_SECONDS
    )
    try:
        books.sequences.claim(pipeline, [dataset], lease.epoch)
        recovery.retry(books.sequences, pipeline, dataset, epoch=lease.epoch)
    finally:
        books.leases.release(lease)


def _history(books: LedgerBooks, name: str, limit: int) -> list[RunResult]:
    told = []
    for record in books.runs.history(name, limit):
        try:
            one = RunResult.from_record(record)
        except BrokenLedger:
            continue  # of a Lakeseal that records more; the others can be shown
        is_dead = one.state == RUNNING and not is_at_work(books.leases, name, one.run_id)
        told.append(RunResult(**{**_fields(one), "state": "died"}) if is_dead else one)
    return told


def _fields(one: RunResult) -> dict[str, Any]:
    return {name: getattr(one, name) for name in one.__struct_fields__}


def _run(one: RunResult) -> dict[str, Any]:
    seconds = None if one.ended_ms is None else max(0.001, (one.ended_ms - one.started_ms) / 1000)
    errors = [] if one.error is None else [("the run", clean(one.error.get("message", ""), 500))]
    errors += [(clean(d.name), clean(d.error.get("message", ""), 500)) for d in one.datasets if d.error is not None]
    return {
        "id": one.run_id,
        "state": one.state,
        "started": one.started_ms,
        "seconds": seconds,
        "rows": one.rows,
        "per_minute": None if seconds is None else round(one.rows * 60 / seconds),
        "bad": sum(d.bad_records + d.to_error_table for d in one.datasets),
        "datasets": [clean(d.name) for d in one.datasets[:20]],
        "errors": errors[:20],
    }
