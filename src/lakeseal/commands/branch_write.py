"""The write command of branches: what `Repository.write` means, for every engine, format and mode.

A `PlannedBranchWrite` begins the job, says what its tasks are to do, and makes one merge of what they report. `decide`
and `commit` may be in different processes, as long as both have the same command: the job is found by its id.

- append adds files; overwrite replaces all that is below the path, or with `dynamic` the partitions that the data has
  rows for; error and ignore do nothing where files are already.
"""

from __future__ import annotations

import getpass
import re
import socket
from collections.abc import Mapping, Sequence
from typing import Any, cast
from uuid import uuid4

import msgspec
from msgspec import Struct

from lakeseal.branches.store import BranchStore, Check, Commit
from lakeseal.commands.branch_job import MODES, BranchJob, JobPlan, Mode
from lakeseal.commands.planned_job import PlannedJob
from lakeseal.errors import InvalidArgument
from lakeseal.files.file_format import PARQUET, FileFormat
from lakeseal.files.shape import Shape
from lakeseal.jobs.branch_commit_protocol import BranchCommitProtocol, BranchWrite
from lakeseal.jobs.engine import Engine
from lakeseal.jobs.file_commit_protocol import TaskCommitMessage
from lakeseal.jobs.job import CommitProtocolSpec, WriteJobSpec
from lakeseal.jobs.task_writer import BUFFER_BYTES
from lakeseal.protocol.schema import StructType

_JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_SPARKS_NAMES = {"errorifexists": "error", "default": "error"}


class BranchWriteCommand(Struct, frozen=True, kw_only=True):
    """All that a caller may ask of a write to a branch."""

    branch: str
    path: str
    mode: str = "append"
    format: FileFormat = PARQUET
    partition_by: tuple[str, ...] = ()
    partition_overwrite: str | None = None
    """"dynamic": overwrite only the partitions that the data has rows for."""
    message: str = ""
    metadata: dict[str, str] = {}
    """Goes into the commit, beside what Lakeseal notes under `lakeseal.…`."""
    inputs: tuple[str, ...] = ()
    """What the data was made of, for the commit's lineage."""
    application: str = ""
    job_id: str | None = None
    """The caller's own: a write that is tried again with it happens once."""
    mixed_types: bool = False
    """Append rows whose columns have other types than those of the files that are there."""
    max_records_per_file: int | None = None
    target_file_size: int | None = None
    buffer_bytes: int = BUFFER_BYTES
    """Rows that a task keeps in memory; it needs two to three times as much."""
    spill_directory: str | None = None
    """Where tasks keep rows of many partitions; the system's place for temporary files if not given."""

    def __post_init__(self) -> None:
        if self._mode not in MODES:
            raise InvalidArgument(f"There is no write mode {self.mode!r}", hint=f"Choose one of {', '.join(MODES)}")
        if self.partition_overwrite not in (None, "static", "dynamic"):
            raise InvalidArgument(
                f"partition_overwrite cannot be {self.partition_overwrite!r}", hint="Choose 'static' or 'dynamic'"
            )
        if self.partition_overwrite == "dynamic" and (self._mode != "overwrite" or not self.partition_by):
            raise InvalidArgument("partition_overwrite='dynamic' is for mode 'overwrite' of partitioned data")
        if self.job_id is not None and _JOB_ID.fullmatch(self.job_id) is None:
            raise InvalidArgument(
                f"A job cannot have the id {self.job_id!r}", hint="Use up to 100 letters, digits, dots, dashes, _"
            )
        for name in ("max_records_per_file", "target_file_size", "buffer_bytes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidArgument(f"{name} cannot be {value}", hint="Use 1 or more, or leave it out")

    @property
    def _mode(self) -> str:
        return _SPARKS_NAMES.get(self.mode.lower(), self.mode.lower())

    def plan(self, schema: StructType, *, job_id: str) -> JobPlan:
        return JobPlan(
            id=job_id,
            dest=self.branch,
            path=self.path.strip("/"),
            mode=cast(Mode, self._mode),
            dynamic=self.partition_overwrite == "dynamic",
            resumes=self.job_id is not None,
            who=_who(self.application),
            message=self.message,
            metadata={**self.metadata, **self._lineage(job_id)},
            shape=Shape.of(self.format, schema, self.partition_by),
            mixed_types=self.mixed_types,
        )

    def _lineage(self, job_id: str) -> dict[str, str]:
        noted = {
            "lakeseal.job": job_id,
            "lakeseal.path": self.path.strip("/"),
            "lakeseal.mode": self._mode,
            "lakeseal.format": self.format.name,
        }
        if self.application:
            noted["lakeseal.application"] = self.application
        if self.partition_by:
            noted["lakeseal.partitionBy"] = msgspec.json.encode(self.partition_by).decode()
        if self.inputs:
            noted["lakeseal.inputs"] = msgspec.json.encode(self.inputs).decode()
        return noted


class PlannedBranchWrite(PlannedJob[BranchWrite]):
    def __init__(
        self,
        store: BranchStore,
        command: BranchWriteCommand,
        data: StructType,
        *,
        job_id: str | None = None,
        checks: Sequence[Check] = (),
    ) -> None:
        """`job_id` is that of a plan that was made before, in another process perhaps."""
        super().__init__(store.uri, data, command.format, command.partition_by)
        self._store = store
        self._command = msgspec.structs.replace(command, partition_by=self.partition_by)
        self.job_id = job_id or command.job_id or str(uuid4())
        self._job = BranchJob(store, self._command.plan(self.schema, job_id=self.job_id), checks=checks)
        self._protocol = BranchCommitProtocol(path=command.path, job_id=self.job_id, job=self._job)

    def decide(self) -> WriteJobSpec | BranchWrite:
        """Begins the job, or finds it begun."""
        skipped = self._protocol.setup_job()
        if skipped is not None:
            return skipped
        command = self._command
        prefix = {"data_prefix": self._job.job.data_prefix}
        return self._spec(
            self.job_id,
            self._store.objects,
            CommitProtocolSpec(kind=BranchCommitProtocol.kind, path=command.path, options=prefix),
            target_file_size=command.target_file_size,
            max_records_per_file=command.max_records_per_file,
            buffer_bytes=command.buffer_bytes,
            spill_directory=command.spill_directory,
        )

    def commit(self, messages: Sequence[TaskCommitMessage]) -> BranchWrite:
        return self._protocol.commit_job(messages)

    def stage(self, messages: Sequence[TaskCommitMessage]) -> Commit | None:
        """What `commit` would merge, on the job's branch; None if that is nothing."""
        links = self._protocol.links(messages)
        return self._job.stage(links) if links or self._command.mode != "append" else None

    def abort(self) -> None:
        self._protocol.abort_job()


def run(
    store: BranchStore, command: BranchWriteCommand, data: Any, *, engine: Engine, checks: Sequence[Check] = ()
) -> BranchWrite:
    source = engine.open(data)
    return PlannedBranchWrite(store, command, source.schema, checks=checks).run(source)


def _who(application: str) -> str:
    try:
        person = getpass.getuser()
    except (KeyError, OSError):
        person = "somebody"
    place = f"{person}@{socket.gethostname()}"
    return f"{place} ({application})" if application else place


def metadata_of(values: Mapping[str, Any] | None) -> dict[str, str]:
    """What a user gives as a commit's metadata: text by names."""
    for name, value in (values or {}).items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidArgument(f"The commit's metadata {name!r} is not text", hint="Give names and texts only")
        if name.startswith("lakeseal."):
            raise InvalidArgument(f"{name!r} is a name of Lakeseal's own", hint="Choose another name")
    return dict(values or {})
