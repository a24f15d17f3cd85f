"""Writing to a plain directory, in any format, through a commit sequence.

A `PlannedStagedWrite` says what tasks are to do (`spec`, `decide`) and hands its `SequenceJob` what makes their files
visible (`commit`). Callers that publish more than files take the steps from the `StagedCommitProtocol` themselves.
Files are only ever added.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

from lakeseal.commands.planned_job import PlannedJob
from lakeseal.files.file_format import PARQUET, FileFormat
from lakeseal.jobs.file_commit_protocol import TaskCommitMessage
from lakeseal.jobs.job import CommitProtocolSpec, WriteJobSpec
from lakeseal.jobs.staged_commit_protocol import SequenceJob, StagedCommitProtocol, StagedFile
from lakeseal.protocol.schema import StructType
from lakeseal.storage import StoreSpec


class PlannedStagedWrite(PlannedJob[list[StagedFile]]):
    def __init__(
        self,
        target: StoreSpec,
        schema: StructType,
        *,
        format: FileFormat = PARQUET,
        partition_by: Sequence[str] = (),
        job_id: str | None = None,
        max_records_per_file: int | None = None,
        target_file_size: int | None = None,
        job: SequenceJob | None = None,
    ) -> None:
        """`job_id` is used for one job only. Whoever publishes the steps by itself needs no `job`."""
        super().__init__(target.uri, schema, format, partition_by)
        self.job_id = job_id or str(uuid4())
        self._protocol = StagedCommitProtocol(store=target, path="", job_id=self.job_id, job=job)
        self.spec = self._spec(
            self.job_id,
            target,
            CommitProtocolSpec(kind=StagedCommitProtocol.kind, path=""),
            target_file_size=target_file_size,
            max_records_per_file=max_records_per_file,
        )

    def decide(self) -> WriteJobSpec:
        self._protocol.setup_job()
        return self.spec

    def commit(self, messages: Sequence[TaskCommitMessage]) -> list[StagedFile]:
        return self._protocol.commit_job(messages)

    def abort(self) -> None:
        """Removes what tasks have written, unless the job has been handed its steps."""
        self._protocol.abort_job()
