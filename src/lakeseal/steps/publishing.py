"""Publishing without the driver: whoever is responsible for a share of the datasets waits until all tasks of one have
finished, builds its commit sequence from what they reported, and commits it.

A task reports a `TaskOutput` as the output of its `TaskState`. `publish_share` is what a Spark task calls: JSON in,
JSON out. It may be run again, and by several at once: a sequence that was built a second time finds its steps done.

The order at the end is: task output, sequence, task states.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import msgspec
from msgspec import Struct

from lakeseal import typed_json
from lakeseal.errors import BrokenSequence, Fenced, InvalidArgument, LakesealError
from lakeseal.steps.connect import step_store, task_states
from lakeseal.steps.context import StepContext, StepSettings
from lakeseal.steps.fs_rename import FsRenameCommitStep, Rename
from lakeseal.steps.high_watermark import HighWatermarkCommitStep
from lakeseal.steps.sequence import CommitSequence, Leftover
from lakeseal.steps.step import CommitStep
from lakeseal.steps.store import CommitStepStore
from lakeseal.steps.task_states import TaskState, TaskStateStore, all_finished, have_ended
from lakeseal.steps.watermarks import WatermarkChange


class TaskOutput(Struct, frozen=True, kw_only=True):
    """What one task adds to its dataset."""

    source: str
    target: str
    files: tuple[Rename, ...] = ()
    watermarks: tuple[WatermarkChange, ...] = ()
    leftovers: tuple[Leftover, ...] = ()

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = msgspec.to_builtins(self)
        return value

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> TaskOutput:
        try:
            return typed_json.convert(value, cls)
        except msgspec.ValidationError as error:
            raise BrokenSequence(f"What a task reported is malformed: {error}") from None


class Published(Enum):
    PUBLISHED = "published"
    NOTHING = "nothing"
    """Its tasks finished without anything to publish."""
    FAILED = "failed"
    """Some of its tasks failed, or the sequence did; what was recorded is left to recovery."""
    WAITING = "waiting"
    """Its tasks had not all ended when the patience did."""


class DatasetPublished(Struct, frozen=True, kw_only=True):
    dataset: str
    outcome: Published
    files: int = 0
    reason: str | None = None


class PublishRequest(Struct, frozen=True, kw_only=True):
    """What a task is told."""

    store: str
    pipeline: str
    """Of the watermarks."""
    run: str
    datasets: tuple[str, ...]
    patience_s: float = 600.0
    pause_s: float = 0.5

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()


class PublishReport(Struct, frozen=True, kw_only=True):
    datasets: tuple[DatasetPublished, ...]

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> PublishReport:
        return typed_json.decode(text, cls)


def sequence_of(
    outputs: Sequence[TaskOutput], *, store: str, pipeline: str, dataset: str, epoch: int
) -> CommitSequence | None:
    """The sequence that publishes what the tasks of a dataset have left; None if that is nothing."""
    by_place: dict[tuple[str, str], list[Rename]] = {}
    for output in outputs:
        if output.files:
            by_place.setdefault((output.source, output.target), []).extend(output.files)
    steps: list[CommitStep] = [
        FsRenameCommitStep(source=source, target=target, files=tuple(files))
        for (source, target), files in by_place.items()
    ]
    if changes := [change for output in outputs for change in output.watermarks]:
        steps.append(HighWatermarkCommitStep.of(pipeline, dataset, changes))
    if not steps:
        return None
    builder = CommitSequence.builder(store, dataset, epoch=epoch).add(*steps)
    for leftover in dict.fromkeys((one.uri, one.prefix) for output in outputs for one in output.leftovers):
        builder.then_remove(*leftover)
    return builder.build()


def publish_share(settings: StepSettings, request: str) -> str:
    """From the JSON of a `PublishRequest` to that of a `PublishReport`. The settings hold secrets, so they travel
    apart."""
    try:
        asked = typed_json.decode(request, PublishRequest)
    except msgspec.MsgspecError as error:
        raise InvalidArgument(
            f"A message about publishing is malformed: {error}",
            hint="Driver and tasks must run the same version of Lakeseal",
        ) from None
    with settings.open() as context:
        steps, states = step_store(settings, context), task_states(settings, context)
        return publish(steps, states, context, asked).to_json()


def publish(
    steps: CommitStepStore,
    states: TaskStateStore,
    context: StepContext,
    request: PublishRequest,
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> PublishReport:
    until = time.monotonic() + request.patience_s
    waiting = list(dict.fromkeys(request.datasets))
    done: dict[str, DatasetPublished] = {}
    while True:
        for dataset in list(waiting):
            reported = states.states(request.store, dataset, request.run)
            if have_ended(reported):
                done[dataset] = _publish_one(steps, states, context, request, dataset, reported)
                waiting.remove(dataset)
        if not waiting or time.monotonic() >= until:
            break
        sleep(request.pause_s)
    for dataset in waiting:
        done[dataset] = DatasetPublished(dataset=dataset, outcome=Published.WAITING)
    return PublishReport(datasets=tuple(done[dataset] for dataset in dict.fromkeys(request.datasets)))


def _publish_one(
    steps: CommitStepStore,
    states: TaskStateStore,
    context: StepContext,
    request: PublishRequest,
    dataset: str,
    reported: tuple[TaskState, ...],
) -> DatasetPublished:
    if not all_finished(reported):
        failed = [state for state in reported if state.state == "failed"]
        reason = f"{len(failed)} of {len(reported)} tasks failed: {failed[0].reason}"
        return DatasetPublished(dataset=dataset, outcome=Published.FAILED, reason=reason)
    try:
        outputs = [TaskOutput.from_json(state.output) for state in reported]
        epoch = 0 if context.turn is None else context.turn.epoch
        sequence = sequence_of(outputs, store=request.store, pipeline=request.pipeline, dataset=dataset, epoch=epoch)
        if sequence is not None:
            sequence.commit(steps, context)
    except Fenced:
        raise
    except LakesealError as error:
        # Recorded or not, recovery finds out; it is not retried here, where others are waiting.
        return DatasetPublished(dataset=dataset, outcome=Published.FAILED, reason=str(error))
    states.remove(request.store, dataset, request.run)
    files = sum(len(output.files) for output in outputs)
    outcome = Published.NOTHING if sequence is None else Published.PUBLISHED
    return DatasetPublished(dataset=dataset, outcome=outcome, files=files)
