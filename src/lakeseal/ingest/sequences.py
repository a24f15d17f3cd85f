"""Commit sequences of datasets: built from what is staged, and tried again where their steps fail."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lakeseal.errors import LakesealError, OutOfSpace, StorageUnavailable
from lakeseal.ingest.config import Dataset
from lakeseal.ingest.staging import Stage
from lakeseal.steps.context import StepContext
from lakeseal.steps.high_watermark import HighWatermarkCommitStep
from lakeseal.steps.recovery import DatasetRecovery, RecoveryPolicy, recover
from lakeseal.steps.sequence import CommitSequence
from lakeseal.steps.store import CommitStepStore
from lakeseal.steps.watermarks import WatermarkChange


def sequence_of(
    pipeline: str, dataset: str, epoch: int, stages: Sequence[Stage], changes: Sequence[WatermarkChange]
) -> CommitSequence | None:
    """The stages in their order, and then the watermarks; None if there is nothing to do."""
    builder = CommitSequence.builder(pipeline, dataset, epoch=epoch)
    for stage in stages:
        builder.add(*stage.steps())
    if changes:
        builder.add(HighWatermarkCommitStep.of(pipeline, dataset, changes))
    for stage in stages:
        for uri, prefix in stage.leftovers():
            builder.then_remove(uri, prefix)
    return builder.build() if stages or changes else None


def is_for_later(error: LakesealError) -> bool:
    """Whether a store only needs to come back, or to be given room: the next run goes on with the steps."""
    return isinstance(error, StorageUnavailable | OutOfSpace)


def try_again(
    steps: CommitStepStore, pipeline: str, context: StepContext, datasets: Iterable[Dataset]
) -> dict[str, DatasetRecovery]:
    """Steps that failed are tried as often as their dataset says, and set aside then."""
    by_policy: dict[RecoveryPolicy, list[str]] = {}
    for dataset in datasets:
        retries = dataset.retries
        policy = RecoveryPolicy(tries=max(1, retries.times), first_pause_s=retries.first_pause_seconds)
        by_policy.setdefault(policy, []).append(dataset.name)
    found: dict[str, DatasetRecovery] = {}
    for policy, names in by_policy.items():
        recovered = recover(steps, pipeline, context, datasets=names, policy=policy)
        found.update({one.dataset: one for one in recovered.datasets})
    return found
