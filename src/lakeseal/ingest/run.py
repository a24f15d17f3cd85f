"""One run of a pipeline, under its turn: recover, plan, extract, judge, publish.

- What an earlier run recorded is finished before anything new is extracted for its dataset.
- Trouble with a dataset is that dataset's: it becomes its result, and the others go on. Losing the turn ends the run.
- Trouble that may pass is tried again, as often as the dataset says, from the plan on.
- Nothing is visible before `publication`, or tasks by `spreading`, make it so; watermarks move with the rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from lakeseal.errors import InvalidArgument, LakesealError, QualityFailed, StorageUnavailable
from lakeseal.ingest import orders as cutting
from lakeseal.ingest import spreading
from lakeseal.ingest.config import Dataset, PipelineConfig
from lakeseal.ingest.dataset_run import DatasetRun, ours
from lakeseal.ingest.jobs import Jobs
from lakeseal.ingest.progress import RunProgress
from lakeseal.ingest.publication import Publication
from lakeseal.ingest.quality import ORIGIN, runs_in_tasks
from lakeseal.ingest.reports import DatasetOutcome, OrderReport, Report
from lakeseal.ingest.source import Plan, Source
from lakeseal.ingest.spreading import Spreading
from lakeseal.ingest.staging import RawStage, Stage, TableStage, error_spec, error_stage, open_stage
from lakeseal.ingest.task import DatasetWork
from lakeseal.ingest.timeouts import answered
from lakeseal.ingest.turn import HeldTurn
from lakeseal.owner.endpoint import OwnerEndpoint
from lakeseal.protocol.schema import STRING, StructField, StructType
from lakeseal.steps.context import StepContext
from lakeseal.steps.recovery import DatasetRecovery, recover
from lakeseal.write.file_commit_protocol import TaskCommitMessage
from lakeseal.write.task_report import error_from_json

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
        self._owner, self._held, self._context = owner, held, context
        self._steps = context.books.sequences
        self._progress, self._sleep = progress, sleep
        self._is_after_death = is_after_death
        self._publication = Publication(config, owner=owner, held=held, context=context)
        self._spreading = Spreading(config, run_id=run_id, turn=held.turn, books=context.books, jobs=jobs)
        self.datasets = [DatasetRun(dataset, pipeline=config.name, run_id=run_id) for dataset in config.datasets]

    def execute(self) -> None:
        self._recover()
        self._each(self._plan, self.datasets)
        if self._is_after_death:
            self._clean_up(self.datasets)
        pending = self._open()
        attempt = 0
        while pending:
            self._attempt(pending)
            attempt += 1
            pending = [one for one in pending if one.is_transient and attempt <= one.dataset.retries.times]
            if pending:
                self._sleep(max(one.dataset.retries.first_pause_seconds for one in pending) * 2 ** (attempt - 1))
                for one in pending:
                    one.begin_attempt()
                self._each(self._plan, pending)
                pending = [one for one in pending if one.is_open]
        self._held.check()
        staged = self._open()
        for one in staged:
            self._stage(one, "publishing", one.measured.rows)
        self._publication.publish(staged)
        for one in self.datasets:
            self._stage(one, (one.state or "failed").replace("_", " "), one.measured.rows)
        self._clean_up([one for one in self.datasets if one.orders])

    def _recover(self) -> None:
        found = {one.dataset: one for one in self._recovered([one.name for one in self.datasets])}
        for one in self.datasets:
            recovered = found[one.name]
            one.recovered = recovered.executed
            if not recovered.is_clear:
                one.set_aside(f"Steps of an earlier run keep failing: {recovered.reason}", self._config.name)

    def _recovered(self, names: Sequence[str]) -> Sequence[DatasetRecovery]:
        found = None
        if len(self._steps.statuses(self._config.name)) >= spreading.FROM:
            found = self._spreading.recover(names)
        return found or recover(self._steps, self._config.name, self._context, datasets=names).datasets

    def _plan(self, one: DatasetRun) -> None:
        dataset = one.dataset
        self._stage(one, "looking")
        one.before = self._context.books.watermarks.read(self._config.name, dataset.name)
        tried = 0
        while True:
            try:
                # One of its own each time: datasets may share a source, and a client that hangs is not asked again.
                source = replace(dataset.source)
                one.plan = answered(
                    lambda source=source: _planned(source, one.before),  # type: ignore[misc]
                    dataset.timeout_seconds,
                    source.describe(),
                )
                break
            except StorageUnavailable:
                tried += 1
                if tried > dataset.retries.times:
                    raise
                self._sleep(dataset.retries.first_pause_seconds * 2 ** (tried - 1))
        if not one.plan.units:
            one.end("nothing_new")

    def _attempt(self, pending: Sequence[DatasetRun]) -> None:
        self._each(self._begin, pending)
        working = [one for one in pending if one.is_open]
        if not working:
            return
        works = [one.work for one in working if one.work is not None]
        for number, one in enumerate(working):
            limits = {"task_bytes": self._config.task_bytes, "parallel": self._config.max_parallel}
            one.orders = cutting.orders(number, one.plan.units, one.dataset.commit, **limits)
            self._stage(one, "reading")
        tasks = cutting.tasks((order for one in working for order in one.orders), **limits)
        publishing = self._spreading.begin(working)
        reports: list[Report] = []
        lost: LakesealError | None = None
        try:
            reports = self._jobs().extract(f"ingest {self._config.name}", works, tasks, publishing)
        except Exception as error:
            lost = ours(error)
        if publishing is not None:
            outcomes = (report for report in reports if isinstance(report, DatasetOutcome))
            self._spreading.conclude(publishing, working, outcomes)
        if lost is not None:
            for one in working:
                if one.is_open or one.is_transient:
                    one.fail(lost)
        by_dataset: dict[int, list[OrderReport]] = {}
        for report in reports:
            if isinstance(report, OrderReport):
                by_dataset.setdefault(report.dataset, []).append(report)
        read = list(enumerate(working))
        self._each(lambda it: self._settle(it[1], by_dataset.get(it[0], [])), read, run_of=lambda it: it[1])
        through_spark = [one for one in working if one.is_open and one.raw is not None]
        self._each(self._transform, through_spark, threads=_TRANSFORMS_AT_ONCE)
        self._each(DatasetRun.judge, [one for one in working if one.is_open])

    def _begin(self, one: DatasetRun) -> None:
        """Decides how the dataset's rows go, and where."""
        dataset = one.dataset
        source = replace(dataset.source)
        schema = source.row_schema()
        source.close()
        stage: Stage | None = None
        if dataset.transform is None and runs_in_tasks(dataset.quality, schema):
            stage = self._open_stage(one, schema)
            if stage.in_plan.columns or stage.in_plan.checks:
                stage = None
        if stage is not None:
            one.work = self._work(dataset, stage, schema)
            one.stages = [stage]
            return
        whence = StructField(ORIGIN, STRING)
        one.raw = RawStage(dataset.target, StructType((*schema.fields, whence)), run_id=self._run_id)
        # Rows are judged behind the transform, and then still to be told where they came from.
        one.work = replace(self._work(dataset, one.raw, schema), checks=(), with_origin=True)

    def _open_stage(self, one: DatasetRun, schema: StructType) -> Stage:
        stage = open_stage(one.dataset, schema, owner=self._owner, app_id=one.app_id, note=one.note)
        _check_schema(one, stage, schema)
        return stage

    def _work(self, dataset: Dataset, stage: Stage | RawStage, schema: StructType | None) -> DatasetWork:
        return DatasetWork(
            name=dataset.name,
            source=dataset.source,
            spec=stage.spec.to_json(),
            error_spec=error_spec(dataset, stage.spec).to_json(),
            schema=None if schema is None else schema.to_json(),
            checks=dataset.quality,
            policy=dataset.commit,
            on_bad_record=dataset.on_bad_record,
            timeout_seconds=dataset.timeout_seconds,
            run_id=self._run_id,
            epoch=self._held.epoch,
        )

    def _settle(self, one: DatasetRun, reports: Sequence[OrderReport]) -> None:
        settled = one.settle(reports)
        one.error_messages = list(settled.error_messages)
        if one.raw is not None:
            one.raw.collect(settled.messages)
        else:
            one.stages[-1].collect(settled.messages)
            self._add_errors(one)

    def _transform(self, one: DatasetRun) -> None:
        assert one.raw is not None
        self._stage(one, "transforming", one.measured.rows)
        name = f"ingest {self._config.name}: {one.name}"
        opened: list[_Opened] = []

        def open_target(schema: StructType) -> _Opened:
            stage = self._open_stage(one, schema)
            target = _Opened(stage=stage, work=replace(self._work(one.dataset, stage, None), source=None))
            opened.append(target)
            return target

        reports = self._jobs().transform(name, one.dataset, one.raw, open_target)
        stage = opened[0].stage
        one.stages = [stage]
        for report in reports:
            if report.error is not None:
                raise error_from_json(report.error)
        # Rows are counted where they leave; what was read, and how much, where they came in.
        one.measured.rows = 0
        for report in reports:
            one.measured.add(report.measured)
        stage.collect(report.message for report in reports if report.message is not None)
        found = [report.error_message for report in reports if report.error_message is not None]
        one.error_messages = _renumbered([*one.error_messages, *found])
        self._add_errors(one)

    def _add_errors(self, one: DatasetRun) -> None:
        if not one.error_messages:
            return
        stage = error_stage(one.dataset, owner=self._owner, app_id=f"{one.app_id}, errors", note=one.note)
        stage.collect(one.error_messages)
        one.stages.insert(0, stage)

    def _clean_up(self, datasets: Sequence[DatasetRun]) -> None:
        """What this run, or one that died, left in staging areas. Only the holder of the turn writes there; what an
        unfinished sequence needs stays."""
        needed = {status.dataset for status in self._steps.statuses(self._config.name)}
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="lakeseal-ingest") as pool:
            for _ in pool.map(_cleaned, [one.dataset for one in datasets if one.name not in needed]):
                pass

    def _each(
        self,
        do: Callable[[Any], None],
        items: Sequence[Any],
        *,
        run_of: Callable[[Any], DatasetRun] = lambda one: one,
        threads: int = _THREADS,
    ) -> None:
        """For each dataset that is not over, side by side; what raises is its result."""

        def guarded(item: Any) -> None:
            one = run_of(item)
            if not one.is_open:
                return
            try:
                do(item)
            except Exception as error:
                one.fail(ours(error))
                self._stage(one, "failed")

        if len(items) < 2:
            for item in items:
                guarded(item)
            return
        with ThreadPoolExecutor(min(threads, len(items)), thread_name_prefix="lakeseal-ingest") as pool:
            for _ in pool.map(guarded, items):
                pass

    def _open(self) -> list[DatasetRun]:
        return [one for one in self.datasets if one.is_open]

    def _stage(self, one: DatasetRun, what: str, rows: int | None = None) -> None:
        self._progress.stage(one.name, what, rows)


def _planned(source: Source, watermarks: Mapping[str, Any]) -> Plan:
    try:
        return source.plan(watermarks)
    finally:
        source.close()


def _cleaned(dataset: Dataset) -> None:
    with suppress(LakesealError):  # left behind, and in nobody's way
        RawStage.clean_up(dataset.target)


class _Opened(Struct, frozen=True, kw_only=True):
    stage: Stage
    work: DatasetWork


def _check_schema(one: DatasetRun, stage: Stage, schema: StructType) -> None:
    for check in one.dataset.quality:
        if check.schema is None:
            continue
        if not isinstance(stage, TableStage):
            raise InvalidArgument("A rule about the schema needs a table to compare with")
        table = {field.name.lower(): field.type for field in stage.snapshot.schema.fields}
        rows = {field.name.lower(): field.type for field in schema.fields}
        other = sorted(rows.keys() - table.keys())
        if check.schema == "equal":
            other = sorted(name for name in rows.keys() | table.keys() if rows.get(name) != table.get(name))
        if other:
            trouble = f"The columns {', '.join(other)} are not as the table has them"
            if check.on_fail == "fail":
                raise QualityFailed(trouble, table=stage.table)
            one.warnings.append(trouble)


def _renumbered(messages: Sequence[TaskCommitMessage]) -> list[TaskCommitMessage]:
    """Tasks of two jobs, as if they were of one."""
    return [replace(message, task=replace(message.task, split=n)) for n, message in enumerate(messages)]
