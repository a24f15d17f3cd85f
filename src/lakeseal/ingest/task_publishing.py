"""Datasets that tasks publish: as soon as all orders of one have ended, whoever reported last judges it, builds its
commit sequence and runs it, while orders of other datasets are still at work.

`Publishing` travels to the tasks of the extraction. What they leave undone, since they died or since steps failed, is
then done by tasks of a job of its own, each for a share of the datasets: the object itself is what they call, with the
names of the datasets as JSON, and it answers with outcomes. What is decided on a dataset is decided once for both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import msgspec
from msgspec import Struct

from lakeseal import typed_json
from lakeseal.errors import Fenced, LakesealError, StorageUnavailable
from lakeseal.ingest.config import Dataset, DirectoryTarget
from lakeseal.ingest.records import shown
from lakeseal.ingest.reports import DatasetOutcome, Order, OrderReport, Summary
from lakeseal.ingest.sequences import is_for_later, sequence_of, try_again
from lakeseal.ingest.settling import Settled, judged, settle
from lakeseal.ingest.staging import DirectoryStage, Stage, TableStage, WrittenFor, error_stage, open_stage
from lakeseal.owner.connect import connect
from lakeseal.owner.endpoint import OwnerEndpoint
from lakeseal.protocol.schema import StructType
from lakeseal.steps.connect import step_store, task_states
from lakeseal.steps.context import StepContext, StepSettings
from lakeseal.steps.publishing import Outcome, Published, Publisher, Verdict, told
from lakeseal.steps.recovery import Outcome as Recovered
from lakeseal.steps.task_states import TaskState
from lakeseal.write.task_report import error_from_json

_THREADS = 8


class PublishedWork(Struct, frozen=True, kw_only=True):
    """A dataset that tasks publish."""

    dataset: Dataset
    orders: int
    schema: str
    """Of its rows."""
    job_id: str
    """Of the job that writes its files."""
    app_id: str
    note: dict[str, str]
    written_for: WrittenFor | None = None
    """What a table was when its files were begun."""


class Publishing:
    def __init__(self, pipeline: str, run: str, settings: StepSettings, works: Mapping[int, PublishedWork]) -> None:
        """`works` by the numbers that orders name datasets by. The settings hold secrets, and so does this."""
        self.pipeline, self.run, self.settings, self.works = pipeline, run, settings, dict(works)

    @contextmanager
    def open(self) -> Iterator[TaskPublisher]:
        with self.settings.open() as context:
            yield TaskPublisher(self, context)

    def __call__(self, settings: StepSettings, request: str) -> str:
        """No task of the extraction is at work any more, or at least none that the driver will hear of."""
        with settings.open() as context:
            outcomes = TaskPublisher(self, context).close(typed_json.decode(request, list[str]))
        return msgspec.json.encode(outcomes).decode()


def read_outcomes(answer: str) -> list[DatasetOutcome]:
    return typed_json.decode(answer, list[DatasetOutcome])


class TaskPublisher:
    def __init__(self, publishing: Publishing, context: StepContext) -> None:
        self._works, self._pipeline, self._context = publishing.works, publishing.pipeline, context
        self._by_name = {work.dataset.name: work for work in publishing.works.values()}
        self._settings = publishing.settings
        self._steps = step_store(publishing.settings, context)
        self._publisher = Publisher(
            self._steps,
            task_states(publishing.settings, context),
            context,
            store=publishing.pipeline,
            run=publishing.run,
            decide=self._decide,
        )
        self._tables: dict[str, TableStage] = {}

    def takes(self, order: Order) -> bool:
        return order.dataset in self._works

    def has_ended(self, order: Order) -> bool:
        try:
            return self._publisher.has_finished(self._works[order.dataset].dataset.name, order.number)
        except StorageUnavailable:
            return False

    def ended(self, order: Order, report: OrderReport | None) -> DatasetOutcome | None:
        work = self._works[order.dataset]
        name = work.dataset.name
        try:
            if report is not None:
                self._publisher.report(name, _state(order, report, work.orders))
            published = self._publisher.publish(name, work.orders)
        except Fenced as error:
            return DatasetOutcome(dataset=name, state="failed", error=error.to_json())
        except LakesealError:
            # The ledger is away. Whoever closes the run finds out how far this came.
            return None
        if published is None or published.outcome is Outcome.FAILED:
            return None
        return self._outcome(name, published)

    def close(self, datasets: Sequence[str]) -> list[DatasetOutcome]:
        """Whatever is left to do for these; steps that fail are tried as often as their datasets say."""
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="lakeseal-publish") as pool:
            ended = dict(zip(datasets, pool.map(self._closed, datasets), strict=True))
        failed = [
            name
            for name, one in ended.items()
            if one.state == "failed" and not one.may_retry and not is_for_later(error_from_json(one.error or {}))
        ]
        again = [self._by_name[name].dataset for name in failed]
        for name, recovered in try_again(self._steps, self._pipeline, self._context, again).items():
            match recovered.outcome:
                case Recovered.FINISHED:
                    ended[name] = msgspec.structs.replace(ended[name], state="published", error=None)
                case Recovered.SET_ASIDE:
                    reason = LakesealError(recovered.reason or "").to_json()
                    ended[name] = msgspec.structs.replace(ended[name], state="set_aside", error=reason)
        return list(ended.values())

    def _closed(self, name: str) -> DatasetOutcome:
        try:
            return self._outcome(name, self._publisher.close(name))
        except Fenced:
            raise
        except LakesealError as error:
            return DatasetOutcome(dataset=name, state="failed", error=error.to_json())

    def _outcome(self, name: str, published: Published) -> DatasetOutcome:
        detail = published.verdict.detail
        return DatasetOutcome(
            dataset=name,
            state="published" if published.outcome is Outcome.PUBLISHED else "failed",
            summary=typed_json.decode(detail, Summary) if detail else Summary(),
            version=self._maintained(name) if published.outcome is Outcome.PUBLISHED else None,
            error=published.error,
            may_retry=published.outcome is Outcome.REFUSED,
        )

    def _maintained(self, name: str) -> int | None:
        stage = self._tables.pop(name, None)
        with suppress(LakesealError):  # the rows are published all the same
            return None if stage is None else stage.maintain()
        return None

    def _decide(self, name: str, states: tuple[TaskState, ...]) -> Verdict:
        work = self._by_name[name]
        summary = Summary()
        try:
            reports = [OrderReport.from_json(state.output["report"]) for state in states]
            settled = settle(work.dataset, work.orders, reports)
            summary = Summary(measured=settled.measured, changes=settled.changes, left_over=settled.left_over)
            warnings = judged(work.dataset, settled.measured)
            stages = [stage for stage in self._stages(work, settled) if not stage.is_empty]
            turn = self._context.turn
            epoch = 0 if turn is None else turn.epoch
            sequence = sequence_of(self._pipeline, name, epoch, stages, settled.changes)
        except Fenced:
            raise
        except Exception as error:
            return Verdict(error=told(error), detail=_text(summary))
        steps = 0 if sequence is None else len(sequence.steps)
        summary = msgspec.structs.replace(summary, warnings=tuple(warnings), steps=steps)
        return Verdict(record=None if sequence is None else sequence.record(), detail=_text(summary))

    def _stages(self, work: PublishedWork, settled: Settled) -> list[Stage]:
        """What makes the rows visible, in this order: the error table's, then the target's."""
        dataset = work.dataset
        stages: list[Stage] = []
        if settled.error_messages:
            app_id = f"{work.app_id}, errors"
            errors = error_stage(dataset, owner=self._owner(), app_id=app_id, note=work.note)
            errors.collect(settled.error_messages)
            stages.append(errors)
        schema = StructType.from_json(work.schema)
        if work.written_for is None:
            assert isinstance(dataset.target, DirectoryTarget)
            stages.append(DirectoryStage(dataset.target, schema, job_id=work.job_id))
        else:
            table = open_stage(dataset, schema, owner=self._owner(), app_id=work.app_id, note=work.note)
            assert isinstance(table, TableStage)
            table.check(work.written_for)
            self._tables[dataset.name] = table
            stages.append(table)
        stages[-1].collect(settled.messages)
        return stages

    def _owner(self) -> OwnerEndpoint:
        assert self._settings.ledger is not None
        return connect(self._settings.ledger, batch_size=1, token=self._settings.token)


def _state(order: Order, report: OrderReport, orders: int) -> TaskState:
    reason = None if report.error is None else shown(error_from_json(report.error).message)
    return TaskState(
        task=order.number,
        tasks=orders,
        state="finished" if reason is None else "failed",
        output={"report": report.to_json()},
        reason=reason,
    )


def _text(summary: Summary) -> str:
    return msgspec.json.encode(summary).decode()
