"""From what a user configures to the store of sequences: in the ledger, or as files somewhere."""

from __future__ import annotations

from lakeseal.steps.context import StepContext, StepSettings
from lakeseal.steps.file_store import FileStepStore
from lakeseal.steps.store import CommitStepStore


def step_store(settings: StepSettings, context: StepContext) -> CommitStepStore:
    if settings.steps is None:
        return context.books.sequences
    return FileStepStore(context.store(f"{settings.steps.rstrip('/')}/sequences"))
