"""A table at one version as a card: its columns, its size, and its last commits as bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakeseal.display import Card, Grid, size

if TYPE_CHECKING:
    from lakeseal.log.commit_summary import CommitSummary
    from lakeseal.log.snapshot import Snapshot


def snapshot_card(
    snapshot: Snapshot,
    kind: str = "Snapshot",
    title: str | None = None,
    facts: Sequence[tuple[str, object]] = (),
    commits: Sequence[CommitSummary] = (),
) -> Card:
    """`commits` are the last, newest first."""
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
        newest = commits[0]
        known.append(("last commit", f"{newest.operation or 'unknown'}, {newest.moment:%Y-%m-%d %H:%M} UTC"))
    return Card(
        kind=kind,
        title=snapshot.table if title is None else title,
        facts=known,
        grids=[Grid(headings=("column", "type", "", "comment"), rows=rows)],
        bars=[commit.bar for commit in reversed(commits)],
        bars_told="Rows that each of the last commits touched",
    )
