"""One table as its page shows it: worked out from a snapshot and the last commits, and bounded."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeseal.clock import now_ms
from lakeseal.console import plots
from lakeseal.console.lake import ShownCall
from lakeseal.display import clean, size
from lakeseal.errors import LakesealError
from lakeseal.log.commit_summary import CommitSummary
from lakeseal.log.history import HistoryEntry
from lakeseal.log.snapshot import Snapshot
from lakeseal.table import Table

COMMITS = 60
_ROWS, _COLUMNS, _PARTITIONS = 20, 40, 30
_MOST_CELL = 120


def table_view(table: Table) -> dict[str, Any]:
    snapshot = table.snapshot()
    entries = table.commits(COMMITS)
    commits = [CommitSummary.of(entry) for entry in entries]
    moments = [int(one.moment.timestamp() * 1000) for one in commits]
    return {
        "version": snapshot.version,
        "files": snapshot.files.num_rows,
        "size": size(snapshot.size_in_bytes),
        "description": clean(snapshot.metadata.description or "", 1000),
        "columns": _columns(snapshot),
        "properties": _properties(snapshot),
        "features": _features(snapshot),
        "commits": [_commit(one, entry) for one, entry in zip(commits, entries, strict=True)],
        "is_all": not commits or commits[-1].version == 0,
        "rate": plots.over_time(moments, now_ms(), what="commit"),
        "partitions": _partitions(snapshot),
    }


def trouble_view(uri: str, calls: Sequence[ShownCall]) -> dict[str, Any]:
    """Of the last calls about a table: those that came too late, and those that were refused, by kind."""
    about = [one for one in calls if uri in one.tables]
    refused = Counter(one.refused for one in about if one.refused is not None)
    return {
        "asked": len(about),
        "conflicts": sum(one.conflicts for one in about),
        "refused": [(clean(kind), count) for kind, count in refused.most_common(20)],
        "since": about[0].at_ms if about else None,
    }


def preview(table: Table) -> dict[str, Any]:
    """The first rows, or why there are none."""
    try:
        names = table.schema().names[:_COLUMNS]
        reader = table.to_batches(columns=names)
        rows = list(islice((row for batch in reader for row in _some(batch)), _ROWS))
    except LakesealError as error:
        return {"error": str(error), "names": [], "rows": []}
    return {"error": "", "names": names, "rows": [[_cell(row[name]) for name in names] for row in rows]}


def _some(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = batch.slice(0, _ROWS).to_pylist(maps_as_pydicts="lossy")
    return rows


def _cell(value: Any) -> str | None:
    """What is nested as JSON, as the command line has it."""
    is_nested = isinstance(value, dict | list)
    text = json.dumps(value, ensure_ascii=False, default=str) if is_nested else value
    return None if value is None else clean(text, _MOST_CELL)


def _columns(snapshot: Snapshot) -> list[dict[str, Any]]:
    partitions = {name.lower() for name in snapshot.partition_columns}
    return [
        {
            "name": clean(field.name),
            "type": clean(field.char_varchar or str(field.type)),
            "nullable": field.nullable,
            "partition": field.name.lower() in partitions,
            "comment": clean(field.metadata.get("comment") or "", 500),
        }
        for field in snapshot.schema.fields[:1000]
    ]


def _properties(snapshot: Snapshot) -> list[tuple[str, str]]:
    """Not those that say how an owner is reached."""
    known = sorted(snapshot.metadata.configuration.items())
    return [(clean(n), clean(v, 300)) for n, v in known if "Owner" not in n and "oordinator" not in n]


def _features(snapshot: Snapshot) -> list[str]:
    protocol = snapshot.protocol
    named = sorted({*(protocol.reader_features or ()), *(protocol.writer_features or ())})
    return [f"reader {protocol.min_reader_version}", f"writer {protocol.min_writer_version}", *map(clean, named)]


def _commit(one: CommitSummary, entry: HistoryEntry) -> dict[str, Any]:
    return {
        "version": one.version,
        "moment": one.moment,
        "operation": clean(one.operation or "unknown", 60),
        "did": clean(one.did, 300),
        "note": clean(one.note, 300),
        "engine": clean(one.engine, 80),
        "txn": clean(entry.info.txn_id or "", 60),
    }


def _partitions(snapshot: Snapshot) -> list[dict[str, Any]]:
    """The largest, by bytes; none of a table that has no partitions."""
    names = snapshot.partition_columns
    files = snapshot.files
    if not names or not files.num_rows:
        return []
    values = snapshot.partition_struct(files).flatten()
    texts = [pc.fill_null(pc.cast(column, pa.string()), "null") for column in values]
    keys = pa.table([*texts, files["size"].combine_chunks()], names=[*(f"k{n}" for n in range(len(names))), "size"])
    grouped = keys.group_by([f"k{n}" for n in range(len(names))]).aggregate([("size", "sum"), ("size", "count")])
    largest = grouped.sort_by([("size_sum", "descending")]).slice(0, _PARTITIONS)
    most = max(largest["size_sum"].to_pylist())
    return [
        {
            "value": clean(", ".join(f"{name} = {row[f'k{n}']}" for n, name in enumerate(names)), 200),
            "files": row["size_count"],
            "size": size(row["size_sum"]),
            "share": max(1, round(100 * row["size_sum"] / most)) if most else 1,
        }
        for row in largest.to_pylist()
    ]
