"""`BranchCommitProtocol`: a job's files become one commit on a branch of its own, and one merge into its destination.

Tasks write objects to their final, immutable addresses: below the job's data prefix, in a directory of the attempt's
own. Nothing is copied or renamed, ever. What a task attempt commits is a list of links, path → object, which the driver
gets as the task's message. Paths are below the job's output directory and named as Spark names files, so that all
attempts at a task name the same paths; of attempts that committed, the last one's links count (G4).

On the driver, a `BranchJob` does what a job does with branches: `setup_job` begins it, `commit_job` hands it all links
at once, `abort_job` gives it up. In tasks there is none, and none is needed.

To see what happens on the driver, set the logger `lakeseal.write.BranchCommitProtocol` to DEBUG; at WARNING it tells of
other jobs on the same path.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import ClassVar, Protocol
from uuid import uuid4

import msgspec
from msgspec import Struct

from lakeseal import typed_json
from lakeseal.errors import InvalidArgument, Unsupported
from lakeseal.write.file_commit_protocol import (
    Json,
    TaskCommitMessage,
    TaskContext,
    TaskFile,
    WrittenFile,
    check_written,
    one_per_split,
)

logger = logging.getLogger("lakeseal.write.BranchCommitProtocol")


class Link(Struct, frozen=True, kw_only=True):
    """A file of the job: where it appears below the output directory, and which object it is."""

    path: str
    object: str
    """Below the job's data prefix."""
    size: int
    checksum: str
    rows: int


class JobOnBranch(Protocol):
    """What a driver's protocol needs of a `BranchJob`."""

    def begin(self) -> None: ...

    def commit(self, links: Sequence[Link]) -> None: ...

    def abort(self) -> None: ...


class BranchCommitProtocol:
    kind: ClassVar[str] = "branch"
    needs_checksums: ClassVar[bool] = True

    def __init__(self, *, path: str, job_id: str, data_prefix: str = "", job: JobOnBranch | None = None) -> None:
        """`path` is the output directory on the branch. Tasks need the job's `data_prefix`, the driver its `job`."""
        self.path = path.strip("/")
        self.job_id = job_id
        self._data_prefix = data_prefix
        self._job = job
        self._directory = ""
        self._named: dict[str, str] = {}
        self._times: dict[tuple[str, str], int] = {}
        self._ended: TaskContext | None = None

    def __repr__(self) -> str:
        return f"BranchCommitProtocol({self.job_id}, {self.path})"

    def setup_job(self) -> None:
        self._driver.begin()
        logger.debug("%r: job set up", self)

    def setup_task(self, task: TaskContext) -> None:
        # Attempts of a task that are unaware of each other may have the same number: a stage that is run again counts
        # from 0, and so does a restarted driver.
        self._directory = f"{task.split:05d}-{task.attempt}-{uuid4().hex[:12]}"
        self._named, self._times, self._ended = {}, {}, None
        logger.debug("%r: task %d set up (attempt %d)", self, task.split, task.attempt)

    def new_task_file(self, task: TaskContext, dir: str | None, ext: str) -> TaskFile:
        if not self._directory:
            self.setup_task(task)
        nth = self._times.get((dir or "", ext), 0)
        self._times[dir or "", ext] = nth + 1
        name = f"part-{task.split:05d}-{self.job_id}{f'-{nth}' if nth else ''}{ext}"
        key = f"{self._data_prefix}/{self._directory}/{len(self._named):05d}{ext}"
        self._named[key] = f"{dir}/{name}" if dir else name
        return TaskFile(key=key, path=f"{self.path}/{self._named[key]}")

    def new_task_file_abs_path(self, task: TaskContext, absolute_dir: str, ext: str) -> TaskFile:
        raise Unsupported(
            f"{self!r} does not support adding files with an absolute path", hint="Write below the job's output path"
        )

    def commit_task(self, task: TaskContext, written: Sequence[WrittenFile]) -> TaskCommitMessage:
        if self._ended is not None:
            raise InvalidArgument(
                f"Task {task.split} (attempt {task.attempt}) was committed or aborted before",
                hint="Commit an attempt once; set up another attempt to write again",
            )
        by_key = check_written(task, self._named, written)
        links = [self._link(path, by_key[key]) for key, path in self._named.items() if key in by_key]
        self._ended = task
        logger.debug("%r: task %d commits %d files (attempt %d)", self, task.split, len(links), task.attempt)
        return TaskCommitMessage(protocol=self.kind, task=task, entries=tuple(map(_entry, links)))

    def commit_job(self, messages: Iterable[TaskCommitMessage]) -> None:
        links = [link(entry) for message in one_per_split(messages, self.kind) for entry in message.entries]
        self._driver.commit(links)

    def abort_task(self, task: TaskContext) -> None:
        """Forgets the attempt's files: objects that no commit refers to are collected with the job."""
        self._named, self._ended = {}, task
        logger.debug("%r: task %d aborted (attempt %d)", self, task.split, task.attempt)

    def abort_job(self) -> None:
        self._driver.abort()
        logger.debug("%r: job aborted", self)

    def _link(self, path: str, file: WrittenFile) -> Link:
        if file.checksum is None:
            raise InvalidArgument("A file was written without a checksum, by which it is known", file=path)
        inside = file.key.removeprefix(f"{self._data_prefix}/")
        return Link(path=path, object=inside, size=file.size, checksum=file.checksum, rows=file.num_records)

    @property
    def _driver(self) -> JobOnBranch:
        if self._job is None:
            raise InvalidArgument(f"{self!r} is a task's: only the driver begins, commits and aborts the job")
        return self._job


def _entry(value: Link) -> Json:
    entry: Json = msgspec.to_builtins(value)
    return entry


def link(entry: Json) -> Link:
    try:
        return typed_json.convert(entry, Link)
    except msgspec.ValidationError as error:
        raise InvalidArgument(
            f"A task's message holds a malformed link: {error}",
            hint="Driver and tasks must run the same version of Lakeseal",
        ) from error
