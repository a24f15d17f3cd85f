"""Steps that must all happen or be finished later: a write-ahead log of what a publisher is about to do.

A `CommitSequence` is recorded whole in a `CommitStepStore` before its first step runs. Whoever comes next finds it
there, verifies each step and does what is missing (`recovery`), before anything new is published for the dataset.
"""

from lakeseal.steps.context import StepContext, StepSettings, Turn
from lakeseal.steps.sequence import CommitSequence, SequenceBuilder
from lakeseal.steps.step import CommitStep, Undoable, register
from lakeseal.steps.store import CommitStepStore, SequenceState, SequenceStatus

__all__ = [
    "CommitSequence",
    "CommitStep",
    "CommitStepStore",
    "SequenceBuilder",
    "SequenceState",
    "SequenceStatus",
    "StepContext",
    "StepSettings",
    "Turn",
    "Undoable",
    "register",
]
