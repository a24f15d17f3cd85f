"""What travels between a service and the clients of its books (`steps.books`), beside the books' own values."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from lakeseal.service.wire import MAX_INT
from lakeseal.steps.leases import Lease
from lakeseal.steps.sequence import SequenceRecord
from lakeseal.steps.store import SequenceState
from lakeseal.steps.task_states import TaskState
from lakeseal.steps.turn import Turn
from lakeseal.steps.watermarks import WatermarkChange

Name = Annotated[str, Meta(max_length=10_000, description="Of a pipeline, a store or a dataset: any text")]
RunId = Annotated[str, Meta(min_length=1, max_length=255)]
Epoch = Annotated[int, Meta(ge=0, le=MAX_INT)]
PARTS = "parts of a request"
MOST_PARTS = 512
Count = Annotated[int, Meta(ge=0, le=MAX_INT)]


class Answer(Struct, frozen=True, kw_only=True):
    """Of a call that has nothing to say but whether it changed anything, or found what it was asked for."""

    yes: bool = True


class Marks(Struct, frozen=True, kw_only=True):
    """Of one dataset, or of all of a pipeline."""

    pipeline: Name
    dataset: Name | None = None


class AdvanceWatermarks(Struct, frozen=True, kw_only=True):
    pipeline: Name
    dataset: Name
    changes: tuple[WatermarkChange, ...]
    turn: Turn | None = None


class ResetWatermarks(Struct, frozen=True, kw_only=True):
    pipeline: Name
    dataset: Name
    values: dict[Name, Any]
    epoch: Epoch = 0


class AcquireLease(Struct, frozen=True, kw_only=True):
    name: Name
    holder: Annotated[str, Meta(min_length=1, max_length=1000)]
    seconds: Annotated[float, Meta(gt=0, le=86_400)] = 60.0
    instead_of: Annotated[str, Meta(min_length=1, max_length=1000)] | None = None
    """A holder that the caller knows to be gone."""


class OneLease(Struct, frozen=True, kw_only=True):
    name: Name


class FoundLease(Struct, frozen=True, kw_only=True):
    lease: Lease | None = None


class HeldLease(AcquireLease, frozen=True, kw_only=True):
    """To renew it, or to give it back."""

    epoch: Epoch

    @property
    def lease(self) -> Lease:
        return Lease(name=self.name, holder=self.holder, epoch=self.epoch, expires_ms=0, seconds=self.seconds)


class BeginRun(Struct, frozen=True, kw_only=True):
    pipeline: Name
    run_id: RunId
    epoch: Epoch


class RunHistory(Struct, frozen=True, kw_only=True):
    pipeline: Name
    limit: Annotated[int, Meta(ge=1, le=1000)] = 20


class AllStores(Struct, frozen=True, kw_only=True):
    """Nothing is asked but which there are."""


class OneStore(Struct, frozen=True, kw_only=True):
    store: Name


class Sequences(Struct, frozen=True, kw_only=True):
    """Of one dataset, or of all of a store."""

    store: Name
    dataset: Name | None = None


class OneSequence(Struct, frozen=True, kw_only=True):
    store: Name
    dataset: Name


class ClaimDatasets(Struct, frozen=True, kw_only=True):
    store: Name
    datasets: tuple[Name, ...]
    epoch: Epoch


class PutSequence(Struct, frozen=True, kw_only=True):
    store: Name
    dataset: Name
    record: SequenceRecord


class FoundSequence(Struct, frozen=True, kw_only=True):
    record: SequenceRecord | None = None


class NoteSequence(Struct, frozen=True, kw_only=True):
    store: Name
    dataset: Name
    checksum: str
    epoch: Epoch
    state: SequenceState = SequenceState.OPEN
    tries: Count = 0
    reason: str | None = None


class RemoveSequence(Struct, frozen=True, kw_only=True):
    store: Name
    dataset: Name
    checksum: str
    epoch: Epoch


class TasksOf(Struct, frozen=True, kw_only=True):
    store: Name
    dataset: Name
    run: RunId


class InParts(Struct, frozen=True, kw_only=True):
    """A request that is larger than a service takes at once. Its parts were sent before, as states of tasks, numbered
    from 0, of the store `store`, the dataset `PARTS` and the run `PARTS`, with `{"data": base64}` as output."""

    call: Annotated[str, Meta(max_length=100)]
    upload: Annotated[str, Meta(min_length=1, max_length=100, description="The client's own, for this request only")]
    checksum: Annotated[str, Meta(pattern="^[0-9a-f]{64}$", description="SHA-256 of the whole request")]

    @property
    def store(self) -> str:
        return f"{PARTS} {self.upload}"


class ReportTask(Struct, frozen=True, kw_only=True):
    store: Name
    dataset: Name
    run: RunId
    state: TaskState
