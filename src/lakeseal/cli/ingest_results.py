"""What came of runs, as a terminal shows it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from lakeseal.cli.output import Output
from lakeseal.display import counted
from lakeseal.ingest.progress import per_second, size_text
from lakeseal.ingest.runs import DatasetResult, RunResult

_DATASET_COLUMNS = ("dataset", "state", "rows", "read", "bytes", "rate", "bad", "errors", "seconds", "notes")


def show_run(out: Output, result: RunResult) -> None:
    if out.json:
        out.record(result.to_json())
        return
    out.rows([_dataset(one) for one in result.datasets], _DATASET_COLUMNS)
    seconds = ((result.ended_ms or result.started_ms) - result.started_ms) / 1000
    published = sum(one.state == "published" for one in result.datasets)
    failed = sum(one.error is not None for one in result.datasets)
    read = sum(one.bytes for one in result.datasets)
    out.say(
        f"{result.pipeline}: {result.state.replace('_', ' ')}, {counted(result.rows, 'row')} in {seconds:.1f} s"
        f" ({size_text(read)} read; {published} of {counted(len(result.datasets), 'dataset')} published, "
        f"{failed} failed)"
    )
    for note in result.notes:
        out.say(note)


def _dataset(one: DatasetResult) -> dict[str, Any]:
    notes = [*one.notes, *one.left_over]
    if one.has_more:
        notes.append("there is more than one run takes")
    if one.error is not None:
        notes.append(f"{one.error.get('message', '')}. {one.error.get('hint', '')}".strip())
    return {
        "dataset": one.name,
        "state": one.state.replace("_", " "),
        "rows": one.rows,
        "read": one.rows_read,
        "bytes": size_text(one.bytes),
        "rate": per_second(one.rows_read, one.seconds),
        "bad": one.bad_records,
        "errors": one.to_error_table,
        "seconds": f"{one.seconds:.1f}",
        "notes": "; ".join(notes),
    }


def run_line(one: RunResult) -> dict[str, Any]:
    ended = one.ended_ms or one.started_ms
    return {
        "run": one.run_id,
        "state": one.state.replace("_", " "),
        "started": moment(one.started_ms),
        "seconds": f"{(ended - one.started_ms) / 1000:.1f}",
        "rows": one.rows,
        "datasets": len(one.datasets),
        "failed": ", ".join(d.name for d in one.datasets if d.error is not None),
    }


def moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")
