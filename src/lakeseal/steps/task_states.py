"""`TaskStateStore`: which tasks of a dataset have finished in a run, and with which output.

Every task reports by itself, and says how many tasks its dataset has, so that whoever looks here knows when all have,
and can build the dataset's commit sequence without the driver (`publishing`). What a caller may rely on:

- `report` is durable when it returns, and answers with the state that stands: the first attempt at a task that finished
  counts for ever, so a second one learns that its output will not be published. A failure gives way to a success.
- `reported` and `states` see every report that was answered before they were asked.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Protocol

import msgspec
import sqlalchemy as sa
from msgspec import Meta, Struct

from lakeseal import typed_json
from lakeseal.clock import now_ms
from lakeseal.errors import BrokenSequence, InvalidArgument
from lakeseal.ledger import Ledger, Row, Tx, key
from lakeseal.ledger.schema import task_states
from lakeseal.storage import Store

_DIGITS = 10


class TaskState(Struct, frozen=True, kw_only=True):
    task: int
    tasks: int
    """How many the dataset has in this run; numbered from 0."""
    state: Literal["finished", "failed"] = "finished"
    output: dict[str, Any] = {}
    """What a sequence is built from; JSON, and the builder's own."""
    reason: Annotated[str, Meta(max_length=2**20)] | None = None
    """Why it failed."""

    def __post_init__(self) -> None:
        if not 0 <= self.task < self.tasks:
            raise InvalidArgument(f"There is no task {self.task} of {self.tasks}", hint="Tasks are numbered from 0")


class TaskStateStore(Protocol):
    def report(self, store: str, dataset: str, run: str, state: TaskState) -> TaskState: ...

    def reported(self, store: str, dataset: str, run: str) -> int:
        """How many tasks have; a question that costs little, whatever they reported."""

    def states(self, store: str, dataset: str, run: str) -> tuple[TaskState, ...]:
        """Those that have reported, by number."""

    def remove(self, store: str) -> None:
        """All of the store's, of all runs."""


def have_ended(states: tuple[TaskState, ...]) -> bool:
    """Whether every task of the dataset has reported at all; tasks that disagree on their number never have."""
    return bool(states) and {state.tasks for state in states} == {len(states)}


class LedgerTaskStates:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def report(self, store: str, dataset: str, run: str, state: TaskState) -> TaskState:
        name = {"store": store, "dataset": dataset, "run_id": run, "task": state.task}
        values = {
            "tasks": state.tasks,
            "state": state.state,
            "output": state.output,
            "reason": state.reason,
            "updated": now_ms(),
        }

        def do(tx: Tx) -> TaskState:
            if tx.insert(task_states, **name, **values):
                return state
            row = tx.get(task_states, **name)
            if row is not None and row.state == "finished":
                return _from_row(row)
            tx.put(task_states, **name, **values)
            return state

        return self._ledger.write(do, idempotent=True)

    def reported(self, store: str, dataset: str, run: str) -> int:
        query = sa.select(sa.func.count().label("tasks")).select_from(task_states).where(*_of(store, dataset, run))
        return int(self._ledger.read(lambda tx: tx.rows(query, lock=False))[0].tasks)

    def states(self, store: str, dataset: str, run: str) -> tuple[TaskState, ...]:
        query = sa.select(task_states).where(*_of(store, dataset, run)).order_by(task_states.c.task)
        return tuple(_from_row(row) for row in self._ledger.read(lambda tx: tx.rows(query, lock=False)))

    def remove(self, store: str) -> None:
        self._ledger.write(lambda tx: tx.delete(task_states, store=store), idempotent=True)


class FileTaskStates:
    """One file per report: `<store>/<dataset>/<run>/<task>.finished` or `.failed`, with hashes for names."""

    def __init__(self, root: Store) -> None:
        self._root = root

    def report(self, store: str, dataset: str, run: str, state: TaskState) -> TaskState:
        directory = _directory(store, dataset, run)
        finished = f"{directory}{state.task:0{_DIGITS}}.finished"
        data = msgspec.json.encode(state)
        if state.state == "finished":
            if self._root.put_if_absent(finished, data):
                return state
            return _decoded(self._root.get(finished), finished)
        self._root.put(f"{directory}{state.task:0{_DIGITS}}.failed", data)
        found = [one for one in self.states(store, dataset, run) if one.task == state.task]
        return found[0] if found else state

    def reported(self, store: str, dataset: str, run: str) -> int:
        return len({meta.key.partition(".")[0] for meta in self._root.list(_directory(store, dataset, run))})

    def states(self, store: str, dataset: str, run: str) -> tuple[TaskState, ...]:
        by_task: dict[int, TaskState] = {}
        keys = [meta.key for meta in self._root.list(_directory(store, dataset, run))]
        for name, data in zip(keys, self._root.get_many(keys), strict=True):
            state = _decoded(data, name)
            if state.task not in by_task or state.state == "finished":
                by_task[state.task] = state
        return tuple(by_task[task] for task in sorted(by_task))

    def remove(self, store: str) -> None:
        self._root.delete([meta.key for meta in self._root.list(f"{key(store)}/", recursive=True)])


def _of(store: str, dataset: str, run: str) -> list[sa.ColumnElement[bool]]:
    return [
        task_states.c.store_key == key(store),
        task_states.c.dataset_key == key(dataset),
        task_states.c.run_id == run,
    ]


def _directory(store: str, dataset: str, run: str) -> str:
    return f"{key(store)}/{key(dataset)}/{key(run)}/"


def _from_row(row: Row) -> TaskState:
    return TaskState(task=row.task, tasks=row.tasks, state=row.state, output=row.output, reason=row.reason)


def _decoded(data: bytes, name: str) -> TaskState:
    try:
        return typed_json.decode(data, TaskState)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BrokenSequence(f"The state of a task is malformed: {error}", file=name) from None
