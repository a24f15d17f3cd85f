"""One run of a pipeline, under its turn: recover, plan, extract, transform, publish.

- What an earlier run recorded is finished before anything new is extracted for its dataset.
- Trouble with a dataset is that dataset's: it becomes its result, and the others go on. Losing the turn ends the run.
- Trouble that may pass is tried again, as often as the dataset says, from the plan on.
- Nothing is visible before `publishing` makes it so, called here or, for many datasets, by tasks; watermarks move with
  the rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from lakeseal.errors import Fenced, LakesealError, StorageUnavailable, located
from lakeseal.ingest import delegation as delegating
from lakeseal.ingest import graph
from lakeseal.ingest import orders as cutting
from lakeseal.ingest.backfill import with_backfills
from lakeseal.ingest.config import Dataset, PipelineConfig, TableTarget, Target
from lakeseal.ingest.delegation import Delegation, settings_of
from lakeseal.ingest.deriving import Derivation
from lakeseal.ingest.jobs import Jobs
from lakeseal.ingest.live_counts import Counts, CountsPlace, watched
from lakeseal.ingest.merging import rule_for
from lakeseal.ingest.orders import DatasetOutcome, DatasetWork, Order, OrderReport, Report, Summary
from lakeseal.ingest.progress import RunProgress
from lakeseal.ingest.publishing import Publishing, ours
from lakeseal.ingest.quality import ORIGIN, judge_schema, runs_in_tasks
from lakeseal.ingest.runs import DatasetRun
from lakeseal.ingest.seen import INPUT, Seen
from lakeseal.ingest.settling import Settled, settle, settle_transformed
from lakeseal.ingest.sources.source import Plan, Source
from lakeseal.ingest.targets import Provenance, Tables, clean_up, store_of, waiting_room
from lakeseal.ingest.timeouts import answered
from lakeseal.ingest.turn import HeldTurn
from lakeseal.jobs.engine import InPlan
from lakeseal.jobs.task_report import error_from_json
from lakeseal.log.delta_log import DeltaLog
from lakeseal.owner.endpoint import OwnerEndpoint
from lakeseal.protocol.schema import STRING, StructField, StructType
from lakeseal.steps.context import StepContext
from lakeseal.steps.recovery import DatasetRecovery, Recovery, RecoveryRequest, recover, recover_share, shares

_THREADS = 8
_TRANSFORMS_AT_ONCE = 4


class Run:
    def __init__(
        self,
        config: PipelineConfig,
        *,
        run_id: str,
        jobs: Callable[[], Jobs],
        owner: OwnerEndpoint,
        held: HeldTurn,
        context: StepContext,
        progress: RunProgress,
        is_after_death: bool = False,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`jobs` is called only if there is something to do. `is_after_death`: the run before this one died."""
        self._config, self._run_id, self._jobs = config, run_id, jobs
        self._held, self._context = held, context
        self._books = context.books
        self._progress, self._sleep = progress, sleep
        self._is_after_death = is_after_death
        self._tables = Tables(owner, context)
        self._publishing = Publishing(config.name, context, self._tables, delivery=config.delivery)
        self._settings = settings_of(config, held.turn)
        self._delegations = 0
        self.datasets = [DatasetRun(dataset, pipeline=config.name) for dataset in config.datasets]

    def execute(self) -> None:
        self._recover()
        self._each(self._plan, [one for one in self.datasets if not one.inputs])
        if self._is_after_death:
            self._clean_up(self.datasets)
        pending = [one for one in self._open() if not one.inputs]
        attempt = 0
        while pending:
            self._attempt(pending)
            attempt += 1
            pending = [one for one in pending if one.is_transient and attempt <= one.dataset.retries.times]
            if pending:
                self._sleep(max(one.dataset.retries.backoff.pause_s(attempt) for one in pending))
                for one in pending:
                    one.begin_attempt()
                self._each(self._plan, pending)
                pending = [one for one in pending if one.is_open]
        self._held.check()
        self._publish()
        for one in self.datasets:
            self._stage(one, (one.state or "failed").replace("_", " "))
        self._clean_up([one for one in self.datasets if one.orders or one.inputs])

    def _recover(self) -> None:
        found = {one.dataset: one for one in self._recovered([one.name for one in self.datasets])}
        for one in self.datasets:
            recovered = found[one.name]
            one.recovered = recovered.executed
            if not recovered.is_clear:
                one.set_aside(f"Steps of an earlier run keep failing: {recovered.reason}")

    def _recovered(self, names: Sequence[str]) -> Sequence[DatasetRecovery]:
        name, steps = self._config.name, self._books.sequences
        if len(steps.statuses(name)) < delegating.FROM or self._settings is None or not self._tasks_reach_the_ledger():
            return recover(steps, name, self._context, datasets=names).datasets
        parts = shares(names, self._config.max_parallel)
        requests = [RecoveryRequest(store=name, datasets=part).to_json() for part in parts]
        answers = self._jobs().in_shares(f"recover {name}", recover_share, self._settings, requests)
        return [one for answer in answers for one in Recovery.from_json(answer).datasets]

    def _tasks_reach_the_ledger(self) -> bool:
        return self._jobs().reaches(self._config.ledger)

    def _plan(self, one: DatasetRun) -> None:
        dataset = one.dataset
        self._stage(one, "looking")
        watermarks = self._books.watermarks.read(self._config.name, dataset.name)
        for tried in dataset.retries.backoff.tries(sleep=self._sleep):
            # One of its own each time: datasets may share a source, and a client that hangs is not asked again.
            source = replace(dataset.source)
            try:
                one.plan = answered(
                    lambda source=source: _planned(source, watermarks),  # type: ignore[misc]
                    dataset.timeout_seconds,
                    source.describe(),
                )
                break
            except StorageUnavailable:
                if tried > dataset.retries.times:
                    raise
        if not one.plan.units:
            one.end("nothing_new")

    def _attempt(self, pending: Sequence[DatasetRun]) -> None:
        """Leaves each of them with a decision or an error; those that tasks publish, with an outcome."""
        self._each(self._begin, pending)
        working = [one for one in pending if one.is_open]
        if not working:
            return
        tasks = self._cut(working)
        works = [one.work for one in working if one.work is not None]
        delegation = self._delegated(works)
        reports: list[Report] = []
        lost: LakesealError | None = None
        try:
            with watched({work.name: work.counts for work in works if work.counts is not None}, self._count):
                reports = self._jobs().extract(f"ingest {self._config.name}", works, tasks, delegation)
        except Exception as error:
            lost = ours(error)
        if delegation is not None:
            self._conclude(delegation, working, reports)
        if lost is not None:
            for one in working:
                if one.is_open or one.is_transient:
                    one.fail(lost)
        by_name: dict[str, list[OrderReport]] = {one.name: [] for one in working}
        for report in reports:
            if isinstance(report, OrderReport):
                by_name[works[report.dataset].name].append(report)
        self._each(lambda one: self._settle(one, by_name[one.name]), working)
        for_spark = [one for one in working if one.work is not None and one.work.is_for_spark]
        self._each(self._transform, for_spark, threads=_TRANSFORMS_AT_ONCE)
        self._each(self._decide, working)

    def _begin(self, one: DatasetRun) -> None:
        """Decides how the dataset's rows go, and where."""
        schema = one.row_schema()
        target = one.dataset.target
        if one.dataset.transform is None and isinstance(target, TableTarget):
            rule_for(target, schema, None)  # before rules that name the same columns are taken for Spark's
        if one.dataset.transform is None and runs_in_tasks(one.dataset.rules, schema):
            work, in_plan = self._open_target(one, schema, is_transformed=False)
            if not in_plan.columns and not in_plan.checks:
                one.work = replace(work, schema=schema.to_json())
                return
        whence = StructField(ORIGIN, STRING)
        waiting = waiting_room(one.dataset.target, self._run_id)
        # Rows are judged behind the transform, and then still to be told where they came from.
        work, _ = self._work(one, waiting, StructType((*schema.fields, whence)), what=", extracted")
        one.work = replace(work, schema=schema.to_json(), is_for_spark=True)

    def _open_target(self, one: DatasetRun, schema: StructType, *, is_transformed: bool) -> tuple[DatasetWork, InPlan]:
        """For rows of this schema, which Spark has judged unless somebody says otherwise."""
        work, in_plan = self._work(one, one.dataset.target, schema, is_transformed=is_transformed)
        there = work.destination.schema
        with located(table=work.destination.uri):
            one.warnings += judge_schema(one.dataset.rules, schema, there)
        return work, in_plan

    def _work(
        self, one: DatasetRun, target: Target, schema: StructType, *, what: str = "", is_transformed: bool = False
    ) -> tuple[DatasetWork, InPlan]:
        provenance = Provenance(
            pipeline=self._config.name, dataset=one.name, run_id=self._run_id, epoch=self._held.epoch
        )
        destination, in_plan = self._tables.plan(
            target,
            schema,
            provenance,
            what=what,
            arrival=not is_transformed,
            order_by=one.dataset.source.change_order(),
        )
        dataset = replace(one.dataset.by_absolute_uris(), transform=None)
        return DatasetWork(dataset=dataset, provenance=provenance, destination=destination, schema=None), in_plan

    def _cut(self, working: Sequence[DatasetRun]) -> list[list[Order]]:
        limits = {"task_bytes": self._config.task_bytes, "parallel": self._config.max_parallel}
        for number, one in enumerate(working):
            assert one.work is not None
            one.orders = cutting.orders(number, one.plan.units, one.dataset.commit, **limits)
            one.work = replace(one.work, orders=len(one.orders), counts=self._counts_of(one))
            self._stage(one, "reading")
        return cutting.tasks((order for one in working for order in one.orders), **limits)

    def _counts_of(self, one: DatasetRun) -> CountsPlace | None:
        if self._progress.every_s is None:
            return None
        return CountsPlace(
            store=store_of(waiting_room(one.dataset.target, self._run_id)), every_s=self._progress.every_s
        )

    def _count(self, name: str, counts: Counts) -> None:
        one = next(one for one in self.datasets if one.name == name)
        one.counts = counts
        self._stage(one, "reading")

    def _delegated(self, works: Sequence[DatasetWork]) -> Delegation | None:
        """What of this attempt tasks publish; None if the driver publishes all of it."""
        if self._config.delivery != "exactly_once" or self._settings is None:
            return None
        left = {
            n: work
            for n, work in enumerate(works)
            if not (work.is_for_spark or work.destination.is_joint or work.destination.is_drivers)
        }
        if len(left) < delegating.FROM or not self._tasks_reach_the_ledger():
            return None
        if not self._delegations:
            # Those of earlier runs: their tasks are fenced, as this run has claimed the datasets.
            self._books.task_states.remove(self._config.name)
        self._delegations += 1
        return Delegation(f"{self._run_id}/{self._delegations}", self._settings, left)

    def _conclude(self, delegation: Delegation, working: Sequence[DatasetRun], reports: Sequence[Report]) -> None:
        """What the extraction has published, and then the rest; each has a state afterwards."""
        runs = {one.name: one for one in working}
        self._learn(runs, (report for report in reports if isinstance(report, DatasetOutcome)))
        left = [name for name in delegation.names if runs[name].is_open]
        if left:
            self._learn(runs, delegation.close(left, self._config.max_parallel, self._in_shares))

    def _in_shares(self, delegation: Delegation, requests: Sequence[str]) -> Sequence[str]:
        return self._jobs().in_shares(f"publish {self._config.name}", delegation, delegation.settings, requests)

    def _learn(self, runs: Mapping[str, DatasetRun], outcomes: Iterable[DatasetOutcome]) -> None:
        for outcome in outcomes:
            error = None if outcome.error is None else error_from_json(outcome.error)
            if isinstance(error, Fenced):
                raise error
            if runs[outcome.dataset].is_open:  # of a task that was run twice, both tell
                runs[outcome.dataset].conclude(outcome)

    def _settle(self, one: DatasetRun, reports: Sequence[OrderReport]) -> None:
        one.settled = settle(one.dataset, len(one.orders), reports)
        one.summary = one.settled.summary

    def _transform(self, one: DatasetRun) -> None:
        """What was extracted becomes a table's version, and Spark's query over it the rows to publish."""
        assert one.work is not None
        assert one.settled is not None
        self._stage(one, "transforming")
        extracted = one.work.destination
        for step in extracted.staged(one.settled.messages).steps():
            step.execute(self._context)
        store = extracted.spec.store
        found = Seen(store=store, fixed=DeltaLog(store.open()).snapshot())
        one.work, one.settled = self._transformed(one, {INPUT: found}, one.settled)
        one.summary = one.settled.summary

    def _transformed(
        self, one: DatasetRun, inputs: Mapping[str, Seen], extracted: Settled
    ) -> tuple[DatasetWork, Settled]:
        opened: list[DatasetWork] = []

        def open_target(schema: StructType) -> tuple[DatasetWork, InPlan]:
            work, in_plan = self._open_target(one, schema, is_transformed=True)
            opened.append(work)
            return work, in_plan

        name = f"ingest {self._config.name}: {one.name}"
        reports = self._jobs().transform(name, one.dataset, inputs, open_target)
        return opened[0], settle_transformed(extracted, reports)

    def _derivation(self, one: DatasetRun) -> Derivation:
        known = {dataset.name: dataset for dataset in (*self._config.beside, *self._config.datasets)}

        def derive(seen: Mapping[str, Seen]) -> tuple[DatasetWork, Settled]:
            self._stage(one, "deriving")
            for tried in one.dataset.retries.backoff.tries(sleep=self._sleep):
                one.begin_attempt()
                try:
                    return self._transformed(one, seen, Settled(messages=(), error_messages=(), summary=Summary()))
                except StorageUnavailable:
                    if tried > one.dataset.retries.times:
                        raise
            raise AssertionError("tries do not end by themselves")

        return Derivation(
            one.dataset,
            {name: store_of(known[name].target) for name in one.inputs},
            self._books.watermarks.read(self._config.name, one.name),
            is_joint=self._tables.is_joint(one.dataset.target),
            publishing=self._publishing,
            derive=derive,
        )

    def _decide(self, one: DatasetRun) -> None:
        assert one.work is not None
        assert one.settled is not None
        one.decision = self._publishing.decide(one.work, one.settled)

    def _publish(self) -> None:
        runs = {one.name: one for one in self._open()}
        for wave in self._waves():
            here = [runs[dataset.name] for dataset in wave if dataset.name in runs]
            for one in here:
                self._stage(one, "publishing")
            decisions = [one.decision for one in here if one.decision is not None]
            derivations = [self._derivation(one) for one in here if one.inputs]
            self._learn(runs, self._publishing.publish(decisions, derivations))
            for one in (one for one in here if one.inputs and one.is_open):
                one.end("nothing_new")

    def _waves(self) -> list[list[Dataset]]:
        datasets = [one.dataset for one in self.datasets]
        if not any(one.inputs for one in self.datasets):
            return [datasets]
        decided = {one.name: one.decision.is_joint for one in self._open() if one.decision is not None}
        joint = {one.name: decided.get(one.name, True) and self._tables.is_joint(one.target) for one in datasets}
        return graph.waves(datasets, joint)

    def _clean_up(self, datasets: Sequence[DatasetRun]) -> None:
        """What this run, or one that died, left in staging areas. Only the holder of the turn writes there; what an
        unfinished sequence needs stays."""
        needed = with_backfills(status.dataset for status in self._books.sequences.statuses(self._config.name))
        idle = [one.dataset for one in datasets if needed.isdisjoint(with_backfills([one.name]))]
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="lakeseal-ingest") as pool:
            for _ in pool.map(_cleaned, idle):
                pass

    def _each(
        self, do: Callable[[DatasetRun], None], datasets: Iterable[DatasetRun], *, threads: int = _THREADS
    ) -> None:
        """For each dataset that is not over, side by side; what raises is its result."""
        left = [one for one in datasets if one.is_open]

        def guarded(one: DatasetRun) -> None:
            try:
                do(one)
            except Exception as error:
                one.fail(ours(error))
                self._stage(one, "failed")

        if len(left) < 2:
            for one in left:
                guarded(one)
            return
        with ThreadPoolExecutor(min(threads, len(left)), thread_name_prefix="lakeseal-ingest") as pool:
            for _ in pool.map(guarded, left):
                pass

    def _open(self) -> list[DatasetRun]:
        return [one for one in self.datasets if one.is_open]

    def _stage(self, one: DatasetRun, what: str) -> None:
        self._progress.stage(one.name, what, one.reached())


def _planned(source: Source, watermarks: Mapping[str, Any]) -> Plan:
    try:
        return source.plan(watermarks)
    finally:
        source.close()


def _cleaned(dataset: Dataset) -> None:
    with suppress(LakesealError):  # left behind, and in nobody's way
        clean_up(dataset.target)
