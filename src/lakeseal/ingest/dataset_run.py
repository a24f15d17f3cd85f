"""One dataset in one run: what was found, what tasks reported, and what it comes to."""

from __future__ import annotations

import datetime as dt
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from lakeseal.errors import Fenced, LakesealError, Refused, StorageUnavailable
from lakeseal.ingest.config import Dataset
from lakeseal.ingest.quality import Measured, judge
from lakeseal.ingest.runs import DatasetResult, DatasetState
from lakeseal.ingest.source import Plan
from lakeseal.ingest.staging import RawStage, Stage, TableStage
from lakeseal.ingest.task import DatasetWork, Order, OrderReport
from lakeseal.steps.watermarks import WatermarkChange
from lakeseal.write.file_commit_protocol import TaskCommitMessage
from lakeseal.write.task_report import error_from_json


class DatasetRun:
    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self.before: dict[str, Any] = {}
        self.plan = Plan()
        self.recovered = 0
        self.steps = 0
        self.version: int | None = None
        self.state: DatasetState | None = None
        """None as long as there is something left to do."""
        self.error: LakesealError | None = None
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
        return isinstance(self.error, StorageUnavailable)

    def fail(self, error: LakesealError) -> None:
        self.error = error
        self.end("failed")

    def set_aside(self, trouble: str, pipeline: str) -> None:
        """Its steps are recorded and left alone until somebody retries or aborts them."""
        self.error = Refused(trouble, hint=f"Mend the reason, then: lakeseal steps retry {pipeline} {self.name}")
        self.end("set_aside")

    def end(self, state: DatasetState) -> None:
        self.state = state
        self._seconds = time.monotonic() - self._began

    def settle(self, reports: Sequence[OrderReport]) -> tuple[list[TaskCommitMessage], list[TaskCommitMessage]]:
        """Decides, by the dataset's policy, what of the reports counts: messages of the target's files and of the error
        table's. Raises if nothing does."""
        failed = [report for report in reports if report.error is not None]
        if len(reports) != len(self.orders):
            raise StorageUnavailable(f"{len(self.orders) - len(reports)} tasks of {self.name!r} did not report")
        counted = [report for report in reports if report.error is None]
        if failed and (self.dataset.commit == "full" or not counted):
            # What is sure to fail again says more than what may not.
            worst = min(failed, key=lambda report: report.is_transient)
            raise error_from_json(worst.error or {})
        by_number = {order.number: order for order in self.orders}
        left_over = [
            f"{', '.join(dict.fromkeys(unit.partition for unit in by_number[report.number].units))}: "
            f"{error_from_json(report.error or {}).message}"
            for report in failed
        ]
        highs: dict[str, Any] = {}
        for report in sorted(counted, key=lambda report: report.number):
            self.measured.add(report.measured)
            for result in report.units:
                if result.error is not None:
                    left_over.append(f"{result.partition}: {error_from_json(result.error).message}")
                if result.high is not None and self.dataset.commit == "partial":
                    highs[result.partition] = result.high  # a partition is one order's, in the order of its units
        planned = Counter(unit.partition for unit in self.plan.units)
        done = Counter(unit.partition for report in counted for unit in report.units if unit.is_whole)
        lows: dict[str, Any] = {}
        for unit in self.plan.units:
            lows.setdefault(unit.partition, unit.low)
            if done[unit.partition] == planned[unit.partition]:
                highs[unit.partition] = unit.high
        self.changes = tuple(
            WatermarkChange(partition=partition, expected=lows[partition], value=high)
            for partition, high in sorted(highs.items())
            if high != lows[partition]
        )
        self.left_over = tuple(left_over)
        return (
            [report.message for report in counted if report.message is not None],
            [report.error_message for report in counted if report.error_message is not None],
        )

    def judge(self) -> None:
        """Raises if the dataset must not be published."""
        self.warnings += judge(self.dataset.quality, self.measured, now=dt.datetime.now(dt.UTC))
        if self.measured.bad_records:
            done = "went to the error table" if self.dataset.on_bad_record == "error_table" else "were skipped"
            self.warnings.append(f"{self.measured.bad_records} records are no rows and {done}")

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
