"""The seam of step stores: where commit sequences are recorded before they run.

A store holds named stores (one per pipeline, say), and each of those at most one sequence per dataset URN. What a
caller may rely on, on every implementation:

- Names and URNs are any Unicode text; two different ones never meet.
- `put` records a sequence whole or not at all, durable when it returns; count and checksum are checked whenever it is
  read. It has one winner among any number of processes. Putting the same sequence again is fine.
- While a dataset has a sequence, open or set aside, no other is accepted for it (`AlreadyExists`).
- Epochs fence: each dataset remembers the largest epoch that claimed it or wrote to it. `claim`, `put`, `note` and
  `remove` with a smaller one raise `Fenced` and change nothing.
- `note` and `remove` name the sequence that they mean by its checksum; if another is there now, or none, they do
  nothing and answer False.
- A record that is broken is never run. Reading it raises `BrokenSequence`, `statuses` shows it, and it can be noted as
  set aside and removed like any other.
- `remove` is durable when it returns.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Protocol

from msgspec import Struct

from lakeseal.steps.sequence import CommitSequence


class SequenceState(Enum):
    OPEN = "open"
    """Recorded; some of its steps may have been done."""
    SET_ASIDE = "set_aside"
    """It kept failing: left alone until somebody retries or aborts it."""


class SequenceStatus(Struct, frozen=True, kw_only=True):
    """What a store knows of a dataset's sequence without reading its steps."""

    store: str
    dataset: str
    state: SequenceState
    epoch: int
    """The largest that the dataset has seen."""
    count: int
    """Of steps; 0 where the record is broken."""
    checksum: str
    """The record's identity; empty where it is broken."""
    tries: int = 0
    reason: str | None = None
    created_ms: int = 0
    updated_ms: int = 0


class CommitStepStore(Protocol):
    def create(self, store: str) -> bool:
        """False if there is such a store already. `put` and `claim` create it too."""

    def stores(self) -> list[str]:
        """All names, sorted."""

    def exists(self, store: str, dataset: str | None = None) -> bool:
        """Whether there is such a store, or whether the dataset has a sequence in it, in whatever state."""

    def statuses(self, store: str) -> list[SequenceStatus]:
        """Of all datasets that have a sequence, sorted by URN."""

    def status(self, store: str, dataset: str) -> SequenceStatus | None: ...

    def claim(self, store: str, datasets: Iterable[str], epoch: int) -> None:
        """From now on only this epoch and later ones may write to these datasets. A run does this before it reads a
        dataset's watermarks; what an earlier run recorded until then stays, and is to be recovered first."""

    def put(self, sequence: CommitSequence) -> None: ...

    def get_commit_sequence(self, store: str, dataset: str) -> CommitSequence | None:
        """None if the dataset has none."""

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
        """What became of the latest try."""

    def remove(self, store: str, dataset: str, *, checksum: str, epoch: int) -> bool:
        """The dataset has no sequence any more."""

    def remove_store(self, store: str) -> bool:
        """Removes a named store and what its datasets remember. `AlreadyExists` while any of them has a sequence."""
