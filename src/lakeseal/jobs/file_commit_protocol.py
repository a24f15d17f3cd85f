"""The seam of commit protocols: how files that tasks wrote become files that count.

A job has one protocol on the driver and one of its own in every task attempt (`protocol_from_spec` makes both alike).
The order of calls, on which implementers and engines may rely:

    driver   setup_job ─────────────────────────────────────────► commit_job(messages) → result   or  abort_job
    task              setup_task → new_task_file… → commit_task                                   or  abort_task

- `new_task_file` only names a file: nothing is written by it, and a name is never given twice, whatever the attempts.
- Nothing that a task wrote is visible to readers before `commit_job`, and what `commit_job` makes of it becomes visible
  all at once.
- `commit_task` takes the files that were really written; a name that was asked for and not used is forgotten.
- Messages are JSON, never pickles: they cross from executors to the driver, which checks them as it reads them.
- Each split counts once in `commit_job`, however many attempts of it sent a message: the last message stands.
- `abort_task` and `abort_job` are called after a failure, may be called twice, and never raise for missing files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

import msgspec
from msgspec import Struct

from lakeseal import typed_json
from lakeseal.errors import InvalidArgument

Json = dict[str, Any]
Result_co = TypeVar("Result_co", covariant=True)


class TaskContext(Struct, frozen=True, kw_only=True):
    """Which attempt of which task of which job is running."""

    job_id: str
    split: int
    """The task's number within its job: the same for all attempts at it."""
    attempt: int = 0
    task_attempt_id: int = 0
    """Unique among all task attempts of the application."""


class TaskFile(Struct, frozen=True, kw_only=True):
    """A new file's name: `key` in the job's store, `path` in full."""

    key: str
    path: str


class WrittenFile(Struct, frozen=True, kw_only=True):
    """A file that a task has written and closed, under the key that `new_task_file` gave it."""

    key: str
    size: int
    modified_ms: int
    num_records: int
    stats: str | None = None
    """Delta's statistics as JSON text; none for files that no reader skips by them."""
    checksum: str | None = None
    """Of the file's bytes, where the protocol asks for one by `needs_checksums`."""


class TaskCommitMessage(Struct, frozen=True, kw_only=True):
    """What a successful task attempt tells the driver. `entries` mean what the protocol `protocol` says they mean."""

    protocol: str
    task: TaskContext
    entries: tuple[Json, ...] = ()
    identity: dict[str, int] = {}
    """What it gave out last of identity columns."""

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> TaskCommitMessage:
        try:
            return typed_json.decode(text, cls)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise InvalidArgument(
                f"A task's message is malformed: {error}",
                hint="Driver and tasks must run the same version of Lakeseal",
            ) from error


class FileCommitProtocol(Protocol[Result_co]):
    kind: ClassVar[str]
    """The protocol's name in job specs and messages."""
    needs_checksums: ClassVar[bool]

    def setup_job(self) -> Result_co | None:
        """The job's result, if there is nothing for its tasks to do; None if there is."""

    def setup_task(self, task: TaskContext) -> None: ...

    def new_task_file(self, task: TaskContext, dir: str | None, ext: str) -> TaskFile:
        """A new file in the partition directory `dir` (None: the table is not partitioned) with the suffix `ext`."""

    def new_task_file_abs_path(self, task: TaskContext, absolute_dir: str, ext: str) -> TaskFile:
        """A new file in a directory outside of the job's path."""

    def commit_task(self, task: TaskContext, written: Sequence[WrittenFile]) -> TaskCommitMessage: ...

    def commit_job(self, messages: Iterable[TaskCommitMessage]) -> Result_co:
        """What became of what the tasks wrote."""

    def abort_task(self, task: TaskContext) -> None: ...

    def abort_job(self) -> None: ...


def one_per_split(messages: Iterable[TaskCommitMessage], kind: str) -> list[TaskCommitMessage]:
    """The messages that count, in the order of their splits; a message of another protocol is refused."""
    by_split: dict[int, TaskCommitMessage] = {}
    for message in messages:
        if message.protocol != kind:
            raise InvalidArgument(
                f"A task committed under the protocol {message.protocol!r}, its job under {kind!r}",
                hint="All tasks of a job must run with the job's own spec",
            )
        by_split[message.task.split] = message
    return [by_split[split] for split in sorted(by_split)]


def check_written(task: TaskContext, named: Iterable[str], written: Sequence[WrittenFile]) -> dict[str, WrittenFile]:
    """The written files by key; a file that the protocol did not name for this task is refused."""
    known = set(named)
    by_key: dict[str, WrittenFile] = {}
    for file in written:
        if file.key not in known or file.key in by_key:
            raise InvalidArgument(
                f"Task {task.split} (attempt {task.attempt}) wrote a file that was not named for it, or twice",
                file=file.key,
                hint="Write every file under a name of its own from new_task_file",
            )
        by_key[file.key] = file
    return by_key
