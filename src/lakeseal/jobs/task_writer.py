"""A task's rows → files, in bounded memory however many partitions there are.

Rows are kept until they fill a buffer. Then they are grouped by partition, and each group goes where it costs least:

- to a file that stays open, for the partitions that bring the most rows (there is room for `MAX_OPEN` of them),
- to the `Spill` on local disk, for all others. When the input has ended, each of those partitions is written at once,
  from all its pieces.

So a partition gets one file per task (more if files are rolled), a task holds about twice its buffer, and few
partitions cost no detour over the disk. Without partitions, a quarter of the buffer is written while another one fills.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import chain
from typing import Any, ParamSpec

import pyarrow as pa

from lakeseal.errors import LakesealError
from lakeseal.files.data_file import EncodedFile
from lakeseal.files.file_format import PARQUET, FileFormat
from lakeseal.files.file_schema import CDC_PARTITION_TRUE, CHANGE_TYPE, FileSchema
from lakeseal.files.parquet_file import Compression, ParquetFile, Repetition, with_negative_zero
from lakeseal.files.partition_split import PartitionSplit
from lakeseal.files.spill import Spill
from lakeseal.files.uploads import FileSink, Uploads
from lakeseal.jobs.file_commit_protocol import FileCommitProtocol, TaskContext, WrittenFile
from lakeseal.jobs.rolling_files import CompressionRatio, Limits, OpenFile, RollingFiles
from lakeseal.protocol.file_stats import STRING_PREFIX, StatsCollector
from lakeseal.protocol.schema import StructType

P = ParamSpec("P")

BUFFER_BYTES = 128 * 2**20
MAX_OPEN = 32
# Smaller pieces would make row groups that readers are slow on; they are worth waiting for more.
_MIN_OPEN_BYTES = 2 * 2**20
# From here on a file's own rows tell better than the task's whether its values repeat.
_OWN_SAMPLE_ROWS = 2**16


class TaskWriter:
    """Ends by `finish` or `abort`. Batches come with the table's columns in the table's types.

    `indexed` are the columns with statistics, under the names that files have; None for files without statistics, which
    those in other formats than Parquet are always.
    """

    def __init__(
        self,
        *,
        protocol: FileCommitProtocol[Any],
        task: TaskContext,
        uploads: Uploads,
        schema: FileSchema,
        split: PartitionSplit,
        indexed: StructType | None,
        string_prefix: int = STRING_PREFIX,
        compression: Compression,
        limits: Limits,
        format: FileFormat = PARQUET,
        buffer_bytes: int = BUFFER_BYTES,
        spill_directory: str | None = None,
    ) -> None:
        self._protocol = protocol
        self._task = task
        self._uploads = uploads
        self._schema = schema
        self._split = split
        self._indexed = indexed
        self._string_prefix = string_prefix
        self._compression = compression
        self._format = format
        self._limits = limits
        self._buffer_bytes = buffer_bytes
        # The more rows are grouped at once, the more there are of each partition.
        self._full_bytes = buffer_bytes if split else buffer_bytes // 4
        self._behind = _WriteBehind()
        self._buffer: list[pa.RecordBatch] = []
        self._buffered = 0
        self._compression_ratio = CompressionRatio()
        self._repetition: Repetition | None = None
        self._open: dict[str, RollingFiles] = {}
        self._spill = Spill(spill_directory)
        self._written: list[WrittenFile] = []
        self._begun: list[str] = []

    def write(self, batch: pa.RecordBatch) -> None:
        for part in _cut(batch, self._buffer_bytes // 2):
            self._buffer.append(part)
            self._buffered += part.nbytes
            if self._buffered >= self._full_bytes:
                self._flush()

    def finish(self) -> list[WrittenFile]:
        self._behind.settle()
        self._behind.close()
        last = self._groups(self._taken())
        for directory in dict.fromkeys([*self._open, *self._spill.partitions, *last]):
            files = self._open.get(directory) or self._new_files(directory)
            for batches in _up_to(chain(self._spill.take(directory), last.pop(directory, ())), self._buffer_bytes // 2):
                files.write(self._rows(directory, batches))
            self._written += files.finish()
            del self._open[directory]
        self._spill.close()
        self._uploads.wait()
        return self._written

    def abort(self) -> None:
        """Leave no file behind, as far as the store lets us; the error that led here is the one to report."""
        self._behind.close()
        for files in self._open.values():
            with contextlib.suppress(LakesealError):
                files.abort()
        self._spill.close()
        self._uploads.cancel()
        with contextlib.suppress(LakesealError):
            self._uploads.store.delete(self._begun)

    def _flush(self) -> None:
        if self._split:
            self._put(self._taken())
        else:
            self._behind.submit(self._put, self._taken())

    def _taken(self) -> list[pa.RecordBatch]:
        """The rows of the buffer, which is empty afterwards."""
        batches, self._buffer, self._buffered = self._buffer, [], 0
        return [batch for batch in batches if batch.num_rows]

    def _put(self, batches: list[pa.RecordBatch]) -> None:
        to_spill: list[tuple[str, pa.RecordBatch]] = []
        groups = self._groups(batches)
        # Only the groups hold the rows from here on, and each of them no longer than it takes to write.
        batches.clear()
        for directory in sorted(groups, key=lambda d: -sum(batch.num_rows for batch in groups[d])):
            group = groups.pop(directory)
            if directory in self._open or self._worth_a_file(group):
                files = self._open.get(directory) or self._new_files(directory)
                files.write(self._rows(directory, group))
            else:
                to_spill += ((directory, batch) for batch in group)
        if to_spill:
            self._spill.add(to_spill)

    def _worth_a_file(self, group: list[pa.RecordBatch]) -> bool:
        if not self._split:
            return True
        return len(self._open) < MAX_OPEN and sum(batch.nbytes for batch in group) >= _MIN_OPEN_BYTES

    def _groups(self, batches: list[pa.RecordBatch]) -> dict[str, list[pa.RecordBatch]]:
        """The rows by partition directory, as files have them."""
        if not batches:
            return {}
        if not self._split:
            return {"": [self._schema.to_file(batch) for batch in batches]}
        rows = pa.Table.from_batches(batches)
        order, parts = self._split.split(rows)
        arrays = []
        for name in self._schema.names:
            column = pa.concat_arrays(rows.column(name).chunks)
            arrays.append(column if order is None else column.take(order))
        grouped = self._schema.to_file(pa.RecordBatch.from_arrays(arrays, names=self._schema.names))
        groups: dict[str, list[pa.RecordBatch]] = {}
        for directory, start, length in parts:
            groups.setdefault(directory, []).append(grouped.slice(start, length))
        if self._repetition is None:
            self._repetition = Repetition(pa.Table.from_batches([grouped]))
        return groups

    def _rows(self, directory: str, batches: list[pa.RecordBatch]) -> pa.Table:
        rows = pa.Table.from_batches(batches)
        if _is_cdc(directory):
            return rows.drop_columns(list(self._schema.along)) if self._schema.along else rows
        return rows.drop_columns(CHANGE_TYPE) if self._schema.has_changes else rows

    def _new_files(self, directory: str) -> RollingFiles:
        files = RollingFiles(partial(self._begin, directory), self._limits, self._compression_ratio)
        self._open[directory] = files
        return files

    def _begin(self, directory: str, number: int, rows: pa.Table) -> OpenFile:
        is_parquet = self._format.name == "parquet"
        extension = self._compression.extension if is_parquet else self._format.extension
        name = self._protocol.new_task_file(self._task, directory or None, f"-c{number:03d}{extension}")
        self._begun.append(name.key)
        sink = FileSink(self._uploads, name.key)
        if not is_parquet:
            return OpenFile(EncodedFile(sink, self._schema.columns, self._format), None)
        repetition = self._repetition
        if repetition is None or rows.num_rows >= _OWN_SAMPLE_ROWS:
            repetition = Repetition(rows)
        repeating = repetition.repeating(rows.schema, rows.num_rows)
        signed = with_negative_zero(rows, repeating)
        dictionary = [path for path in repeating if path not in signed]
        file = ParquetFile(sink, rows.schema, self._compression, dictionary)
        indexed = None if _is_cdc(directory) else self._indexed
        return OpenFile(file, None if indexed is None else StatsCollector(indexed, string_prefix=self._string_prefix))


def _is_cdc(directory: str) -> bool:
    return directory.partition("/")[0] == CDC_PARTITION_TRUE


def _cut(batch: pa.RecordBatch, limit: int) -> Iterator[pa.RecordBatch]:
    """The batch, cut so that no part is much larger than the limit."""
    size = batch.nbytes
    if size <= limit:
        yield batch
        return
    rows = max(1, batch.num_rows * limit // size)
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def _up_to(batches: Iterable[pa.RecordBatch], limit: int) -> Iterator[list[pa.RecordBatch]]:
    """The batches in lists that are about so many bytes large, or smaller at the end."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size >= limit:
            yield held
            held, size = [], 0
    if held:
        yield held


class _WriteBehind:
    """Work that a thread does behind its caller's back: one piece at a time, in the order given.

    Whoever makes rows goes on making them while those before are encoded, which needs no Python. There is never more
    than one piece waiting or under way, so memory stays bounded by two pieces: that one, and the one that the caller
    collects. No thread is started before the first piece. Ends by `close`."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None
        self._pending: Future[None] | None = None

    def submit(self, work: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Returns once the piece before is done, and raises what that one raised."""
        self.settle()
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="lakeseal-write")
        self._pending = self._executor.submit(work, *args, **kwargs)

    def settle(self) -> None:
        """Wait until nothing is under way; raises what the last piece raised."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def close(self) -> None:
        """Wait likewise, whatever the last piece raised. May be called twice."""
        self._pending = None
        if self._executor is not None:
            self._executor.shutdown()
            self._executor = None
