"""What came of a run, and of each of its datasets; kept in the ledger as `steps.runs` keeps it."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, ValidationError, to_builtins

from lakeseal import typed_json
from lakeseal.errors import BrokenLedger
from lakeseal.steps.runs import RunRecord

RunState = Literal["running", "published", "nothing_new", "partly", "failed", "died"]
DatasetState = Literal["published", "nothing_new", "failed", "set_aside"]


class DatasetResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a run did with one dataset."""

    name: str
    state: DatasetState
    rows: int = 0
    """Published."""
    rows_read: int = 0
    bytes: int = 0
    bad_records: int = 0
    to_error_table: int = 0
    before: dict[str, Any] = {}
    """Watermarks that moved: where they stood."""
    after: dict[str, Any] = {}
    steps: int = 0
    """Of its commit sequence; none where rows and watermarks are one transaction."""
    version: int | None = None
    """Of the target, if that is a table."""
    recovered: int = 0
    """Steps of an earlier run's sequence that were finished first."""
    notes: tuple[str, ...] = ()
    error: dict[str, Any] | None = None
    left_over: tuple[str, ...] = ()
    """Partitions that could not be read, with their reasons, where the others were published."""
    seconds: float = 0.0


class RunResult(Struct, frozen=True, kw_only=True):
    run_id: str
    pipeline: str
    state: RunState
    started_ms: int
    ended_ms: int | None = None
    datasets: tuple[DatasetResult, ...] = ()
    error: dict[str, Any] | None = None
    """Why the run as a whole came to nothing."""

    @property
    def rows(self) -> int:
        return sum(dataset.rows for dataset in self.datasets)

    def dataset(self, name: str) -> DatasetResult:
        return next(dataset for dataset in self.datasets if dataset.name == name)

    def to_json(self) -> dict[str, Any]:
        told: dict[str, Any] = to_builtins(self)
        return told

    def record(self, epoch: int) -> RunRecord:
        """As it is kept in the ledger."""
        told = self.to_json()
        return RunRecord(
            run_id=self.run_id,
            pipeline=self.pipeline,
            state=self.state,
            started_ms=self.started_ms,
            ended_ms=self.ended_ms,
            detail={"epoch": epoch, "datasets": told["datasets"], "error": self.error},
        )

    @classmethod
    def from_record(cls, record: RunRecord) -> RunResult:
        told = {
            "run_id": record.run_id,
            "pipeline": record.pipeline,
            "state": record.state,
            "started_ms": record.started_ms,
            "ended_ms": record.ended_ms,
            "datasets": record.detail.get("datasets", ()),
            "error": record.detail.get("error"),
        }
        try:
            return typed_json.convert(told, cls)
        except ValidationError as error:
            raise BrokenLedger(f"The record of the run {record.run_id} is malformed: {error}") from None
