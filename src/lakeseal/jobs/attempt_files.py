"""`AttemptFiles`: the files of one attempt at a task, for protocols that know a file by its checksum.

Paths in the job's output carry the job's id and the task's number, as Spark has it, and are the same for all attempts
at a task. Where an attempt writes is its own: `id` is in no other attempt's keys. An attempt ends once.

`entries` and `from_entry` are files in a task's message.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import ClassVar, TypeVar
from uuid import uuid4

import msgspec

from lakeseal import typed_json
from lakeseal.errors import InvalidArgument, Unsupported
from lakeseal.jobs.file_commit_protocol import Json, TaskContext, TaskFile, WrittenFile, check_written

T = TypeVar("T")


class AttemptFiles:
    def __init__(self, task: TaskContext, job_id: str) -> None:
        # Attempts of a task that are unaware of each other may have the same number: a stage that is run again counts
        # from 0, and so does a restarted driver.
        self.id = f"{task.split:05d}-{task.attempt}-{uuid4().hex[:12]}"
        self.paths: dict[str, str] = {}
        """In the job's output, by the key under which the file is written."""
        self._stem = f"part-{task.split:05d}-{job_id}"
        self._times: dict[tuple[str, str], int] = {}
        self._ended = False

    def new_path(self, dir: str | None, ext: str) -> str:
        nth = self._times.get((dir or "", ext), 0)
        self._times[dir or "", ext] = nth + 1
        name = f"{self._stem}{f'-{nth}' if nth else ''}{ext}"
        return f"{dir}/{name}" if dir else name

    def written(self, task: TaskContext, files: Sequence[WrittenFile]) -> list[tuple[str, WrittenFile]]:
        """What was written of the files that were named, with their paths in the order of their naming."""
        if self._ended:
            raise InvalidArgument(
                f"Task {task.split} (attempt {task.attempt}) was committed or aborted before",
                hint="Commit an attempt once; set up another attempt to write again",
            )
        by_key = check_written(task, self.paths, files)
        return [(path, by_key[key]) for key, path in self.paths.items() if key in by_key]

    def end(self) -> None:
        self._ended = True


class NamesByAttempt:
    """What protocols that name files so have in common."""

    logger: ClassVar[logging.Logger]
    job_id: str
    _attempt: AttemptFiles | None

    def setup_task(self, task: TaskContext) -> None:
        self._attempt = AttemptFiles(task, self.job_id)
        self.logger.debug("%r: task %d set up (attempt %d)", self, task.split, task.attempt)

    def new_task_file_abs_path(self, task: TaskContext, absolute_dir: str, ext: str) -> TaskFile:
        raise Unsupported(
            f"{self!r} does not support adding files with an absolute path", hint="Write below the job's output path"
        )

    def _files(self, task: TaskContext) -> AttemptFiles:
        if self._attempt is None:
            self.setup_task(task)
            assert self._attempt is not None
        return self._attempt


def checksum_of(file: WrittenFile, path: str) -> str:
    if file.checksum is None:
        raise InvalidArgument("A file was written without a checksum, by which it is known", file=path)
    return file.checksum


def entries(values: Iterable[msgspec.Struct]) -> tuple[Json, ...]:
    return tuple(msgspec.to_builtins(value) for value in values)


def from_entry(entry: Json, kind: type[T]) -> T:
    try:
        return typed_json.convert(entry, kind)
    except msgspec.ValidationError as error:
        raise InvalidArgument(
            f"A task's message holds a malformed {kind.__name__}: {error}",
            hint="Driver and tasks must run the same version of Lakeseal",
        ) from error
