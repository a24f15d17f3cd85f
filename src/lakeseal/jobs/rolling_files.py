"""The files of one partition in one task, one behind the other.

A file is closed and the next one begun when it holds `max_records` rows or about `target_bytes` bytes. The size is
estimated from what the rows before took on disk; the first rows of a task are taken to be as large as in memory. So it
is when rows come that the file cannot take, which is rare.
A file is begun by its first row, so there are none without rows.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from msgspec import Struct

from lakeseal.files.data_file import NewDataFile
from lakeseal.files.parquet_file import ROW_GROUP_BYTES
from lakeseal.jobs.file_commit_protocol import WrittenFile
from lakeseal.protocol.file_stats import StatsCollector

# A file that is nearly as large as it should be is not kept open for a crumb, nor filled by crumbs.
_FULL = 0.95
_LEAST = 0.1


class Limits(Struct, frozen=True, kw_only=True):
    max_records: int | None = None
    target_bytes: int | None = None


class CompressionRatio:
    """How many bytes of a file a byte in memory becomes; shared by the files of a task."""

    def __init__(self) -> None:
        self._memory = 0
        self._disk = 0

    @property
    def value(self) -> float:
        return self._disk / self._memory if self._memory and self._disk else 1.0

    def add(self, memory: int, disk: int) -> None:
        self._memory += memory
        self._disk += disk


class OpenFile(Struct):
    file: NewDataFile
    stats: StatsCollector | None
    """None for files that no reader skips by them."""


class RollingFiles:
    """`begin` opens a partition's next file; it is given the file's number and its first rows."""

    def __init__(self, begin: Callable[[int, pa.Table], OpenFile], limits: Limits, ratio: CompressionRatio) -> None:
        self._begin = begin
        self._limits = limits
        self._ratio = ratio
        self._open: OpenFile | None = None
        self._begun = 0
        self._written: list[WrittenFile] = []

    def write(self, rows: pa.Table) -> None:
        while rows.num_rows:
            memory = rows.nbytes
            count = self._room(rows.num_rows, memory)
            self._write(rows.slice(0, count), memory * count // rows.num_rows)
            rows = rows.slice(count)

    def finish(self) -> list[WrittenFile]:
        self._close()
        return self._written

    def abort(self) -> None:
        if self._open is not None:
            self._open.file.abort()
            self._open = None

    def _room(self, rows: int, memory: int) -> int:
        """How many of these rows to write now: as many as the file, or one row group of it, takes."""
        per_row = max(memory / rows, 1.0)
        count = min(rows, int(ROW_GROUP_BYTES / per_row))
        if self._limits.max_records is not None:
            count = min(count, self._limits.max_records - (self._open.file.rows if self._open else 0))
        if self._limits.target_bytes is not None:
            target = self._limits.target_bytes
            left = max(target - (self._open.file.size if self._open else 0), _LEAST * target)
            count = min(count, int(left / (per_row * self._ratio.value)))
        return max(count, 1)

    def _write(self, rows: pa.Table, memory: int) -> None:
        if self._open is not None and not self._open.file.takes(rows):
            self._close()
        if self._open is None:
            self._open = self._begin(self._begun, rows)
            self._begun += 1
        file = self._open.file
        before = file.size
        file.write(rows)
        self._ratio.add(memory, file.size - before)
        if self._open.stats is not None:
            self._open.stats.update(rows)
        if self._full(file):
            self._close()

    def _full(self, file: NewDataFile) -> bool:
        records, size = self._limits.max_records, self._limits.target_bytes
        return (records is not None and file.rows >= records) or (size is not None and file.size >= _FULL * size)

    def _close(self) -> None:
        if self._open is None:
            return
        file, stats = self._open.file, self._open.stats
        footer = file.close()
        self._open = None
        self._written.append(
            WrittenFile(
                key=file.key,
                size=file.size,
                modified_ms=file.modified_ms,
                num_records=file.rows,
                stats=stats.finish(footer).to_json() if stats is not None else None,
                checksum=file.checksum,
            )
        )
