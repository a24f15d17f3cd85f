"""`InProcessEngine`: tasks in threads of this process, over anything that Arrow can read as a stream of batches.

There is no plan that could compute or check anything before rows reach a task, so work that is `InPlan` is refused.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

import msgspec
import pyarrow as pa

from lakeseal.errors import InvalidArgument
from lakeseal.expr import bind, bind_predicate, parse
from lakeseal.files.expressions import IN_TASK
from lakeseal.jobs.engine import InPlan, WriteInput
from lakeseal.jobs.file_commit_protocol import TaskCommitMessage, TaskContext
from lakeseal.jobs.job import WriteJobSpec, run_task
from lakeseal.jobs.progress import SILENT, Progress
from lakeseal.jobs.rewrite import Rewrite
from lakeseal.jobs.search import Found, Search
from lakeseal.protocol.arrow import from_arrow
from lakeseal.protocol.schema import DataType, StructType

# Less than this is one task's work: a second one would only make a second file.
_SPLIT_BYTES = 64 * 2**20
_MAX_THREADS = 4


class InProcessEngine:
    """Threads of this process. There is no session: the zone is UTC, ANSI mode is on."""

    def __init__(self, threads: int | None = None) -> None:
        if threads is not None and threads < 1:
            raise InvalidArgument(f"A job cannot run in {threads} threads", hint="Use 1 or more")
        self._threads = threads or min(_MAX_THREADS, os.cpu_count() or 1)

    def open(self, data: Any, progress: Progress = SILENT) -> WriteInput:
        if isinstance(data, _ArrowInput | _RewriteInput):
            return data
        if isinstance(data, Rewrite):
            return _RewriteInput(data, self._threads, progress)
        return _ArrowInput(arrow_reader(data), self._threads)

    def search(self, search: Search, progress: Progress) -> list[Found]:
        return [found for split in range(len(search.splits)) for found in search.run(split, progress.advance)]

    def judged(self, where: str, schema: StructType) -> str | None:
        bind_predicate(parse(where), schema)
        return where

    def understood(self, where: str, schema: StructType) -> str | None:
        return self.judged(where, schema)

    def evaluates(self, text: str, schema: StructType, target: DataType | None = None) -> bool:
        bind(parse(text), schema)
        return True


class _RewriteInput:
    expressions = IN_TASK

    def __init__(self, rewrite: Rewrite, threads: int, progress: Progress) -> None:
        self._rewrite = rewrite
        self._threads = threads
        self._progress = progress
        self.schema = rewrite.schema

    def run(self, spec: WriteJobSpec, in_plan: InPlan) -> list[TaskCommitMessage]:
        in_plan.refuse()
        failed = threading.Event()
        splits = range(len(self._rewrite.splits))
        tasks = max(1, min(self._threads, len(splits)))

        def run(split: int) -> TaskCommitMessage:
            task = TaskContext(job_id=spec.job_id, split=split, task_attempt_id=split)
            try:
                message = run_task(spec, task, _unless(failed, self._rewrite.batches(split, tasks=tasks)))
            except BaseException:
                failed.set()
                raise
            self._progress.advance(len(self._rewrite.splits[split]))
            return message

        if len(splits) < 2 or self._threads == 1:
            return [run(split) for split in splits]
        with ThreadPoolExecutor(self._threads, thread_name_prefix="lakeseal-task") as executor:
            futures = [executor.submit(run, split) for split in splits]
        errors = [error for future in futures if (error := future.exception()) is not None]
        for error in sorted(errors, key=lambda error: isinstance(error, _Stopped)):
            raise error
        return [future.result() for future in futures]


class _ArrowInput:
    expressions = IN_TASK

    def __init__(self, reader: pa.RecordBatchReader, threads: int) -> None:
        self._reader = reader
        self._threads = threads
        self.schema = from_arrow(reader.schema)

    def run(self, spec: WriteJobSpec, in_plan: InPlan) -> list[TaskCommitMessage]:
        in_plan.refuse()
        source = _Shared(self._reader)
        tasks = [TaskContext(job_id=spec.job_id, split=n, task_attempt_id=n) for n in range(self._threads)]
        ahead = source.read_ahead(_SPLIT_BYTES)
        if source.is_over or self._threads == 1 or spec.few_files:
            return [run_task(msgspec.structs.replace(spec, identity_lanes=1), tasks[0], chain(ahead, source))]
        spec = msgspec.structs.replace(spec, identity_lanes=self._threads)
        starts = [ahead[n :: self._threads] for n in range(self._threads)]
        del ahead
        with ThreadPoolExecutor(self._threads, thread_name_prefix="lakeseal-task") as executor:
            futures = [
                executor.submit(_run, spec, task, start, source) for task, start in zip(tasks, starts, strict=True)
            ]
        results = [future.result() for future in futures if future.exception() is None]
        if source.failure is not None:
            raise source.failure
        return results


def _unless(failed: threading.Event, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if failed.is_set():
            raise _Stopped
        yield batch


def _run(spec: WriteJobSpec, task: TaskContext, start: list[pa.RecordBatch], source: _Shared) -> TaskCommitMessage:
    try:
        return run_task(spec, task, chain(_emptying(start), source))
    except BaseException as error:
        source.stop(error)
        raise


class _Stopped(Exception):
    """Another task of the job has failed."""


class _Shared:
    """Batches that tasks take turns in taking, until there are no more or one task has failed."""

    def __init__(self, reader: pa.RecordBatchReader) -> None:
        self._reader = reader
        self._lock = threading.Lock()
        self.is_over = False
        self.failure: BaseException | None = None

    def read_ahead(self, size: int) -> list[pa.RecordBatch]:
        batches: list[pa.RecordBatch] = []
        for batch in self:
            batches.append(batch)
            size -= batch.nbytes
            if size <= 0:
                break
        return batches

    def stop(self, failure: BaseException) -> None:
        with self._lock:
            if self.failure is None:
                self.failure = failure

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        with self._lock:
            if self.failure is not None:
                raise _Stopped
            if self.is_over:
                raise StopIteration
            try:
                return self._reader.read_next_batch()
            except StopIteration:
                self.is_over = True
                raise


def _emptying(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Each batch once, not kept any longer than that."""
    batches.reverse()
    while batches:
        yield batches.pop()


def arrow_reader(data: Any) -> pa.RecordBatchReader:
    """Anything that Arrow can read, as a stream of batches."""
    if isinstance(data, pa.RecordBatchReader):
        return data
    if isinstance(data, pa.RecordBatch):
        data = [data]
    if isinstance(data, list | tuple) and data and all(isinstance(one, pa.RecordBatch) for one in data):
        data = _one_table(data)
    if isinstance(data, pa.Table):
        return data.to_reader(max_chunksize=2**17)
    if _is_pandas(data):
        return _pandas_rows(data).to_reader(max_chunksize=2**17)
    if hasattr(data, "__arrow_c_stream__"):
        _refuse_objects(data)
        return _without_unnamed_index(_stream_of(data))
    import pyarrow.dataset as ds  # loads pandas, if that is installed

    if isinstance(data, ds.Dataset):
        data = data.scanner()
    if isinstance(data, ds.Scanner):
        return data.to_reader()
    raise InvalidArgument(
        f"A {type(data).__name__} cannot be written",
        hint="Give an Arrow table, batch or list of batches, reader, dataset, or anything with an Arrow stream",
    )


def _one_table(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    try:
        return pa.Table.from_batches(list(batches))
    except pa.ArrowInvalid as error:
        raise InvalidArgument(
            f"The batches have no columns in common: {error}", hint="Give all of them one schema"
        ) from error


def _is_pandas(data: Any) -> bool:
    pandas = sys.modules.get("pandas")  # whoever has a frame of it has loaded it
    return pandas is not None and isinstance(data, pandas.DataFrame)


def _pandas_rows(frame: Any) -> pa.Table:
    """Columns of a pandas DataFrame, and behind them the levels of its index that have a name, also where they only
    count: Arrow by itself leaves those out. What has no name numbers the rows, and is no column."""
    names = frame.index.names
    try:
        rows = pa.Table.from_pandas(frame, preserve_index=any(name is not None for name in names))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise _not_arrow(frame, error) from error
    for level, name in enumerate(names):
        # So Arrow calls a level that has no name, and one whose name is a column's.
        place = rows.schema.get_field_index(f"__index_level_{level}__")
        if place < 0:
            continue
        if name is not None and not rows[str(name)].equals(rows[place]):
            raise InvalidArgument(
                "The DataFrame's index has the name of a column, and other values",
                column=str(name),
                hint="Give it a name of its own, or leave it out: reset_index(drop=True)",
            )
        rows = rows.remove_column(place)
    return rows


def _refuse_objects(data: Any) -> None:
    """What polars gives of a column of Python's objects are their addresses."""
    polars = sys.modules.get("polars")
    if polars is not None and isinstance(data, polars.DataFrame):
        for name, kind in data.schema.items():
            if kind == polars.Object:
                raise InvalidArgument(
                    "A column of Python's objects cannot be written", column=name, hint="Make texts or numbers of them"
                )


def _stream_of(data: Any) -> pa.RecordBatchReader:
    try:
        return pa.RecordBatchReader.from_stream(data)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise _not_arrow(data, error) from error


def _not_arrow(data: Any, error: Exception) -> InvalidArgument:
    return InvalidArgument(
        f"The {type(data).__name__} cannot be read as Arrow: {error}",
        hint="Give its columns types that Arrow has, and names of their own",
    )


def _without_unnamed_index(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """As `_pandas_rows`, for frames that only say that they are like those of pandas."""
    about = reader.schema.pandas_metadata or {}
    index = {name for name in about.get("index_columns", ()) if isinstance(name, str) and name.startswith("__index_")}
    if not index:
        return reader
    kept = [name for name in reader.schema.names if name not in index]
    schema = pa.schema([reader.schema.field(name) for name in kept])
    return pa.RecordBatchReader.from_batches(schema, (batch.select(kept) for batch in reader))
