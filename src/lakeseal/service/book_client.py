"""`HttpBooks`: the books of a service's ledger, as `steps.books` promises them. Made by `HttpOwner.books`.

Every call is the same when it is made twice, so one whose answer was lost is made again for a few seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from lakeseal.service import book_calls as calls
from lakeseal.steps.leases import Lease
from lakeseal.steps.runs import RunRecord
from lakeseal.steps.sequence import CommitSequence
from lakeseal.steps.store import SequenceState, SequenceStatus
from lakeseal.steps.task_states import TaskState
from lakeseal.steps.turn import Turn
from lakeseal.steps.watermarks import Value, Watermark, WatermarkChange, check_forward

if TYPE_CHECKING:
    from lakeseal.service.client import HttpOwner


class _Part:
    def __init__(self, service: HttpOwner) -> None:
        self._ask = service.repeat


class HttpWatermarks(_Part):
    def read(self, pipeline: str, dataset: str) -> dict[str, Value]:
        return {mark.partition: mark.value for mark in self.of_pipeline(pipeline, dataset)}

    def of_pipeline(self, pipeline: str, dataset: str | None = None) -> list[Watermark]:
        return list(self._ask(calls.ReadWatermarks(pipeline=pipeline, dataset=dataset)))

    def advance(
        self, pipeline: str, dataset: str, changes: Iterable[WatermarkChange], *, turn: Turn | None = None
    ) -> None:
        wanted = tuple(changes)
        for change in wanted:
            check_forward(change)
        self._ask(calls.AdvanceWatermarks(pipeline=pipeline, dataset=dataset, changes=wanted, turn=turn))

    def reset(self, pipeline: str, dataset: str, values: Mapping[str, Value], *, epoch: int = 0) -> None:
        self._ask(calls.ResetWatermarks(pipeline=pipeline, dataset=dataset, values=dict(values), epoch=epoch))


class HttpLeases(_Part):
    def acquire(self, name: str, *, holder: str, seconds: float = 60.0, instead_of: str | None = None) -> Lease:
        return self._ask(calls.AcquireLease(lease=name, holder=holder, seconds=seconds, instead_of=instead_of))

    def look(self, name: str) -> Lease | None:
        return self._ask(calls.LookAtLease(lease=name)).lease

    def renew(self, lease: Lease) -> Lease:
        return self._ask(
            calls.RenewLease(lease=lease.name, holder=lease.holder, seconds=lease.seconds, epoch=lease.epoch)
        )

    def release(self, lease: Lease) -> None:
        self._ask(calls.ReleaseLease(lease=lease.name, holder=lease.holder, seconds=lease.seconds, epoch=lease.epoch))


class HttpRuns(_Part):
    def begin(self, pipeline: str, run_id: str, epoch: int) -> bool:
        return self._ask(calls.BeginRun(pipeline=pipeline, run_id=run_id, epoch=epoch)).yes

    def end(self, run: RunRecord) -> None:
        self._ask(calls.EndRun(run=run))

    def history(self, pipeline: str, limit: int = 20) -> list[RunRecord]:
        return list(self._ask(calls.ListRuns(pipeline=pipeline, limit=limit)))


class HttpStepStore(_Part):
    """A `CommitStepStore`."""

    def create(self, store: str) -> bool:
        return self._ask(calls.CreateStore(store=store)).yes

    def stores(self) -> list[str]:
        return list(self._ask(calls.ListStores()))

    def exists(self, store: str, dataset: str | None = None) -> bool:
        if dataset is not None:
            return self.status(store, dataset) is not None
        return self._ask(calls.StoreExists(store=store)).yes

    def statuses(self, store: str) -> list[SequenceStatus]:
        return list(self._ask(calls.ListSequences(store=store)))

    def status(self, store: str, dataset: str) -> SequenceStatus | None:
        return next(iter(self._ask(calls.ListSequences(store=store, dataset=dataset))), None)

    def claim(self, store: str, datasets: Iterable[str], epoch: int) -> None:
        self._ask(calls.ClaimDatasets(store=store, datasets=tuple(datasets), epoch=epoch))

    def put(self, sequence: CommitSequence) -> None:
        self._ask(calls.PutSequence(store=sequence.store, dataset=sequence.dataset, record=sequence.record()))

    def get_commit_sequence(self, store: str, dataset: str) -> CommitSequence | None:
        found = self._ask(calls.GetSequence(store=store, dataset=dataset))
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
        noted = calls.NoteSequence(
            store=store,
            dataset=dataset,
            checksum=checksum,
            epoch=epoch,
            state=state,
            tries=tries,
            reason=None if reason is None else reason[: calls.MOST_REASON],
        )
        return self._ask(noted).yes

    def remove(self, store: str, dataset: str, *, checksum: str, epoch: int) -> bool:
        return self._ask(calls.RemoveSequence(store=store, dataset=dataset, checksum=checksum, epoch=epoch)).yes

    def remove_store(self, store: str) -> bool:
        return self._ask(calls.RemoveStore(store=store)).yes


class HttpTaskStates(_Part):
    def report(self, store: str, dataset: str, run: str, state: TaskState) -> TaskState:
        return self._ask(calls.ReportTask(store=store, dataset=dataset, run=run, state=state))

    def reported(self, store: str, dataset: str, run: str) -> int:
        return self._ask(calls.CountTasks(store=store, dataset=dataset, run=run))

    def states(self, store: str, dataset: str, run: str) -> tuple[TaskState, ...]:
        return self._ask(calls.ListTaskStates(store=store, dataset=dataset, run=run))

    def remove(self, store: str) -> None:
        self._ask(calls.RemoveTaskStates(store=store))


class HttpBooks:
    def __init__(self, service: HttpOwner) -> None:
        self.watermarks = HttpWatermarks(service)
        self.sequences = HttpStepStore(service)
        self.task_states = HttpTaskStates(service)
        self.leases = HttpLeases(service)
        self.runs = HttpRuns(service)
