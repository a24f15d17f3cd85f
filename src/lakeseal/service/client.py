"""`HttpOwner`: an owner behind a service, as an `OwnerEndpoint`. Importing this makes `connect` know http and https.

Where a request goes, and what token it carries, is what the user configured and nothing else: redirects are not
followed, and nothing that stands in a table is ever part of it. A token is not sent over plain http to other machines,
unless LAKESEAL_ALLOW_HTTP=1.

A reply that did not come, or came from somebody who is not the service, is `UnknownOutcome` for calls that may have
changed something, and `StorageUnavailable` for the others and where no connection was made. Reads, and whatever was
told to wait, are asked again for a few seconds first.

May be shared by threads, and used after a fork.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from typing import TypeVar
from urllib.parse import urlencode, urlsplit

import httpx
import msgspec

from lakeseal import typed_json
from lakeseal.backoff import Backoff, Deadline
from lakeseal.errors import (
    InvalidArgument,
    InvalidUri,
    LakesealError,
    OwnerBusy,
    StorageError,
    StorageUnavailable,
    UnknownOutcome,
)
from lakeseal.owner.config import DEFAULT_NAME, OwnerConfig
from lakeseal.owner.connect import register
from lakeseal.owner.messages import Batch, BatchAnswer, CommitRequest, TableCommits, error_from_json
from lakeseal.owner.naming import name_of
from lakeseal.service import wire
from lakeseal.service.book_client import HttpBooks
from lakeseal.service.call import ServiceCall
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
from lakeseal.service.settings import is_loopback
from lakeseal.service.transport import HttpAnswer, NoAnswer, NotConnected, Transport, open_transport, untrusted
from lakeseal.service.wire import ErrorReply, OwnerInfo, TableList, TableStatus
from lakeseal.storage.base import Store

ALLOW_HTTP_VARIABLE = "LAKESEAL_ALLOW_HTTP"
_TIMEOUT = httpx.Timeout(60.0, connect=10.0)
_PATIENCE_S = 10.0
_BACKOFF = Backoff(first_s=0.05, longest_s=2.0)
# Waits of a tenth of a second are nothing to tell of.
_TELL_AFTER = 2
_log = logging.getLogger(__name__)

T = TypeVar("T")


class HttpOwner:
    """An `OwnerEndpoint`."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        name: str | None = None,
        timeout: httpx.Timeout = _TIMEOUT,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        """`name`: the service must call itself so. Nothing is contacted yet."""
        self._url = _checked(url, token)
        self._token = token
        self._expected = name
        self._timeout = timeout
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._clients: dict[int, Transport] = {}
        self._info: OwnerInfo | None = None
        # Nobody closes an owner that a table was opened with.
        self._close = weakref.finalize(self, _close, self._clients, self._lock)

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
            found = self._read(lambda: self._once("GET", wire.OWNER, OwnerInfo, None))
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
        self, table: str, takeover_id: str, version: int, commit: CommitRequest | None = None
    ) -> TableCommits:
        return self._decide(BeginTakeover(table=table, takeover_id=takeover_id, version=version, commit=commit))

    def confirm_takeover(self, table: str, takeover_id: str) -> TableCommits:
        return self._decide(ConfirmTakeover(table=table, takeover_id=takeover_id))

    def withdraw_takeover(self, table: str, takeover_id: str) -> TableCommits:
        return self._decide(WithdrawTakeover(table=table, takeover_id=takeover_id))

    def begin_release(self, table: str, release_id: str) -> TableCommits:
        return self._decide(BeginRelease(table=table, release_id=release_id))

    def finish_release(self, table: str) -> TableCommits:
        return self._decide(FinishRelease(table=table))

    def drop(self, table: str) -> TableCommits:
        return self._decide(Drop(table=table))

    def tables(self, prefix: str = "") -> list[TableStatus]:
        """Those that the token may read."""
        found: list[TableStatus] = []
        while True:
            query = urlencode({"prefix": prefix, "after": found[-1].table if found else ""})
            part = self._read(partial(self._once, "GET", f"{wire.TABLES}?{query}", TableList, None))
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
        return self._patiently(lambda: self._send(call), (StorageUnavailable, UnknownOutcome))

    def close(self) -> None:
        """Its connections; it can be used again."""
        _close(self._clients, self._lock)

    def _ask(self, call: ServiceCall[T]) -> T:
        return self._read(lambda: self._send(call))

    def _decide(self, call: ServiceCall[T]) -> T:
        return self._patiently(lambda: self._send(call), OwnerBusy)

    def _read(self, once: Callable[[], T]) -> T:
        def ask() -> T:
            try:
                return once()
            except UnknownOutcome as error:
                # Nothing was to be decided.
                raise StorageUnavailable(error.message) from error.__cause__

        return self._patiently(ask, StorageUnavailable)

    def _patiently(self, ask: Callable[[], T], again: type[LakesealError] | tuple[type[LakesealError], ...]) -> T:
        deadline = Deadline(self._patience_s)
        for tried in itertools.count(1):
            try:
                answer = ask()
            except again as error:
                said = error.retry_after_s if isinstance(error, OwnerBusy) else None
                if tried == _TELL_AFTER and not deadline.is_over:
                    _log.warning(
                        "%s; it is asked again, at most %g s apart, until %s",
                        error.message,
                        _BACKOFF.longest_s,
                        deadline,
                    )
                # What a service asks for is waited at least, and a little more, so that not all come back at once.
                asked_for = None if said is None else min(said, _BACKOFF.longest_s) + _BACKOFF.pause_s(1)
                if not deadline.wait(_BACKOFF.pause_s(tried) if asked_for is None else asked_for):
                    raise
            else:
                if tried > _TELL_AFTER:
                    _log.warning("The service at %s answers again", self._url)
                return answer
        raise AssertionError("there is always another number")

    def _send(self, call: ServiceCall[T]) -> T:
        try:
            body = msgspec.json.encode(call)
        except UnicodeEncodeError as error:
            raise InvalidArgument(f"{error.object!r} is not valid Unicode text") from None
        reply: type[T] = call.reply
        return self._once("POST", call.path, reply, body)

    def _once(self, method: str, target: str, reply: type[T], body: bytes | None) -> T:
        """`UnknownOutcome` whenever the service may have got the request and its own answer did not come."""
        try:
            answer = self._client().ask(method, target, body)
        except NotConnected as error:
            raise self._unreachable(error) from error
        except NoAnswer as error:
            raise UnknownOutcome(f"No answer came from the service at {self._url}: {error}") from error
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
            return self._foreign(answer)
        if isinstance(error, OwnerBusy):
            after = answer.retry_after
            error.retry_after_s = float(after) if after.isascii() and after.isdecimal() else 1.0
        return error

    def _foreign(self, answer: HttpAnswer) -> LakesealError:
        """Somebody between us and the service, or in its place."""
        if 300 <= answer.status < 400:
            return InvalidUri(
                f"The service at {self._url} answers with a redirect, and redirects are not followed",
                hint="Configure the address where the service really is",
            )
        text = f"Not the service at {self._url} answered, but something in between, with status {answer.status}"
        if answer.status < 500:
            return StorageError(text, hint="Check the owner's address")
        return UnknownOutcome(text)

    def _unreachable(self, error: NotConnected) -> StorageError:
        certificate = untrusted(error)
        if certificate is not None:
            return StorageError(
                f"The certificate of the service at {self._url} is not trusted: {certificate.verify_message}",
                hint="Set SSL_CERT_FILE to the certificates of your own authority",
            )
        return StorageUnavailable(
            f"The service at {self._url} cannot be reached: {error}",
            hint="Check that it runs, and the owner's address",
        )

    def _client(self) -> Transport:
        # A connection that two processes share would mix up their answers.
        process = os.getpid()
        client = self._clients.get(process)
        if client is None:
            with self._lock:
                client = self._clients.get(process)
                if client is None:
                    headers = {"User-Agent": f"lakeseal/{version('lakeseal')}"}
                    if self._token is not None:
                        headers["Authorization"] = f"Bearer {self._token}"
                    client = self._clients[process] = open_transport(self._url, headers, self._timeout)
        return client


_connected: weakref.WeakValueDictionary[tuple[str, str | None, str | None], HttpOwner] = weakref.WeakValueDictionary()
_connected_lock = threading.Lock()


def _close(clients: dict[int, Transport], lock: threading.Lock) -> None:
    with lock:
        client = clients.pop(os.getpid(), None)
    if client is not None:
        client.close()


def _checked(url: str, token: str | None) -> str:
    """The address without anything but scheme, host, port and path."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise InvalidUri("The address of the service is malformed", hint="Write https://host") from None
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
        raise InvalidUri("The address of a service is https://host[:port][/path]", hint="Write https://host")
    if "@" in parts.netloc:
        raise InvalidUri("The address of the service holds a password", hint="Give a token instead")
    if token is not None:
        if not token.isascii() or not token.isprintable() or " " in token:
            raise InvalidArgument("The token has characters that no token has")
        if parts.scheme == "http" and not is_loopback(host) and os.environ.get(ALLOW_HTTP_VARIABLE) != "1":
            raise InvalidArgument(
                f"The token would travel to {host} in the clear",
                hint=f"Use https://, or set {ALLOW_HTTP_VARIABLE}=1 if the network between is yours alone",
            )
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


register("http", HttpOwner.from_config)
register("https", HttpOwner.from_config)

__all__ = ["HttpOwner"]
