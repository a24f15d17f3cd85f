"""`HighWatermarkCommitStep`: the watermarks of a dataset move on to what the steps before it have made visible.

All partitions move in one ledger transaction, each from the value that it had when the rows were extracted. The rules
are those of `watermarks`: never back, never from an unexpected value, and not by a run that lost its turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lakeseal.errors import InvalidArgument
from lakeseal.steps.context import StepContext
from lakeseal.steps.places import Reach
from lakeseal.steps.step import CommitStep, register
from lakeseal.steps.watermarks import WatermarkChange, check_forward


@register
class HighWatermarkCommitStep(CommitStep, frozen=True, kw_only=True, tag="high-watermark"):
    pipeline: str
    dataset: str
    changes: tuple[WatermarkChange, ...]

    def __post_init__(self) -> None:
        if len({change.partition for change in self.changes}) != len(self.changes):
            raise InvalidArgument("A partition has two new watermarks", hint="Give each partition once")
        for change in self.changes:
            check_forward(change)

    @classmethod
    def of(cls, pipeline: str, dataset: str, changes: Iterable[WatermarkChange]) -> HighWatermarkCommitStep:
        return cls(pipeline=pipeline, dataset=dataset, changes=tuple(changes))

    @property
    def place(self) -> tuple[str, str]:
        return self.pipeline, self.dataset

    @classmethod
    def joined(cls, steps: Sequence[HighWatermarkCommitStep]) -> HighWatermarkCommitStep:
        return cls.of(*steps[0].place, (change for step in steps for change in step.changes))

    def verify(self, context: StepContext) -> bool:
        found = context.books.watermarks.read(self.pipeline, self.dataset)
        return all(found.get(change.partition) == change.value for change in self.changes)

    def execute(self, context: StepContext) -> None:
        context.books.watermarks.advance(self.pipeline, self.dataset, self.changes, turn=context.turn)

    def reaches(self) -> Reach:
        return Reach(pipelines=(self.pipeline,))

    def describe(self) -> str:
        return f"advance {len(self.changes)} watermarks of {self.dataset} in {self.pipeline}"
