"""What Spark's tasks do in an ingest: read units, judge rows, write files, and report; nothing of it is visible yet.

One Spark job serves all datasets of a run. An *order* is work for one dataset; a task does several, one after the
other. Whatever goes wrong with an order becomes its report, so that one dataset's trouble is never another's, and Spark
does not repeat what would fail again. Orders, like all that travels, are JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import Struct

from lakeseal import typed_json
from lakeseal.errors import BadRecord as BadRecordError
from lakeseal.errors import LakesealError, SourceTimeout, StorageUnavailable
from lakeseal.ingest.config import Check, CommitPolicy, OnBadRecord
from lakeseal.ingest.quality import BAD_RECORD, Measured, RowRules, error_rows
from lakeseal.ingest.source import Chunk, Source, WorkUnit
from lakeseal.ingest.timeouts import steadily
from lakeseal.protocol.schema import StructType
from lakeseal.steps.context import StepSettings
from lakeseal.write.file_commit_protocol import TaskCommitMessage, TaskContext
from lakeseal.write.job import TaskRun, WriteJobSpec

_ERROR_BATCH = 10_000
REPORT = "report string"


class Order(Struct, frozen=True, kw_only=True):
    dataset: int
    number: int
    """Among the dataset's own."""
    units: tuple[WorkUnit, ...]

    @property
    def size(self) -> int:
        return sum(unit.size for unit in self.units)


class UnitResult(Struct, frozen=True, kw_only=True):
    partition: str
    high: Any = None
    """How far it is read; None if nothing of it is."""
    is_whole: bool = False
    error: dict[str, Any] | None = None


class OrderReport(Struct, frozen=True, kw_only=True):
    dataset: int
    number: int
    units: tuple[UnitResult, ...] = ()
    message: TaskCommitMessage | None = None
    error_message: TaskCommitMessage | None = None
    """Of files of the error table."""
    measured: Measured = msgspec.field(default_factory=Measured)
    error: dict[str, Any] | None = None
    """Why nothing of the order counts."""
    is_transient: bool = False
    """Whether trying again may help."""

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str) -> OrderReport:
        return typed_json.decode(text, cls)


class DatasetWork(Struct, frozen=True, kw_only=True):
    """What tasks need to know of a dataset; pickled with the plan, as it carries the store's credentials."""

    name: str
    source: Source | None
    spec: str
    """A `WriteJobSpec`."""
    error_spec: str
    schema: str | None
    """Of the rows that rules judge; None if Spark has marked them."""
    checks: tuple[Check, ...]
    policy: CommitPolicy
    on_bad_record: OnBadRecord
    timeout_seconds: float
    run_id: str
    epoch: int


class ExtractTask:
    """Rows of one column, `order`, to reports."""

    def __init__(self, name: str, works: Sequence[DatasetWork]) -> None:
        self.__name__ = name
        self._works = tuple(works)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        texts = (text for batch in batches for text in batch["order"].to_pylist())
        orders = (typed_json.decode(text, Order) for text in texts)
        for report in run_orders(self._works, orders, _here()):
            yield _reported(report)


def run_orders(works: Sequence[DatasetWork], orders: Iterable[Order], task: TaskContext) -> Iterator[OrderReport]:
    """All that one task does. A source is shared by the orders of its dataset, and closed at the end."""
    sources: dict[int, Source] = {}
    try:
        for order in orders:
            work = works[order.dataset]
            assert work.source is not None
            if order.dataset not in sources:
                # Its own: tasks of one process must not share a client.
                sources[order.dataset] = msgspec.structs.replace(work.source)
            extraction = _Extraction(work, order, sources[order.dataset], task)
            yield extraction.run()
            if extraction.is_stuck:
                # Its client may hang for ever, in a thread of its own: the next order gets another.
                del sources[order.dataset]
    finally:
        for source in sources.values():
            source.close()


class PublishTask:
    """Rows that Spark has transformed and marked, to one report."""

    def __init__(self, name: str, work: DatasetWork) -> None:
        self.__name__ = name
        self._work = work

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        output = _Output(self._work, _here())
        # What the batches themselves raise is Spark's own, and passes.
        failed: Exception | None = None
        for batch in batches:
            if failed is None:
                try:
                    output.write(batch, "", "")
                except Exception as error:
                    output.abort()
                    failed = error
        number = output.task.split
        if failed is None:
            try:
                yield _reported(output.report(number=number))
            except Exception as error:
                output.abort()
                yield _reported(_failed(0, number, error))
        else:
            yield _reported(_failed(0, number, failed))


class ShareTask:
    """Requests to answers, by a function that is found by import. The settings, which hold secrets, travel with this
    object, of which a plan shows the name only."""

    def __init__(self, name: str, do: Callable[[StepSettings, str], str], settings: StepSettings) -> None:
        self.__name__ = name
        self._do, self._settings = do, settings

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from lakeseal.ingest import spreading  # noqa: F401  the steps' kinds, known before threads decode them

        for batch in batches:
            for text in batch["request"].to_pylist():
                yield pa.RecordBatch.from_pydict({"answer": [self._do(self._settings, text)]})


def _here() -> TaskContext:
    from lakeseal.spark.tasks import task_context  # an executor has pyspark; whoever only configures may not

    return task_context("")


def _reported(report: OrderReport) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"report": [report.to_json()]})


class _Output:
    """The files of one order: the target's, and those of the error table if there is anything for it."""

    def __init__(self, work: DatasetWork, task: TaskContext) -> None:
        self._work = work
        self.measured = Measured()
        schema = None if work.schema is None else StructType.from_json(work.schema)
        self._rules = RowRules(work.checks, schema)
        spec = WriteJobSpec.from_json(work.spec)
        self.task = msgspec.structs.replace(task, job_id=spec.job_id)
        self._main = TaskRun(spec, self.task)
        self._errors: TaskRun | None = None

    def write(self, rows: pa.RecordBatch, partition: str, position: str) -> None:
        passed, refused = self._rules.judge(rows, self.measured)
        if passed.num_rows:
            self._main.write(passed)
        if refused:
            reason = "It breaks the rule"
            self._to_error_table([(rule, reason, partition, position, record) for rule, record in refused])

    def refuse(self, chunk: Chunk, partition: str) -> None:
        """Records of a chunk that are no rows."""
        self.measured.bad_records += len(chunk.bad)
        if self._work.on_bad_record == "error_table":
            self.measured.to_error_table += len(chunk.bad)
            self._to_error_table([(BAD_RECORD, bad.reason, partition, bad.position, bad.record) for bad in chunk.bad])

    def _to_error_table(self, found: list[tuple[str, str, str, str, str]]) -> None:
        work = self._work
        if self._errors is None:
            self._errors = TaskRun(WriteJobSpec.from_json(work.error_spec), self.task)
        for start in range(0, len(found), _ERROR_BATCH):
            part = found[start : start + _ERROR_BATCH]
            self._errors.write(error_rows(part, run_id=work.run_id, dataset=work.name, epoch=work.epoch))

    def report(self, dataset: int = 0, number: int = 0, units: Iterable[UnitResult] = ()) -> OrderReport:
        return OrderReport(
            dataset=dataset,
            number=number,
            units=tuple(units),
            error_message=None if self._errors is None else self._errors.commit(),
            message=self._main.commit(),
            measured=self.measured,
        )

    def abort(self) -> None:
        self._main.abort()
        if self._errors is not None:
            self._errors.abort()


class _Extraction:
    def __init__(self, work: DatasetWork, order: Order, source: Source, task: TaskContext) -> None:
        self._work, self._order, self._source = work, order, source
        self._task = msgspec.structs.replace(task, split=order.number)
        self.is_stuck = False
        self._is_pending = False
        """Whether rows were written since the last watermark that the source gave."""

    def run(self) -> OrderReport:
        order = self._order
        try:
            output = _Output(self._work, self._task)
        except Exception as error:
            return _failed(order.dataset, order.number, error)
        try:
            results = []
            for unit in order.units:
                result = self._read(unit, output)
                results.append(result)
                if not result.is_whole:
                    break
            return output.report(order.dataset, order.number, results)
        except Exception as error:
            output.abort()
            return _failed(order.dataset, order.number, error)

    def _read(self, unit: WorkUnit, output: _Output) -> UnitResult:
        work = self._work
        what = f"{self._source.describe()}, partition {unit.partition!r}" if unit.partition else self._source.describe()
        chunks = steadily(lambda: self._source.read(unit), work.timeout_seconds, what)
        high = None
        while True:
            try:
                chunk = next(chunks, None)
            except Exception as error:
                self.is_stuck = isinstance(error, SourceTimeout)
                # Rows behind the last watermark that the source gave are in the files already and can't be taken back.
                if work.policy != "partial" or self._is_pending:
                    raise
                return UnitResult(partition=unit.partition, high=high, error=_told(error))
            if chunk is None:
                self._is_pending = self._is_pending and unit.high is None
                return UnitResult(partition=unit.partition, high=unit.high, is_whole=True)
            self._is_pending = chunk.high is None
            self._take(chunk, unit, output)
            high = high if chunk.high is None else chunk.high

    def _take(self, chunk: Chunk, unit: WorkUnit, output: _Output) -> None:
        output.measured.read += chunk.rows.num_rows + len(chunk.bad)
        output.measured.bytes += chunk.bytes
        if chunk.bad:
            if self._work.on_bad_record == "fail":
                first = chunk.bad[0]
                where = f"{unit.partition}, {first.position}" if unit.partition else first.position
                raise BadRecordError(f"A record at {where} is no row: {first.reason}: {first.record}")
            output.refuse(chunk, unit.partition)
        output.write(chunk.rows, unit.partition, "")


def _failed(dataset: int, number: int, error: Exception) -> OrderReport:
    transient = isinstance(error, StorageUnavailable)
    return OrderReport(dataset=dataset, number=number, error=_told(error), is_transient=transient)


def _told(error: BaseException) -> dict[str, Any]:
    if isinstance(error, LakesealError):
        return error.to_json()
    return LakesealError(f"A task failed by {type(error).__name__}: {error}").to_json()
