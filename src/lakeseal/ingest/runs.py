"""A run's datasets on their way, and what came of them and of the run; kept in the ledger as `steps.runs` keeps it."""

from __future__ import annotations

import time
from typing import Any, Literal

from msgspec import Struct, ValidationError, to_builtins
from msgspec.structs import replace

from lakeseal import typed_json
from lakeseal.errors import BrokenLedger, LakesealError, Refused, StorageUnavailable
from lakeseal.ingest.config import Dataset, place_of
from lakeseal.ingest.graph import inputs_of
from lakeseal.ingest.live_counts import Counts
from lakeseal.ingest.orders import DatasetOutcome, DatasetWork, Order, Summary
from lakeseal.ingest.progress import Reached
from lakeseal.ingest.publishing import Decision
from lakeseal.ingest.quality import row_rules
from lakeseal.ingest.settling import Settled
from lakeseal.ingest.sources.source import Plan
from lakeseal.jobs.task_report import error_from_json
from lakeseal.protocol.schema import StructType
from lakeseal.steps.runs import RunRecord
from lakeseal.storage.location import parse as parse_location

RunState = Literal["running", "published", "nothing_new", "partly", "failed", "died"]
DatasetState = Literal["published", "nothing_new", "failed", "set_aside"]


class DatasetResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a run did with one dataset."""

    name: str
    state: DatasetState
    source: str = ""
    """What is read, in words; where it goes is `target`."""
    target: str = ""
    rows: int = 0
    """Published."""
    rows_read: int = 0
    bytes: int = 0
    bad_records: int = 0
    to_error_table: int = 0
    error_table: str = ""
    """Where it is, if something went there."""
    broken: dict[str, int] = {}
    """By each rule for rows: how many rows broke it."""
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
    has_more: bool = False
    """Whether its source had more than a run takes."""
    seconds: float = 0.0


class RunResult(Struct, frozen=True, kw_only=True):
    """What came of a run, as a whole and of each dataset.

    >>> done = pipeline.run()
    >>> done.state, [(one.name, one.rows) for one in done.datasets]
    ('published', [('clicks', 2)])
    """

    run_id: str
    pipeline: str
    state: RunState
    started_ms: int
    ended_ms: int | None = None
    datasets: tuple[DatasetResult, ...] = ()
    error: dict[str, Any] | None = None
    """Why the run as a whole came to nothing."""
    notes: tuple[str, ...] = ()
    """On what could not be told to others."""

    @property
    def rows(self) -> int:
        """How many were published, of all datasets.

        >>> pipeline.run().rows
        2
        """
        return sum(dataset.rows for dataset in self.datasets)

    @property
    def has_more(self) -> bool:
        """Whether a source had more than a run takes, and what it took was published.

        >>> pipeline.run().has_more
        False
        """
        return any(one.has_more and one.state == "published" for one in self.datasets)

    def dataset(self, name: str) -> DatasetResult:
        """What the run did with one of them.

        >>> pipeline.run().dataset("clicks").rows
        2
        """
        return next(dataset for dataset in self.datasets if dataset.name == name)

    def to_json(self) -> dict[str, Any]:
        """All of it, as `lakeseal ingest run --json` prints it.

        >>> pipeline.run().to_json()["datasets"][0]["rows"]
        2
        """
        told: dict[str, Any] = to_builtins(self)
        return told

    def record(self, epoch: int) -> RunRecord:
        """As it is kept in the ledger.

        >>> pipeline.run().record(epoch=1).detail["epoch"]
        1
        """
        told = self.to_json()
        return RunRecord(
            run_id=self.run_id,
            pipeline=self.pipeline,
            state=self.state,
            started_ms=self.started_ms,
            ended_ms=self.ended_ms,
            detail={
                "epoch": epoch,
                "datasets": told["datasets"],
                "error": self.error,
                **({"notes": self.notes} if self.notes else {}),
            },
        )

    @classmethod
    def from_record(cls, record: RunRecord) -> RunResult:
        """The result that was kept so.

        >>> done = pipeline.run()
        >>> type(done).from_record(done.record(epoch=1)) == done
        True
        """
        told = {
            "run_id": record.run_id,
            "pipeline": record.pipeline,
            "state": record.state,
            "started_ms": record.started_ms,
            "ended_ms": record.ended_ms,
            "datasets": record.detail.get("datasets", ()),
            "error": record.detail.get("error"),
            "notes": record.detail.get("notes", ()),
        }
        try:
            return typed_json.convert(told, cls)
        except ValidationError as error:
            raise BrokenLedger(f"The record of the run {record.run_id} is malformed: {error}") from None


class DatasetRun:
    """One dataset in one run: what was found, what tasks reported, and what it comes to."""

    def __init__(self, dataset: Dataset, *, pipeline: str) -> None:
        self.dataset = dataset
        self._pipeline = pipeline
        self.plan = Plan()
        self.recovered = 0
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
        self.counts: Counts | None = None
        """What its tasks have told while they read."""
        self.work: DatasetWork | None = None
        self.settled: Settled | None = None
        self.decision: Decision | None = None
        self.summary = Summary()
        self.warnings: list[str] = []

    @property
    def name(self) -> str:
        return self.dataset.name

    @property
    def inputs(self) -> tuple[str, ...]:
        """Datasets that it is made of; none if it has a source."""
        return inputs_of(self.dataset)

    @property
    def is_open(self) -> bool:
        return self.state is None

    @property
    def is_transient(self) -> bool:
        return self._may_retry and isinstance(self.error, StorageUnavailable)

    def row_schema(self) -> StructType:
        """Of what the source gives in this run."""
        if self.plan.schema is not None:
            return StructType.from_json(self.plan.schema)
        source = replace(self.dataset.source)
        try:
            return source.row_schema()
        finally:
            source.close()

    def reached(self) -> Reached:
        is_read = self.settled is not None or not self.is_open
        measured, counts = self.summary.measured, self.counts
        is_done = self.state in ("published", "nothing_new")
        behind = sum(unit.size for unit in self.plan.units) if self.plan.units else None
        if counts is not None and behind is not None and not is_read:
            behind = max(0, behind - counts.size)
        return Reached(
            rows=measured.rows if is_read else None if counts is None else counts.rows,
            bytes=measured.bytes if is_read else None if counts is None else counts.bytes,
            behind=0 if is_done else behind,
            seconds=self._seconds or time.monotonic() - self._began,
        )

    def fail(self, error: LakesealError, *, may_retry: bool = True) -> None:
        """`may_retry`: it is certain that nothing of this attempt will ever be published."""
        self.error, self._may_retry = error, may_retry
        self.end("failed")

    def set_aside(self, trouble: str) -> None:
        """Its steps are recorded and left alone until somebody retries or aborts them."""
        self.error = Refused(
            trouble, hint=f"Mend the reason, then: lakeseal steps retry {self._pipeline} {self.name} --pipeline FILE"
        )
        self.end("set_aside")

    def end(self, state: DatasetState) -> None:
        self.state = state
        self._seconds = time.monotonic() - self._began

    def conclude(self, outcome: DatasetOutcome) -> None:
        """It was published, or that was tried."""
        self.summary, self.version = outcome.summary, outcome.version
        if outcome.state == "published":
            self.end("published")
            return
        error = error_from_json(outcome.error or {})
        if outcome.state == "set_aside":
            self.set_aside(f"Its steps keep failing: {error.message}")
        else:
            self.fail(error, may_retry=outcome.may_retry)

    def result(self) -> DatasetResult:
        state = self.state or "failed"
        published = state == "published"
        measured, changes = self.summary.measured, self.summary.changes
        return DatasetResult(
            name=self.name,
            state=state,
            source=self.dataset.source.describe(),
            target=place_of(self.dataset.target),
            rows=measured.rows if published else 0,
            rows_read=measured.read,
            bytes=measured.bytes,
            bad_records=measured.bad_records,
            to_error_table=measured.to_error_table if published else 0,
            error_table=parse_location(self.dataset.errors_uri).uri if published and measured.to_error_table else "",
            broken={rule.name: measured.broken.get(n, 0) for n, rule in enumerate(row_rules(self.dataset.quality))},
            before={change.partition: change.expected for change in changes} if published else {},
            after={change.partition: change.value for change in changes} if published else {},
            steps=self.summary.steps,
            version=self.version,
            recovered=self.recovered,
            notes=(*self.plan.notes, *self.warnings, *self.summary.warnings),
            error=None if self.error is None else self.error.to_json(),
            left_over=self.summary.left_over,
            has_more=self.plan.has_more,
            seconds=round(self._seconds or time.monotonic() - self._began, 3),
        )
