"""Making staged rows visible, and the watermarks with them.

- Tables whose commits the pipeline's ledger decides on: one ledger transaction for all datasets of the run, in which
  each table gets its version and each watermark moves. There is no moment in between.
- Everything else: a commit sequence per dataset, recorded before its first step runs, with the watermarks as its last.
  A run that dies leaves it to the next one.
- A dataset from which nothing is to be published moves its watermarks alone.

With at_least_once, steps are done without having been recorded. With many datasets, sequences are not made here: tasks
publish (`spreading`).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from lakeseal.errors import (
    CommitOutcomeUnknown,
    Fenced,
    LakesealError,
    UnknownOutcome,
)
from lakeseal.ingest.config import PipelineConfig
from lakeseal.ingest.dataset_run import DatasetRun, ours
from lakeseal.ingest.sequences import is_for_later, sequence_of, try_again
from lakeseal.ingest.staging import TableStage
from lakeseal.ingest.turn import HeldTurn
from lakeseal.owner.endpoint import OwnerEndpoint
from lakeseal.owner.messages import LedgerRecord
from lakeseal.owner.transaction import Transaction
from lakeseal.steps.context import StepContext
from lakeseal.steps.leases import held as is_held
from lakeseal.steps.recovery import Outcome
from lakeseal.steps.sequence import CommitSequence
from lakeseal.steps.watermarks import moves
from lakeseal.table import HOOKS

_THREADS = 8


class Publication:
    def __init__(
        self,
        config: PipelineConfig,
        *,
        owner: OwnerEndpoint,
        held: HeldTurn,
        context: StepContext,
    ) -> None:
        self._config, self._owner, self._held = config, owner, held
        self._steps, self._context = context.books.sequences, context

    def publish(self, staged: Sequence[DatasetRun]) -> None:
        """Each of them has a state afterwards. `Fenced` is raised as it is."""
        for one in staged:
            one.stages = [stage for stage in one.stages if not stage.is_empty]
        apart = self._joint([one for one in staged if one.is_joint]) + [one for one in staged if not one.is_joint]
        if apart:
            with ThreadPoolExecutor(min(_THREADS, len(apart)), thread_name_prefix="lakeseal-publish") as pool:
                for _ in pool.map(self._by_steps, apart):
                    pass
        if self._config.delivery == "exactly_once":
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
        again = {one.name: one for one in failed if one.error is not None and not is_for_later(one.error)}
        datasets = [one.dataset for one in again.values()]
        for name, found in try_again(self._steps, self._config.name, self._context, datasets).items():
            match found.outcome:
                case Outcome.FINISHED:
                    again[name].error = None
                    again[name].end("published")
                case Outcome.SET_ASIDE:
                    again[name].set_aside(f"Its steps keep failing: {found.reason}", self._config.name)

    def _sequence(self, one: DatasetRun) -> CommitSequence | None:
        if not one.stages:
            return None
        return sequence_of(self._config.name, one.name, self._held.epoch, one.stages, one.changes)


def _tables(one: DatasetRun) -> set[str]:
    return {stage.table for stage in one.stages if isinstance(stage, TableStage)}
