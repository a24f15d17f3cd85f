"""Writing to a plain directory, in any format, through a commit sequence.

A `PlannedStagedWrite` says what tasks are to do (`spec`) and what makes their files visible (`steps`, `leftovers`), for
callers that publish more than files; `run` does all of it. Files are only ever added. Columns of `partition_by` go
into directories, as Hive and Spark name them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from lakeseal.errors import located
from lakeseal.formats.file_format import PARQUET, FileFormat
from lakeseal.protocol.schema import StructType
from lakeseal.steps.context import StepContext
from lakeseal.steps.sequence import Leftover
from lakeseal.steps.step import CommitStep
from lakeseal.steps.store import CommitStepStore
from lakeseal.storage import StoreSpec
from lakeseal.write.file_commit_protocol import TaskCommitMessage
from lakeseal.write.file_schema import FileSchema
from lakeseal.write.job import CommitProtocolSpec, WriteJobSpec
from lakeseal.write.parquet_file import Compression
from lakeseal.write.plain_files import columns_of_files, partition_columns
from lakeseal.write.runner import InPlan, WriteRunner
from lakeseal.write.staged_commit_protocol import SequenceJob, StagedCommitProtocol, StagedFile
from lakeseal.write.task_logging import driver_level
from lakeseal.write.transactional_write import DEFAULT_TARGET_FILE_SIZE


class PlannedStagedWrite:
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
    ) -> None:
        """`job_id` is used for one job only."""
        with located(table=target.uri):
            self.schema = columns_of_files(schema)
            self.partition_by = partition_columns(self.schema, partition_by)
            FileSchema(self.schema, self.partition_by, mapped=False)
            format.check(self.schema)
        self.job_id = job_id or str(uuid4())
        self._protocol = StagedCommitProtocol(store=target, path="", job_id=self.job_id)
        self.spec = WriteJobSpec(
            job_id=self.job_id,
            store=target,
            protocol=CommitProtocolSpec(kind=StagedCommitProtocol.kind, path=""),
            schema=self.schema.to_json(),
            partition_columns=self.partition_by,
            compression=Compression(format.codec) if format.name == "parquet" else Compression(),
            target_file_size=target_file_size or DEFAULT_TARGET_FILE_SIZE,
            max_records_per_file=max_records_per_file,
            stats=None,
            format=format,
            log_level=driver_level(),
        )

    def files(self, messages: Sequence[TaskCommitMessage]) -> list[StagedFile]:
        return self._protocol.files(messages)

    def steps(self, messages: Sequence[TaskCommitMessage]) -> list[CommitStep]:
        """What makes the files visible; nothing if there are none."""
        return self._protocol.steps(messages)

    @property
    def leftovers(self) -> tuple[Leftover, ...]:
        return self._protocol.leftovers

    def abort(self) -> None:
        """Removes what tasks have written. Not after the steps have been recorded."""
        self._protocol.abort_job()


def run(
    target: StoreSpec,
    data: Any,
    *,
    runner: WriteRunner,
    steps: CommitStepStore,
    context: StepContext,
    store: str,
    dataset: str,
    epoch: int = 0,
    further: Sequence[CommitStep] = (),
    format: FileFormat = PARQUET,
    partition_by: Sequence[str] = (),
) -> list[StagedFile]:
    """Writes `data` below `target` and publishes it as the next sequence of the dataset; the files that it became."""
    source = runner.open(data)
    write = PlannedStagedWrite(target, source.schema, format=format, partition_by=partition_by)
    job = SequenceJob(steps, context, store=store, dataset=dataset, epoch=epoch, further=further)
    protocol = StagedCommitProtocol(store=target, path="", job_id=write.job_id, job=job)
    protocol.setup_job()
    try:
        messages = source.run(write.spec, InPlan())
        protocol.commit_job(messages)
    except BaseException:
        protocol.abort_job()
        raise
    return protocol.files(messages)
