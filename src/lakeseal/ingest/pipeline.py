"""`Pipeline`: from sources to targets, each row once.

    result = Pipeline.from_yaml("clicks.yaml").run(spark)

    Pipeline(name="clicks", ledger="sqlite:///ledger.db", datasets=[Dataset(…)]).run(spark)

A run holds the pipeline's lease, so two never overlap; what it did is recorded in the ledger. `run` raises `RunFailed`
when a dataset was not published, after all others were; with `check=False` the result alone tells.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from lakeseal import expr, traces
from lakeseal.clock import now_ms
from lakeseal.display import Bar, Card, Grid, card, clean
from lakeseal.errors import AlreadyExists, InvalidArgument, LakesealError, RunFailed, UnsupportedExpression
from lakeseal.ingest import graph, idle_options
from lakeseal.ingest.backfill import BackfillRange, unfinished
from lakeseal.ingest.config import Dataset, PipelineConfig, TableTarget, place_of
from lakeseal.ingest.jobs import Jobs, LocalJobs
from lakeseal.ingest.merging import rule_for
from lakeseal.ingest.pipeline_books import PipelineBooks, owner_of
from lakeseal.ingest.progress import RunProgress
from lakeseal.ingest.python_transform import PythonTransform
from lakeseal.ingest.quality import check_columns, row_rules
from lakeseal.ingest.run import Run
from lakeseal.ingest.runs import RunResult, RunState
from lakeseal.ingest.sources.source import Plan
from lakeseal.ingest.targets import places_of, tables_of
from lakeseal.ingest.turn import HeldTurn
from lakeseal.ingest.yaml_file import Given, read_pipeline
from lakeseal.owner.connect import Owners
from lakeseal.owner.ledger_owner import LedgerOwner
from lakeseal.steps import recovery
from lakeseal.steps.books import books_of
from lakeseal.steps.context import StepContext
from lakeseal.steps.holder import Waiting
from lakeseal.steps.store import SequenceState
from lakeseal.steps.watermarks import Watermark
from lakeseal.storage import StoreSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakeseal.catalog.connect import CatalogLike

    Spark = SparkSession | Callable[[], SparkSession]

_log = logging.getLogger(__name__)


class Pipeline:
    def __init__(
        self, config: PipelineConfig | None = None, *, catalog: CatalogLike | None = None, **fields: Any
    ) -> None:
        """`fields` are those of `PipelineConfig`: name, ledger, datasets, … Names of targets are looked up in the
        `catalog`, or in the one that is configured."""
        if config is None:
            fields["datasets"] = tuple(fields.get("datasets", ()))
            try:
                config = PipelineConfig(**fields)
            except TypeError as error:
                raise InvalidArgument(f"This is no pipeline: {error}") from None
        for dataset in config.datasets:
            idle_options.check(dataset)
        placed = tuple(dataset.by_place(catalog) for dataset in config.datasets)
        self.config = replace(config, datasets=graph.ordered(placed, config.beside))

    @classmethod
    def from_yaml(
        cls,
        path: str | os.PathLike[str],
        *,
        env: str | None = None,
        params: Mapping[str, str] | None = None,
        catalog: CatalogLike | None = None,
    ) -> Pipeline:
        """`env` is one of the file's environments; `params` go before what the file says.

        >>> lakeseal.Pipeline.from_yaml("clicks.yaml", params={"root": "."}).name
        'clicks'
        """
        return cls(read_pipeline(path, Given(env=env, params=params or {})), catalog=catalog)

    @property
    def name(self) -> str:
        """What its runs, watermarks and steps are kept under.

        >>> pipeline.name
        'clicks'
        """
        return self.config.name

    def __repr__(self) -> str:
        return f"Pipeline({self.name!r}, datasets={len(self.config.datasets)})"

    def _repr_html_(self) -> str:
        """For notebooks: its datasets, and its last runs."""

        def made() -> Card:
            runs = self.history()
            rows = [
                (one.name, type(one.source).__name__, type(one.target).__name__, place_of(one.target))
                for one in self.config.datasets
            ]
            told = [
                f"{datetime.fromtimestamp(one.started_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC, {one.state}" for one in runs
            ]
            return Card(
                kind="Pipeline",
                title=self.name,
                facts=[("datasets", len(rows)), ("last run", told[0] if told else "never")],
                grids=[Grid(headings=("dataset", "source", "target", "place"), rows=rows)],
                bars=[
                    Bar(amount=one.rows, told=f"{text}: {one.rows:,} rows")
                    for one, text in zip(reversed(runs), reversed(told), strict=True)
                ],
                bars_told="Rows that each of the last runs published",
            )

        return card("Pipeline", self.name, made)

    def run(
        self,
        spark: Spark | None = None,
        *,
        datasets: Sequence[str] | None = None,
        check: bool = True,
        progress: RunProgress | None = None,
        waiting: Waiting | None = None,
    ) -> RunResult:
        """`datasets` are the names of those to run, if not all. `spark` may be a function that gives the session: it
        is called only if there is anything new. Without Spark, tasks are threads of this process, and DuckDB does
        SQL. `LeaseHeld` if another run is at work, unless there is somebody to tell while `waiting` for it; one of this
        machine that was killed is not waited for.

        >>> pipeline.run().rows
        2
        >>> pipeline.run().state
        'nothing_new'
        """
        return self._run(self._only(datasets), spark, check=check, progress=progress, waiting=waiting)

    def backfill(
        self,
        dataset: str,
        first: str,
        last: str,
        spark: Spark | None = None,
        *,
        again: bool = False,
        check: bool = True,
        progress: RunProgress | None = None,
        waiting: Waiting | None = None,
    ) -> RunResult:
        """Publishes what the dataset's source has from `first` on and before `last`, whatever was published of it; its
        watermarks stay. A backfill that was cut off goes on; one that is done does nothing, unless `again`. A target
        in the mode `replace` has none.

        >>> pipeline.backfill("clicks", "1.json", "2.json").rows
        2
        """
        wanted = BackfillRange(dataset=dataset, first=first, last=last)
        config = self._only([dataset])
        config = replace(config, datasets=(wanted.of(config.datasets[0]),))
        books = self._records.books()
        wanted.begin(books, self.name, config.datasets[0].source, again=again)
        result = self._run(config, spark, check=False, progress=progress, waiting=waiting)
        if result.state in ("published", "nothing_new"):
            wanted.end(books, self.name)
        if check:
            raise_for(result)
        return result

    def resume(
        self, spark: Spark | None = None, *, progress: RunProgress | None = None, waiting: Waiting | None = None
    ) -> list[RunResult]:
        """Goes on with what earlier runs have left: steps that were set aside or not finished, datasets that the last
        run did not publish, and backfills that were begun. What came of each; nothing if there is nothing left.

        >>> pipeline.resume()
        []
        """
        books = self._records.books()
        with HeldTurn(
            books.leases, self.name, f"resume {uuid.uuid4()}", self.config.lease_seconds, waiting=waiting
        ) as held:
            statuses = books.sequences.statuses(self.name)
            aside = [one.dataset for one in statuses if one.state is SequenceState.SET_ASIDE]
            books.sequences.claim(self.name, aside, held.epoch)
            for name in aside:
                recovery.retry(books.sequences, self.name, name, epoch=held.epoch)
        known = {dataset.name for dataset in self.config.datasets}
        begun = [one for one in unfinished(books, self.name) if one.dataset in known]
        left = {one.dataset for one in statuses} | self._unpublished()
        results = []
        if names := [name for name in known if name in left]:
            results.append(self.run(spark, datasets=names, check=False, progress=progress, waiting=waiting))
        results += [
            self.backfill(one.dataset, one.first, one.last, spark, check=False, progress=progress, waiting=waiting)
            for one in begun
        ]
        return results

    def _unpublished(self) -> set[str]:
        """Datasets of the newest run that it did not publish; all of them if it came to nothing as a whole."""
        newest = next(iter(self.history(1)), None)
        if newest is None:
            return set()
        if newest.state in ("died", "running") or newest.error is not None:
            return {dataset.name for dataset in self.config.datasets}
        return {one.name for one in newest.datasets if one.error is not None or one.left_over}

    def _run(
        self,
        config: PipelineConfig,
        spark: Spark | None,
        *,
        check: bool,
        progress: RunProgress | None,
        waiting: Waiting | None,
    ) -> RunResult:
        jobs = _jobs(spark)
        run_id = str(uuid.uuid4())
        owner = owner_of(config.ledger, config.token)
        books = books_of(owner)
        with HeldTurn(books.leases, config.name, run_id, config.lease_seconds, waiting=waiting) as held:
            is_after_death = books.runs.begin(config.name, run_id, held.epoch)
            context = StepContext(
                ledger=owner.ledger if isinstance(owner, LedgerOwner) else None,
                books=books,
                owners=Owners(owner),
                turn=held.turn,
                spec_of=_specs(config),
                places=places_of(config),
            )
            run = Run(
                config,
                run_id=run_id,
                jobs=jobs,
                owner=owner,
                held=held,
                context=context,
                progress=progress or RunProgress(),
                is_after_death=is_after_death,
            )
            started, error = now_ms(), None
            notes: tuple[str, ...] = ()
            if config.lineage is not None:
                notes = config.lineage.started(config.name, run_id, config.datasets, config.beside, started)
            try:
                with traces.span("lakeseal ingest", {"lakeseal.pipeline": config.name, "lakeseal.run": run_id}):
                    run.execute()
            except BaseException as raised:
                error = raised
            result = _told(config, replace(_result(config.name, run_id, run, started, error), notes=notes))
            books.runs.end(result.record(held.epoch))
        _tell(result)
        if error is not None:
            raise error
        if check:
            raise_for(result)
        return result

    def run_every(
        self,
        spark: Spark | None,
        seconds: float,
        *,
        stop: threading.Event | None = None,
        progress: RunProgress | None = None,
    ) -> Iterator[RunResult | LakesealError]:
        """A run now and every so many seconds, for ever or until `stop`; each one's result, or why there was none. A
        run that takes longer than that, or found more than it may take (`max_messages`, `max_files`, …), is followed by
        the next at once.

        >>> runs = pipeline.run_every(None, 60)
        >>> next(runs).rows
        2
        """
        stop = stop or threading.Event()
        while not stop.is_set():
            due = time.monotonic() + seconds
            try:
                result = self.run(spark, check=False, progress=progress)
            except LakesealError as error:
                yield error
            else:
                yield result
                if result.has_more:
                    continue
            stop.wait(max(0.0, due - time.monotonic()))

    def validate(self) -> dict[str, LakesealError | None]:
        """What is wrong with each dataset, as far as its source and its rules tell; nothing is read or written.

        >>> pipeline.validate()
        {'clicks': None}
        """
        return {dataset.name: _trouble(dataset) for dataset in self.config.datasets}

    def plan(self) -> dict[str, Plan | LakesealError]:
        """What a run would read now, by dataset and in the order of their graph, or why it could not. Nothing is
        written, and no turn is taken.

        >>> done = pipeline.plan()["clicks"]
        """
        found: dict[str, Plan | LakesealError] = {}
        for dataset in self.config.datasets:
            marks = {mark.partition: mark.value for mark in self.watermarks(dataset.name)}
            source = replace(dataset.source)
            try:
                found[dataset.name] = source.preview(marks)
            except LakesealError as error:
                found[dataset.name] = error
            finally:
                source.close()
        return found

    def history(self, limit: int = 20) -> list[RunResult]:
        """Runs, newest first.

        >>> pipeline.run().rows
        2
        >>> [one.state for one in pipeline.history()]
        ['published']
        """
        return self._records.history(limit)

    def watermarks(self, dataset: str | None = None) -> list[Watermark]:
        """How far each partition of the sources is published.

        >>> pipeline.run().rows
        2
        >>> [one.dataset for one in pipeline.watermarks()]
        ['clicks']
        """
        return self._records.watermarks(dataset)

    def open_sequences(self) -> Mapping[str, str]:
        """Datasets with steps that are not finished: their state, and the reason if they were set aside.

        >>> pipeline.open_sequences()
        {}
        """
        return self._records.open_sequences()

    def reset(self, dataset: str, watermarks: Mapping[str, Any] | None = None) -> None:
        """Sets a dataset's watermarks to these: all of them, none without an argument, so that its source is read from
        the beginning. Rows that were published stay.

        >>> pipeline.run().rows
        2
        >>> pipeline.reset("clicks")
        >>> pipeline.watermarks()
        []
        """
        self._only([dataset])
        books = self._records.books()
        with HeldTurn(books.leases, self.name, f"reset {uuid.uuid4()}", self.config.lease_seconds) as held:
            if books.sequences.exists(self.name, dataset):
                raise AlreadyExists(
                    f"{dataset!r} has steps that are not finished", hint="Run the pipeline first, or abort the steps"
                )
            books.watermarks.reset(self.name, dataset, watermarks or {}, epoch=held.epoch)
        _log.info("%s: the watermarks of %s were set, %d of them", self.name, dataset, len(watermarks or {}))

    @property
    def _records(self) -> PipelineBooks:
        return PipelineBooks(self.name, self.config.ledger, self.config.token)

    def _only(self, datasets: Sequence[str] | None) -> PipelineConfig:
        if datasets is None:
            return self.config
        known = {dataset.name: dataset for dataset in self.config.datasets}
        for name in datasets:
            if name not in known:
                raise InvalidArgument(
                    f"The pipeline {self.name!r} has no dataset {name!r}", hint=f"It has {', '.join(known)}"
                )
        left = tuple(one for one in self.config.datasets if one.name not in datasets)
        chosen = tuple(one for one in self.config.datasets if one.name in datasets)
        return replace(self.config, datasets=chosen, beside=left)


def _trouble(dataset: Dataset) -> LakesealError | None:
    source = replace(dataset.source)
    try:
        if isinstance(dataset.transform, PythonTransform):
            dataset.transform.load()
        if graph.inputs_of(dataset):
            return None
        schema = source.row_schema()
        if dataset.transform is None:
            if isinstance(dataset.target, TableTarget):
                rule_for(dataset.target, schema, None)
            check_columns(dataset.rules, schema)
            for rule in row_rules(dataset.rules):
                with suppress(UnsupportedExpression):  # Spark may know it
                    expr.bind_predicate(expr.parse(rule.rule or ""), schema)
    except LakesealError as error:
        return error
    finally:
        source.close()
    return None


def raise_for(result: RunResult) -> None:
    """`RunFailed` if a dataset was not published, or not all of it."""
    failed = {one.name: one.error for one in result.datasets if one.error is not None}
    if failed:
        reasons = "; ".join(f"{name}: {error.get('message', '')}" for name, error in failed.items())
        hints: dict[str, list[str]] = {}
        for name, error in failed.items():
            if error.get("hint"):
                hints.setdefault(error["hint"], []).append(name)
        told = [f"{', '.join(names)}: {hint}" for hint, names in hints.items()]
        raise RunFailed(
            f"{len(failed)} of {len(result.datasets)} datasets were not published: {reasons}",
            hint=". ".join((*told, RunFailed.default_hint)),
        )


def _tell(result: RunResult) -> None:
    """What a run did, for a log that people read."""
    published = sum(one.state == "published" for one in result.datasets)
    failed = sum(one.error is not None for one in result.datasets)
    _log.info(
        "the run %s of %s is over, %s: %d rows, %d of %d datasets published, %d failed",
        result.run_id,
        clean(result.pipeline, 500),
        result.state.replace("_", " "),
        result.rows,
        published,
        len(result.datasets),
        failed,
    )


def _told(config: PipelineConfig, result: RunResult) -> RunResult:
    """To whoever is to know of it; what could not be told is a note of the run."""
    notes = [alert.tell(result) for alert in config.alerts]
    if config.lineage is not None:
        notes += config.lineage.ended(result, config.datasets, config.beside)
    if config.metrics is not None:
        notes.append(config.metrics.write(result))
    return replace(result, notes=tuple(dict.fromkeys((*result.notes, *(note for note in notes if note is not None)))))


def _result(pipeline: str, run_id: str, run: Run, started: int, error: BaseException | None) -> RunResult:
    datasets = tuple(one.result() for one in run.datasets)
    states = {one.state for one in datasets}
    state: RunState = "published" if "published" in states else "nothing_new"
    if any(one.left_over for one in datasets):
        state = "partly"
    if states & {"failed", "set_aside"}:
        state = "partly" if states & {"published", "nothing_new"} else "failed"
    told = None
    if error is not None:
        state = "failed"
        told = error.to_json() if isinstance(error, LakesealError) else {"message": f"{type(error).__name__}: {error}"}
    return RunResult(
        run_id=run_id,
        pipeline=pipeline,
        state=state,
        started_ms=started,
        ended_ms=now_ms(),
        datasets=datasets,
        error=told,
    )


def _jobs(spark: Spark | None) -> Callable[[], Jobs]:
    if spark is None:
        return LocalJobs

    def jobs() -> Jobs:
        session = spark() if callable(spark) else spark  # or who gives it says what is missing
        from lakeseal.ingest.spark_jobs import SparkJobs  # pyspark is an extra

        return SparkJobs(session)

    return jobs


def _specs(config: PipelineConfig) -> Callable[[str], StoreSpec]:
    """Stores of steps, with the options of the target that they are of."""
    known: dict[str, Dataset] = {}
    for dataset in config.datasets:
        for uri in (*tables_of(dataset), place_of(dataset.target)):
            known[StoreSpec(uri=uri).uri] = dataset

    def spec(uri: str) -> StoreSpec:
        wanted = StoreSpec(uri=uri).uri
        for root, dataset in known.items():
            if wanted == root or wanted.startswith(f"{root.rstrip('/')}/"):
                return StoreSpec(uri=uri, storage_options=dataset.target.storage_options)
        return StoreSpec(uri=uri)

    return spec
