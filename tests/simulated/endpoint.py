"""The way from a client to its owner: a request is an actor of the owner's process, and may be lost, late, or come
twice; so may the answer be lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from lakeseal.errors import LakesealError, StorageUnavailable, UnknownOutcome
from lakeseal.owner.endpoint import name_of
from lakeseal.owner.ledger_owner import LedgerOwner
from lakeseal.owner.messages import Batch, BatchAnswer, CommitRequest, TableCommits
from lakeseal.storage.base import Store
from simulated.faults import Faults
from simulated.scheduler import Actor, Scheduler

T = TypeVar("T")

_TIMEOUT_S = 10.0
_READS = frozenset({"get_commits", "get_commits_of"})
_TRIES = 3


class OwnerProcess(Protocol):
    name: str
    owner: LedgerOwner | None
    """None while it is down."""


class SimulatedEndpoint:
    """An `OwnerEndpoint`, as a client has it that reaches its owner over a network."""

    def __init__(
        self,
        scheduler: Scheduler,
        faults: Faults,
        pick: Callable[[], OwnerProcess],
        *,
        name: str,
        batch_size: int,
        inline_bytes: int,
        identity: str,
    ) -> None:
        self._scheduler, self._faults, self._pick, self._identity = scheduler, faults, pick, identity
        self.name, self.batch_size, self.inline_bytes = name, batch_size, inline_bytes

    def identity(self, *, make: bool = False) -> str | None:
        return self._identity

    def attach(self, store: Store) -> str:
        return name_of(store, self.get_commits_of)

    def get_commits(self, table: str, start_version: int = 0) -> TableCommits:
        return self._ask("get_commits", table, start_version)

    def get_commits_of(self, tables: Sequence[str]) -> tuple[TableCommits, ...]:
        return self._ask("get_commits_of", tuple(tables))

    def ratify(self, batch: Batch) -> BatchAnswer:
        return self._ask("ratify", batch)

    def backfill(self, table: str, version: int | None = None) -> TableCommits:
        return self._ask("backfill", table, version)

    def begin_takeover(
        self,
        table: str,
        takeover_id: str,
        version: int,
        commit: CommitRequest | None = None,
        *,
        epoch: int | None = None,
    ) -> TableCommits:
        return self._ask("begin_takeover", table, takeover_id, version, commit, epoch=epoch)

    def confirm_takeover(self, table: str, takeover_id: str) -> TableCommits:
        return self._ask("confirm_takeover", table, takeover_id)

    def withdraw_takeover(self, table: str, takeover_id: str) -> TableCommits:
        return self._ask("withdraw_takeover", table, takeover_id)

    def begin_release(self, table: str, release_id: str, *, epoch: int | None = None) -> TableCommits:
        return self._ask("begin_release", table, release_id, epoch=epoch)

    def finish_release(self, table: str) -> TableCommits:
        return self._ask("finish_release", table)

    def drop(self, table: str) -> TableCommits:
        return self._ask("drop", table)

    def _ask(self, call: str, *arguments: Any, **named: Any) -> Any:
        if call not in _READS:
            return self._once(call, arguments, named)
        # As the client of a service does: a question is asked again.
        for tried in range(_TRIES):
            try:
                return self._once(call, arguments, named)
            except (StorageUnavailable, UnknownOutcome) as error:
                if tried == _TRIES - 1:
                    raise StorageUnavailable(f"{call}: no answer") from error
                self._scheduler.sleep(self._faults.pause_s())
        raise AssertionError("it was answered, or raised")

    def _once(self, call: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        self._scheduler.step(f"asks {call}")
        process = self._pick()
        if process.owner is None or self._faults.strikes("request is lost"):
            raise StorageUnavailable(f"{call}: the owner cannot be reached")
        letter = _Letter(self._scheduler, f"{call} of {self._scheduler.running_name}")
        late_s = self._faults.pause_s() if self._faults.strikes("request comes late") else 0.0
        perform = partial(_perform, call, arguments, named)
        letter.send(process, perform, late_s)
        if self._faults.strikes("request comes twice"):
            letter.send(process, perform, self._faults.pause_s())
        answer = letter.await_answer(_TIMEOUT_S)
        if answer is None or self._faults.strikes("reply is lost"):
            raise UnknownOutcome(f"{call}: the answer did not come")
        return answer()


def _perform(call: str, arguments: tuple[Any, ...], named: dict[str, Any], owner: LedgerOwner) -> Any:
    return getattr(owner, call)(*arguments, **named)


class _Letter:
    """A request on its way, and whoever waits for its answer."""

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self._scheduler, self._name = scheduler, name
        self._answer: Callable[[], Any] | None = None
        self._asks: Actor | None = scheduler.running

    def send(self, process: OwnerProcess, perform: Callable[[LedgerOwner], Any], late_s: float) -> None:
        """A request that comes when the process has been killed meanwhile finds the one that took its place, or
        nobody."""

        def arrive() -> None:
            owner = process.owner
            if owner is not None:
                self._scheduler.spawn(self._name, process.name, lambda: self._serve(owner, perform))

        self._scheduler.spawn(f"letter {self._name}", "network", arrive, after_s=late_s)

    def _serve(self, owner: LedgerOwner, perform: Callable[[LedgerOwner], Any]) -> None:
        try:
            result = perform(owner)
        except LakesealError as error:
            self._come_to(_raising(error))
        else:
            self._come_to(lambda: result)

    def _come_to(self, answer: Callable[[], Any]) -> None:
        if self._answer is None:
            self._answer = answer
            if self._asks is not None:
                self._scheduler.wake(self._asks)

    def await_answer(self, timeout_s: float) -> Callable[[], Any] | None:
        """None if it does not come in time, whoever was to give it."""
        if self._asks is None:
            raise AssertionError("only actors send letters")
        self._scheduler.wait(timeout_s)
        return self._answer


def _raising(error: LakesealError) -> Callable[[], Any]:
    def answer() -> Any:
        raise error

    return answer
