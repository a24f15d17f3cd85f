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

from msgspec import Struct

from lakeseal.errors import InvalidArgument
from lakeseal.jobs.attempt_files import NamesByAttempt, checksum_of, entries, from_entry
from lakeseal.jobs.file_commit_protocol import TaskCommitMessage, TaskContext, TaskFile, WrittenFile, one_per_split

logger = logging.getLogger("lakeseal.write.BranchCommitProtocol")


class Link(Struct, frozen=True, kw_only=True):
    """A file of the job: where it appears below the output directory, and which object it is."""

    path: str
    object: str
    """Below the job's data prefix."""
    size: int
    checksum: str
    rows: int


class BranchWrite(Struct, frozen=True, kw_only=True):
    """What became of a job."""

    job: str
    branch: str
    path: str
    commit: str
    """The destination's head after the job's merge, or where the job left it alone, as it was."""
    files: int = 0
    rows: int = 0
    bytes: int = 0
    removed: int = 0
    """Files that went, because the job overwrote them."""
    replaced: int = 0
    """Files of other jobs among these that came while this one ran."""
    attempts: int = 0
    """How often the merge was tried."""
    skipped: str = ""
    """Why nothing was written; empty if it was."""


class JobOnBranch(Protocol):
    """What a driver's protocol needs of a `BranchJob`."""

    def begin(self) -> BranchWrite | None:
        """The result of a job that has nothing to do."""

    def commit(self, links: Sequence[Link]) -> BranchWrite: ...

    def abort(self) -> None: ...


class BranchCommitProtocol(NamesByAttempt):
    kind: ClassVar[str] = "branch"
    needs_checksums: ClassVar[bool] = True
    logger: ClassVar[logging.Logger] = logger

    def __init__(self, *, path: str, job_id: str, data_prefix: str = "", job: JobOnBranch | None = None) -> None:
        """`path` is the output directory on the branch. Tasks need the job's `data_prefix`, the driver its `job`."""
        self.path = path.strip("/")
        self.job_id = job_id
        self._data_prefix = data_prefix
        self._job = job
        self._attempt = None

    def __repr__(self) -> str:
        return f"BranchCommitProtocol({self.job_id}, {self.path})"

    def setup_job(self) -> BranchWrite | None:
        skipped = self._driver.begin()
        logger.debug("%r: job set up", self)
        return skipped

    def new_task_file(self, task: TaskContext, dir: str | None, ext: str) -> TaskFile:
        attempt = self._files(task)
        path = attempt.new_path(dir, ext)
        key = f"{self._data_prefix}/{attempt.id}/{len(attempt.paths):05d}{ext}"
        attempt.paths[key] = path
        return TaskFile(key=key, path=f"{self.path}/{path}")

    def commit_task(self, task: TaskContext, written: Sequence[WrittenFile]) -> TaskCommitMessage:
        attempt = self._files(task)
        links = [self._link(path, file) for path, file in attempt.written(task, written)]
        attempt.end()
        logger.debug("%r: task %d commits %d files (attempt %d)", self, task.split, len(links), task.attempt)
        return TaskCommitMessage(protocol=self.kind, task=task, entries=entries(links))

    def commit_job(self, messages: Iterable[TaskCommitMessage]) -> BranchWrite:
        return self._driver.commit(self.links(messages))

    def links(self, messages: Iterable[TaskCommitMessage]) -> list[Link]:
        """The files that count."""
        return [from_entry(entry, Link) for message in one_per_split(messages, self.kind) for entry in message.entries]

    def abort_task(self, task: TaskContext) -> None:
        """Forgets the attempt's files: objects that no commit refers to are collected with the job."""
        self._files(task).end()
        logger.debug("%r: task %d aborted (attempt %d)", self, task.split, task.attempt)

    def abort_job(self) -> None:
        self._driver.abort()
        logger.debug("%r: job aborted", self)

    def _link(self, path: str, file: WrittenFile) -> Link:
        inside = file.key.removeprefix(f"{self._data_prefix}/")
        return Link(path=path, object=inside, size=file.size, checksum=checksum_of(file, path), rows=file.num_records)

    @property
    def _driver(self) -> JobOnBranch:
        if self._job is None:
            raise InvalidArgument(f"{self!r} is a task's: only the driver begins, commits and aborts the job")
        return self._job
