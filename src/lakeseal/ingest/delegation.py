"""Datasets that the driver leaves to tasks to publish: as soon as all orders of one have ended, whoever reported last
publishes it, while orders of other datasets are still at work. The driver then only learns outcomes.

A `Delegation` travels to the tasks of the extraction; opened there it is a `Delegate`, to which they report. What they
leave undone, since they died or since steps failed, is then done by tasks of a job of its own, each for a share of the
datasets (`close`). What is decided on a dataset is decided once for both.

A dataset can be left to tasks if its steps are recorded before they run, if Spark has nothing to transform or to judge,
and if it is not part of the one transaction that only the driver can make.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import msgspec
from msgspec.structs import replace

from lakeseal import typed_json
from lakeseal.errors import Fenced, LakesealError, StorageUnavailable
from lakeseal.ingest.config import PipelineConfig
from lakeseal.ingest.orders import DatasetOutcome, DatasetWork, Order, OrderReport, Summary
from lakeseal.ingest.publishing import Publishing
from lakeseal.ingest.settling import settle
from lakeseal.ingest.sources.source import shown
from lakeseal.ingest.targets import Tables, places_of
from lakeseal.jobs.task_report import error_from_json
from lakeseal.owner.config import OwnerConfig
from lakeseal.owner.connect import connect
from lakeseal.steps.context import StepContext, StepSettings
from lakeseal.steps.publishing import Outcome, Published, SequencePublisher, Verdict, told
from lakeseal.steps.recovery import shares
from lakeseal.steps.task_states import TaskState
from lakeseal.steps.turn import Turn

FROM = 64
"""So many datasets are worth it: a task has two more transactions for each, and opens the ledger."""
_THREADS = 8


class Delegation:
    """Holds secrets, as its settings do."""

    def __init__(self, run: str, settings: StepSettings, works: Mapping[int, DatasetWork]) -> None:
        """`works` by the numbers that orders name datasets by. `run` is another one in each attempt."""
        self.run, self.settings, self.works = run, settings, dict(works)

    @property
    def names(self) -> list[str]:
        return [work.name for work in self.works.values()]

    @contextmanager
    def open(self) -> Iterator[Delegate]:
        """In a task."""
        with self.settings.open() as context:
            yield Delegate(self, context)

    def __call__(self, settings: StepSettings, request: str) -> str:
        """In a task that has a share of the datasets, whose names are the request: from JSON to JSON."""
        with settings.open() as context:
            outcomes = Delegate(self, context).close(typed_json.decode(request, list[str]))
        return msgspec.json.encode(outcomes).decode()

    def close(
        self, datasets: Sequence[str], parallel: int, in_shares: Callable[[Delegation, Sequence[str]], Sequence[str]]
    ) -> list[DatasetOutcome]:
        """On the driver: whatever is left to do for these. No task of the extraction is at work any more, or at least
        none that the driver will hear of."""
        requests = [msgspec.json.encode(part).decode() for part in shares(datasets, parallel)]
        try:
            answers = in_shares(self, requests)
        except Fenced:
            raise
        except LakesealError as error:
            # They may have been decided on; the next run fences this one's tasks, and then knows.
            return [DatasetOutcome(dataset=name, state="failed", error=error.to_json()) for name in datasets]
        return [one for answer in answers for one in typed_json.decode(answer, list[DatasetOutcome])]


class Delegate:
    """Publishes in a task."""

    def __init__(self, delegation: Delegation, context: StepContext) -> None:
        self._numbered, self._settings = delegation.works, delegation.settings
        self._works = {work.name: work for work in delegation.works.values()}
        pipeline = next(iter(delegation.works.values())).provenance.pipeline
        assert self._settings.ledger is not None
        owner = connect(self._settings.ledger, batch_size=1, token=self._settings.token)
        self._publishing = Publishing(pipeline, context, Tables(owner))
        books = context.books
        self._publisher = SequencePublisher(
            books.sequences, books.task_states, context, store=pipeline, run=delegation.run, decide=self._decide
        )

    def takes(self, order: Order) -> bool:
        """Whether the order's dataset is left to tasks."""
        return order.dataset in self._numbered

    def has_ended(self, order: Order) -> bool:
        """Whether an earlier attempt at the order has, and counts."""
        try:
            return self._publisher.has_finished(self._numbered[order.dataset].name, order.number)
        except StorageUnavailable:
            return False

    def ended(self, order: Order, report: OrderReport | None) -> DatasetOutcome | None:
        """The order has, just now or (None) in an earlier attempt; what became of its dataset, if that is known."""
        work = self._numbered[order.dataset]
        try:
            if report is not None:
                self._publisher.report(work.name, _state(order, report, work.orders))
            published = self._publisher.publish(work.name, work.orders)
        except Fenced as error:
            return DatasetOutcome(dataset=work.name, state="failed", error=error.to_json())
        except LakesealError:
            # The ledger is away. Whoever closes the run finds out how far this came.
            return None
        if published is None or published.outcome is Outcome.FAILED:
            return None
        return self._outcome(work, published)

    def close(self, datasets: Sequence[str]) -> list[DatasetOutcome]:
        """Whatever is left to do for these; steps that fail are tried as often as their datasets say."""
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="lakeseal-publish") as pool:
            ended = list(pool.map(self._closed, datasets))
        return self._publishing.try_again(ended, self._works.values())

    def _closed(self, name: str) -> DatasetOutcome:
        try:
            return self._outcome(self._works[name], self._publisher.close(name))
        except Fenced:
            raise
        except LakesealError as error:
            return DatasetOutcome(dataset=name, state="failed", error=error.to_json())

    def _outcome(self, work: DatasetWork, published: Published) -> DatasetOutcome:
        detail = published.verdict.detail
        summary = typed_json.decode(detail, Summary) if detail else Summary()
        if published.outcome is Outcome.PUBLISHED:
            return self._publishing.published(work, summary)
        return DatasetOutcome(
            dataset=work.name,
            state="failed",
            summary=summary,
            error=published.error,
            may_retry=published.outcome is Outcome.REFUSED,
        )

    def _decide(self, name: str, states: tuple[TaskState, ...]) -> Verdict:
        work, summary = self._works[name], Summary()
        try:
            reports = [OrderReport.from_json(state.output["report"]) for state in states]
            settled = settle(work.dataset, work.orders, reports)
            summary = settled.summary
            decision = self._publishing.decide(work, settled)
            summary = decision.summary
            sequence = self._publishing.sequence(decision)
        except Fenced:
            raise
        except Exception as error:
            return Verdict(error=told(error), detail=_text(summary))
        if sequence is None:
            return Verdict(detail=_text(summary))
        return Verdict(record=sequence.record(), detail=_text(replace(summary, steps=len(sequence.steps))))


def settings_of(config: PipelineConfig, turn: Turn) -> StepSettings | None:
    """What tasks need to run steps of this pipeline; None if they can't, as its stores are opened in different ways."""
    options = [dataset.target.storage_options for dataset in config.datasets]
    if any(one != options[0] for one in options):
        return None
    owner = OwnerConfig(url=config.ledger, batch_size=1, token=config.token)
    return StepSettings(
        ledger=config.ledger,
        token=config.token,
        storage_options=dict(options[0]),
        owners=(owner,),
        turn=turn,
        places=places_of(config),
    )


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
