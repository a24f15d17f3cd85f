"""What both branch stores do alike, by the few things that each does in its own way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar

import pyarrow as pa
from msgspec import Struct

from lakeseal.branches.store import Check
from lakeseal.branches.tree.history import CommitHistory
from lakeseal.branches.values import Commit, Entry, HeadMoved, MergeResult, Strategy
from lakeseal.errors import HeadChanged, InvalidArgument

T = TypeVar("T")


class MergeRequest(Struct, frozen=True, kw_only=True):
    """What `BranchStore.merge` and `merge_if` are asked for."""

    source: str
    dest: str
    strategy: Strategy | None
    if_head: str | None
    message: str
    metadata: Mapping[str, str]
    checks: Sequence[Check]

    def __post_init__(self) -> None:
        if self.strategy not in (None, "source-wins", "dest-wins"):
            raise InvalidArgument(f"{self.strategy!r} is no strategy", hint="Use source-wins or dest-wins, or none")

    @property
    def default_message(self) -> str:
        return f"Merge {self.source} into {self.dest}"


class CommonBranchStore(ABC):
    @property
    @abstractmethod
    def _history(self) -> CommitHistory: ...

    @abstractmethod
    def head(self, ref: str) -> str: ...

    @abstractmethod
    def stat(self, ref: str, path: str) -> Entry: ...

    @abstractmethod
    def open_entry(self, entry: Entry) -> pa.NativeFile: ...

    @abstractmethod
    def _merge(self, request: MergeRequest) -> MergeResult | HeadMoved: ...

    def commit_info(self, ref: str) -> Commit:
        return self._history.get(self.head(ref))

    def log(self, ref: str, *, limit: int | None = None, first_parent: bool = False) -> Iterator[Commit]:
        return islice(self._history.log(self.head(ref), first_parent=first_parent), limit)

    def merge_base(self, a: str, b: str) -> str | None:
        base = self._history.diverge(self.head(a), self.head(b)).base
        return None if base is None else base.id

    def read(self, ref: str, path: str) -> bytes:
        with self.open(ref, path) as file:
            data: bytes = file.read()
            return data

    def open(self, ref: str, path: str) -> pa.NativeFile:
        return self.open_entry(self.stat(ref, path))

    def merge(
        self,
        source: str,
        dest: str,
        *,
        strategy: Strategy | None = None,
        if_head: str | None = None,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
        checks: Sequence[Check] = (),
    ) -> MergeResult:
        request = MergeRequest(
            source=source,
            dest=dest,
            strategy=strategy,
            if_head=if_head,
            message=message,
            metadata=metadata or {},
            checks=checks,
        )
        return landed(self._merge(request))

    def merge_if(
        self,
        source: str,
        dest: str,
        expected_head: str,
        *,
        strategy: Strategy | None = None,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
        checks: Sequence[Check] = (),
    ) -> MergeResult | HeadMoved:
        request = MergeRequest(
            source=source,
            dest=dest,
            strategy=strategy,
            if_head=expected_head,
            message=message,
            metadata=metadata or {},
            checks=checks,
        )
        return self._merge(request)


def landed(outcome: T | HeadMoved) -> T:
    """What came of a move, for callers who take it for granted that the head is where they said."""
    if isinstance(outcome, HeadMoved):
        raise HeadChanged(f"the branch {outcome.branch!r} is at {outcome.actual}, not at {outcome.expected}")
    return outcome
