"""Publishing without the driver: every task reports what it left behind, and whoever finds that all tasks of a dataset
have reported decides what becomes of it, records its commit sequence and runs it, there and then.

- A dataset is decided on once in a run: the first `Verdict` that is recorded stands for everybody, for ever. It holds
  the sequence itself, so whoever goes on after a crash, or does the same at the same time, runs the very same steps.
- Whoever reported last sees all reports, and calls `publish`. If it dies before it has published, anybody may call
  `close`, which does the rest, and decides on tasks that never reported. Both may be called by several at once.
- A task that is still at work somewhere, when its dataset has been decided on, changes nothing any more.

States and verdicts stay until a later run has claimed the datasets, as until then they keep late tasks from publishing
a second time. The order at the end is: task output, sequence, and then, in the next run, states and verdicts.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

import msgspec
from msgspec import Struct

from lakeseal import typed_json
from lakeseal.errors import AlreadyExists, BrokenSequence, Fenced, LakesealError
from lakeseal.steps.context import StepContext
from lakeseal.steps.sequence import CommitSequence, SequenceRecord
from lakeseal.steps.store import CommitStepStore
from lakeseal.steps.task_states import TaskState, TaskStateStore, have_ended


class Verdict(Struct, frozen=True, kw_only=True):
    """What is to become of a dataset: its sequence is to be run, or the error says why nothing is to be published.
    Without either there is nothing to do."""

    record: SequenceRecord | None = None
    error: dict[str, Any] | None = None
    detail: str = ""
    """The decider's own, for whoever asks what was decided."""


class Outcome(Enum):
    PUBLISHED = "published"
    REFUSED = "refused"
    """By the verdict."""
    FAILED = "failed"
    """Its steps did; the verdict stands, and whoever calls again, or recovery, goes on."""


class Published(Struct, frozen=True, kw_only=True):
    outcome: Outcome
    verdict: Verdict
    error: dict[str, Any] | None = None


Decide = Callable[[str, tuple[TaskState, ...]], Verdict]
"""From a dataset, and what its tasks have reported, to what is to become of it. May be asked several times."""


class SequencePublisher:
    """Of the datasets of one run. May be shared by threads."""

    def __init__(
        self,
        steps: CommitStepStore,
        states: TaskStateStore,
        context: StepContext,
        *,
        store: str,
        run: str,
        decide: Decide,
    ) -> None:
        """`run` is unique: a dataset that is tried again is another run's."""
        self._steps, self._states, self._context = steps, states, context
        self._store, self._run, self._decide = store, run, decide

    def has_finished(self, dataset: str, task: int) -> bool:
        """Whether an attempt at the task has, so that another one would be for nothing."""
        states = self._states.states(self._store, dataset, self._run)
        return any(state.task == task and state.state == "finished" for state in states)

    def report(self, dataset: str, state: TaskState) -> TaskState:
        """What stands: if it is another attempt's, that one's output is published."""
        return self._states.report(self._store, dataset, self._run, state)

    def publish(self, dataset: str, tasks: int) -> Published | None:
        """None while fewer than `tasks` of the dataset have reported. `Fenced` if the turn is lost."""
        if self._states.reported(self._store, dataset, self._run) < tasks:
            return None
        reported = self._states.states(self._store, dataset, self._run)
        return self._published(dataset, *self._decided(dataset, reported)) if have_ended(reported) else None

    def close(self, dataset: str) -> Published:
        """As `publish`, when tasks that have not reported never will: that, too, is decided on."""
        verdict = self._verdict(dataset)
        if verdict is not None:
            return self._published(dataset, verdict, is_decider=False)
        reported = self._states.states(self._store, dataset, self._run)
        return self._published(dataset, *self._decided(dataset, reported))

    def _published(self, dataset: str, verdict: Verdict, is_decider: bool) -> Published:
        if verdict.error is not None:
            return Published(outcome=Outcome.REFUSED, verdict=verdict, error=verdict.error)
        try:
            if verdict.record is not None:
                self._commit(verdict.record.sequence(self._store, dataset), is_decider)
        except Fenced:
            raise
        except Exception as error:  # a user's step may raise anything
            return Published(outcome=Outcome.FAILED, verdict=verdict, error=told(error))
        return Published(outcome=Outcome.PUBLISHED, verdict=verdict)

    def _verdict(self, dataset: str) -> Verdict | None:
        found = self._states.states(self._store, dataset, self._verdicts)
        return _decoded(found[0]) if found else None

    def _decided(self, dataset: str, reported: tuple[TaskState, ...]) -> tuple[Verdict, bool]:
        mine = TaskState(task=0, tasks=1, output=msgspec.to_builtins(self._decide(dataset, reported)))
        standing = self._states.report(self._store, dataset, self._verdicts, mine)
        return _decoded(standing), standing.output == mine.output

    def _commit(self, sequence: CommitSequence, is_decider: bool) -> None:
        if not is_decider and self._is_done(sequence):
            return
        try:
            sequence.commit(self._steps, self._context)
        except (Fenced, AlreadyExists):
            # Somebody else may have finished the same sequence meanwhile.
            if not self._is_done(sequence):
                raise

    def _is_done(self, sequence: CommitSequence) -> bool:
        """Steps are done in their order, so the last one tells; only this sequence of the dataset can have done it."""
        if self._steps.status(self._store, sequence.dataset) is not None:
            return False
        return sequence.steps[-1].verify(self._context)

    @property
    def _verdicts(self) -> str:
        return f"{self._run} verdict"


def told(error: BaseException) -> dict[str, Any]:
    """Any error as the JSON of one of ours."""
    if isinstance(error, LakesealError):
        return error.to_json()
    return LakesealError(f"A task failed by {type(error).__name__}: {error}").to_json()


def _decoded(state: TaskState) -> Verdict:
    try:
        return typed_json.convert(state.output, Verdict)
    except msgspec.ValidationError as error:
        raise BrokenSequence(f"What was decided on a dataset is malformed: {error}") from None
