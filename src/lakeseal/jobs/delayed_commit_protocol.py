"""`DelayedCommitProtocol`: tasks write files under their final, unique names; the driver gets them as actions.

A file is part of the table once a commit of the log names it, so there is nothing to move and nothing to undo: files
of failed or doubled attempts are orphans that vacuum removes, and aborting does nothing. What `commit_job` gives are
the actions to commit; on the driver, `added_statuses` and `change_files` hold them from then on.

Rows of the change feed come in partition directories that start with `__is_cdc=true`; their files go to
`_change_data` and become `AddCDCFile`s. `__is_cdc` itself is in no path and in no action.

To see what happens inside, set the logger `lakeseal.write.DelayedCommitProtocol` to DEBUG on the driver; a job takes
its level along to the tasks, which write to their stderr (see `task_logging`).
"""

from __future__ import annotations

import hashlib
import logging
import random
import string
from collections.abc import Iterable, Sequence
from typing import ClassVar
from uuid import uuid4

import msgspec

from lakeseal.errors import InvalidArgument, Unsupported
from lakeseal.files.file_schema import CDC_PARTITION_COL, CDC_PARTITION_FALSE, CDC_PARTITION_TRUE
from lakeseal.jobs.file_commit_protocol import (
    Json,
    TaskCommitMessage,
    TaskContext,
    TaskFile,
    WrittenFile,
    check_written,
    one_per_split,
)
from lakeseal.protocol.actions import AddCDCFile, AddFile
from lakeseal.protocol.data_paths import encode_path
from lakeseal.protocol.partitions import parse_partition_directory
from lakeseal.protocol.paths import CHANGE_DATA_DIR

CDC_LOCATION = CHANGE_DATA_DIR.rstrip("/")

# What a name and a key may be long: file systems stop at 255 bytes per name, S3 at 1,024 per key, and the table's own
# prefix and the file's name need room too.
_MAX_SEGMENT_BYTES = 255
_MAX_DIRECTORY_BYTES = 600

_ALPHANUMERIC = string.ascii_letters + string.digits

logger = logging.getLogger("lakeseal.write.DelayedCommitProtocol")


class DelayedCommitProtocol:
    kind: ClassVar[str] = "delayed"
    needs_checksums: ClassVar[bool] = False

    def __init__(self, *, path: str, job_id: str = "delta", random_prefix_length: int | None = None) -> None:
        if random_prefix_length is not None and random_prefix_length < 1:
            raise InvalidArgument(
                f"A random prefix of {random_prefix_length} characters is none",
                hint="Set delta.randomPrefixLength to 1 or more",
            )
        self.job_id = job_id
        self.path = path.rstrip("/")
        self.random_prefix_length = random_prefix_length
        self.added_files: list[tuple[dict[str, str | None], str]] = []
        """In a task: the partition values and the key of every file that was named for it."""
        self.added_statuses: list[AddFile] = []
        """On the driver: files with rows of the table."""
        self.change_files: list[AddCDCFile] = []
        """On the driver: files with rows of the change feed."""

    def __repr__(self) -> str:
        return f"DelayedCommitProtocol({self.job_id}, {self.path})"

    def setup_job(self) -> None:
        logger.debug("%r: job set up", self)

    def setup_task(self, task: TaskContext) -> None:
        self.added_files = []
        logger.debug("%r: task %d set up (attempt %d)", self, task.split, task.attempt)

    def new_task_file(self, task: TaskContext, dir: str | None, ext: str) -> TaskFile:
        values = parse_partition_directory(dir) if dir else {}
        name = self._file_name(task, ext, values)
        directory = self._directory(dir, values)
        key = f"{directory}/{name}" if directory else name
        self.added_files.append((values, key))
        logger.debug("%r: task %d gets the file %s for %s", self, task.split, key, values)
        return TaskFile(key=key, path=f"{self.path}/{key}")

    def new_task_file_abs_path(self, task: TaskContext, absolute_dir: str, ext: str) -> TaskFile:
        raise Unsupported(
            f"{self!r} does not support adding files with an absolute path",
            hint="Write below the table's own directory",
        )

    def commit_task(self, task: TaskContext, written: Sequence[WrittenFile]) -> TaskCommitMessage:
        by_key = check_written(task, (key for _, key in self.added_files), written)
        entries = tuple(_entry(_build_action(values, by_key[key])) for values, key in self.added_files if key in by_key)
        logger.debug("%r: task %d commits %d files (attempt %d)", self, task.split, len(entries), task.attempt)
        return TaskCommitMessage(protocol=self.kind, task=task, entries=entries)

    def commit_job(self, messages: Iterable[TaskCommitMessage]) -> list[AddFile | AddCDCFile]:
        actions = [_action(entry) for message in one_per_split(messages, self.kind) for entry in message.entries]
        adds = [action for action in actions if isinstance(action, AddFile)]
        changes = [action for action in actions if isinstance(action, AddCDCFile)]
        self.added_statuses += adds
        self.change_files += changes
        logger.debug(
            "%r: job committed with %d files and %d change files",
            self,
            len(self.added_statuses),
            len(self.change_files),
        )
        return [*adds, *changes]

    def abort_task(self, task: TaskContext) -> None:
        """Does nothing: what the task wrote is in no commit."""
        logger.debug("%r: task %d aborted (attempt %d)", self, task.split, task.attempt)

    def abort_job(self) -> None:
        """Does nothing: what the job wrote is in no commit."""
        logger.debug("%r: job aborted", self)

    def _file_name(self, task: TaskContext, ext: str, values: dict[str, str | None]) -> str:
        prefix = "cdc" if _is_cdc(values) else "part"
        return f"{prefix}-{task.split:05d}-{uuid4()}{ext}"

    def _directory(self, dir: str | None, values: dict[str, str | None]) -> str:
        if self.random_prefix_length is not None:
            prefix = "".join(random.SystemRandom().choices(_ALPHANUMERIC, k=self.random_prefix_length))  # spreads load
            # Change files stay in `_change_data` even then: that is where readers and vacuum expect them.
            return f"{CDC_LOCATION}/{prefix}" if _is_cdc(values) else prefix
        first, _, rest = (dir or "").partition("/")
        if first == CDC_PARTITION_FALSE:
            return _bounded(rest)
        if first == CDC_PARTITION_TRUE:
            rest = _bounded(rest)
            return f"{CDC_LOCATION}/{rest}" if rest else CDC_LOCATION
        return _bounded(dir or "")


def _bounded(directory: str) -> str:
    """The directory, or a name that stands for it where stores would refuse its length.

    The log holds the partition values, so a directory is only a place.
    """
    if len(directory.encode()) <= _MAX_DIRECTORY_BYTES and all(
        len(segment.encode()) <= _MAX_SEGMENT_BYTES for segment in directory.split("/")
    ):
        return directory
    return hashlib.sha256(directory.encode()).hexdigest()[:32]


def _is_cdc(values: dict[str, str | None]) -> bool:
    return values.get(CDC_PARTITION_COL) == "true"


def _build_action(values: dict[str, str | None], file: WrittenFile) -> AddFile | AddCDCFile:
    partition_values = {name: value for name, value in values.items() if name != CDC_PARTITION_COL}
    path = encode_path(file.key)
    if _is_cdc(values):
        return AddCDCFile(path=path, partition_values=partition_values, size=file.size, data_change=False)
    return AddFile(
        path=path,
        partition_values=partition_values,
        size=file.size,
        modification_time=file.modified_ms,
        data_change=True,
        stats=file.stats,
    )


def _entry(action: AddFile | AddCDCFile) -> Json:
    return {action.key: action.to_json()}


def _action(entry: Json) -> AddFile | AddCDCFile:
    try:
        match entry:
            case {"add": add}:
                return AddFile.from_json(add)
            case {"cdc": cdc}:
                return AddCDCFile.from_json(cdc)
    except (msgspec.ValidationError, AttributeError) as error:
        raise InvalidArgument(f"A task's message holds a malformed action: {error}") from error
    raise InvalidArgument(f"A task's message holds {sorted(entry)}, which is no file action")
