"""The calls of `steps.books` as a service takes them, done on its own ledger by the same code as in a client's process.

Pipelines and their names belong to no place, so a role counts only where it is granted for all tables: a reader sees
what there is, a writer changes it. Leases are those of pipelines only; the service's own are nobody else's business.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import sqlalchemy as sa

from lakeseal.commit.transaction import now_ms
from lakeseal.errors import InvalidArgument, NotAllowed, UnknownStep
from lakeseal.ledger import Ledger, key
from lakeseal.ledger.schema import task_states
from lakeseal.owner.messages import from_json
from lakeseal.service import book_wire as wire
from lakeseal.service.access import Caller, Role
from lakeseal.service.book_wire import Answer
from lakeseal.service.calls import Call
from lakeseal.steps.books import LedgerBooks
from lakeseal.steps.leases import OF_PIPELINES, Lease
from lakeseal.steps.places import Places
from lakeseal.steps.runs import RunRecord
from lakeseal.steps.store import SequenceStatus
from lakeseal.steps.task_states import TaskState
from lakeseal.steps.watermarks import Watermark

DONE = Answer()


def _of(name: str, request: type[Any], reply: Any, summary: str, *, role: Role = Role.WRITER) -> Call:
    return Call(
        name=name,
        request=request,
        reply=reply,
        decides=role is not Role.READER,
        summary=summary,
        needs=lambda _: role,
        tables=lambda _: (),
    )


def _look(name: str, request: type[Any], reply: Any, summary: str) -> Call:
    return _of(name, request, reply, summary, role=Role.READER)


BOOK_CALLS = (
    _look("watermarks", wire.Marks, tuple[Watermark, ...], "How far a pipeline's datasets are published"),
    _of("advance_watermarks", wire.AdvanceWatermarks, Answer, "Move watermarks of a dataset on, all of them or none"),
    _of("reset_watermarks", wire.ResetWatermarks, Answer, "Set a dataset's watermarks to anything"),
    _of("acquire_lease", wire.AcquireLease, Lease, "Get a pipeline's turn, under the next epoch"),
    _look("look_at_lease", wire.OneLease, wire.FoundLease, "Who has a pipeline's turn now"),
    _of("renew_lease", wire.HeldLease, Lease, "Keep it for its time from now on"),
    _of("release_lease", wire.HeldLease, Answer, "Give it back"),
    _of("begin_run", wire.BeginRun, Answer, "Record a run; yes: an earlier one died"),
    _of("end_run", RunRecord, Answer, "Record what came of it"),
    _look("run_history", wire.RunHistory, tuple[RunRecord, ...], "The runs of a pipeline, newest first"),
    _look("stores", wire.AllStores, tuple[str, ...], "The stores of commit sequences"),
    _look("store_exists", wire.OneStore, Answer, "Whether there is such a store"),
    _of("create_store", wire.OneStore, Answer, "Create a store; yes: there was none"),
    _of("remove_store", wire.OneStore, Answer, "Remove a store that holds no sequences"),
    _look("sequences", wire.Sequences, tuple[SequenceStatus, ...], "Sequences that are recorded and not finished"),
    _look("get_sequence", wire.OneSequence, wire.FoundSequence, "The record of one of them"),
    _of("claim_datasets", wire.ClaimDatasets, Answer, "Keep writers with smaller epochs away from datasets"),
    _of("put_sequence", wire.PutSequence, Answer, "Record a sequence, whole, before its first step runs"),
    _of("note_sequence", wire.NoteSequence, Answer, "What became of the latest try"),
    _of("remove_sequence", wire.RemoveSequence, Answer, "A sequence is finished"),
    _look("task_states", wire.TasksOf, tuple[TaskState, ...], "Which tasks of a dataset have ended in a run"),
    _look("reported_tasks", wire.TasksOf, int, "How many of them that are"),
    _of("report_task", wire.ReportTask, TaskState, "A task has ended; the state that stands"),
    _of("in_parts", wire.InParts, Any, "Any of these calls, of whose request the parts were sent before"),
    _of("remove_task_states", wire.OneStore, Answer, "Forget those of all datasets and runs"),
)


_BY_NAME = {call.name: call for call in BOOK_CALLS}
_PARTS_ARE_KEPT_MS = 24 * 3600 * 1000


class ServedBooks:
    """The calls, done on a ledger. `perform` is for any thread."""

    def __init__(self, ledger: Ledger, *, roots: Sequence[str] = ()) -> None:
        """Sequences reach for nothing outside of `roots`, if there are any."""
        self._ledger = ledger
        self._places = Places.anything_below(roots, roots) if roots else None
        books = LedgerBooks(ledger)
        self._marks, self._leases, self._runs = books.watermarks, books.leases, books.runs
        self._sequences, self._tasks = books.sequences, books.task_states

    def perform(self, call: Call, request: Any, caller: Caller) -> Any:
        role = call.needs(request)
        if not caller.may_everywhere(role):
            raise NotAllowed(
                f"Pipelines and their steps belong to no table, so that they need the role {role} for all tables",
                hint="Ask for a token whose role has no prefix",
            )
        do: Callable[[Any], Any] = getattr(self, call.name)
        return do(request)

    def watermarks(self, asked: wire.Marks) -> tuple[Watermark, ...]:
        return tuple(self._marks.of_pipeline(asked.pipeline, asked.dataset))

    def advance_watermarks(self, asked: wire.AdvanceWatermarks) -> Answer:
        self._marks.advance(asked.pipeline, asked.dataset, asked.changes, turn=asked.turn)
        return DONE

    def reset_watermarks(self, asked: wire.ResetWatermarks) -> Answer:
        self._marks.reset(asked.pipeline, asked.dataset, asked.values, epoch=asked.epoch)
        return DONE

    def acquire_lease(self, asked: wire.AcquireLease) -> Lease:
        _check_lease(asked.name)
        return self._leases.acquire(asked.name, holder=asked.holder, seconds=asked.seconds, instead_of=asked.instead_of)

    def look_at_lease(self, asked: wire.OneLease) -> wire.FoundLease:
        _check_lease(asked.name)
        return wire.FoundLease(lease=self._leases.look(asked.name))

    def renew_lease(self, asked: wire.HeldLease) -> Lease:
        _check_lease(asked.name)
        return self._leases.renew(asked.lease)

    def release_lease(self, asked: wire.HeldLease) -> Answer:
        _check_lease(asked.name)
        self._leases.release(asked.lease)
        return DONE

    def begin_run(self, asked: wire.BeginRun) -> Answer:
        return Answer(yes=self._runs.begin(asked.pipeline, asked.run_id, asked.epoch))

    def end_run(self, run: RunRecord) -> Answer:
        self._runs.end(run)
        return DONE

    def run_history(self, asked: wire.RunHistory) -> tuple[RunRecord, ...]:
        return tuple(self._runs.history(asked.pipeline, asked.limit))

    def stores(self, asked: wire.AllStores) -> tuple[str, ...]:
        return tuple(self._sequences.stores())

    def store_exists(self, asked: wire.OneStore) -> Answer:
        return Answer(yes=self._sequences.exists(asked.store))

    def create_store(self, asked: wire.OneStore) -> Answer:
        return Answer(yes=self._sequences.create(asked.store))

    def remove_store(self, asked: wire.OneStore) -> Answer:
        return Answer(yes=self._sequences.remove_store(asked.store))

    def sequences(self, asked: wire.Sequences) -> tuple[SequenceStatus, ...]:
        if asked.dataset is None:
            return tuple(self._sequences.statuses(asked.store))
        found = self._sequences.status(asked.store, asked.dataset)
        return () if found is None else (found,)

    def get_sequence(self, asked: wire.OneSequence) -> wire.FoundSequence:
        return wire.FoundSequence(record=self._sequences.get_record(asked.store, asked.dataset))

    def claim_datasets(self, asked: wire.ClaimDatasets) -> Answer:
        self._sequences.claim(asked.store, asked.datasets, asked.epoch)
        return DONE

    def put_sequence(self, asked: wire.PutSequence) -> Answer:
        if self._places is not None:
            with suppress(UnknownStep):  # its kinds of steps need not be known here, where they never run
                self._places.check(asked.record.sequence(asked.store, asked.dataset))
        self._sequences.put_record(asked.store, asked.dataset, asked.record)
        return DONE

    def note_sequence(self, asked: wire.NoteSequence) -> Answer:
        done = self._sequences.note(
            asked.store,
            asked.dataset,
            checksum=asked.checksum,
            epoch=asked.epoch,
            state=asked.state,
            tries=asked.tries,
            reason=asked.reason,
        )
        return Answer(yes=done)

    def remove_sequence(self, asked: wire.RemoveSequence) -> Answer:
        done = self._sequences.remove(asked.store, asked.dataset, checksum=asked.checksum, epoch=asked.epoch)
        return Answer(yes=done)

    def task_states(self, asked: wire.TasksOf) -> tuple[TaskState, ...]:
        return self._tasks.states(asked.store, asked.dataset, asked.run)

    def reported_tasks(self, asked: wire.TasksOf) -> int:
        return self._tasks.reported(asked.store, asked.dataset, asked.run)

    def report_task(self, asked: wire.ReportTask) -> TaskState:
        return self._tasks.report(asked.store, asked.dataset, asked.run, asked.state)

    def in_parts(self, asked: wire.InParts) -> Any:
        call = _BY_NAME.get(asked.call)
        if call is None or call.request is wire.InParts:
            raise InvalidArgument(f"There is no call {asked.call!r} to be made in parts")
        # Those of clients that died before they could remove them.
        old = now_ms() - _PARTS_ARE_KEPT_MS
        is_old = (task_states.c.dataset_key == key(wire.PARTS)) & (task_states.c.updated < old)
        self._ledger.write(lambda tx: tx.run(sa.delete(task_states).where(is_old)), idempotent=True)
        parts = self._tasks.states(asked.store, wire.PARTS, wire.PARTS)
        try:
            body = b"".join(base64.b64decode(part.output["data"], validate=True) for part in parts[: wire.MOST_PARTS])
        except (KeyError, TypeError, ValueError):
            body = b""
        if hashlib.sha256(body).hexdigest() != asked.checksum:
            raise InvalidArgument("The parts of a request are not all there", hint="Send them again")
        do: Callable[[Any], Any] = getattr(self, call.name)
        return do(from_json(body, call.request))

    def remove_task_states(self, asked: wire.OneStore) -> Answer:
        self._tasks.remove(asked.store)
        return DONE


def _check_lease(name: str) -> None:
    if not name.startswith(OF_PIPELINES):
        raise InvalidArgument(
            f"{name!r} is no pipeline's lease", hint=f"Its name is {OF_PIPELINES!r} and the pipeline's"
        )
