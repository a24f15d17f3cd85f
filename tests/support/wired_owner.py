"""An owner behind a wire that is not there: every call and every answer goes through JSON, errors included.

It shows that everything that can be asked of an owner can travel, and what a client of a service has to do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from lakeseal.errors import LakesealError
from lakeseal.owner.endpoint import OwnerEndpoint, name_of
from lakeseal.owner.messages import (
    Batch,
    BatchAnswer,
    CommitRequest,
    TableCommits,
    error_from_json,
    from_json,
)
from lakeseal.storage.base import Store

T = TypeVar("T")


class WiredOwner:
    """An `OwnerEndpoint`. The other side has its own way to the files."""

    def __init__(self, owner: OwnerEndpoint) -> None:
        self._owner = owner
        self.name = owner.name
        self.batch_size = owner.batch_size
        self.inline_bytes = owner.inline_bytes

    def identity(self, *, make: bool = False) -> str | None:
        return self._owner.identity(make=make)

    def attach(self, store: Store) -> str:
        return name_of(store, self.get_commits_of)

    def get_commits(self, table: str, start_version: int = 0) -> TableCommits:
        return self._one("get_commits", table, start_version)

    def get_commits_of(self, tables: Sequence[str]) -> tuple[TableCommits, ...]:
        return self._ask(self._owner.get_commits_of, (list(tables),), tuple[TableCommits, ...])

    def ratify(self, batch: Batch) -> BatchAnswer:
        data = msgspec.json.encode(batch)
        return self._ask(lambda sent: self._owner.ratify(from_json(sent, Batch)), (data,), BatchAnswer)

    def backfill(self, table: str, version: int | None = None) -> TableCommits:
        return self._one("backfill", table, version)

    def begin_takeover(
        self,
        table: str,
        takeover_id: str,
        version: int,
        commit: CommitRequest | None = None,
        *,
        epoch: int | None = None,
    ) -> TableCommits:
        def begin(sent: bytes | None) -> TableCommits:
            shown = None if sent is None else from_json(sent, CommitRequest)
            return self._owner.begin_takeover(table, takeover_id, version, shown, epoch=epoch)

        return self._ask(begin, (None if commit is None else msgspec.json.encode(commit),), TableCommits)

    def confirm_takeover(self, table: str, takeover_id: str) -> TableCommits:
        return self._one("confirm_takeover", table, takeover_id)

    def withdraw_takeover(self, table: str, takeover_id: str) -> TableCommits:
        return self._one("withdraw_takeover", table, takeover_id)

    def begin_release(self, table: str, release_id: str, *, epoch: int | None = None) -> TableCommits:
        return self._ask(lambda: self._owner.begin_release(table, release_id, epoch=epoch), (), TableCommits)

    def finish_release(self, table: str) -> TableCommits:
        return self._one("finish_release", table)

    def drop(self, table: str) -> TableCommits:
        return self._one("drop", table)

    def _one(self, call: str, *arguments: Any) -> TableCommits:
        sent = msgspec.json.decode(msgspec.json.encode(arguments))
        return self._ask(getattr(self._owner, call), tuple(sent), TableCommits)

    def _ask(self, call: Callable[..., Any], arguments: tuple[Any, ...], answer: type[T]) -> T:
        try:
            reply = msgspec.json.encode(call(*arguments))
        except LakesealError as error:
            told = msgspec.json.decode(msgspec.json.encode(error.to_json()))
            raise error_from_json(told) from None
        return from_json(reply, answer)
