"""Giving up a sequence: what it has done is taken back, so that the watermarks again tell what is visible.

Steps are undone from the last to the first. A sequence whose watermark, or any other step that can't be taken back, has
been done is not aborted: finishing it is the only way to keep what is visible and the watermark equal. A record that is
broken says nothing of its steps, and one that reaches for places which are not its pipeline's is not followed, not even
to undo it: both are dropped only when a person says so.
"""

from __future__ import annotations

from msgspec import Struct

from lakeseal.errors import BrokenSequence, NotAllowed, NotFound, Refused, UnknownStep
from lakeseal.steps.context import StepContext
from lakeseal.steps.sequence import CommitSequence
from lakeseal.steps.step import Undoable
from lakeseal.steps.store import CommitStepStore, SequenceState


class Aborted(Struct, frozen=True, kw_only=True):
    dataset: str
    undone: int
    """Steps that had been done, in whole or in part, and were taken back."""


def abort(
    steps: CommitStepStore, store: str, dataset: str, context: StepContext, *, epoch: int, drop_broken: bool = False
) -> Aborted:
    status = steps.status(store, dataset)
    if status is None:
        raise NotFound(f"{dataset!r} has no sequence in {store!r}")
    undone = 0
    try:
        sequence = steps.get_commit_sequence(store, dataset)
    except (BrokenSequence, UnknownStep):
        if not drop_broken:
            raise
        sequence = None
    if sequence is not None and drop_broken and not _is_in_place(sequence, context):
        sequence = None  # what it would do is not for this pipeline, undoing included
    if sequence is not None:
        context.check_places(sequence)
        # First look at all of them: a sequence is taken back as a whole or not at all.
        for step in sequence.steps:
            if not isinstance(step, Undoable) and step.verify(context):
                raise Refused(
                    f"The sequence of {dataset!r} in {store!r} can't be aborted: this has been done and can't be taken "
                    f"back: {step.describe()}",
                    hint="Finish it instead: lakeseal steps retry",
                )
        # Whatever happens from here on, nobody may go on with it by itself.
        steps.note(
            store,
            dataset,
            checksum=status.checksum,
            epoch=max(epoch, status.epoch),
            state=SequenceState.SET_ASIDE,
            tries=status.tries,
            reason="It is being aborted",
        )
        for step in reversed(sequence.steps):
            if isinstance(step, Undoable):
                step.undo(context)
                undone += 1
        for leftover in sequence.leftovers:
            leftover.remove(context)
    steps.remove(store, dataset, checksum=status.checksum, epoch=max(epoch, status.epoch))
    return Aborted(dataset=dataset, undone=undone)


def _is_in_place(sequence: CommitSequence, context: StepContext) -> bool:
    try:
        context.check_places(sequence)
    except NotAllowed:
        return False
    return True
