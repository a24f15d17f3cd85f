"""From the reports of a dataset's orders to a dataset that is published: the one path there is.

    reports ─► settle ─► decide ─► publish
               what      judge,    rows visible, watermarks moved
               counts    stage

The driver calls it with the reports that came back from the job; or the task that reports last does, with those in the
ledger (`delegation`). What it does is the same:

- Tables whose commits the pipeline's ledger decides on: one ledger transaction for all datasets of the run, in which
  each table gets its version and each watermark moves. There is no moment in between. Only the driver sees all of them.
- Everything else: a commit sequence per dataset, recorded before its first step runs, with the watermarks as its last.
  A run that dies leaves it to the next one. With at_least_once, steps are done without having been recorded.
- A dataset from which nothing is to be published moves its watermarks alone.
- Datasets that are made of others (`deriving`) are worked out in between: from the tables as the transaction is about
  to leave them, to be a part of it, or from what is committed.

Steps that fail are tried again as often as their dataset says, and then set aside for a person to look at. What a store
that is away, or full, would mend by itself stays open for the next run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from lakeseal.errors import (
    CommitOutcomeUnknown,
    ConcurrentModification,
    Fenced,
    InvalidArgument,
    LakesealError,
    OutOfSpace,
    StorageUnavailable,
    UnknownOutcome,
)
from lakeseal.ingest.config import Delivery
from lakeseal.ingest.orders import DatasetOutcome, DatasetWork, Summary
from lakeseal.ingest.seen import Seen
from lakeseal.ingest.settling import Settled, judged
from lakeseal.ingest.targets import Staged, Tables
from lakeseal.jobs.task_report import error_from_json
from lakeseal.owner.transaction import Transaction, TransactionResult
from lakeseal.steps.context import StepContext
from lakeseal.steps.high_watermark import HighWatermarkCommitStep
from lakeseal.steps.leases import held
from lakeseal.steps.recovery import DatasetRecovery, RecoveryOutcome, RecoveryPolicy, recover
from lakeseal.steps.sequence import CommitSequence
from lakeseal.steps.turn import Turn
from lakeseal.steps.watermarks import moves
from lakeseal.storage import StoreSpec
from lakeseal.table import HOOKS

if TYPE_CHECKING:
    from lakeseal.ingest.deriving import Derivation

_THREADS = 8
_MERGE_TRIES = 10


class Decision(Struct, frozen=True, kw_only=True):
    """A dataset that may be published."""

    work: DatasetWork
    summary: Summary
    staged: tuple[Staged, ...]
    """What makes the rows visible, in this order: the error table's, then the target's. None of them is empty."""

    @property
    def name(self) -> str:
        return self.work.name

    @property
    def is_joint(self) -> bool:
        return all(one.destination.is_joint for one in self.staged)

    @property
    def merges(self) -> bool:
        return any(one.destination.merge is not None for one in self.staged)

    @property
    def tables(self) -> list[str]:
        return [one.destination.uri for one in self.staged]


class Publishing:
    """Of datasets of one pipeline, under the context's turn. May be shared by threads."""

    def __init__(
        self, pipeline: str, context: StepContext, tables: Tables, *, delivery: Delivery = "exactly_once"
    ) -> None:
        self._pipeline, self._context, self._tables, self._delivery = pipeline, context, tables, delivery
        self._steps = context.books.sequences

    def decide(self, work: DatasetWork, settled: Settled) -> Decision:
        """Raises if the dataset must not be published. An error table is made if there is something for it."""
        warnings = judged(work.dataset, settled.summary.measured)
        staged = [self._tables.staged(work.destination, settled.messages)]
        if settled.error_messages:
            errors = self._tables.errors(work.dataset, work.provenance)
            staged.insert(0, errors.staged(settled.error_messages))
        return Decision(
            work=work,
            summary=replace(settled.summary, warnings=warnings),
            staged=tuple(one for one in staged if not one.is_empty),
        )

    def sequence(self, decision: Decision) -> CommitSequence | None:
        """Its steps, and the watermarks last; None if there is nothing to do."""
        builder = CommitSequence.builder(self._pipeline, decision.name, epoch=self._turn.epoch)
        for one in decision.staged:
            self._tables.check(one)
            builder.add(*one.steps())
            for leftover in one.leftovers:
                builder.then_remove(leftover.uri, leftover.prefix)
        changes = decision.summary.changes
        if changes:
            builder.add(HighWatermarkCommitStep.of(self._pipeline, decision.name, changes))
        return builder.build() if decision.staged or changes else None

    def publish(self, decisions: Sequence[Decision], derivations: Sequence[Derivation] = ()) -> list[DatasetOutcome]:
        """What became of each; of derivations, in the order in which they are made of each other, only of those that
        were due. `Fenced` is raised as it is."""
        joint = [one for one in decisions if one.is_joint]
        outcomes, left = self._publish_together(joint, [one for one in derivations if one.is_joint])
        apart = [*left, *(one for one in decisions if not one.is_joint)]
        for one in (one for one in derivations if not one.is_joint):
            found = self._derived(one, self._tables.seen)
            if isinstance(found, DatasetOutcome):
                outcomes.append(found)
            elif found is not None:
                apart.append(one.with_watermarks(*found))
        if apart:
            with ThreadPoolExecutor(min(_THREADS, len(apart)), thread_name_prefix="lakeseal-publish") as pool:
                ended = list(pool.map(self._publish_by_steps, apart))
            if self._delivery == "exactly_once":
                ended = self.try_again(ended, [one.work for one in apart])
            outcomes += ended
        return outcomes

    def try_again(self, outcomes: Iterable[DatasetOutcome], works: Iterable[DatasetWork]) -> list[DatasetOutcome]:
        """With those whose recorded steps failed as often as their datasets say, and set aside then."""
        found = {outcome.dataset: outcome for outcome in outcomes}
        by_name = {work.name: work for work in works}
        by_policy: dict[RecoveryPolicy, list[str]] = {}
        for name in (name for name, outcome in found.items() if _is_to_retry(outcome)):
            retries = by_name[name].dataset.retries
            policy = RecoveryPolicy(tries=max(1, retries.times), first_pause_s=retries.first_pause_seconds)
            by_policy.setdefault(policy, []).append(name)
        for policy, names in by_policy.items():
            for one in recover(self._steps, self._pipeline, self._context, datasets=names, policy=policy).datasets:
                found[one.dataset] = self._recovered(found[one.dataset], one, by_name[one.dataset])
        return list(found.values())

    def published(self, work: DatasetWork, summary: Summary) -> DatasetOutcome:
        version = None
        with suppress(LakesealError):  # the rows are published all the same
            version = self._tables.maintain(
                work.dataset, work.destination, has_errors=summary.measured.to_error_table > 0
            )
        return DatasetOutcome(dataset=work.name, state="published", summary=summary, version=version)

    @property
    def _turn(self) -> Turn:
        assert self._context.turn is not None
        return self._context.turn

    def _recovered(self, outcome: DatasetOutcome, recovery: DatasetRecovery, work: DatasetWork) -> DatasetOutcome:
        match recovery.outcome:
            case RecoveryOutcome.FINISHED:
                return self.published(work, outcome.summary)
            case RecoveryOutcome.SET_ASIDE:
                reason = LakesealError(recovery.reason or "").to_json()
                return replace(outcome, state="set_aside", error=reason)
        return outcome

    def _publish_together(
        self, decisions: Sequence[Decision], derivations: Sequence[Derivation]
    ) -> tuple[list[DatasetOutcome], list[Decision]]:
        """Outcomes; and those that are left over, since their watermarks have no commit to ride along with. A dataset
        that is to blame for a failure fails alone, and the others are committed without it."""
        outcomes: list[DatasetOutcome] = []
        left, due = list(decisions), list(derivations)
        again = _MERGE_TRIES
        while due or any(one.staged for one in left):
            try:
                made = self._commit_together(left, due)
            except _Refused as refused:
                depends = due or any(one.merges for one in left)
                if again and isinstance(refused.error, ConcurrentModification) and depends:
                    again -= 1  # somebody else has changed what a merge or a query read; the rows still wait
                    continue
                guilty = {one.name for one in refused.decisions} or {
                    *(one.name for one in left),
                    *(one.name for one in due),
                }
                known = {one.name: one for one in (*left, *refused.decisions)}
                outcomes += (_failed_as(name, known.get(name), refused.error) for name in sorted(guilty))
                left = [one for one in left if one.name not in guilty]
                due = [one for one in due if one.name not in guilty]
                continue
            outcomes += made.failed
            if made.result is None:
                # Late and repeated rows change nothing, and yet they are read.
                return outcomes, [replace(one, staged=()) for one in made.decisions]
            return [*outcomes, *(_committed(one, made.result) for one in made.decisions)], []
        return outcomes, left

    def _commit_together(self, decisions: list[Decision], derivations: Sequence[Derivation]) -> _Made:
        transaction = Transaction(self._tables.owner, hooks=HOOKS)
        by_table: dict[str, list[Decision]] = {}  # an error table may be that of several datasets
        for one in decisions:
            for uri in one.tables:
                by_table.setdefault(uri, []).append(one)
        has_stated = False
        for uri, sharing in by_table.items():
            try:
                staged = [part for one in sharing for part in one.staged if part.destination.uri == uri]
                has_stated |= self._tables.join(staged, transaction)
            except LakesealError as error:
                raise _Refused(sharing[:1], error) from error
        together = list(decisions)
        failed: list[DatasetOutcome] = []
        worked_out: list[tuple[Derivation, Decision, Mapping[str, Seen]]] = []
        for derivation in derivations:
            found = self._derived(derivation, lambda stores: self._tables.seen(stores, transaction))
            if isinstance(found, DatasetOutcome):
                failed.append(found)
            elif found is not None:
                worked_out.append((derivation, *found))
                has_stated |= self._joined(found[0], transaction)
        # Only now: a table that joins late may have moved the others on to versions that say the same.
        together += (one.with_watermarks(decision, seen) for one, decision, seen in worked_out)
        records = [held(self._turn)]
        for one in together:
            try:
                records += moves(self._pipeline, one.name, one.summary.changes, turn=self._turn)
            except LakesealError as error:
                raise _Refused([one], error) from error
        if not has_stated:
            return _Made(result=None, decisions=together, failed=failed)
        try:
            result = transaction.commit(records=records, as_seen=bool(worked_out))
        except Exception as raised:
            reason = ours(raised)
            guilty = [one for one in together if reason.table is not None and reason.table in one.tables]
            is_known = not isinstance(reason, CommitOutcomeUnknown | UnknownOutcome)
            raise _Refused(guilty[:1] if guilty and is_known else together, reason) from raised
        return _Made(result=result, decisions=together, failed=failed)

    def _derived(
        self, derivation: Derivation, seen_as: Callable[[Mapping[str, StoreSpec]], dict[str, Seen]]
    ) -> tuple[Decision, Mapping[str, Seen]] | DatasetOutcome | None:
        """None if it is not due; why it must not be published, otherwise."""
        try:
            seen = seen_as(derivation.inputs)
            decision = derivation.decided(seen)
        except ConcurrentModification as error:
            raise _Refused([], error) from error
        except Exception as error:
            return _failed_as(derivation.name, None, ours(error))
        if decision is not None and derivation.is_joint and not decision.is_joint:
            apart = InvalidArgument(
                f"{derivation.name!r} and its table for errors are not of one owner",
                hint="Name another table by error_table, or make the target with owner: none",
            )
            return _failed_as(derivation.name, decision, apart)
        return None if decision is None else (decision, seen)

    def _joined(self, decision: Decision, transaction: Transaction) -> bool:
        try:
            stated = [self._tables.join([one], transaction) for one in decision.staged]
        except LakesealError as error:
            raise _Refused([decision], error) from error
        return any(stated)

    def _publish_by_steps(self, decision: Decision) -> DatasetOutcome:
        summary = decision.summary
        try:
            if not decision.staged:
                watermarks = self._context.books.watermarks
                watermarks.advance(self._pipeline, decision.name, summary.changes, turn=self._turn)
                return self.published(decision.work, summary)
            sequence = self.sequence(decision)
            assert sequence is not None
            summary = replace(summary, steps=len(sequence.steps))
            if self._delivery == "exactly_once":
                sequence.commit(self._steps, self._context)
            else:
                sequence.replay(self._context)
        except Exception as error:
            return _failed(decision, ours(error), summary)
        return self.published(decision.work, summary)


class _Made(Struct, frozen=True, kw_only=True):
    """What a transaction came to."""

    result: TransactionResult | None
    """None if there was nothing to commit."""
    decisions: list[Decision]
    """All that it has, or would have."""
    failed: list[DatasetOutcome]
    """Those that were left out."""


class _Refused(Exception):
    """A transaction over these datasets comes to nothing, by an error of theirs; if there are none, by one of all."""

    def __init__(self, decisions: list[Decision], error: LakesealError) -> None:
        self.decisions, self.error = decisions, error


def ours(error: Exception) -> LakesealError:
    """Any error as one of ours; `Fenced` ends the whole run and is raised."""
    if isinstance(error, Fenced):
        raise error
    if isinstance(error, LakesealError):
        return error
    return LakesealError(f"Unexpected {type(error).__name__}: {error}", hint="Look at its cause in the log")


def _committed(decision: Decision, result: TransactionResult) -> DatasetOutcome:
    target = decision.work.destination.uri
    version = result.tables[target].version if target in result.tables else None
    return DatasetOutcome(dataset=decision.name, state="published", summary=decision.summary, version=version)


def _failed(decision: Decision, error: LakesealError, summary: Summary | None = None) -> DatasetOutcome:
    return replace(_failed_as(decision.name, decision, error), summary=summary or decision.summary)


def _failed_as(name: str, decision: Decision | None, error: LakesealError) -> DatasetOutcome:
    summary = Summary() if decision is None else decision.summary
    return DatasetOutcome(dataset=name, state="failed", summary=summary, error=error.to_json())


def _is_to_retry(outcome: DatasetOutcome) -> bool:
    """Whether steps were recorded, and failed by something that the next run would not find mended by itself."""
    if outcome.state != "failed" or outcome.may_retry or not outcome.summary.steps:
        return False
    return not isinstance(error_from_json(outcome.error or {}), StorageUnavailable | OutOfSpace)
