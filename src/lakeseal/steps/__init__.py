"""Steps that must all happen or be finished later: a write-ahead log of what a publisher is about to do.

A `CommitSequence` is recorded whole in a `CommitStepStore` before its first step runs. Whoever comes next finds it
there, verifies each step and does what is missing (`recover`), before anything new is published for the dataset.
"""

from lakeseal.steps.context import StepContext, StepSettings
from lakeseal.steps.file_store import FileStepStore
from lakeseal.steps.fs_rename import FsRenameCommitStep, Rename, checksum_of
from lakeseal.steps.high_watermark import HighWatermarkCommitStep
from lakeseal.steps.ledger_store import LedgerStepStore
from lakeseal.steps.recovery import Recovery, RecoveryPolicy, recover
from lakeseal.steps.sequence import CommitSequence, SequenceBuilder
from lakeseal.steps.step import CommitStep, Joinable, Undoable, register
from lakeseal.steps.store import CommitStepStore, SequenceState, SequenceStatus
from lakeseal.steps.turn import Turn
from lakeseal.steps.watermarks import WatermarkChange, Watermarks

__all__ = [
    "CommitSequence",
    "CommitStep",
    "CommitStepStore",
    "FileStepStore",
    "FsRenameCommitStep",
    "HighWatermarkCommitStep",
    "Joinable",
    "LedgerStepStore",
    "Recovery",
    "RecoveryPolicy",
    "Rename",
    "SequenceBuilder",
    "SequenceState",
    "SequenceStatus",
    "StepContext",
    "StepSettings",
    "Turn",
    "Undoable",
    "WatermarkChange",
    "Watermarks",
    "checksum_of",
    "recover",
    "register",
]
