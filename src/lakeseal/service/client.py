"""`HttpOwner`: an owner behind a service, as an `OwnerEndpoint`. Importing this makes `connect` know http and https.

Where a request goes is what the user configured, and nothing that stands in a table is ever part of it (`HttpClient`).

A reply that did not come, or came from somebody who is not the service, is `UnknownOutcome` for calls that may have
changed something, and `StorageUnavailable` for the others and where no connection was made. Reads, and whatever was
told to wait, are asked again for a few seconds first.

May be shared by threads, and used after a fork.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from functools import partial
from typing import TypeVar
from urllib.parse import urlencode

import httpx
import msgspec

from lakeseal import typed_json
from lakeseal.errors import (
    InvalidArgument,
    LakesealError,
    OwnerBusy,
    StorageUnavailable,
    UnknownOutcome,
)
from lakeseal.owner.config import DEFAULT_NAME, OwnerConfig
from lakeseal.owner.connect import register
from lakeseal.owner.endpoint import name_of
from lakeseal.owner.messages import Batch, BatchAnswer, CommitRequest, TableCommits, error_from_json
from lakeseal.service import wire
from lakeseal.service.book_client import HttpBooks
from lakeseal.service.call import ServiceCall
from lakeseal.service.http_client import PATIENCE_S, TIMEOUT, HttpAnswer, HttpClient, retry_after_s
from lakeseal.service.name_client import HttpNames
from lakeseal.service.owner_calls import (
    Backfill,
    BeginRelease,
    BeginTakeover,
    ConfirmTakeover,
    Drop,
    FinishRelease,
    GetCommits,
    GetCommitsOf,
    Ratify,
    WithdrawTakeover,
)
from lakeseal.service.wire import ErrorReply, OwnerInfo, TableList, TableStatus
from lakeseal.storage.base import Store

T = TypeVar("T")


class HttpOwner:
    """An `OwnerEndpoint`."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        name: str | None = None,
        timeout: httpx.Timeout = TIMEOUT,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """`name`: the service must call itself so. Nothing is contacted yet."""
        self._http = HttpClient(url, token=token, timeout=timeout, patience_s=patience_s)
        self._url = self._http.url
        self._expected = name
        self._info: OwnerInfo | None = None

    @classmethod
    def from_config(cls, config: OwnerConfig) -> HttpOwner:
        """The same for the same configuration, as long as somebody uses it: connections are shared."""
        # Every owner has the default name unless it is given another.
        name = None if config.name == DEFAULT_NAME else config.name
        key = (config.url, config.token, name)
        with _connected_lock:
            found = _connected.get(key)
            if found is None:
                found = _connected[key] = cls(config.url, token=config.token or None, name=name)
            return found

    def __repr__(self) -> str:
        return f"HttpOwner({self._url!r})"

    @property
    def name(self) -> str:
        return self.info().name

    @property
    def batch_size(self) -> int:
        return self.info().batch_size

    @property
    def inline_bytes(self) -> int:
        return self.info().inline_bytes

    def identity(self, *, make: bool = False) -> str | None:
        return self.info().ledger_id

    def info(self) -> OwnerInfo:
        """Asked for once."""
        if self._info is None:
            found = self._http.read(lambda: self._once("GET", wire.OWNER, OwnerInfo, None))
            if self._expected not in (None, found.name):
                raise InvalidArgument(
                    f"The service at {self._url} is the owner {found.name!r}, and was configured as {self._expected!r}",
                    hint="Configure it under its own name",
                )
            self._info = found
        return self._info

    def attach(self, store: Store) -> str:
        return name_of(store, self.get_commits_of)

    def get_commits(self, table: str, start_version: int = 0) -> TableCommits:
        return self._ask(GetCommits(table=table, start_version=start_version, takes_data=True))

    def get_commits_of(self, tables: Sequence[str]) -> tuple[TableCommits, ...]:
        return self._ask(GetCommitsOf(tables=tuple(tables), takes_data=True))

    def ratify(self, batch: Batch) -> BatchAnswer:
        answer = self._decide(Ratify.of(batch))
        if [one.table for one in answer.commits] != [request.table for request in batch.commits]:
            raise UnknownOutcome(f"The service at {self._url} answered something else than it was asked")
        return answer

    def backfill(self, table: str, version: int | None = None) -> TableCommits:
        return self._decide(Backfill(table=table, version=version))

    def begin_takeover(
        self,
        table: str,
        takeover_id: str,
        version: int,
        commit: CommitRequest | None = None,
        *,
        epoch: int | None = None,
    ) -> TableCommits:
        return self._decide(
            BeginTakeover(table=table, takeover_id=takeover_id, version=version, commit=commit, epoch=epoch)
        )

    def confirm_takeover(self, table: str, takeover_id: str) -> TableCommits:
        return self._decide(ConfirmTakeover(table=table, takeover_id=takeover_id))

    def withdraw_takeover(self, table: str, takeover_id: str) -> TableCommits:
        return self._decide(WithdrawTakeover(table=table, takeover_id=takeover_id))

    def begin_release(self, table: str, release_id: str, *, epoch: int | None = None) -> TableCommits:
        return self._decide(BeginRelease(table=table, release_id=release_id, epoch=epoch))

    def finish_release(self, table: str) -> TableCommits:
        return self._decide(FinishRelease(table=table))

    def drop(self, table: str) -> TableCommits:
        return self._decide(Drop(table=table))

    def tables(self, prefix: str = "") -> list[TableStatus]:
        """Those that the token may read."""
        found: list[TableStatus] = []
        while True:
            query = urlencode({"prefix": prefix, "after": found[-1].table if found else ""})
            part = self._http.read(partial(self._once, "GET", f"{wire.TABLES}?{query}", TableList, None))
            found += part.tables
            if not part.more:
                return found

    def books(self) -> HttpBooks:
        """What steps and pipelines keep in the service's ledger."""
        return HttpBooks(self)

    def names(self, *, root: str | None = None) -> HttpNames:
        """The names in the service's ledger. Tables without a location go below `root`, or where the service says."""
        return HttpNames(self, root=root)

    def repeat(self, call: ServiceCall[T]) -> T:
        """For calls that may change something, and are the same when made twice: made again where no answer came."""
        return self._http.patiently(lambda: self._send(call), (StorageUnavailable, UnknownOutcome))

    def close(self) -> None:
        """Its connections; it can be used again."""
        self._http.close()

    def _ask(self, call: ServiceCall[T]) -> T:
        return self._http.read(lambda: self._send(call))

    def _decide(self, call: ServiceCall[T]) -> T:
        return self._http.patiently(lambda: self._send(call), OwnerBusy)

    def _send(self, call: ServiceCall[T]) -> T:
        try:
            body = msgspec.json.encode(call)
        except UnicodeEncodeError as error:
            raise InvalidArgument(f"{error.object!r} is not valid Unicode text") from None
        reply: type[T] = call.reply
        return self._once("POST", call.path, reply, body)

    def _once(self, method: str, target: str, reply: type[T], body: bytes | None) -> T:
        """`UnknownOutcome` whenever the service may have got the request and its own answer did not come."""
        answer = self._http.once(method, target, body)
        if answer.status == 200:
            try:
                return typed_json.decode(answer.content, reply)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise UnknownOutcome(f"What answered at {self._url} is not a Lakeseal service: {error}") from None
        raise self._error(answer)

    def _error(self, answer: HttpAnswer) -> LakesealError:
        try:
            said = typed_json.decode(answer.content, ErrorReply)
            error = error_from_json(said.error)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, TypeError):
            return self._http.foreign(answer)
        if isinstance(error, OwnerBusy):
            error.retry_after_s = retry_after_s(answer)
        return error


_connected: weakref.WeakValueDictionary[tuple[str, str | None, str | None], HttpOwner] = weakref.WeakValueDictionary()
_connected_lock = threading.Lock()


register("http", HttpOwner.from_config)
register("https", HttpOwner.from_config)

__all__ = ["HttpOwner"]
