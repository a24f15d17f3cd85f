"""A table at one version as a card: its columns, its size, and its last commits as bars."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lakeseal.display import Card, Grid, size

if TYPE_CHECKING:
    from lakeseal.log.commit_summary import CommitSummary
    from lakeseal.log.snapshot import Snapshot

_NO_DATETIMES_MS = 253_402_300_800_000
"""The year 10,000, of which Python has none."""


def snapshot_card(
    snapshot: Snapshot,
    kind: str = "Snapshot",
    title: str | None = None,
    facts: Sequence[tuple[str, object]] = (),
    commits: Sequence[CommitSummary] = (),
) -> Card:
    """`commits` are the last, newest first. Without them the commit that made the version is told where it was read
    with it: nothing is looked up."""
    partitions = {name.lower() for name in snapshot.partition_columns}
    rows = []
    for field in snapshot.schema.fields:
        marks = [
            *(["not null"] if not field.nullable else []),
            *(["partition"] if field.name.lower() in partitions else []),
        ]
        rows.append(
            (field.name, field.char_varchar or str(field.type), ", ".join(marks), field.metadata.get("comment"))
        )
    known = [
        ("version", snapshot.version),
        ("files", f"{snapshot.files.num_rows:,}"),
        ("size", size(snapshot.size_in_bytes)),
        *facts,
    ]
    if commits:
        known.append(("last commit", _told(commits[0].operation, commits[0].moment)))
    elif (info := snapshot.state.commit_info) is not None:
        own = info.in_commit_timestamp
        known.append(("last commit", _told(info.operation, _moment(info.timestamp if own is None else own))))
    return Card(
        kind=kind,
        title=snapshot.table if title is None else title,
        facts=known,
        grids=[Grid(headings=("column", "type", "", "comment"), rows=rows)],
        bars=[commit.bar for commit in reversed(commits)],
        bars_told="Rows that each of the last commits touched",
    )


def _told(operation: Any, moment: datetime | None) -> str:
    what = operation if operation and isinstance(operation, str) else "unknown"
    return what if moment is None else f"{what}, {moment:%Y-%m-%d %H:%M} UTC"


def _moment(time_ms: Any) -> datetime | None:
    """Writers put there what they like."""
    is_moment = isinstance(time_ms, int) and 0 <= time_ms < _NO_DATETIMES_MS
    return datetime.fromtimestamp(time_ms / 1000, UTC) if is_moment else None
