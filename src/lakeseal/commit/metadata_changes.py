"""Which changes of a table's metadata leave a commit that was prepared before them as good as it was.

A change is safe when nothing that the commit has already written would look different after it: neither the schema, the
partitioning nor the name may change, and of the properties only

- those that time maintenance (retention, checkpoint interval),
- switching on in-commit timestamps, because the timestamp is put in at every attempt,
- switching on row tracking, for a commit that only adds files, because row ids are given out at every attempt. A commit
  that rewrites files would have had to carry row ids over.

Everything else, a property that we do not know included, is a conflict.
"""

from __future__ import annotations

import msgspec

from lakeseal.protocol.actions import Metadata

_MAINTENANCE = frozenset(
    {
        "delta.checkpointInterval",
        "delta.deletedFileRetentionDuration",
        "delta.logRetentionDuration",
        "delta.setTransactionRetentionDuration",
    }
)
_IN_COMMIT_TIMESTAMPS = "delta.enableInCommitTimestamps"
_ENABLEMENT = frozenset({"delta.inCommitTimestampEnablementVersion", "delta.inCommitTimestampEnablementTimestamp"})
_ROW_TRACKING = "delta.enableRowTracking"
_ROW_TRACKING_PARTS = frozenset(
    {"delta.rowTracking.materializedRowIdColumnName", "delta.rowTracking.materializedRowCommitVersionColumnName"}
)


def is_safe(before: Metadata, after: Metadata, *, only_adds: bool) -> bool:
    changed = {
        name
        for name in before.configuration.keys() | after.configuration.keys()
        if before.configuration.get(name) != after.configuration.get(name)
    }
    allowed = set(_MAINTENANCE)
    if _is_on(after, _IN_COMMIT_TIMESTAMPS):
        allowed |= {_IN_COMMIT_TIMESTAMPS, *_ENABLEMENT}
    if only_adds and _is_on(after, _ROW_TRACKING):
        allowed |= {_ROW_TRACKING, *_ROW_TRACKING_PARTS}
    same_otherwise = msgspec.structs.replace(after, configuration=before.configuration) == before
    return same_otherwise and changed <= allowed


def _is_on(metadata: Metadata, name: str) -> bool:
    return (metadata.configuration.get(name) or "").lower() == "true"
