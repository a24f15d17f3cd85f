"""Requests and answers between a client and a service, over connections that are kept.

`Direct` speaks HTTP/1.1 over sockets of its own, since a commit costs its client less than a general HTTP library takes
for the request alone; its answers are read by httptools. Where the environment names a proxy for the service's host,
`ViaProxy` leaves all of it to httpx. Neither follows redirects, nor adds anything to a request by itself.

`NotConnected` says that the service cannot have got the request; `NoAnswer` that nobody knows. May be shared by
threads; not across a fork.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections.abc import Mapping
from typing import Protocol
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

import httptools
import httpx
from msgspec import Struct

from lakeseal.service.settings import is_loopback

_KEPT = 64
_KEPT_S = 20.0
_CHUNK = 65_536
_ASKED_FIRST = 2**20
"""Whether a longer body is wanted is asked before it is sent: whoever is refused would not hear why while sending."""
_WAITS_S = 3.0
"""So long for an answer to that; not everybody gives one."""


class HttpAnswer(Struct, frozen=True, kw_only=True):
    status: int
    content: bytes
    retry_after: str = ""


_GO_ON = HttpAnswer(status=100, content=b"")


class NotConnected(Exception):
    pass


class NoAnswer(Exception):
    pass


class Transport(Protocol):
    def ask(self, method: str, target: str, body: bytes | None, headers: Mapping[str, str] | None = None) -> HttpAnswer:
        """`target` is what follows the service's address; `headers` are of this request alone."""

    def close(self) -> None: ...


def open_transport(url: str, headers: Mapping[str, str], timeout: httpx.Timeout) -> Transport:
    """`url` is the service's address, without anything but scheme, host, port and path."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    # Proxies of the environment lead away from this machine.
    if is_loopback(host) or parts.scheme not in getproxies() or proxy_bypass(host):
        return Direct(url, headers, timeout)
    return ViaProxy(url, headers, timeout)


class Direct:
    def __init__(self, url: str, headers: Mapping[str, str], timeout: httpx.Timeout) -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._path = quote(parts.path, safe="/%:@!$&'()*+,;=~-._")
        # Loading certificates takes longer than a request, and plain http has none.
        self._tls = httpx.create_ssl_context() if parts.scheme == "https" else None
        said = {"Host": parts.netloc, "Accept": "application/json", **headers}
        self._head = "".join(f"{name}: {value}\r\n" for name, value in said.items()).encode()
        self._connect_s, self._read_s = timeout.connect, timeout.read
        self._idle: list[tuple[float, _Connection]] = []

    def ask(self, method: str, target: str, body: bytes | None, headers: Mapping[str, str] | None = None) -> HttpAnswer:
        connection = self._kept() or self._connect()
        added = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        start = f"{method} {self._path}{target} HTTP/1.1\r\n{added}".encode()
        sent = b"" if body is None else b"Content-Type: application/json\r\nContent-Length: %d\r\n" % len(body)
        try:
            if body is None or len(body) <= _ASKED_FIRST:
                connection.socket.sendall(b"".join((start, self._head, sent, b"\r\n", body or b"")))
                answer, is_kept = connection.read()
            else:
                connection.socket.sendall(b"".join((start, self._head, sent, b"Expect: 100-continue\r\n\r\n")))
                answer, is_kept = connection.read() if connection.has_answer(_WAITS_S) else (_GO_ON, True)
                if answer.status == _GO_ON.status:
                    connection.socket.sendall(body)
                while answer.status == _GO_ON.status:
                    answer, is_kept = connection.read()
        except (OSError, EOFError, httptools.HttpParserError) as error:
            connection.close()
            raise NoAnswer(_said(error)) from error
        except BaseException:
            # What is still to come on this connection is nobody else's answer.
            connection.close()
            raise
        if is_kept and len(self._idle) < _KEPT:
            self._idle.append((time.monotonic() + _KEPT_S, connection))
        else:
            connection.close()
        return answer

    def close(self) -> None:
        while self._idle:
            self._idle.pop()[1].close()

    def _kept(self) -> _Connection | None:
        while True:
            try:
                until, connection = self._idle.pop()
            except IndexError:
                return None
            if until > time.monotonic() and connection.is_quiet():
                return connection
            connection.close()

    def _connect(self) -> _Connection:
        opened = None
        try:
            opened = socket.create_connection((self._host, self._port), timeout=self._connect_s)
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                opened = self._tls.wrap_socket(opened, server_hostname=self._host)
            opened.settimeout(self._read_s)
        except (OSError, UnicodeError) as error:
            if opened is not None:
                opened.close()
            raise NotConnected(_said(error)) from error
        return _Connection(opened)


class _Connection:
    """As httptools wants it: told what the parser finds."""

    def __init__(self, opened: socket.socket) -> None:
        self.socket = opened
        self._poll = select.poll()
        self._poll.register(opened, select.POLLIN)

    def is_quiet(self) -> bool:
        """Whether nothing has come since the last answer: an end, or something that nobody asked for."""
        return not self._poll.poll(0)

    def has_answer(self, within_s: float) -> bool:
        return bool(self._poll.poll(within_s * 1000))

    def read(self) -> tuple[HttpAnswer, bool]:
        """The answer, and whether another request may follow on this connection."""
        parser = self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self._is_over = self._is_kept = self._has_headers = self._is_bounded = False
        self._retry_after = ""
        while not self._is_over:
            data = self.socket.recv(_CHUNK)
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
        self._is_over = True
        # Afterwards the parser has forgotten.
        self._is_kept = self._parser.should_keep_alive()


class ViaProxy:
    def __init__(self, url: str, headers: Mapping[str, str], timeout: httpx.Timeout) -> None:
        limits = httpx.Limits(max_connections=_KEPT, max_keepalive_connections=_KEPT, keepalive_expiry=_KEPT_S)
        self._url = url
        self._client = httpx.Client(headers=dict(headers), timeout=timeout, limits=limits, follow_redirects=False)

    def ask(self, method: str, target: str, body: bytes | None, headers: Mapping[str, str] | None = None) -> HttpAnswer:
        said = {**({} if body is None else {"Content-Type": "application/json"}), **(headers or {})}
        try:
            answer = self._client.request(method, self._url + target, content=body, headers=said)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise NotConnected(_said(error)) from error
        except httpx.HTTPError as error:
            raise NoAnswer(_said(error)) from error
        return HttpAnswer(
            status=answer.status_code, content=answer.content, retry_after=answer.headers.get("Retry-After", "")
        )

    def close(self) -> None:
        self._client.close()


def untrusted(error: BaseException | None) -> ssl.SSLCertVerificationError | None:
    """Whether a certificate is what the connection failed by."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return error
        error = error.__cause__ or error.__context__
    return None


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
