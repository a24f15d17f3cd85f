"""The calls of `steps.books`, done on the service's own ledger by the same code as in a client's process.

Leases are those of pipelines only; the service's own are nobody else's business.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Generic

from msgspec import Meta, Struct

from lakeseal.errors import InvalidArgument, UnknownStep
from lakeseal.owner.messages import MAX_INT
from lakeseal.service.access import Caller
from lakeseal.service.call import BookCall, BookQuestion, Reply, calls_of
from lakeseal.steps.leases import OF_PIPELINES, Lease
from lakeseal.steps.runs import RunRecord
from lakeseal.steps.sequence import SequenceRecord
from lakeseal.steps.store import SequenceState, SequenceStatus
from lakeseal.steps.task_states import TaskState
from lakeseal.steps.turn import Turn
from lakeseal.steps.watermarks import Watermark, WatermarkChange

if TYPE_CHECKING:
    from lakeseal.service.service import Service

MOST_ITEMS = 100_000
MOST_REASON = 10_000

Name = Annotated[str, Meta(max_length=10_000, description="Of a pipeline, a store or a dataset: any text")]
RunId = Annotated[str, Meta(min_length=1, max_length=255)]
Epoch = Annotated[int, Meta(ge=0, le=MAX_INT)]
Checksum = Annotated[str, Meta(max_length=128)]
Count = Annotated[int, Meta(ge=0, le=MAX_INT)]
Holder = Annotated[str, Meta(min_length=1, max_length=1000)]
Seconds = Annotated[float, Meta(gt=0, le=86_400)]


class YesOrNo(Struct, frozen=True, kw_only=True):
    """Of a call that has nothing to say but whether it changed anything, or found what it was asked for."""

    yes: bool = True


DONE = YesOrNo()


class ReadWatermarks(BookQuestion[tuple[Watermark, ...]], frozen=True, kw_only=True):
    """How far a pipeline's datasets are published, or one of them."""

    pipeline: Name
    dataset: Name | None = None

    def is_much_work(self) -> bool:
        return True

    def perform(self, service: Service, caller: Caller) -> tuple[Watermark, ...]:
        return tuple(service.books.watermarks.of_pipeline(self.pipeline, self.dataset))


class AdvanceWatermarks(BookCall[YesOrNo], frozen=True, kw_only=True):
    """Move watermarks of a dataset on, all of them or none."""

    pipeline: Name
    dataset: Name
    changes: Annotated[tuple[WatermarkChange, ...], Meta(max_length=MOST_ITEMS)]
    turn: Turn | None = None

    def perform(self, service: Service, caller: Caller) -> YesOrNo:
        service.books.watermarks.advance(self.pipeline, self.dataset, self.changes, turn=self.turn)
        return DONE


class ResetWatermarks(BookCall[YesOrNo], frozen=True, kw_only=True):
    """Set a dataset's watermarks to anything."""

    pipeline: Name
    dataset: Name
    values: Annotated[dict[Name, Any], Meta(max_length=MOST_ITEMS)]
    epoch: Epoch = 0

    def perform(self, service: Service, caller: Caller) -> YesOrNo:
        service.books.watermarks.reset(self.pipeline, self.dataset, self.values, epoch=self.epoch)
        return DONE


class AcquireLease(BookCall[Lease], frozen=True, kw_only=True):
    """Get a pipeline's turn, under the next epoch."""

    lease: Name
    holder: Holder
    seconds: Seconds = 60.0
    instead_of: Holder | None = None
    """A holder that the caller knows to be gone."""

    def perform(self, service: Service, caller: Caller) -> Lease:
        _check_lease(self.lease)
        return service.books.leases.acquire(
            self.lease, holder=self.holder, seconds=self.seconds, instead_of=self.instead_of
        )


class FoundLease(Struct, frozen=True, kw_only=True):
    lease: Lease | None = None


class LookAtLease(BookQuestion[FoundLease], frozen=True, kw_only=True):
    """Who has a pipeline's turn now."""

    lease: Name

    def perform(self, service: Service, caller: Caller) -> FoundLease:
        _check_lease(self.lease)
        return FoundLease(lease=service.books.leases.look(self.lease))


class _OfHeldLease(BookCall[Reply], Generic[Reply], frozen=True, kw_only=True):
    lease: Name
    holder: Holder
    seconds: Seconds = 60.0
    epoch: Epoch

    def held(self) -> Lease:
        _check_lease(self.lease)
        return Lease(name=self.lease, holder=self.holder, epoch=self.epoch, expires_ms=0, seconds=self.seconds)


class RenewLease(_OfHeldLease[Lease], frozen=True, kw_only=True):
    """Keep a pipeline's turn for its time from now on."""

    def perform(self, service: Service, caller: Caller) -> Lease:
        return service.books.leases.renew(self.held())


class ReleaseLease(_OfHeldLease[YesOrNo], frozen=True, kw_only=True):
    """Give a pipeline's turn back."""

    def perform(self, service: Service, caller: Caller) -> YesOrNo:
        service.books.leases.release(self.held())
        return DONE


class BeginRun(BookCall[YesOrNo], frozen=True, kw_only=True):
    """Record a run; yes: an earlier one died."""

    pipeline: Name
    run_id: RunId
    epoch: Epoch

    def perform(self, service: Service, caller: Caller) -> YesOrNo:
        return YesOrNo(yes=service.books.runs.begin(self.pipeline, self.run_id, self.epoch))


class EndRun(BookCall[YesOrNo], frozen=True, kw_only=True):
    """Record what came of a run."""

    run: RunRecord

    def perform(self, service: Service, caller: Caller) -> YesOrNo:
        service.books.runs.end(self.run)
        return DONE


class ListRuns(BookQuestion[tuple[RunRecord, ...]], frozen=True, kw_only=True):
    """The runs of a pipeline, newest first."""

    pipeline: Name
    limit: Annotated[int, Meta(ge=1, le=1000)] = 20

    def is_much_work(self) -> bool:
        return True

    def perform(self, service: Service, caller: Caller) -> tuple[RunRecord, ...]:
        return tuple(service.books.runs.history(self.pipeline, self.limit))


class ListStores(BookQuestion[tuple[str, ...]], frozen=True, kw_only=True):
    """The stores of commit sequences."""

    def perform(self, service: Service, caller: Caller) -> tuple[str, ...]:
        return tuple(service.books.sequences.stores())


class StoreExists(BookQuestion[YesOrNo], frozen=True, kw_only=True):
    """Whether there is such a store."""

    store: Name

    def perform(self, service: Service, caller: Caller) -> YesOrNo:
        return YesOrNo(yes=service.books.sequences.exists(self.store))


class CreateStore(BookCall[YesOrNo], frozen=True, kw_only=True):
    """Create a store; yes: there was none."""

    store: Name

    def perform(self, service: Service, caller: Caller) -> YesOrNo:
        return YesOrNo(yes=service.books.sequences.create(self.store))


class RemoveStore(BookCall[YesOrNo], frozen=True, kw_only=True):
    """Remove a store that holds no sequences."""

    store: Name

    def perform(self, service: Service, caller: Caller) -> YesOrNo:
        return YesOrNo(yes=service.books.sequences.remove_store(self.store))


class ListSequences(BookQuestion[tuple[SequenceStatus, ...]], frozen=True, kw_only=True):
    """Sequences that are recorded and not finished, of a store or of one of its datasets."""

    store: Name
    dataset: Name | None = None

    def is_much_work(self) -> bool:
        return True

    def perform(self, service: Service, caller: Caller) -> tuple[SequenceStatus, ...]:
        if self.dataset is None:
            return tuple(service.books.sequences.statuses(self.store))
        found = service.books.sequences.status(self.store, self.dataset)
        return () if found is None else (found,)


class FoundSequence(Struct, frozen=True, kw_only=True):
    record: SequenceRecord | None = None


class GetSequence(BookQuestion[FoundSequence], frozen=True, kw_only=True):
    """The record of one of them."""

    store: Name
    dataset: Name

    def is_much_work(self) -> bool:
        return True

    def perform(self, service: Service, caller: Caller) -> FoundSequence:
        return FoundSequence(record=service.books.sequences.get_record(self.store, self.dataset))


class ClaimDatasets(BookCall[YesOrNo], frozen=True, kw_only=True):
    """Keep writers with smaller epochs away from datasets."""

    store: Name
    datasets: Annotated[tuple[Name, ...], Meta(max_length=MOST_ITEMS)]
    epoch: Epoch

    def perform(self, service: Service, caller: Caller) -> YesOrNo:
        service.books.sequences.claim(self.store, self.datasets, self.epoch)
        return DONE


class PutSequence(BookCall[YesOrNo], frozen=True, kw_only=True):
    """Record a sequence, whole, before its first step runs."""

    store: Name
    dataset: Name
    record: SequenceRecord

    def perform(self, service: Service, caller: Caller) -> YesOrNo:
        if service.step_places is not None:
            with suppress(UnknownStep):  # its kinds of steps need not be known here, where they never run
                service.step_places.check(self.record.sequence(self.store, self.dataset))
        service.books.sequences.put_record(self.store, self.dataset, self.record)
        return DONE


class NoteSequence(BookCall[YesOrNo], frozen=True, kw_only=True):
    """What became of the latest try."""

    store: Name
    dataset: Name
    checksum: Checksum
    epoch: Epoch
    state: SequenceState = SequenceState.OPEN
    tries: Count = 0
    reason: Annotated[str, Meta(max_length=MOST_REASON)] | None = None

    def perform(self, service: Service, caller: Caller) -> YesOrNo:
        done = service.books.sequences.note(
            self.store,
            self.dataset,
            checksum=self.checksum,
            epoch=self.epoch,
            state=self.state,
            tries=self.tries,
            reason=self.reason,
        )
        return YesOrNo(yes=done)


class RemoveSequence(BookCall[YesOrNo], frozen=True, kw_only=True):
    """A sequence is finished."""

    store: Name
    dataset: Name
    checksum: Checksum
    epoch: Epoch

    def perform(self, service: Service, caller: Caller) -> YesOrNo:
        done = service.books.sequences.remove(self.store, self.dataset, checksum=self.checksum, epoch=self.epoch)
        return YesOrNo(yes=done)


class ListTaskStates(BookQuestion[tuple[TaskState, ...]], frozen=True, kw_only=True):
    """Which tasks of a dataset have ended in a run."""

    store: Name
    dataset: Name
    run: RunId

    def is_much_work(self) -> bool:
        return True

    def perform(self, service: Service, caller: Caller) -> tuple[TaskState, ...]:
        return service.books.task_states.states(self.store, self.dataset, self.run)


class CountTasks(BookQuestion[int], frozen=True, kw_only=True):
    """How many of them that are."""

    store: Name
    dataset: Name
    run: RunId

    def perform(self, service: Service, caller: Caller) -> int:
        return service.books.task_states.reported(self.store, self.dataset, self.run)


class ReportTask(BookCall[TaskState], frozen=True, kw_only=True):
    """A task has ended; the state that stands."""

    store: Name
    dataset: Name
    run: RunId
    state: TaskState

    def perform(self, service: Service, caller: Caller) -> TaskState:
        return service.books.task_states.report(self.store, self.dataset, self.run, self.state)


class RemoveTaskStates(BookCall[YesOrNo], frozen=True, kw_only=True):
    """Forget those of all datasets and runs."""

    store: Name

    def perform(self, service: Service, caller: Caller) -> YesOrNo:
        service.books.task_states.remove(self.store)
        return DONE


BOOK_CALLS = calls_of(__name__)


def _check_lease(name: str) -> None:
    if not name.startswith(OF_PIPELINES):
        raise InvalidArgument(
            f"{name!r} is no pipeline's lease", hint=f"Its name is {OF_PIPELINES!r} and the pipeline's"
        )
