"""Making staged rows visible, and the watermarks with them.

- Tables whose commits the pipeline's ledger decides on: one ledger transaction for all datasets of the run, in which
  each table gets its version and each watermark moves. There is no moment in between.
- Everything else: a commit sequence per dataset, recorded before its first step runs, with the watermarks as its last.
  A run that dies leaves it to the next one.
- A dataset from which nothing is to be published moves its watermarks alone.

With at_least_once, steps are done without having been recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import msgspec

from lakeseal.errors import CommitOutcomeUnknown, Fenced, LakesealError, UnknownOutcome, WatermarkMoved
from lakeseal.ingest import spreading
from lakeseal.ingest.config import PipelineConfig
from lakeseal.ingest.dataset_run import DatasetRun, ours
from lakeseal.ingest.jobs import Jobs, SpreadsSteps
from lakeseal.ingest.spreading import CommitShare
from lakeseal.ingest.staging import TableStage
from lakeseal.ingest.turn import HeldTurn
from lakeseal.ledger import Tx
from lakeseal.ledger.schema import watermarks
from lakeseal.owner.ledger_owner import LedgerOwner
from lakeseal.owner.transaction import Transaction, TransactionResult
from lakeseal.steps.context import StepContext
from lakeseal.steps.high_watermark import HighWatermarkCommitStep
from lakeseal.steps.recovery import shares
from lakeseal.steps.sequence import CommitSequence
from lakeseal.steps.store import CommitStepStore
from lakeseal.steps.watermarks import Watermarks, advance, check_forward
from lakeseal.table import HOOKS
from lakeseal.write.task_report import error_from_json

_THREADS = 8


class Publication:
    def __init__(
        self,
        config: PipelineConfig,
        *,
        owner: LedgerOwner,
        held: HeldTurn,
        steps: CommitStepStore,
        context: StepContext,
        jobs: Callable[[], Jobs],
    ) -> None:
        self._config, self._owner, self._held = config, owner, held
        self._steps, self._context, self._jobs = steps, context, jobs

    def publish(self, staged: Sequence[DatasetRun]) -> None:
        """Each of them has a state afterwards. `Fenced` is raised as it is."""
        for one in staged:
            one.stages = [stage for stage in one.stages if not stage.is_empty]
        together = [one for one in staged if one.is_joint]
        apart = [one for one in staged if not one.is_joint]
        self._joint(together)
        if len(apart) >= spreading.FROM and self._config.delivery == "exactly_once":
            apart = self._in_shares(apart)
        if apart:
            with ThreadPoolExecutor(min(_THREADS, len(apart)), thread_name_prefix="lakeseal-publish") as pool:
                for _ in pool.map(self._by_steps, apart):
                    pass

    def _joint(self, datasets: Sequence[DatasetRun]) -> None:
        left = list(datasets)
        while left:
            transaction = Transaction(self._owner, hooks=HOOKS)
            refused = next((one for one in left if not self._state(one, transaction)), None)
            if refused is not None:
                left.remove(refused)
                continue
            try:
                result = self._commit(left, transaction)
            except Exception as error:
                told = ours(error)
                culprit = None
                if not isinstance(told, CommitOutcomeUnknown | UnknownOutcome):
                    culprit = next((one for one in left if told.table is not None and told.table in _tables(one)), None)
                for one in left if culprit is None else [culprit]:
                    one.fail(told)
                left = [] if culprit is None else [one for one in left if one is not culprit]
                continue
            for one in left:
                for stage in one.stages:
                    if isinstance(stage, TableStage) and stage.table in result.tables:
                        one.version = result.tables[stage.table].version
                one.end("published")
            return

    @staticmethod
    def _state(one: DatasetRun, transaction: Transaction) -> bool:
        try:
            for change in one.changes:
                check_forward(change)
            for stage in one.stages:
                assert isinstance(stage, TableStage)
                stage.join(transaction)
        except LakesealError as error:
            one.fail(error)
            return False
        return True

    def _commit(self, datasets: Sequence[DatasetRun], transaction: Transaction) -> TransactionResult:
        name, turn = self._config.name, self._held.turn

        def move(tx: Tx) -> None:
            for one in datasets:
                _must_stand(tx, name, one)
                advance(tx, name, one.name, one.changes, turn=turn)

        if any(one.stages for one in datasets):
            return transaction.commit(also=[move])
        self._owner.ledger.write(move)
        return TransactionResult(tables={})

    def _in_shares(self, apart: Sequence[DatasetRun]) -> list[DatasetRun]:
        """By tasks, as far as they can; those that are left over."""
        jobs, settings = self._jobs(), spreading.settings_for(self._config, self._held.turn)
        if not isinstance(jobs, SpreadsSteps) or settings is None or not jobs.reaches(self._config.ledger):
            return list(apart)
        sequences = {one.name: (one, sequence) for one in apart if (sequence := self._sequence(one)) is not None}
        parts = shares(sequences, self._config.max_parallel)
        requests = [
            CommitShare.of(settings, self._config.name, [sequences[name][1] for name in part]).to_json()
            for part in parts
        ]
        try:
            answers = jobs.in_shares(f"publish {self._config.name}", spreading.commit_share, requests)
        except LakesealError as error:
            for one, _ in sequences.values():
                one.fail(error)
            return [one for one in apart if one.name not in sequences]
        for answer in answers:
            for name, trouble in msgspec.json.decode(answer, type=dict[str, dict[str, Any] | None]).items():
                one, sequence = sequences[name]
                one.steps = len(sequence.steps)
                if trouble is None:
                    one.end("published")
                else:
                    one.fail(error_from_json(trouble))
        return [one for one in apart if one.name not in sequences]

    def _by_steps(self, one: DatasetRun) -> None:
        try:
            sequence = self._sequence(one)
            one.steps = 0 if sequence is None else len(sequence.steps)
            if sequence is None:
                Watermarks(self._owner.ledger).advance(self._config.name, one.name, one.changes, turn=self._held.turn)
            elif self._config.delivery == "exactly_once":
                sequence.commit(self._steps, self._context)
            else:
                sequence.replay(self._context)
        except Fenced:
            raise
        except Exception as error:
            one.fail(ours(error))
            return
        one.end("published")
        for stage in one.stages:
            if isinstance(stage, TableStage):
                with suppress(LakesealError):  # the rows are published all the same
                    one.version = stage.maintain()

    def _sequence(self, one: DatasetRun) -> CommitSequence | None:
        if not one.stages:
            return None
        builder = CommitSequence.builder(self._config.name, one.name, epoch=self._held.epoch)
        for stage in one.stages:
            builder.add(*stage.steps())
        if one.changes:
            builder.add(HighWatermarkCommitStep.of(self._config.name, one.name, one.changes))
        for stage in one.stages:
            for uri, prefix in stage.leftovers():
                builder.then_remove(uri, prefix)
        return builder.build()


def _must_stand(tx: Tx, pipeline: str, one: DatasetRun) -> None:
    """A watermark that has its new value already would mean that these very rows are published."""
    for change in one.changes:
        row = tx.get(watermarks, pipeline=pipeline, dataset=one.name, partition=change.partition)
        if (None if row is None else row.value) != change.expected:
            raise WatermarkMoved(f"The watermark of {change.partition!r} of {one.name!r} has moved meanwhile")


def _tables(one: DatasetRun) -> set[str]:
    return {stage.table for stage in one.stages if isinstance(stage, TableStage)}
