"""A directory on a branch as a target: write, audit, publish.

Tasks write objects of a job that has a branch of its own. Once the dataset's rules have judged the rows, all files are
one commit on that branch; what publishes them is a `BranchMergeStep` in the dataset's sequence, with the watermarks as
its last step. Until the merge nobody on the destination's branch knows of them; a rule that fails leaves no commit, and
rules of a protected branch that refuse the merge leave the commit on the job's branch to look at.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from lakeseal.branches.store import BranchStore
from lakeseal.commands.branch_write import BranchWriteCommand, PlannedBranchWrite
from lakeseal.errors import RefNotFound
from lakeseal.files.file_format import FileFormat
from lakeseal.ingest.config import BranchTarget
from lakeseal.jobs.file_commit_protocol import TaskCommitMessage
from lakeseal.jobs.job import WriteJobSpec
from lakeseal.protocol.schema import StructType
from lakeseal.steps.branch_merge import BranchMergeStep, opened
from lakeseal.steps.context import StepContext

_MODES = {"append": "append", "replace": "overwrite"}


class PlannedBranch(Struct, frozen=True, kw_only=True):
    """A job on a branch that was begun; whoever has this and the repository goes on with it."""

    target: BranchTarget
    job_id: str
    schema: str
    note: str

    @classmethod
    def begun(
        cls, target: BranchTarget, schema: StructType, context: StepContext, note: str
    ) -> tuple[PlannedBranch, WriteJobSpec]:
        """And what its tasks are to do."""
        with opened(target.repository, context) as store:
            branch = cls(
                target=replace(target, repository=store.uri),
                job_id=f"ingest-{uuid.uuid4()}",
                schema=schema.to_json(),
                note=note,
            )
            spec = branch._write(store).decide()
            assert isinstance(spec, WriteJobSpec), "append and overwrite always have something to do"
            return branch, spec

    def staged(self, messages: Sequence[TaskCommitMessage], context: StepContext) -> BranchMergeStep | None:
        """All files in one commit on the job's branch, and the merge that is left to do; None if there are none."""
        with opened(self.target.repository, context) as store:
            write = self._write(store)
            write.decide()
            commit = write.stage(messages)
            if commit is None:
                return None
            return BranchMergeStep(
                repository=store.uri,
                commit=commit.id,
                dest=self.target.branch,
                message=commit.message,
                metadata=dict(commit.metadata),
            )

    def end(self, context: StepContext) -> None:
        """The job's branch goes, after its merge. What stays behind is collected some day."""
        with opened(self.target.repository, context) as store:
            try:
                store.end_job(store.job(self.job_id, self.target.path.strip("/")))
            except RefNotFound:
                return

    def _write(self, store: BranchStore) -> PlannedBranchWrite:
        target = self.target
        form = FileFormat(name=target.format, compression=target.compression, header=target.format == "csv")
        command = BranchWriteCommand(
            branch=target.branch,
            path=target.path,
            mode=_MODES[target.mode],
            format=form,
            partition_by=target.partition_by,
            metadata={"ingest": self.note},
            job_id=self.job_id,
        )
        return PlannedBranchWrite(store, command, StructType.from_json(self.schema))
