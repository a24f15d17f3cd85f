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

from lakeseal.errors import (
    CommitOutcomeUnknown,
    Fenced,
    LakesealError,
    OutOfSpace,
    StorageUnavailable,
    UnknownOutcome,
)
from lakeseal.ingest import spreading
from lakeseal.ingest.config import PipelineConfig
from lakeseal.ingest.dataset_run import DatasetRun, ours
from lakeseal.ingest.jobs import Jobs, SpreadsSteps
from lakeseal.ingest.spreading import CommitShare
from lakeseal.ingest.staging import TableStage
from lakeseal.ingest.turn import HeldTurn
from lakeseal.owner.endpoint import OwnerEndpoint
from lakeseal.owner.messages import LedgerRecord
from lakeseal.owner.transaction import Transaction
from lakeseal.steps.context import StepContext
from lakeseal.steps.high_watermark import HighWatermarkCommitStep
from lakeseal.steps.leases import held as is_held
from lakeseal.steps.recovery import Outcome, RecoveryPolicy, recover, shares
from lakeseal.steps.sequence import CommitSequence
from lakeseal.steps.watermarks import moves
from lakeseal.table import HOOKS
from lakeseal.write.task_report import error_from_json

_THREADS = 8


class Publication:
    def __init__(
        self,
        config: PipelineConfig,
        *,
        owner: OwnerEndpoint,
        held: HeldTurn,
        context: StepContext,
        jobs: Callable[[], Jobs],
    ) -> None:
        self._config, self._owner, self._held = config, owner, held
        self._steps, self._context, self._jobs = context.books.sequences, context, jobs

    def publish(self, staged: Sequence[DatasetRun]) -> None:
        """Each of them has a state afterwards. `Fenced` is raised as it is."""
        for one in staged:
            one.stages = [stage for stage in one.stages if not stage.is_empty]
        apart = self._joint([one for one in staged if one.is_joint]) + [one for one in staged if not one.is_joint]
        exactly_once = self._config.delivery == "exactly_once"
        left = self._in_shares(apart) if exactly_once and len(apart) >= spreading.FROM else apart
        if left:
            with ThreadPoolExecutor(min(_THREADS, len(left)), thread_name_prefix="lakeseal-publish") as pool:
                for _ in pool.map(self._by_steps, left):
                    pass
        if exactly_once:
            self._try_again([one for one in apart if one.state == "failed" and one.steps])

    def _joint(self, datasets: Sequence[DatasetRun]) -> list[DatasetRun]:
        """Those that are left over: their watermarks have no commit to ride along with."""
        left = list(datasets)
        while any(one.stages for one in left):
            transaction = Transaction(self._owner, hooks=HOOKS)
            records = [is_held(self._held.turn)]
            refused = next((one for one in left if not self._state(one, transaction, records)), None)
            if refused is not None:
                left.remove(refused)
                continue
            try:
                result = transaction.commit(records=records)
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
            return []
        return left

    def _state(self, one: DatasetRun, transaction: Transaction, records: list[LedgerRecord]) -> bool:
        try:
            records += moves(self._config.name, one.name, one.changes, turn=self._held.turn)
            for stage in one.stages:
                assert isinstance(stage, TableStage)
                stage.join(transaction)
        except LakesealError as error:
            one.fail(error)
            return False
        return True

    def _in_shares(self, apart: Sequence[DatasetRun]) -> list[DatasetRun]:
        """By tasks, as far as they can; those that are left over."""
        jobs, settings = self._jobs(), spreading.settings_for(self._config, self._held.turn)
        if not isinstance(jobs, SpreadsSteps) or settings is None or not jobs.reaches(self._config.ledger):
            return list(apart)
        sequences = {one.name: (one, sequence) for one in apart if (sequence := self._sequence(one)) is not None}
        parts = shares(sequences, self._config.max_parallel)
        requests = [
            CommitShare.of(self._config.name, [sequences[name][1] for name in part]).to_json() for part in parts
        ]
        try:
            answers = jobs.in_shares(f"publish {self._config.name}", spreading.commit_share, settings, requests)
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
                watermarks = self._context.books.watermarks
                watermarks.advance(self._config.name, one.name, one.changes, turn=self._held.turn)
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

    def _try_again(self, failed: Sequence[DatasetRun]) -> None:
        """Steps that failed are tried as often as their dataset says, and set aside then. What only needs its store to
        come back, or to be given room, is left open instead: the next run goes on with it."""
        by_policy: dict[RecoveryPolicy, list[DatasetRun]] = {}
        for one in failed:
            if not isinstance(one.error, StorageUnavailable | OutOfSpace):
                retries = one.dataset.retries
                policy = RecoveryPolicy(tries=max(1, retries.times), first_pause_s=retries.first_pause_seconds)
                by_policy.setdefault(policy, []).append(one)
        for policy, datasets in by_policy.items():
            names = [one.name for one in datasets]
            found = recover(self._steps, self._config.name, self._context, datasets=names, policy=policy)
            by_name = {one.dataset: one for one in found.datasets}
            for one in datasets:
                match by_name[one.name].outcome:
                    case Outcome.FINISHED:
                        one.error = None
                        one.end("published")
                    case Outcome.SET_ASIDE:
                        one.set_aside(f"Its steps keep failing: {by_name[one.name].reason}", self._config.name)

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


def _tables(one: DatasetRun) -> set[str]:
    return {stage.table for stage in one.stages if isinstance(stage, TableStage)}
