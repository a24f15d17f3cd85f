"""One dataset in one run: what was found, what tasks reported, and what it comes to."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from lakeseal.errors import Fenced, LakesealError, Refused, StorageUnavailable
from lakeseal.ingest.config import Dataset
from lakeseal.ingest.quality import Measured
from lakeseal.ingest.reports import DatasetOutcome, Order, OrderReport
from lakeseal.ingest.runs import DatasetResult, DatasetState
from lakeseal.ingest.settling import Settled, judged, settle
from lakeseal.ingest.source import Plan
from lakeseal.ingest.staging import RawStage, Stage, TableStage
from lakeseal.ingest.task import DatasetWork
from lakeseal.steps.watermarks import WatermarkChange
from lakeseal.write.file_commit_protocol import TaskCommitMessage
from lakeseal.write.task_report import error_from_json


class DatasetRun:
    def __init__(self, dataset: Dataset, *, pipeline: str, run_id: str) -> None:
        self.dataset = dataset
        self.app_id = f"lakeseal ingest {pipeline}: {dataset.name}"
        self.note = {"pipeline": pipeline, "dataset": dataset.name, "run": run_id}
        self.before: dict[str, Any] = {}
        self.plan = Plan()
        self.recovered = 0
        self.steps = 0
        self.version: int | None = None
        self.state: DatasetState | None = None
        """None as long as there is something left to do."""
        self.error: LakesealError | None = None
        self._may_retry = True
        self._began = time.monotonic()
        self._seconds: float | None = None
        self.begin_attempt()

    def begin_attempt(self) -> None:
        self.error = None
        self.state = None
        self.orders: list[Order] = []
        self.work: DatasetWork | None = None
        self.raw: RawStage | None = None
        """Where rows wait for Spark to transform them, if it has to."""
        self.error_messages: list[TaskCommitMessage] = []
        self.stages: list[Stage] = []
        """What makes the rows visible, in this order: the error table's rows, then the target's."""
        self.changes: tuple[WatermarkChange, ...] = ()
        self.measured = Measured()
        self.warnings: list[str] = []
        self.left_over: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.dataset.name

    @property
    def is_open(self) -> bool:
        return self.state is None

    @property
    def is_transient(self) -> bool:
        return self._may_retry and isinstance(self.error, StorageUnavailable)

    def fail(self, error: LakesealError, *, may_retry: bool = True) -> None:
        """`may_retry`: it is certain that nothing of this attempt will ever be published."""
        self.error, self._may_retry = error, may_retry
        self.end("failed")

    def set_aside(self, trouble: str, pipeline: str) -> None:
        """Its steps are recorded and left alone until somebody retries or aborts them."""
        self.error = Refused(
            trouble, hint=f"Mend the reason, then: lakeseal steps retry {pipeline} {self.name} --pipeline FILE"
        )
        self.end("set_aside")

    def end(self, state: DatasetState) -> None:
        self.state = state
        self._seconds = time.monotonic() - self._began

    def settle(self, reports: Sequence[OrderReport]) -> Settled:
        """Raises if nothing of the reports counts."""
        settled = settle(self.dataset, len(self.orders), reports)
        self.measured, self.changes, self.left_over = settled.measured, settled.changes, settled.left_over
        return settled

    def judge(self) -> None:
        """Raises if the dataset must not be published."""
        self.warnings += judged(self.dataset, self.measured)

    def conclude(self, outcome: DatasetOutcome, pipeline: str) -> None:
        """Tasks have published it, or have tried to."""
        summary = outcome.summary
        self.measured, self.changes, self.left_over = summary.measured, summary.changes, summary.left_over
        self.warnings += summary.warnings
        self.steps, self.version = summary.steps, outcome.version
        if outcome.state == "published":
            self.end("published")
            return
        error = error_from_json(outcome.error or {})
        if outcome.state == "set_aside":
            self.set_aside(f"Its steps keep failing: {error.message}", pipeline)
        else:
            self.fail(error, may_retry=outcome.may_retry)

    @property
    def is_joint(self) -> bool:
        return all(isinstance(stage, TableStage) and stage.is_joint for stage in self.stages)

    def result(self) -> DatasetResult:
        state = self.state or "failed"
        published = state == "published"
        error = None if self.error is None else self.error.to_json()
        return DatasetResult(
            name=self.name,
            state=state,
            rows=self.measured.rows if published else 0,
            rows_read=self.measured.read,
            bytes=self.measured.bytes,
            bad_records=self.measured.bad_records,
            to_error_table=self.measured.to_error_table if published else 0,
            before={change.partition: change.expected for change in self.changes} if published else {},
            after={change.partition: change.value for change in self.changes} if published else {},
            steps=self.steps,
            version=self.version,
            recovered=self.recovered,
            notes=(*self.plan.notes, *self.warnings),
            error=error,
            left_over=self.left_over,
            seconds=round(self._seconds or time.monotonic() - self._began, 3),
        )


def ours(error: Exception) -> LakesealError:
    """Any error as one of ours; `Fenced` ends the whole run and is raised."""
    if isinstance(error, Fenced):
        raise error
    if isinstance(error, LakesealError):
        return error
    return LakesealError(f"Unexpected {type(error).__name__}: {error}", hint="Look at its cause in the log")
