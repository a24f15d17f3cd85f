"""From what a user configures to the stores of sequences and task states: in the ledger, or as files somewhere."""

from __future__ import annotations

from lakeseal.steps.context import StepContext, StepSettings
from lakeseal.steps.file_store import FileStepStore
from lakeseal.steps.store import CommitStepStore
from lakeseal.steps.task_states import FileTaskStates, TaskStateStore


def step_store(settings: StepSettings, context: StepContext) -> CommitStepStore:
    if settings.steps is None:
        return context.books.sequences
    return FileStepStore(context.store(f"{settings.steps.rstrip('/')}/sequences"))


def task_states(settings: StepSettings, context: StepContext) -> TaskStateStore:
    if settings.steps is None:
        return context.books.task_states
    return FileTaskStates(context.store(f"{settings.steps.rstrip('/')}/tasks"))
