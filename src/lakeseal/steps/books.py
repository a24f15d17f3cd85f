"""The seam of books: all that steps and pipelines keep in a ledger, wherever the ledger is.

`LedgerBooks` are those of a ledger that this process has opened; a service has others (`HasBooks`). What each part
promises stands in its own module, and holds for every implementation. A call whose answer was lost is made again until
it is known, or until `StorageUnavailable` or `UnknownOutcome`: all of them are the same when done twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, runtime_checkable

from lakeseal.errors import InvalidArgument
from lakeseal.ledger import Ledger
from lakeseal.owner.endpoint import OwnerEndpoint
from lakeseal.owner.ledger_owner import LedgerOwner
from lakeseal.steps.leases import Lease, Leases
from lakeseal.steps.ledger_store import LedgerStepStore
from lakeseal.steps.runs import RunRecord, RunRecords
from lakeseal.steps.store import CommitStepStore
from lakeseal.steps.task_states import LedgerTaskStates, TaskStateStore
from lakeseal.steps.turn import Turn
from lakeseal.steps.watermarks import Value, Watermark, WatermarkChange, Watermarks


class WatermarkBook(Protocol):
    """See `watermarks`."""

    def read(self, pipeline: str, dataset: str) -> dict[str, Value]: ...

    def of_pipeline(self, pipeline: str, dataset: str | None = None) -> list[Watermark]: ...

    def advance(
        self, pipeline: str, dataset: str, changes: Iterable[WatermarkChange], *, turn: Turn | None = None
    ) -> None: ...

    def reset(self, pipeline: str, dataset: str, values: Mapping[str, Value], *, epoch: int = 0) -> None: ...


class LeaseBook(Protocol):
    """See `leases`."""

    def acquire(self, name: str, *, holder: str, seconds: float = 60.0, instead_of: str | None = None) -> Lease: ...

    def look(self, name: str) -> Lease | None: ...

    def renew(self, lease: Lease) -> Lease: ...

    def release(self, lease: Lease) -> None: ...


class RunBook(Protocol):
    """See `runs`."""

    def begin(self, pipeline: str, run_id: str, epoch: int) -> bool: ...

    def end(self, run: RunRecord) -> None: ...

    def history(self, pipeline: str, limit: int = 20) -> list[RunRecord]: ...


class Books(Protocol):
    """May be shared by threads."""

    @property
    def watermarks(self) -> WatermarkBook: ...

    @property
    def sequences(self) -> CommitStepStore: ...

    @property
    def task_states(self) -> TaskStateStore: ...

    @property
    def leases(self) -> LeaseBook: ...

    @property
    def runs(self) -> RunBook: ...


class LedgerBooks:
    def __init__(self, ledger: Ledger, *, of: LedgerOwner | None = None) -> None:
        """`of` is whose ledger it is, which is closed when nobody has its owner any more."""
        self._of = of
        self.watermarks = Watermarks(ledger)
        self.sequences = LedgerStepStore(ledger)
        self.task_states = LedgerTaskStates(ledger)
        self.leases = Leases(ledger)
        self.runs = RunRecords(ledger)


@runtime_checkable
class HasBooks(Protocol):
    """An owner elsewhere, which lets its clients use its ledger."""

    def books(self) -> Books: ...


def books_of(owner: OwnerEndpoint) -> Books:
    """The books in the ledger that the owner decides by."""
    if isinstance(owner, LedgerOwner):
        return LedgerBooks(owner.ledger, of=owner)
    if isinstance(owner, HasBooks):
        return owner.books()
    raise InvalidArgument(f"The owner {owner.name!r} keeps no watermarks", hint="Use a ledger, or a service")
