"""What of a run's publishing is left to tasks: with many datasets, all but the tables that are one transaction.

A dataset is left to tasks (`is_spread`) if its steps are recorded before they run, if Spark has nothing to transform or
to judge, and if what was written is known from the reports alone: any directory, and a table that others own and whose
schema stays. The driver then only learns outcomes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from lakeseal.errors import Fenced, LakesealError
from lakeseal.ingest.config import PipelineConfig
from lakeseal.ingest.dataset_run import DatasetRun
from lakeseal.ingest.jobs import Jobs
from lakeseal.ingest.reports import DatasetOutcome
from lakeseal.ingest.staging import TableStage, places_of
from lakeseal.ingest.task_publishing import PublishedWork, Publishing, read_outcomes
from lakeseal.owner.config import OwnerConfig
from lakeseal.steps.books import Books
from lakeseal.steps.context import StepSettings
from lakeseal.steps.recovery import DatasetRecovery, Recovery, RecoveryRequest, recover_share, shares
from lakeseal.steps.turn import Turn
from lakeseal.write.task_report import error_from_json

FROM = 64
"""So many datasets are worth it."""


class Spreading:
    def __init__(
        self, config: PipelineConfig, *, run_id: str, turn: Turn, books: Books, jobs: Callable[[], Jobs]
    ) -> None:
        self._config, self._run_id, self._books, self._jobs = config, run_id, books, jobs
        self._settings = _settings(config, turn)
        self._attempts = 0

    def begin(self, working: Sequence[DatasetRun]) -> Publishing | None:
        """For one attempt at these; None if the driver publishes all of them."""
        spread = {number: one for number, one in enumerate(working) if is_spread(one, self._config)}
        if len(spread) < FROM or self._settings is None or not self._jobs().reaches(self._config.ledger):
            return None
        if not self._attempts:
            # Those of earlier runs: their tasks are fenced, as this run has claimed the datasets.
            self._books.task_states.remove(self._config.name)
        self._attempts += 1
        works = {number: _work(one) for number, one in spread.items()}
        return Publishing(self._config.name, f"{self._run_id}/{self._attempts}", self._settings, works)

    def conclude(
        self, publishing: Publishing, working: Sequence[DatasetRun], outcomes: Iterable[DatasetOutcome]
    ) -> None:
        """What the extraction has published, and then the rest, in shares; each has a state afterwards."""
        runs = {working[number].name: working[number] for number in publishing.works}
        self._learn(runs, outcomes)
        left = [name for name, one in runs.items() if one.is_open]
        if not left:
            return
        requests = [msgspec.json.encode(part).decode() for part in shares(left, self._config.max_parallel)]
        try:
            answers = self._jobs().in_shares(f"publish {self._config.name}", publishing, publishing.settings, requests)
        except Fenced:
            raise
        except LakesealError as error:
            # They may have been decided on; the next run fences this one's tasks, and then knows.
            for name in left:
                runs[name].fail(error, may_retry=False)
            return
        self._learn(runs, (one for answer in answers for one in read_outcomes(answer)))

    def recover(self, names: Sequence[str]) -> list[DatasetRecovery] | None:
        """By tasks, each for a share of the datasets; None if they can't."""
        if self._settings is None or not self._jobs().reaches(self._config.ledger):
            return None
        requests = [
            RecoveryRequest(store=self._config.name, datasets=part).to_json()
            for part in shares(names, self._config.max_parallel)
        ]
        answers = self._jobs().in_shares(f"recover {self._config.name}", recover_share, self._settings, requests)
        return [one for answer in answers for one in Recovery.from_json(answer).datasets]

    def _learn(self, runs: Mapping[str, DatasetRun], outcomes: Iterable[DatasetOutcome]) -> None:
        for outcome in outcomes:
            error = None if outcome.error is None else error_from_json(outcome.error)
            if isinstance(error, Fenced):
                raise error
            if runs[outcome.dataset].is_open:  # of a task that was run twice, both tell
                runs[outcome.dataset].conclude(outcome, self._config.name)


def is_spread(one: DatasetRun, config: PipelineConfig) -> bool:
    """Whether tasks could publish it."""
    if config.delivery != "exactly_once" or one.raw is not None or one.is_joint:
        return False
    return not any(isinstance(stage, TableStage) and stage.changes_metadata for stage in one.stages)


def _work(one: DatasetRun) -> PublishedWork:
    assert one.work is not None
    assert one.work.schema is not None
    stage = one.stages[-1]
    return PublishedWork(
        dataset=one.dataset,
        orders=len(one.orders),
        schema=one.work.schema,
        job_id=stage.spec.job_id,
        app_id=one.app_id,
        note=one.note,
        written_for=stage.written_for if isinstance(stage, TableStage) else None,
    )


def _settings(config: PipelineConfig, turn: Turn) -> StepSettings | None:
    """What tasks need to run steps of this pipeline; None if they can't, as its stores are opened in different ways."""
    options: list[Mapping[str, str]] = [dataset.target.storage_options for dataset in config.datasets]
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
