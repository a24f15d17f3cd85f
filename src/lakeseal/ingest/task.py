"""What Spark's tasks do in an ingest: read units, judge rows, write files where nobody sees them, and report.

One Spark job serves all datasets of a run. An order is work for one dataset; a task does several, one after the other.
Whatever goes wrong with an order becomes its report, so that one dataset's trouble is never another's, and Spark does
not repeat what would fail again. Of datasets that tasks publish (`delegation`), they report to the ledger instead of
the driver, and what the driver gets are outcomes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext

import msgspec
import numpy as np
import pyarrow as pa

from lakeseal import typed_json
from lakeseal.errors import BadRecord, SourceTimeout, StorageUnavailable
from lakeseal.ingest.delegation import Delegation
from lakeseal.ingest.live_counts import OrderCounts
from lakeseal.ingest.orders import DatasetWork, Order, OrderReport, Report, UnitResult
from lakeseal.ingest.quality import BAD_RECORD, ORIGIN, Measured, RowRules, columns_judged, error_rows
from lakeseal.ingest.row_changes import ARRIVAL, UNIT
from lakeseal.ingest.sources.source import Chunk, Source, WorkUnit
from lakeseal.ingest.timeouts import steadily
from lakeseal.ingest.unchanged import UNCHANGED, columns_of, refused
from lakeseal.jobs.file_commit_protocol import TaskContext
from lakeseal.jobs.job import TaskRun
from lakeseal.protocol.schema import StructType
from lakeseal.steps.context import StepSettings
from lakeseal.steps.publishing import told

_BREAKS = "It breaks the rule"
_UNKNOWN_ORIGIN = f"{_BREAKS}; where it came from is not known behind a transform that groups rows, or is a function"
_ERROR_BATCH = 10_000
REPORT = "report string"


class ExtractTask:
    """Rows of one column, `order`, to reports."""

    def __init__(self, name: str, works: Sequence[DatasetWork], delegation: Delegation | None = None) -> None:
        self.__name__ = name
        self._works, self._delegation = tuple(works), delegation

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        texts = (text for batch in batches for text in batch["order"].to_pylist())
        orders = (typed_json.decode(text, Order) for text in texts)
        for report in run_orders(self._works, orders, _here(), self._delegation):
            yield _reported(report)


def run_orders(
    works: Sequence[DatasetWork], orders: Iterable[Order], task: TaskContext, delegation: Delegation | None = None
) -> Iterator[Report]:
    """All that one task does. A source is shared by the orders of its dataset, and closed at the end."""
    sources: dict[int, Source] = {}
    with nullcontext() if delegation is None else delegation.open() as delegate:
        try:
            for order in orders:
                if delegate is None or not delegate.takes(order):
                    yield _extracted(works, order, task, sources)
                    continue
                is_again = task.attempt > 0 and delegate.has_ended(order)
                report = None if is_again else _extracted(works, order, task, sources)
                outcome = delegate.ended(order, report)
                if outcome is not None:
                    yield outcome
        finally:
            for source in sources.values():
                source.close()


def _extracted(
    works: Sequence[DatasetWork], order: Order, task: TaskContext, sources: dict[int, Source]
) -> OrderReport:
    work = works[order.dataset]
    if order.dataset not in sources:
        # Its own: tasks of one process must not share a client.
        sources[order.dataset] = msgspec.structs.replace(work.dataset.source)
    extraction = _Extraction(work, order, sources[order.dataset], task)
    report = extraction.run()
    if extraction.is_stuck:
        # Its client may hang for ever, in a thread of its own: the next order gets another.
        del sources[order.dataset]
    return report


class TransformedTask:
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
                yield _reported(_failed(number, error))
        else:
            yield _reported(_failed(number, failed))


def written(work: DatasetWork, batches: Iterable[pa.RecordBatch]) -> OrderReport:
    """Rows that were transformed here, judged and written as one order."""
    output = _Output(work, TaskContext(job_id="", split=0, task_attempt_id=0))
    try:
        for batch in batches:
            output.write(batch, "", "")
        return output.report()
    except BaseException:
        output.abort()
        raise


class ShareTask:
    """Requests to answers, by a function that is found by import. The settings, which hold secrets, travel with this
    object, of which a plan shows the name only."""

    def __init__(self, name: str, do: Callable[[StepSettings, str], str], settings: StepSettings) -> None:
        self.__name__ = name
        self._do, self._settings = do, settings

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from lakeseal.spark.failures import noted  # an executor has pyspark; whoever only configures may not

        for batch in batches:
            for text in batch["request"].to_pylist():
                with noted():
                    answer = self._do(self._settings, text)
                yield pa.RecordBatch.from_pydict({"answer": [answer]})


def _here() -> TaskContext:
    from lakeseal.spark.tasks import task_context  # as above

    return task_context("")


def _reported(report: Report) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"report": [report.to_json()]})


class _Output:
    """The files of one order: the target's, and those of the error table if there is anything for it."""

    def __init__(self, work: DatasetWork, task: TaskContext) -> None:
        self._work = work
        self.measured = Measured()
        schema = None if work.schema is None else StructType.from_json(work.schema)
        self._rules = RowRules(work.checks, schema)
        spec = work.destination.spec
        self.task = msgspec.structs.replace(task, job_id=spec.job_id)
        self._main = TaskRun(spec, self.task)
        self._errors: TaskRun | None = None

    def write(self, rows: pa.RecordBatch, partition: str, position: str) -> None:
        passed, refused = self._rules.judge(rows, self.measured)
        if passed.num_rows:
            self._main.write(passed)
        if refused:
            self._to_error_table(
                [
                    (
                        one.rule,
                        _BREAKS if one.origin or partition else _UNKNOWN_ORIGIN,
                        one.origin or partition,
                        position,
                        one.record,
                    )
                    for one in refused
                ]
            )

    def refuse(self, chunk: Chunk, partition: str) -> None:
        """Records of a chunk that are no rows."""
        self.measured.bad_records += len(chunk.bad)
        if self._work.dataset.on_bad_record == "error_table":
            self.measured.to_error_table += len(chunk.bad)
            self._to_error_table([(BAD_RECORD, bad.reason, partition, bad.position, bad.record) for bad in chunk.bad])

    def _to_error_table(self, found: list[tuple[str, str, str, str, str]]) -> None:
        whence = self._work.provenance
        if self._errors is None:
            self._errors = TaskRun(self._work.error_spec, self.task)
        for start in range(0, len(found), _ERROR_BATCH):
            part = found[start : start + _ERROR_BATCH]
            self._errors.write(error_rows(part, run_id=whence.run_id, dataset=whence.dataset, epoch=whence.epoch))

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
        self._counts = OrderCounts(work.counts, order.number)
        self.is_stuck = False
        self._is_pending = False
        """Whether rows were written since the last watermark that the source gave."""
        self._arrived = 0
        """The place of the next row among all of the run."""

    def run(self) -> OrderReport:
        order, results = self._order, self._order.results()
        try:
            output = _Output(self._work, self._task)
        except Exception as error:
            return _failed(order.number, error, order.dataset, results)
        try:
            for n, unit in enumerate(order.units):
                self._arrived = order.places[n] * UNIT
                results[n] = self._read(unit, results[n], output)
                if not results[n].is_whole:
                    break
            return output.report(order.dataset, order.number, results)
        except Exception as error:
            output.abort()
            return _failed(order.number, error, order.dataset, order.results())

    def _read(self, unit: WorkUnit, result: UnitResult, output: _Output) -> UnitResult:
        work = self._work
        what = f"{self._source.describe()}, partition {unit.partition!r}" if unit.partition else self._source.describe()
        chunks = steadily(lambda: self._source.read(unit), work.dataset.timeout_seconds, what)
        high = None
        while True:
            try:
                chunk = next(chunks, None)
            except Exception as error:
                self.is_stuck = isinstance(error, SourceTimeout)
                # Rows behind the last watermark that the source gave are in the files already and can't be taken back.
                if work.dataset.commit != "partial" or self._is_pending:
                    raise
                return msgspec.structs.replace(result, high=high, error=told(error))
            if chunk is None:
                self._counts.ended(unit.size)
                self._is_pending = self._is_pending and unit.high is None
                return msgspec.structs.replace(result, high=high if unit.high is None else unit.high, is_whole=True)
            self._is_pending = chunk.high is None
            self._take(chunk, unit, output)
            high = high if chunk.high is None else chunk.high

    def _take(self, chunk: Chunk, unit: WorkUnit, output: _Output) -> None:
        output.measured.read += chunk.rows.num_rows + len(chunk.bad)
        output.measured.bytes += chunk.bytes
        self._counts.read(chunk.rows.num_rows + len(chunk.bad), chunk.bytes, unit.size)
        if chunk.bad:
            if self._work.dataset.on_bad_record == "fail":
                first = chunk.bad[0]
                where = f"{unit.partition}, {first.position}" if unit.partition else first.position
                raise BadRecord(f"A record at {where} is no row: {first.reason}: {first.record}")
            output.refuse(chunk, unit.partition)
        rows = chunk.rows
        if chunk.unchanged is not None:
            self._check_unchanged(columns_of(chunk.unchanged))
        if self._work.destination.merge is not None:
            places = np.arange(self._arrived, self._arrived + rows.num_rows)
            rows = rows.append_column(ARRIVAL, pa.array(places))
            self._arrived += rows.num_rows
            if self._takes_unchanged:
                rows = rows.append_column(UNCHANGED, chunk.unchanged or pa.nulls(rows.num_rows, pa.string()))
        if self._work.is_for_spark:
            rows = rows.append_column(ORIGIN, pa.repeat(pa.scalar(unit.partition), rows.num_rows))
        output.write(rows, unit.partition, "")

    @property
    def _takes_unchanged(self) -> bool:
        merge = self._work.destination.merge
        return merge is not None and merge.step.merging.rule.is_feed

    def _check_unchanged(self, columns: set[str]) -> None:
        if not self._takes_unchanged:
            raise refused(columns, "only a target in the mode cdc, without a transform, has it still")
        for name in columns & columns_judged(self._work.checks, self._work.schema):
            raise refused([name], "and a rule of quality is about it")


def _failed(number: int, error: Exception, dataset: int = 0, units: Iterable[UnitResult] = ()) -> OrderReport:
    transient = isinstance(error, StorageUnavailable)
    return OrderReport(dataset=dataset, number=number, units=tuple(units), error=told(error), is_transient=transient)
