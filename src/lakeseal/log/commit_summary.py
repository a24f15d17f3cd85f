"""What a commit did, in numbers and in a line, as far as its writer recorded it.

Writers put what they like into `commitInfo`: only numbers that are whole and not negative count here, and a text is
given back as it was, for whoever shows it to cut and to escape.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from lakeseal.display import Bar, clean, size
from lakeseal.log.history import HistoryEntry

_ADDED = ("numOutputRows", "numTargetRowsInserted")
_UPDATED = ("numUpdatedRows", "numTargetRowsUpdated")
_DELETED = ("numDeletedRows", "numTargetRowsDeleted")
_FILES_ADDED = ("numFiles", "numAddedFiles", "numTargetFilesAdded", "numRestoredFiles")
_FILES_REMOVED = ("numRemovedFiles", "numTargetFilesRemoved")
_BYTES_ADDED = ("numOutputBytes", "numAddedBytes", "numTargetBytesAdded")
_LONGEST = 18


class CommitSummary(Struct, frozen=True, kw_only=True):
    version: int
    moment: datetime
    operation: str
    """Empty where the writer did not say."""
    engine: str
    note: str
    """What the user wrote beside it."""
    rows_added: int = 0
    rows_updated: int = 0
    rows_deleted: int = 0
    files_added: int = 0
    files_removed: int = 0
    bytes_added: int = 0
    parameters: str = ""

    @classmethod
    def of(cls, entry: HistoryEntry) -> CommitSummary:
        said = entry.info.operation_metrics
        metrics = said if isinstance(said, Mapping) else {}
        is_merge = "numTargetRowsInserted" in metrics
        return cls(
            version=entry.version,
            moment=entry.timestamp,
            operation=entry.operation or "",
            engine=_text(entry.info.engine_info),
            note=_text(entry.info.user_metadata),
            rows_added=_first(metrics, _ADDED[1:] if is_merge else _ADDED),
            rows_updated=_first(metrics, _UPDATED),
            rows_deleted=_first(metrics, _DELETED),
            files_added=_first(metrics, _FILES_ADDED),
            files_removed=_first(metrics, _FILES_REMOVED),
            bytes_added=_first(metrics, _BYTES_ADDED),
            parameters=_parameters(entry.info.operation_parameters),
        )

    @property
    def rows(self) -> int:
        """That it touched."""
        return self.rows_added + self.rows_updated + self.rows_deleted

    @property
    def did(self) -> str:
        """In a line; what it was asked to do where it says nothing of rows and files."""
        parts = [
            f"{count:,} {what if count == 1 else what + 's'} {how}"
            for count, what, how in (
                (self.rows_added, "row", "added"),
                (self.rows_updated, "row", "updated"),
                (self.rows_deleted, "row", "deleted"),
                (self.files_added, "file", "added"),
                (self.files_removed, "file", "removed"),
            )
            if count
        ]
        if self.bytes_added:
            parts.append(f"{size(self.bytes_added)} written")
        return ", ".join(parts) or self.parameters

    @property
    def bar(self) -> Bar:
        what = f"version {self.version}, {clean(self.operation or 'unknown', 40)}, {self.moment:%Y-%m-%d %H:%M}"
        return Bar(amount=self.rows, told=f"{what}: {self.did}" if self.did else what)


def summaries(entries: Iterable[HistoryEntry]) -> list[CommitSummary]:
    return [CommitSummary.of(entry) for entry in entries]


def _first(metrics: Mapping[str, Any], names: Iterable[str]) -> int:
    """Writers name a number in one of these ways; it comes as text, by Delta's convention."""
    for name in names:
        value = metrics.get(name)
        if isinstance(value, bool):
            continue
        if isinstance(value, int) and value > 0:
            return value
        if isinstance(value, str) and value.isascii() and value.isdecimal() and 0 < len(value) <= _LONGEST:
            return int(value)
    return 0


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _parameters(value: Any) -> str:
    if not isinstance(value, Mapping) or not value:
        return ""
    return ", ".join(f"{name}: {_shown(part)}" for name, part in value.items() if part not in (None, "", "[]", [], {}))


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()
