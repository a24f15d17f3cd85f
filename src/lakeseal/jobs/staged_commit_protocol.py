"""`StagedCommitProtocol`: files go from staging to task output to job output, and nothing is seen before its time.

    _lakeseal_jobs/<job>/staging/<attempt>/…        while a task attempt writes
    _lakeseal_jobs/<job>/task-output/<attempt>/…    once the attempt is committed
    …                                               the job output: where readers look

All three are in one store, so a move is a rename where the store has one; readers pass over names that begin with `_`.
Names in the job output carry the job's id and are the same for all attempts at a task; of attempts that committed, the
last one's files count.

On the driver, `commit_job` makes of all files one `FsRenameCommitStep` and hands it to its `SequenceJob`, together
with what is to be removed afterwards, which records them as a commit sequence and runs it. From that moment on
`abort_job` removes nothing, unless it is certain that nothing was recorded: recovery finishes what was, and needs the
task output for it.

To see what happens inside, set the logger `lakeseal.write.StagedCommitProtocol` to DEBUG.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import ClassVar

from msgspec import Struct

from lakeseal.errors import AlreadyExists, InvalidArgument, LakesealError
from lakeseal.jobs.attempt_files import AttemptFiles, NamesByAttempt, checksum_of, entries, from_entry
from lakeseal.jobs.file_commit_protocol import TaskCommitMessage, TaskContext, TaskFile, WrittenFile, one_per_split
from lakeseal.steps.context import StepContext
from lakeseal.steps.fs_rename import FsRenameCommitStep, Rename, move, recorded_checksum
from lakeseal.steps.places import JOBS
from lakeseal.steps.sequence import CommitSequence, Leftover
from lakeseal.steps.step import CommitStep
from lakeseal.steps.store import CommitStepStore
from lakeseal.storage import HasDirectories, Store, StoreSpec

logger = logging.getLogger("lakeseal.write.StagedCommitProtocol")

_MOVES_AT_ONCE = 8


class StagedFile(Struct, frozen=True, kw_only=True):
    """A file of the task output, and its name in the job output."""

    source: str
    target: str
    size: int
    checksum: str
    rows: int


class SequenceJob:
    """Records a commit sequence and runs it."""

    def __init__(
        self,
        steps: CommitStepStore,
        context: StepContext,
        *,
        store: str,
        dataset: str,
        further: Sequence[CommitStep] = (),
    ) -> None:
        """`further` steps, such as the watermarks, come after the files."""
        self._steps, self._context = steps, context
        self._store, self._dataset = store, dataset
        self._further = tuple(further)

    def commit(self, steps: Sequence[CommitStep], leftovers: Sequence[Leftover]) -> None:
        builder = CommitSequence.builder(self._store, self._dataset).add(*steps, *self._further)
        for leftover in leftovers:
            builder.then_remove(leftover.uri, leftover.prefix)
        builder.build().commit(self._steps, self._context)


class StagedCommitProtocol(NamesByAttempt):
    kind: ClassVar[str] = "staged"
    needs_checksums: ClassVar[bool] = True
    logger: ClassVar[logging.Logger] = logger

    def __init__(self, *, store: StoreSpec, path: str, job_id: str, job: SequenceJob | None = None) -> None:
        """`path` is the job output's directory in the store, "" for its root. Only a driver that commits by itself
        needs a `job`."""
        self._spec = store
        self._prefix = f"{path.strip('/')}/" if path.strip("/") else ""
        self.job_id = job_id
        self._job = job
        self._opened: Store | None = None
        self._attempt = None
        self._is_handed_over = False

    def __repr__(self) -> str:
        return f"StagedCommitProtocol({self.job_id}, {self._spec.uri})"

    @property
    def leftovers(self) -> tuple[Leftover, ...]:
        """What the job leaves behind, to be removed when its files have their names."""
        return (Leftover(uri=self._spec.uri, prefix=self._directory),)

    def setup_job(self) -> None:
        logger.debug("%r: job set up", self)

    def new_task_file(self, task: TaskContext, dir: str | None, ext: str) -> TaskFile:
        attempt = self._files(task)
        path = attempt.new_path(dir, ext)
        key = f"{self._directory}staging/{attempt.id}/{path}"
        attempt.paths[key] = path
        return TaskFile(key=key, path=f"{self._spec.uri}/{self._prefix}{path}")

    def commit_task(self, task: TaskContext, written: Sequence[WrittenFile]) -> TaskCommitMessage:
        attempt = self._files(task)
        used = [(self._task_output(attempt, path), path, file) for path, file in attempt.written(task, written)]
        files = [_staged(file, output, f"{self._prefix}{path}") for output, path, file in used]
        move(self._store, self._store, [(file.key, output) for output, _, file in used], _MOVES_AT_ONCE)
        attempt.end()
        logger.debug("%r: task %d commits %d files (attempt %d)", self, task.split, len(files), task.attempt)
        return TaskCommitMessage(protocol=self.kind, task=task, entries=entries(files))

    def steps(self, messages: Iterable[TaskCommitMessage]) -> list[CommitStep]:
        """What makes the files of these tasks visible; nothing if there are none."""
        return self._steps(self.files(messages))

    def files(self, messages: Iterable[TaskCommitMessage]) -> list[StagedFile]:
        counted = one_per_split(messages, self.kind)
        return [from_entry(entry, StagedFile) for message in counted for entry in message.entries]

    def commit_job(self, messages: Iterable[TaskCommitMessage]) -> list[StagedFile]:
        files = self.files(messages)
        steps = self._steps(files)
        if not steps:
            self._clean_up()
            return []
        if self._job is None:
            raise InvalidArgument(f"{self!r} is a task's: only the driver commits the job")
        self._is_handed_over = True
        try:
            self._job.commit(steps, self.leftovers)
        except AlreadyExists:
            self._is_handed_over = False  # the dataset has another sequence, so this one was not recorded
            raise
        logger.debug("%r: job committed", self)
        return files

    def abort_task(self, task: TaskContext) -> None:
        attempt = self._files(task)
        attempt.end()
        with suppress(LakesealError):  # what went wrong first is what the user needs to know
            outputs = [self._task_output(attempt, path) for path in attempt.paths.values()]
            self._store.delete([*attempt.paths, *outputs])
        logger.debug("%r: task %d aborted (attempt %d)", self, task.split, task.attempt)

    def abort_job(self) -> None:
        if not self._is_handed_over:
            with suppress(LakesealError):
                self._clean_up()
        logger.debug("%r: job aborted", self)

    def _steps(self, files: Sequence[StagedFile]) -> list[CommitStep]:
        if not files:
            return []
        renames = tuple(Rename(file.source, file.target, file.size, file.checksum) for file in files)
        return [FsRenameCommitStep(source=self._spec.uri, target=self._spec.uri, files=renames)]

    def _task_output(self, attempt: AttemptFiles, path: str) -> str:
        return f"{self._directory}task-output/{attempt.id}/{path}"

    def _clean_up(self) -> None:
        keys = [meta.key for meta in self._store.list(self._directory, recursive=True)]
        if keys:
            self._store.delete(keys)
        if isinstance(self._store, HasDirectories):
            self._store.prune(self._directory)

    @property
    def _directory(self) -> str:
        return f"{self._prefix}{JOBS}/{self.job_id}/"

    @property
    def _store(self) -> Store:
        if self._opened is None:
            self._opened = self._spec.open()
        return self._opened


def _staged(file: WrittenFile, source: str, target: str) -> StagedFile:
    checksum = recorded_checksum(checksum_of(file, target))
    return StagedFile(source=source, target=target, size=file.size, checksum=checksum, rows=file.num_records)
