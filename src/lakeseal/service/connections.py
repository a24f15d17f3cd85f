"""What a connection may cost before anybody is authenticated on it: all bounds of it, over uvicorn's own protocol.

A connection is *known* once a request on it was sent by a caller that the service knows (`known`). Of all others:

- The head of a request has at most `MOST_HEAD_BYTES` and `MOST_HEADERS`, and is there `HEAD_S` after it began; the
  first byte of a connection comes within `FIRST_BYTE_S`, and before it the whole handshake of an encrypted one. This
  holds for known ones too.
- Nothing is read of a body beyond what came along with its head, until the app asks for it, which it does when it
  knows the caller. What is still sent after the answer is thrown away, for `REST_S` and `MOST_REST` bytes.
- Behind a body sent in chunks may stand fields as in a head, and behind each chunk's length anything: nobody asks for
  that, so it is thrown away, and at most `MOST_HEAD_BYTES` of it come between two pieces of a body. For known ones too.
- At most `MOST_PIPELINED` requests wait behind the one that is worked on.
- All unknown ones together hold at most `MOST_HELD` bytes of requests and answers; those that began first are closed.
- There are at most `MOST_UNKNOWN` of them, or `MOST_UNKNOWN_ENCRYPTED`: what encrypts one holds 50 to 200 kB. With
  known ones there are at most so many of one address, and so many in all, as the service's settings say. A new one is
  always let in: the one that has been idle longest goes, unknown ones before known ones; one that has a body still to
  send is idle, as long as it is unknown. Only where none is idle, because all of them wait for answers, the new one is
  closed.

So whoever keeps connections takes places from nobody but themselves and others that are idle, and nobody is told that
the service is full. Connections that a trusted proxy makes are those of many, and not counted by address. All of it is
for each worker by itself.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import ssl
import sys
import types
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from itertools import chain
from typing import Any, Protocol, TypeVar, cast

import httptools
import msgspec
from starlette.types import Scope
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.protocols.utils import get_remote_addr
from uvicorn.server import ServerState

from lakeseal.errors import InvalidArgument, LakesealError, RequestTooLarge
from lakeseal.service.proxies import TrustedProxies
from lakeseal.service.settings import ServiceSettings
from lakeseal.service.wire import ErrorReply

MOST_HEAD_BYTES = 65_536
MOST_HEADERS = 100
# A URL may name two tables, each letter of them written as three.
MOST_URL_BYTES = 32_768
FIRST_BYTE_S = 10.0
HEAD_S = 10.0
REST_S = 10.0
MOST_REST = 2**20
MOST_PIPELINED = 4
STUCK_S = 30.0
MOST_HELD = 8 * 2**20
MOST_UNKNOWN = 2048
MOST_UNKNOWN_ENCRYPTED = 160

# For the ledger, tables and logs.
_OTHER_FILES = 256

_SWEEP_S = 0.5
_TELL_S = 10.0
_PIECE = 4096
_KEY = "lakeseal.connection"
_WISHES = (b"upgrade", b"http2-settings")
"""Words of a head that ask for another protocol."""
_log = logging.getLogger(__name__)
T = TypeVar("T")


def raise_file_limit() -> None:
    """A connection is an open file, and what a shell allows by default are few."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            _log.warning("the limit of open files stays at %d", soft)


def known(scope: Scope) -> None:
    """The request was sent by a caller that is known."""
    refers = scope.get("extensions", {}).get(_KEY)
    connection = None if refers is None else refers()
    if connection is not None and not connection.is_known:
        connection.becomes_known()


class _Counted(Protocol):
    """A connection, as far as it is counted."""

    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    address: str
    held: int
    is_known: bool

    @property
    def keeps_its_place(self) -> bool: ...

    def holds_now(self) -> int: ...

    def look(self, now: float) -> None: ...


class Connections:
    """Those of one worker. For its event loop."""

    def __init__(self, settings: ServiceSettings) -> None:
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._in_all = settings.max_connections
        if files != resource.RLIM_INFINITY:
            self._in_all = max(1, min(self._in_all, files - _OTHER_FILES))
        self._most_unknown = MOST_UNKNOWN if settings.tls_certificate is None else MOST_UNKNOWN_ENCRYPTED
        self._per_address = settings.max_connections_per_address
        self._proxies = TrustedProxies(settings.trusted_proxies)
        # Each in the order in which they were last used.
        self._unknown: dict[_Counted, None] = {}
        self._known: dict[_Counted, None] = {}
        self._of_address: dict[str, dict[_Counted, None]] = {}
        self._held = 0
        """At least what unknown ones hold."""
        self._timer: asyncio.TimerHandle | None = None
        self._closed = 0
        self._told_at = float("-inf")

    def __len__(self) -> int:
        return len(self._unknown) + len(self._known)

    def enter(self, one: _Counted) -> None:
        self._unknown[one] = None
        if not self._proxies.trusts(one.address):
            same = self._of_address.setdefault(one.address, {})
            same[one] = None
            if len(same) > self._per_address:
                self._make_room(same, one)
        if len(self._unknown) > self._most_unknown:
            self._make_room(self._unknown, one)
        if len(self) > self._in_all:
            self._make_room(chain(self._unknown, self._known), one)
        if self._timer is None:
            self._timer = one.loop.call_later(_SWEEP_S, self._sweep, one.loop)

    def leave(self, one: _Counted) -> None:
        if one in self._unknown:
            del self._unknown[one]
            self._held -= one.held
        else:
            self._known.pop(one, None)
        same = self._of_address.get(one.address)
        if same is not None:
            same.pop(one, None)
            if not same:
                del self._of_address[one.address]

    def used(self, one: _Counted) -> None:
        """A request begins, or was answered."""
        for places in (self._known if one.is_known else self._unknown, self._of_address.get(one.address, {})):
            if one in places:
                del places[one]
                places[one] = None

    def becomes_known(self, one: _Counted) -> None:
        if one in self._unknown:
            del self._unknown[one]
            self._held -= one.held
            self._known[one] = None

    def holds(self, one: _Counted, more: int) -> None:
        """Of an unknown one."""
        if one in self._unknown:
            one.held += more
            self._held += more
            if self._held > MOST_HELD:
                self._shed(one)

    def _shed(self, newest: _Counted) -> None:
        for one in self._unknown:
            # Answers have been sent meanwhile.
            one.held = one.holds_now()
        self._held = sum(one.held for one in self._unknown)
        if self._held > MOST_HELD * 3 // 4:
            for one in [one for one in self._unknown if one.held and one is not newest]:
                self._close(one)
                if self._held <= MOST_HELD // 2:
                    break

    def _make_room(self, places: Iterable[_Counted], new: _Counted) -> None:
        later = new
        for one in places:
            if one is new or one.keeps_its_place:
                continue
            if not one.is_known:
                self._close(one)
                return
            if later is new:
                later = one
        self._close(later)

    def _close(self, one: _Counted) -> None:
        self.leave(one)
        self._closed += 1
        one.transport.abort()

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for one in [*self._unknown, *self._known]:
            one.look(now)
        if self._closed and now - self._told_at > _TELL_S:
            _log.warning(
                "connections were closed to make room for others", extra={"closed": self._closed, "open": len(self)}
            )
            self._closed, self._told_at = 0, now
        self._timer = loop.call_later(_SWEEP_S, self._sweep, loop) if len(self) or self._closed else None


class ConnectionFactory:
    """uvicorn's `http` setting; travels to workers pickled, before it has made any connection. Where the settings name
    a certificate, connections are encrypted from here, so that those count which never come to that."""

    def __init__(self, settings: ServiceSettings) -> None:
        self._settings = settings
        self._connections: Connections | None = None
        self._tls: ssl.SSLContext | None = None

    def __call__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> asyncio.Protocol:
        if self._connections is None:
            self._connections = Connections(self._settings)
            self._tls = tls_context(self._settings)
        connections = self._connections

        def make() -> BoundedConnection:
            return BoundedConnection(config, server_state, app_state, _loop, connections=connections)

        return make() if self._tls is None else _Handshake(self._tls, make, connections)


def tls_context(settings: ServiceSettings) -> ssl.SSLContext | None:
    """`InvalidArgument` if it is none."""
    if settings.tls_certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(settings.tls_certificate, settings.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise InvalidArgument(f"The certificate or its key cannot be used: {error.strerror or error}") from None
    return context


class _Handshake(asyncio.Protocol):
    """A connection until it is encrypted."""

    is_known = keeps_its_place = False
    held = 0

    def __init__(
        self, context: ssl.SSLContext, make: Callable[[], BoundedConnection], connections: Connections
    ) -> None:
        self._context = context
        self._make = make
        self._connections = connections
        self.loop = asyncio.get_running_loop()
        self.address = ""
        self.transport: asyncio.Transport = None  # type: ignore[assignment]
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self.address = (get_remote_addr(transport) or ("", 0))[0]
        self._connections.enter(self)
        early = _Early()
        starts = self.loop.start_tls(
            transport, early, self._context, server_side=True, ssl_handshake_timeout=FIRST_BYTE_S
        )
        # Its first step, which lets it hear what comes, is done now: what came before would be lost.
        first = starts.send(None)
        self._task = self.loop.create_task(self._encrypt(early, _resumed(starts, first)))

    def holds_now(self) -> int:
        return 0

    def look(self, now: float) -> None:
        pass  # the handshake has its own time

    async def _encrypt(self, early: _Early, started: Awaitable[asyncio.Transport | None]) -> None:
        try:
            encrypted = await started
        except (OSError, TimeoutError):
            encrypted = None
        finally:
            self._connections.leave(self)
        if encrypted is None or early.is_lost or self.transport.is_closing():
            # Also where it was closed to make room, which a handshake need not notice.
            self.transport.abort()
            return
        protocol = self._make()
        encrypted.set_protocol(protocol)
        protocol.connection_made(encrypted)
        for data in early.received:
            protocol.data_received(data)


@types.coroutine
def _resumed(begun: Coroutine[Any, Any, T], first: Any) -> Generator[Any, Any, T]:
    """The rest of a coroutine that was begun, and waits for `first`."""
    yield first
    return (yield from begun.__await__())


class _Early(asyncio.Protocol):
    """What comes right behind a handshake, until somebody is there for it."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.is_lost = False

    def data_received(self, data: bytes) -> None:
        self.received.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True


class _Refused(Exception):
    """Another protocol is not spoken here."""

    def __init__(self, offset: int) -> None:
        self.offset = offset


class BoundedConnection(HttpToolsProtocol):
    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        connections: Connections,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.url = b""
        self.headers = []
        self.is_known = False
        self.address = ""
        self.held = 0
        self._connections = connections
        # What a request holds must be free when its connection is gone, not when the next collection finds it.
        self._itself = weakref.ref(self)
        self._request_bytes = 0
        self._in_head = self._in_body = False
        self._head_bytes = self._rest = 0
        self._unasked = 0
        """Bytes since the last piece of a body."""
        self._since = 0.0
        """When what is waited for began: the first byte, a head, or the rest of a body after its answer."""
        self._stuck_since: float | None = None
        self._refusal: tuple[int, LakesealError] | None = None

    @property
    def is_busy(self) -> bool:
        """A request is worked on."""
        return (self.cycle is not None and not self.cycle.response_complete) or bool(self.pipeline)

    @property
    def keeps_its_place(self) -> bool:
        """It waits for an answer. Whoever is not known, and has a body still to send, is waited for."""
        return self.is_busy and (self.is_known or not self._in_body)

    def becomes_known(self) -> None:
        self._connections.becomes_known(self)
        self.is_known = True

    def holds_now(self) -> int:
        # uvicorn keeps the last request of a connection until the next one begins.
        return self._request_bytes + self.transport.get_write_buffer_size()

    def look(self, now: float) -> None:
        """Closes the connection where what is waited for takes too long."""
        if self._stuck_since is not None and now - self._stuck_since > STUCK_S:
            self.transport.abort()
        elif self.is_busy:
            return
        elif self._in_head and now - self._since > HEAD_S:
            self._refuse(408, InvalidArgument(f"The head of a request did not arrive within {HEAD_S:g} s"))
        elif (self._in_body and now - self._since > REST_S) or (
            self.cycle is None and not self._in_head and now - self._since > FIRST_BYTE_S
        ):
            self.transport.close()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        self._since = self.loop.time()
        self._connections.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.leave(self)
        super().connection_lost(exc)
        self.headers = []
        self.pipeline.clear()

    def data_received(self, data: bytes) -> None:
        if not self._in_head and not self._in_body:
            # Also where it is an empty line, of which the parser says nothing.
            self._in_head, self._head_bytes, self._since = True, 0, self.loop.time()
            self._connections.used(self)
            if not self.is_known:
                self._connections.holds(self, -self.held)
                self._request_bytes = 0
        if not self.is_known and not self._is_rest:
            self._request_bytes += len(data)
            self._connections.holds(self, len(data))
        while data and not self.transport.is_closing():
            size = _PIECE if self._in_head else len(data)
            piece, data = data[:size], data[size:]
            self._head_bytes += len(piece)
            self._unasked += len(piece)
            self._feed(piece)
            if self._in_body and self._unasked > MOST_HEAD_BYTES and not self.transport.is_closing():
                self._refuse(431, _head_too_large())
            if self._in_head and not self.transport.is_closing() and self._is_head_too_large(self._head_bytes):
                self._refuse(431, _head_too_large())
        if self._in_body and not self.is_known and self.is_busy and not self.transport.is_closing():
            self.flow.pause_reading()

    def _feed(self, piece: bytes) -> None:
        try:
            super().data_received(piece)
        except _Refused as refused:
            self._go_on_as_before(piece[refused.offset :])

    def _unsupported_upgrade_warning(self) -> None:
        """Called while the parser's exception is handled, which says where it stopped."""
        stopped = sys.exception()
        assert isinstance(stopped, httptools.HttpParserUpgrade)
        raise _Refused(stopped.args[0]) from None

    def _go_on_as_before(self, rest: bytes) -> None:
        """Java's clients ask every server for HTTP/2 with their first request, and send that request's body all the
        same. Who does not want to change answers as if nothing had been said of it; but the parser takes what follows
        for another protocol. So another one begins with the same head, without that wish."""
        method = self.parser.get_method()
        if method == b"CONNECT":
            self.send_400_response("")
            return
        head = [b"%b %b HTTP/1.1" % (method, self.url)]
        for name, value in self.headers:
            if name == b"connection":
                said = [word.strip() for word in value.split(b",")]
                value = b", ".join(word for word in said if word.lower() not in _WISHES)
            if name not in _WISHES and value:
                head.append(b"%b: %b" % (name, value))
        self.parser = httptools.HttpRequestParser(self)
        super().data_received(b"\r\n".join([*head, b"", b""]) + rest)

    @property
    def _is_rest(self) -> bool:
        """What comes belongs to a body whose request was answered."""
        return self._in_body and not self.is_busy

    def _is_head_too_large(self, size: int) -> bool:
        return size > MOST_HEAD_BYTES or len(self.headers) > MOST_HEADERS or len(self.url) > MOST_URL_BYTES

    def on_message_begin(self) -> None:
        super().on_message_begin()
        cast(dict[str, Any], self.scope)["extensions"] = {_KEY: self._itself}
        if not self._in_head:
            # Behind another one in the same piece.
            self._in_head, self._head_bytes, self._since = True, 0, self.loop.time()

    def on_headers_complete(self) -> None:
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if self._is_head_too_large(size):
            self._refusal = (431, _head_too_large())
            raise ValueError("the head is too large")
        if self.parser.should_upgrade():
            return
        self._in_head, self._in_body = False, True
        self._unasked = 0
        super().on_headers_complete()
        if len(self.pipeline) > MOST_PIPELINED:
            raise ValueError("too many requests wait for the one before them")

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_body:
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._unasked = 0
        if not self.is_busy:
            self._rest += len(body)
            if self._rest > MOST_REST:
                self.transport.close()

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._in_body = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._since, self._rest = self.loop.time(), 0
        super().on_response_complete()
        if self.transport.is_closing():
            return
        self._connections.used(self)
        if not self.is_known:
            self._connections.holds(self, self.transport.get_write_buffer_size())

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stuck_since = self.loop.time()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stuck_since = None

    def send_400_response(self, msg: str) -> None:
        """Of what is no HTTP, or too much of it."""
        self._refuse(*(self._refusal or (400, InvalidArgument("This is no HTTP request"))))

    def _refuse(self, status: int, error: LakesealError) -> None:
        if not self.is_busy and not self.transport.is_closing():
            body = msgspec.json.encode(ErrorReply(error=error.to_json()))
            head = (
                STATUS_LINE[status],
                b"content-type: application/json\r\ncache-control: no-store\r\nconnection: close\r\n",
                b"content-length: %d\r\n\r\n" % len(body),
            )
            self.transport.write(b"".join((*head, body)))
        # Otherwise an answer is under way, and would be torn in two.
        self.transport.close()


def _head_too_large() -> LakesealError:
    return RequestTooLarge(
        f"The head of a request may have {MOST_HEAD_BYTES:,} bytes, {MOST_HEADERS} headers, "
        f"and {MOST_URL_BYTES:,} bytes in its address"
    )
