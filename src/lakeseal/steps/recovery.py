"""Recovery: before anything new is extracted for a dataset, what an earlier run recorded for it is finished.

`recover` claims the datasets for this run's turn, verifies each step of each open sequence and does what is missing,
many datasets at once. What a caller may rely on:

- A dataset that is `clear` afterwards has no sequence, and no earlier run can record one any more: now its watermarks
  may be read and new rows extracted. No other dataset may be touched.
- A sequence that fails is tried again, with growing pauses, until its tries are used up (they are counted in the store,
  over all runs); then it is set aside with its reason. What trying again can't mend (a broken record, an unknown kind
  of step, content that is gone) sets it aside at once. The other datasets run on.
- A sequence that is set aside stays so until `retry` or `abort`.
- `Fenced` is raised as it is: this run has lost its turn and must stop.

Spark tasks do the same for a share of the datasets: `recover_share`, JSON in, JSON out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from typing import TypeVar

import msgspec
from msgspec import Struct

from lakeseal import typed_json
from lakeseal.backoff import Backoff
from lakeseal.errors import (
    CorruptTable,
    Fenced,
    InvalidArgument,
    InvalidInput,
    LakesealError,
    Refused,
    StorageError,
    Unsupported,
    WatermarkMoved,
)
from lakeseal.steps.context import StepContext, StepSettings
from lakeseal.steps.file_store import FileStepStore
from lakeseal.steps.store import CommitStepStore, SequenceState, SequenceStatus

# What the same steps would meet again, however often they are tried.
_HOPELESS = (CorruptTable, Unsupported, InvalidInput, Refused, WatermarkMoved)

T = TypeVar("T")


class RecoveryPolicy(Struct, frozen=True, kw_only=True):
    tries: int = 3
    first_pause_s: float = 0.2
    longest_pause_s: float = 10.0
    threads: int = 8
    """Datasets at once."""

    def __post_init__(self) -> None:
        if self.tries < 1 or self.threads < 1 or self.first_pause_s < 0:
            raise InvalidArgument("Recovery needs at least 1 try and 1 thread, and no negative pause")

    def pause(self, tries: int) -> float:
        # The lease keeps all others away: there is nobody to collide with.
        return Backoff(first_s=self.first_pause_s, longest_s=self.longest_pause_s, least=1.0).pause_s(tries)


class RecoveryOutcome(Enum):
    NOTHING = "nothing"
    """There was no sequence."""
    FINISHED = "finished"
    SET_ASIDE = "set_aside"
    OPEN = "open"
    """It failed, and the store could not even be told."""


class DatasetRecovery(Struct, frozen=True, kw_only=True):
    dataset: str
    outcome: RecoveryOutcome
    verified: int = 0
    """Steps that had been done before."""
    executed: int = 0
    tries: int = 0
    reason: str | None = None

    @property
    def is_clear(self) -> bool:
        return self.outcome in (RecoveryOutcome.NOTHING, RecoveryOutcome.FINISHED)


class Recovery(Struct, frozen=True, kw_only=True):
    datasets: tuple[DatasetRecovery, ...]

    @property
    def clear(self) -> list[str]:
        """Datasets for which new rows may be extracted."""
        return [one.dataset for one in self.datasets if one.is_clear]

    @property
    def not_clear(self) -> dict[str, str]:
        """The others, with their reasons."""
        return {one.dataset: one.reason or "" for one in self.datasets if not one.is_clear}

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Recovery:
        return _decoded(text, cls)


def recover(
    steps: CommitStepStore,
    store: str,
    context: StepContext,
    *,
    datasets: Iterable[str] | None = None,
    policy: RecoveryPolicy | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Recovery:
    """`datasets` are those that this run is about to work on; None takes all that have a sequence."""
    names = None if datasets is None else sorted(set(datasets))
    if context.turn is not None:
        claimed = [status.dataset for status in steps.statuses(store)] if names is None else names
        steps.claim(store, claimed, context.turn.epoch)
    found = {status.dataset: status for status in steps.statuses(store)}
    names = sorted(found) if names is None else names
    results = {name: _looked_at(name, found.get(name)) for name in names}
    waiting = [found[name] for name in names if name in found and found[name].state is SequenceState.OPEN]
    recoverer = _Recoverer(steps, context, policy or RecoveryPolicy())
    while waiting:
        ended = _side_by_side(recoverer.attempt, waiting, recoverer.policy.threads)
        waiting = []
        for result, again in ended:
            results[result.dataset] = result
            waiting += [] if again is None else [again]
        if waiting:
            sleep(recoverer.policy.pause(min(status.tries for status in waiting)))
    return Recovery(datasets=tuple(results[name] for name in names))


def retry(steps: CommitStepStore, store: str, dataset: str, *, epoch: int) -> bool:
    """A sequence that was set aside is open again, with all its tries. False if the dataset has none."""
    status = steps.status(store, dataset)
    if status is None:
        return False
    return steps.note(store, dataset, checksum=status.checksum, epoch=max(epoch, status.epoch))


class RecoveryRequest(Struct, frozen=True, kw_only=True):
    """What a task is told."""

    store: str
    datasets: tuple[str, ...]
    policy: RecoveryPolicy = RecoveryPolicy()

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()


def step_store(settings: StepSettings, context: StepContext) -> CommitStepStore:
    """That of sequences, as a user configures it: in the ledger, or as files somewhere."""
    if settings.steps is None:
        return context.books.sequences
    return FileStepStore(context.store(f"{settings.steps.rstrip('/')}/sequences"))


def recover_share(settings: StepSettings, request: str) -> str:
    """`recover` for a task's share of the datasets: from the JSON of a `RecoveryRequest` to that of a `Recovery`. The
    settings hold secrets, so they travel apart."""
    asked = _decoded(request, RecoveryRequest)
    with settings.open() as context:
        steps = step_store(settings, context)
        return recover(steps, asked.store, context, datasets=asked.datasets, policy=asked.policy).to_json()


def shares(datasets: Iterable[str], count: int) -> list[tuple[str, ...]]:
    """The datasets in at most `count` parts of nearly the same size, none of them empty."""
    names = sorted(set(datasets))
    return [part for start in range(max(1, count)) if (part := tuple(names[start :: max(1, count)]))]


class _Recoverer:
    def __init__(self, steps: CommitStepStore, context: StepContext, policy: RecoveryPolicy) -> None:
        self._steps = steps
        self._context = context
        self.policy = policy

    def attempt(self, status: SequenceStatus) -> tuple[DatasetRecovery, SequenceStatus | None]:
        """What came of one try, and the status to try again with."""
        dataset = status.dataset
        try:
            sequence = self._steps.get_commit_sequence(status.store, dataset)
            if sequence is None:  # somebody else has finished it
                return DatasetRecovery(dataset=dataset, outcome=RecoveryOutcome.FINISHED), None
            done = sequence.finish(self._steps, self._context)
        except Fenced:
            if self._steps.status(status.store, dataset) is None:  # finished by somebody else just now
                return DatasetRecovery(dataset=dataset, outcome=RecoveryOutcome.FINISHED), None
            raise
        except Exception as error:  # a user's step may raise anything
            return self._failed(status, error)
        finished = DatasetRecovery(
            dataset=dataset,
            outcome=RecoveryOutcome.FINISHED,
            verified=done.verified,
            executed=done.executed,
            tries=status.tries,
        )
        return finished, None

    def _failed(self, status: SequenceStatus, error: Exception) -> tuple[DatasetRecovery, SequenceStatus | None]:
        tries = status.tries + 1
        reason = str(error) if isinstance(error, LakesealError) else f"{type(error).__name__}: {error}"
        over = isinstance(error, _HOPELESS) or tries >= self.policy.tries
        state = SequenceState.SET_ASIDE if over else SequenceState.OPEN
        epoch = status.epoch if self._context.turn is None else self._context.turn.epoch
        outcome = RecoveryOutcome.SET_ASIDE if over else RecoveryOutcome.OPEN
        try:
            self._steps.note(
                status.store,
                status.dataset,
                checksum=status.checksum,
                epoch=epoch,
                state=state,
                tries=tries,
                reason=reason,
            )
        except StorageError as lost:
            reason, outcome, over = f"{reason} (and the store could not be told: {lost})", RecoveryOutcome.OPEN, True
        result = DatasetRecovery(dataset=status.dataset, outcome=outcome, tries=tries, reason=reason)
        return result, None if over else msgspec.structs.replace(status, tries=tries)


def _looked_at(name: str, status: SequenceStatus | None) -> DatasetRecovery:
    if status is None:
        return DatasetRecovery(dataset=name, outcome=RecoveryOutcome.NOTHING)
    return DatasetRecovery(dataset=name, outcome=RecoveryOutcome.SET_ASIDE, tries=status.tries, reason=status.reason)


def _side_by_side(do: Callable[[SequenceStatus], T], items: list[SequenceStatus], threads: int) -> list[T]:
    if len(items) < 2 or threads < 2:
        return [do(item) for item in items]
    with ThreadPoolExecutor(min(threads, len(items)), thread_name_prefix="lakeseal-recovery") as pool:
        futures = [pool.submit(do, item) for item in items]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _decoded(text: str | bytes, cls: type[T]) -> T:
    try:
        return typed_json.decode(text, cls)
    except msgspec.MsgspecError as error:
        raise InvalidArgument(
            f"A message about recovery is malformed: {error}",
            hint="Driver and tasks must run the same version of Lakeseal",
        ) from None
