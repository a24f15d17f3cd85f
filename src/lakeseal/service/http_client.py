"""`HttpClient`: questions to one address, as the clients of services and of catalogs ask them.

Where a request goes, and what token it carries, is what the user configured and nothing else: redirects are not
followed. A token is not sent over plain http to other machines, unless LAKESEAL_ALLOW_HTTP=1.

It speaks HTTP/1.1 over sockets of its own, which it keeps, since a commit costs its client less than a general HTTP
library takes for the request alone; answers are read by httptools. httpx does it where the environment names a proxy
for the host, and wherever `by_hand` is off.

`UnknownOutcome` says that the request may have arrived and no answer came; `StorageUnavailable` that no connection was
made. May be shared by threads, and used after a fork.
"""

from __future__ import annotations

import itertools
import logging
import os
import select
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import TypeVar
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

import httptools
import httpx
from msgspec import Struct

from lakeseal import traces
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
from lakeseal.service.settings import is_loopback

ALLOW_HTTP_VARIABLE = "LAKESEAL_ALLOW_HTTP"
TIMEOUT = httpx.Timeout(60.0, connect=10.0)
PATIENCE_S = 10.0
_BACKOFF = Backoff(first_s=0.05, longest_s=2.0)
# Waits of a tenth of a second are nothing to tell of.
_TELL_AFTER = 2
_KEPT = 64
_KEPT_S = 20.0
_CHUNK = 65_536
_ASKED_FIRST = 2**20
"""Whether a longer body is wanted is asked before it is sent: whoever is refused would not hear why while sending."""
_WAITS_S = 3.0
"""So long for an answer to that; not everybody gives one."""
_log = logging.getLogger(__name__)

T = TypeVar("T")


class HttpAnswer(Struct, frozen=True, kw_only=True):
    status: int
    content: bytes
    retry_after: str = ""


_GO_ON = HttpAnswer(status=100, content=b"")


class HttpClient:
    by_hand = True
    """Off, everything is asked by httpx: what that costs is in docs/design/002-libraries.md."""

    def __init__(
        self, url: str, *, token: str | None = None, timeout: httpx.Timeout = TIMEOUT, patience_s: float = PATIENCE_S
    ) -> None:
        """Nothing is contacted yet."""
        self.url = _checked(url, token)
        self._timeout = timeout
        self._patience_s = patience_s
        self._headers = {"User-Agent": f"lakeseal/{version('lakeseal')}"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        parts = urlsplit(self.url)
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._scheme = parts.scheme
        self._path = quote(parts.path, safe="/%:@!$&'()*+,;=~-._")
        said = {"Host": parts.netloc, "Accept": "application/json", **self._headers}
        self._head = "".join(f"{name}: {value}\r\n" for name, value in said.items()).encode()
        self._lock = threading.Lock()
        self._open: dict[int, _Connections] = {}
        # Nobody closes an owner that a table was opened with.
        weakref.finalize(self, _close, self._open, self._lock)

    def once(self, method: str, target: str, body: bytes | None) -> HttpAnswer:
        """Whatever answers; `target` is what follows the address."""
        with traces.span(
            f"lakeseal ask {target.partition('?')[0]}", {"server.address": self.url}, kind="client"
        ) as say:
            mine = self._connections()
            ask = self._ask if mine.by_httpx is None else self._ask_by_httpx
            answer = ask(mine, method, target, body, traces.sent())
            say({"http.response.status_code": answer.status})
            return answer

    def read(self, once: Callable[[], T]) -> T:
        """For questions that decide nothing: asked again for a few seconds where no answer came."""

        def ask() -> T:
            try:
                return once()
            except UnknownOutcome as error:
                raise StorageUnavailable(error.message) from error.__cause__

        return self.patiently(ask, StorageUnavailable)

    def patiently(self, ask: Callable[[], T], again: type[LakesealError] | tuple[type[LakesealError], ...]) -> T:
        """`ask`, and once more for a few seconds while it raises one of `again`."""
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
                    _log.warning("The service at %s answers again", self.url)
                return answer
        raise AssertionError("there is always another number")

    def foreign(self, answer: HttpAnswer) -> LakesealError:
        """What to say of an answer that is not the service's: somebody is between, or in its place."""
        if 300 <= answer.status < 400:
            return InvalidUri(
                f"The service at {self.url} answers with a redirect, and redirects are not followed",
                hint="Configure the address where the service really is",
            )
        text = f"Not the service at {self.url} answered, but something in between, with status {answer.status}"
        if answer.status < 500:
            return StorageError(text, hint="Check the owner's address")
        return UnknownOutcome(text)

    def close(self) -> None:
        """Its connections; it can be used again."""
        _close(self._open, self._lock)

    def _connections(self) -> _Connections:
        # A connection that two processes share would mix up their answers.
        process = os.getpid()
        found = self._open.get(process)
        if found is None:
            with self._lock:
                found = self._open.get(process)
                if found is None:
                    found = self._open[process] = self._opened()
        return found

    def _opened(self) -> _Connections:
        # Proxies of the environment lead away from this machine.
        is_far = not is_loopback(self._host) and self._scheme in getproxies() and not proxy_bypass(self._host)
        # Loading certificates takes longer than a request, and plain http has none.
        tls = httpx.create_ssl_context() if self._scheme == "https" else None
        if self.by_hand and not is_far:
            return _Connections(tls=tls)
        return _Connections(
            by_httpx=httpx.Client(
                headers=self._headers,
                timeout=self._timeout,
                limits=httpx.Limits(max_connections=_KEPT, max_keepalive_connections=_KEPT, keepalive_expiry=_KEPT_S),
                verify=tls or True,
                trust_env=is_far,
            )
        )

    def _ask(
        self, mine: _Connections, method: str, target: str, body: bytes | None, headers: Mapping[str, str]
    ) -> HttpAnswer:
        connection = mine.kept() or self._connect(mine.tls)
        added = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        start = f"{method} {self._path}{target} HTTP/1.1\r\n{added}".encode()
        sent = b"" if body is None else b"Content-Type: application/json\r\nContent-Length: %d\r\n" % len(body)
        try:
            if body is None or len(body) <= _ASKED_FIRST:
                connection.socket.sendall(b"".join((start, self._head, sent, b"\r\n", body or b"")))
                answer, is_kept = connection.read()
            else:
                connection.socket.sendall(b"".join((start, self._head, sent, b"Expect: 100-continue\r\n\r\n")))
                answer, is_kept = connection.read_first() if connection.has_answer(_WAITS_S) else (_GO_ON, True)
                if answer.status == _GO_ON.status:
                    connection.socket.sendall(body)
                    answer, is_kept = connection.read()
                else:
                    # What is sent next would be taken for the body, which was told of and does not come.
                    is_kept = False
        except (OSError, EOFError, httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            connection.close()
            raise self._unanswered(error) from error
        except BaseException:
            # What is still to come on this connection is nobody else's answer.
            connection.close()
            raise
        mine.keep(connection, is_kept)
        return answer

    def _ask_by_httpx(
        self, mine: _Connections, method: str, target: str, body: bytes | None, headers: Mapping[str, str]
    ) -> HttpAnswer:
        assert mine.by_httpx is not None
        said = {**({} if body is None else {"Content-Type": "application/json"}), **headers}
        try:
            answer = mine.by_httpx.request(method, self.url + target, content=body, headers=said)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.InvalidURL, UnicodeError) as error:
            raise self._unreachable(error) from error
        except httpx.HTTPError as error:
            raise self._unanswered(error) from error
        return HttpAnswer(
            status=answer.status_code, content=answer.content, retry_after=answer.headers.get("Retry-After", "")
        )

    def _connect(self, tls: ssl.SSLContext | None) -> _Connection:
        opened = None
        try:
            opened = socket.create_connection((self._host, self._port), timeout=self._timeout.connect)
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                opened = tls.wrap_socket(opened, server_hostname=self._host)
            opened.settimeout(self._timeout.read)
        except (OSError, UnicodeError) as error:
            if opened is not None:
                opened.close()
            raise self._unreachable(error) from error
        return _Connection(opened)

    def _unanswered(self, error: Exception) -> UnknownOutcome:
        return UnknownOutcome(f"No answer came from the service at {self.url}: {_said(error)}")

    def _unreachable(self, error: Exception) -> StorageError:
        certificate = _untrusted(error)
        if certificate is not None:
            return StorageError(
                f"The certificate of the service at {self.url} is not trusted: {certificate.verify_message}",
                hint="Set SSL_CERT_FILE to the certificates of your own authority",
            )
        return StorageUnavailable(
            f"The service at {self.url} cannot be reached: {_said(error)}",
            hint="Check that it runs, and the owner's address",
        )


class _Connections:
    """Those of one process."""

    def __init__(self, *, tls: ssl.SSLContext | None = None, by_httpx: httpx.Client | None = None) -> None:
        self.tls = tls
        self.by_httpx = by_httpx
        """Has them, where that is what is asked."""
        self._idle: list[tuple[float, _Connection]] = []

    def kept(self) -> _Connection | None:
        while True:
            try:
                until, connection = self._idle.pop()
            except IndexError:
                return None
            if until > time.monotonic() and connection.is_quiet():
                return connection
            connection.close()

    def keep(self, connection: _Connection, is_kept: bool) -> None:
        if is_kept and len(self._idle) < _KEPT:
            self._idle.append((time.monotonic() + _KEPT_S, connection))
        else:
            connection.close()

    def close(self) -> None:
        while self._idle:
            self._idle.pop()[1].close()
        if self.by_httpx is not None:
            self.by_httpx.close()


class _Connection:
    """As httptools wants it: told what the parser finds."""

    def __init__(self, opened: socket.socket) -> None:
        self.socket = opened
        self._poll = select.poll()
        self._poll.register(opened, select.POLLIN)
        self._early: bytes | None = None
        """Received already, and not read yet."""

    def is_quiet(self) -> bool:
        """Whether nothing has come since the last answer: an end, or something that nobody asked for."""
        return not self._poll.poll(0)

    def has_answer(self, within_s: float) -> bool:
        """By what can be read: of what comes first on an encrypted connection, nothing need be an answer's."""
        usual_s = self.socket.gettimeout()
        self.socket.settimeout(within_s)
        try:
            self._early = self.socket.recv(_CHUNK)
        except TimeoutError:
            return False
        finally:
            self.socket.settimeout(usual_s)
        return True

    def read_first(self) -> tuple[HttpAnswer, bool]:
        """As `read`, and that a server asks for the body is an answer too."""
        return self._read(goes_on=_GO_ON.status)

    def read(self) -> tuple[HttpAnswer, bool]:
        """The answer, and whether another request may follow on this connection."""
        return self._read(goes_on=None)

    def _read(self, *, goes_on: int | None) -> tuple[HttpAnswer, bool]:
        self._goes_on = goes_on
        parser = self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self._is_over = self._is_kept = self._has_headers = self._is_bounded = False
        self._retry_after = ""
        while not self._is_over:
            data = self.socket.recv(_CHUNK) if self._early is None else self._early
            self._early = None
            if not data:
                # Without a length, an answer lasts as long as its connection.
                if self._has_headers and not self._is_bounded:
                    break
                raise EOFError("the connection ended before the answer")
            parser.feed_data(data)
        answer = HttpAnswer(
            status=parser.get_status_code(), content=b"".join(self._body), retry_after=self._retry_after
        )
        return answer, self._is_kept

    def close(self) -> None:
        self.socket.close()

    def on_message_begin(self) -> None:
        if self._is_over:
            raise EOFError("there is more than one answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        match name.lower():
            case b"retry-after":
                self._retry_after = value.decode("latin-1")
            case b"content-length" | b"transfer-encoding":
                self._is_bounded = True

    def on_headers_complete(self) -> None:
        self._has_headers = True

    def on_body(self, data: bytes) -> None:
        self._body.append(data)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200 and status != self._goes_on:
            # Something on the way to the answer.
            self._has_headers = self._is_bounded = False
            return
        self._is_over = True
        # Afterwards the parser has forgotten.
        self._is_kept = self._parser.should_keep_alive()


def retry_after_s(answer: HttpAnswer) -> float:
    """How long an answer asks to wait."""
    after = answer.retry_after
    return float(after) if after.isascii() and after.isdecimal() else 1.0


def _close(opened: dict[int, _Connections], lock: threading.Lock) -> None:
    with lock:
        found = opened.pop(os.getpid(), None)
    if found is not None:
        found.close()


def _untrusted(error: BaseException | None) -> ssl.SSLCertVerificationError | None:
    """Whether a certificate is what the connection failed by."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return error
        error = error.__cause__ or error.__context__
    return None


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


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
