"""`HttpBooks`: the books of a service's ledger, as `steps.books` promises them. Made by `HttpOwner.books`.

Every call is the same when it is made twice, so one whose answer was lost is made again for a few seconds. A request
that is too large for the service, such as the record of a sequence of very many files, is sent in parts.
"""

from __future__ import annotations

import base64
import hashlib
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import Struct

from lakeseal.errors import InvalidArgument, RequestTooLarge
from lakeseal.service import book_wire as wire
from lakeseal.service.book_wire import Answer
from lakeseal.steps.leases import Lease
from lakeseal.steps.runs import RunRecord
from lakeseal.steps.sequence import CommitSequence
from lakeseal.steps.store import SequenceState, SequenceStatus
from lakeseal.steps.task_states import TaskState
from lakeseal.steps.turn import Turn
from lakeseal.steps.watermarks import Value, Watermark, WatermarkChange, check_forward

T = TypeVar("T")

# A service takes 4 MiB at once, unless it was told otherwise.
_AT_ONCE = 2**20
_SMALLEST_PART = 2**10


class Asks(Protocol):
    def repeat(self, call: str, asked: Struct, reply: type[T]) -> T: ...


class _Part:
    def __init__(self, service: Asks) -> None:
        self._service = service

    def _ask(self, call: str, asked: Struct, reply: type[T]) -> T:
        try:
            body = msgspec.json.encode(asked)
            if len(body) > _AT_ONCE:
                return self._in_parts(call, body, reply, _AT_ONCE // 2)
            try:
                return self._service.repeat(call, asked, reply)
            except RequestTooLarge:
                if len(body) < _SMALLEST_PART:
                    raise
                return self._in_parts(call, body, reply, len(body) // 4)
        except UnicodeEncodeError as error:
            raise InvalidArgument(f"{error.object!r} is not valid Unicode text") from None

    def _in_parts(self, call: str, body: bytes, reply: type[T], size: int) -> T:
        while True:
            upload = str(uuid.uuid4())
            whole = wire.InParts(call=call, upload=upload, checksum=hashlib.sha256(body).hexdigest())
            parts = [body[start : start + size] for start in range(0, len(body), size)]
            if len(parts) > wire.MOST_PARTS:
                raise RequestTooLarge(
                    f"A request of {len(body):,} bytes is more than the service takes, even in parts",
                    hint="Raise --max-body of lakeseal serve, or give the pipeline less to do in one run",
                )
            try:
                for number, part in enumerate(parts):
                    output = {"data": base64.b64encode(part).decode()}
                    state = TaskState(task=number, tasks=len(parts), output=output)
                    told = wire.ReportTask(store=whole.store, dataset=wire.PARTS, run=wire.PARTS, state=state)
                    self._service.repeat("report_task", told, TaskState)
                return self._service.repeat("in_parts", whole, reply)
            except RequestTooLarge:
                if size < _SMALLEST_PART:
                    raise
                size //= 2
            finally:
                self._service.repeat("remove_task_states", wire.OneStore(store=whole.store), Answer)

    def _yes(self, call: str, asked: Struct) -> bool:
        return self._ask(call, asked, Answer).yes


class HttpWatermarks(_Part):
    def read(self, pipeline: str, dataset: str) -> dict[str, Value]:
        return {mark.partition: mark.value for mark in self.of_pipeline(pipeline, dataset)}

    def of_pipeline(self, pipeline: str, dataset: str | None = None) -> list[Watermark]:
        asked = wire.Marks(pipeline=pipeline, dataset=dataset)
        return list(self._ask("watermarks", asked, tuple[Watermark, ...]))

    def advance(
        self, pipeline: str, dataset: str, changes: Iterable[WatermarkChange], *, turn: Turn | None = None
    ) -> None:
        wanted = tuple(changes)
        for change in wanted:
            check_forward(change)
        asked = wire.AdvanceWatermarks(pipeline=pipeline, dataset=dataset, changes=wanted, turn=turn)
        self._yes("advance_watermarks", asked)

    def reset(self, pipeline: str, dataset: str, values: Mapping[str, Value], *, epoch: int = 0) -> None:
        asked = wire.ResetWatermarks(pipeline=pipeline, dataset=dataset, values=dict(values), epoch=epoch)
        self._yes("reset_watermarks", asked)


class HttpLeases(_Part):
    def acquire(self, name: str, *, holder: str, seconds: float = 60.0, instead_of: str | None = None) -> Lease:
        asked = wire.AcquireLease(name=name, holder=holder, seconds=seconds, instead_of=instead_of)
        return self._ask("acquire_lease", asked, Lease)

    def look(self, name: str) -> Lease | None:
        return self._ask("look_at_lease", wire.OneLease(name=name), wire.FoundLease).lease

    def renew(self, lease: Lease) -> Lease:
        return self._ask("renew_lease", lease, Lease)

    def release(self, lease: Lease) -> None:
        self._yes("release_lease", lease)


class HttpRuns(_Part):
    def begin(self, pipeline: str, run_id: str, epoch: int) -> bool:
        return self._yes("begin_run", wire.BeginRun(pipeline=pipeline, run_id=run_id, epoch=epoch))

    def end(self, run: RunRecord) -> None:
        self._yes("end_run", run)

    def history(self, pipeline: str, limit: int = 20) -> list[RunRecord]:
        asked = wire.RunHistory(pipeline=pipeline, limit=limit)
        return list(self._ask("run_history", asked, tuple[RunRecord, ...]))


class HttpStepStore(_Part):
    """A `CommitStepStore`."""

    def create(self, store: str) -> bool:
        return self._yes("create_store", wire.OneStore(store=store))

    def stores(self) -> list[str]:
        return list(self._ask("stores", wire.AllStores(), tuple[str, ...]))

    def exists(self, store: str, dataset: str | None = None) -> bool:
        if dataset is not None:
            return self.status(store, dataset) is not None
        return self._yes("store_exists", wire.OneStore(store=store))

    def statuses(self, store: str) -> list[SequenceStatus]:
        return list(self._ask("sequences", wire.Sequences(store=store), tuple[SequenceStatus, ...]))

    def status(self, store: str, dataset: str) -> SequenceStatus | None:
        asked = wire.Sequences(store=store, dataset=dataset)
        return next(iter(self._ask("sequences", asked, tuple[SequenceStatus, ...])), None)

    def claim(self, store: str, datasets: Iterable[str], epoch: int) -> None:
        self._yes("claim_datasets", wire.ClaimDatasets(store=store, datasets=tuple(datasets), epoch=epoch))

    def put(self, sequence: CommitSequence) -> None:
        asked = wire.PutSequence(store=sequence.store, dataset=sequence.dataset, record=sequence.record())
        self._yes("put_sequence", asked)

    def get_commit_sequence(self, store: str, dataset: str) -> CommitSequence | None:
        found = self._ask("get_sequence", wire.OneSequence(store=store, dataset=dataset), wire.FoundSequence)
        return None if found.record is None else found.record.sequence(store, dataset)

    def note(
        self,
        store: str,
        dataset: str,
        *,
        checksum: str,
        epoch: int,
        state: SequenceState = SequenceState.OPEN,
        tries: int = 0,
        reason: str | None = None,
    ) -> bool:
        said: dict[str, Any] = {"checksum": checksum, "epoch": epoch, "state": state, "tries": tries, "reason": reason}
        return self._yes("note_sequence", wire.NoteSequence(store=store, dataset=dataset, **said))

    def remove(self, store: str, dataset: str, *, checksum: str, epoch: int) -> bool:
        asked = wire.RemoveSequence(store=store, dataset=dataset, checksum=checksum, epoch=epoch)
        return self._yes("remove_sequence", asked)

    def remove_store(self, store: str) -> bool:
        return self._yes("remove_store", wire.OneStore(store=store))


class HttpTaskStates(_Part):
    def report(self, store: str, dataset: str, run: str, state: TaskState) -> TaskState:
        return self._ask("report_task", wire.ReportTask(store=store, dataset=dataset, run=run, state=state), TaskState)

    def reported(self, store: str, dataset: str, run: str) -> int:
        return self._ask("reported_tasks", wire.TasksOf(store=store, dataset=dataset, run=run), int)

    def states(self, store: str, dataset: str, run: str) -> tuple[TaskState, ...]:
        return self._ask("task_states", wire.TasksOf(store=store, dataset=dataset, run=run), tuple[TaskState, ...])

    def remove(self, store: str) -> None:
        self._yes("remove_task_states", wire.OneStore(store=store))


class HttpBooks:
    def __init__(self, service: Asks) -> None:
        self.watermarks = HttpWatermarks(service)
        self.sequences = HttpStepStore(service)
        self.task_states = HttpTaskStates(service)
        self.leases = HttpLeases(service)
        self.runs = HttpRuns(service)
