"""Actions for files that a command takes out of the table, or hides rows of, and what the history tells of them. Pure.

Counts have the names that Delta's history has for them."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa

from lakeseal.commit.proposal import num_records
from lakeseal.log.files import add_actions
from lakeseal.protocol.actions import Action, AddCDCFile, AddFile, DeletionVectorDescriptor, RemoveFile
from lakeseal.protocol.data_paths import canonical_path

Metrics = dict[str, int | str]

_DECODER = msgspec.json.Decoder(dict[str, Any], float_hook=Decimal)
_ENCODER = msgspec.json.Encoder(decimal_format="number")


def removal(add: AddFile, *, now_ms: int, data_change: bool = True) -> RemoveFile:
    return RemoveFile(
        path=add.path,
        data_change=data_change,
        deletion_timestamp=now_ms,
        extended_file_metadata=True,
        partition_values=add.partition_values,
        size=add.size,
        stats=add.stats,
        tags=add.tags,
        deletion_vector=add.deletion_vector,
        base_row_id=add.base_row_id,
        default_row_commit_version=add.default_row_commit_version,
    )


def removals(files: pa.Table, *, now_ms: int, data_change: bool = True) -> list[RemoveFile]:
    return [removal(add, now_ms=now_ms, data_change=data_change) for add in add_actions(files)]


def file_key(add: AddFile) -> tuple[str, str | None]:
    """What it is known by in the log: another deletion vector makes another file."""
    return canonical_path(add.path), None if add.deletion_vector is None else add.deletion_vector.unique_id


def with_vector(add: AddFile, vector: DeletionVectorDescriptor, *, records: int) -> AddFile:
    """The same file with more rows hidden. Its statistics stay bounds, but no longer tight ones."""
    stats = _stats(add.stats) | {"numRecords": records, "tightBounds": False}
    return msgspec.structs.replace(add, deletion_vector=vector, stats=_ENCODER.encode(stats).decode(), data_change=True)


def live_rows(add: AddFile) -> int | None:
    """Rows that readers see; None where the log does not say."""
    records = num_records(add)
    if records is None:
        return None
    return records - (0 if add.deletion_vector is None else add.deletion_vector.cardinality)


def total_rows(adds: Iterable[AddFile]) -> int | None:
    total = 0
    for add in adds:
        rows = live_rows(add)
        if rows is None:
            return None
        total += rows
    return total


def file_metrics(actions: Iterable[Action]) -> Metrics:
    """Files and bytes added and removed. A file that only got another deletion vector is neither."""
    actions = list(actions)
    adds = {a.path: a for a in actions if isinstance(a, AddFile)}
    removes = {a.path: a for a in actions if isinstance(a, RemoveFile)}
    kept = adds.keys() & removes.keys()
    updated = sum(removes[path].deletion_vector is not None for path in kept)
    gone = sum(r.deletion_vector is not None for path, r in removes.items() if path not in kept)
    return {
        "numAddedFiles": len(adds.keys() - kept),
        "numAddedBytes": sum(a.size for path, a in adds.items() if path not in kept),
        "numRemovedFiles": len(removes.keys() - kept),
        "numRemovedBytes": sum(r.size or 0 for path, r in removes.items() if path not in kept),
        "numAddedChangeFiles": sum(isinstance(a, AddCDCFile) for a in actions),
        "numDeletionVectorsAdded": len(kept),
        "numDeletionVectorsRemoved": updated + gone,
        "numDeletionVectorsUpdated": updated,
    }


def known(**counts: int | None) -> Metrics:
    """Without those that nobody knows."""
    return {name: count for name, count in counts.items() if count is not None}


def _stats(text: str | None) -> dict[str, Any]:
    try:
        return _DECODER.decode(text) if text else {}
    except (msgspec.DecodeError, UnicodeError):
        return {}
