"""A proxy on loopback that harms chosen HTTP requests: what a network and a store can do to a writer.

with faulty_proxy(s3.endpoint, lambda request: ProxyFault.LOSE_REPLY if request.method == "PUT" else None) as proxy:
    options = {**s3.storage_options, "aws_endpoint_url": proxy.endpoint}
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from msgspec import Struct

_LATE_S = 0.5
_SLOW_S = 0.3


class ProxyFault(Enum):
    LOSE_REQUEST = "the connection breaks before the store sees the request"
    LOSE_REPLY = "the store does it, and the connection breaks before the reply"
    STALL = "the store does it, and the reply never comes"
    LATE = "the connection breaks, and the store sees the request a moment later"
    TWICE = "the store sees the request twice, and its first answer is passed on"
    SLOW = "the request and its answer take their time"


class Request(Struct, frozen=True, kw_only=True):
    method: str
    path: str
    """As on the wire, with the query."""
    headers: dict[str, str]
    """With lower-case names."""


class Reply(Struct, frozen=True, kw_only=True):
    """Somebody's own answer, in JSON."""

    status: int
    body: bytes


Verdict = ProxyFault | Reply | int | None


class Proxy(Struct, frozen=True, kw_only=True):
    endpoint: str
    requests: list[Request]
    """What has arrived so far."""


@contextmanager
def faulty_proxy(upstream: str, fault: Callable[[Request], Verdict]) -> Iterator[Proxy]:
    """`fault` decides per request: None lets it pass, a number is answered as that status without asking the store, and
    so is a `Reply`."""
    target = urlsplit(upstream)
    seen: list[Request] = []
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one_request(self) -> None:
            self.raw_requestline = self.rfile.readline(65537)
            if not self.raw_requestline or not self.parse_request():
                self.close_connection = True
                return
            headers = {name.lower(): value for name, value in self.headers.items()}
            length = int(headers.get("content-length", "0"))
            body = self.rfile.read(length)
            if len(body) < length:
                self.close_connection = True
                return
            request = Request(method=self.command, path=self.path, headers=headers)
            seen.append(request)
            verdict = fault(request)
            if isinstance(verdict, int):
                self._answer(verdict, {}, b"")
            elif isinstance(verdict, Reply):
                self._answer(verdict.status, {"Content-Type": "application/json"}, verdict.body)
            elif verdict is ProxyFault.LOSE_REQUEST:
                self._break()
            elif verdict is ProxyFault.LATE:
                self._break()
                over.wait(_LATE_S)
                self._forward_unseen(body)
            else:
                if verdict is ProxyFault.SLOW:
                    over.wait(_SLOW_S)
                status, reply_headers, reply = self._forward(body)
                if verdict is ProxyFault.STALL:
                    over.wait()
                if verdict is ProxyFault.TWICE:
                    self._forward_unseen(body)
                if verdict in (None, ProxyFault.TWICE, ProxyFault.SLOW):
                    self._answer(status, reply_headers, reply)
                else:
                    self._break()

        def _forward_unseen(self, body: bytes) -> None:
            # Nobody is told what comes of it, nor that nothing does.
            with suppress(OSError, HTTPException):
                self._forward(body)

        def _forward(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
            connection = HTTPConnection(target.hostname or "", target.port, timeout=60)
            try:
                connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    connection.putheader(name, value)
                connection.endheaders(body)
                answer = connection.getresponse()
                return answer.status, dict(answer.getheaders()), answer.read()
            finally:
                connection.close()

        def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response_only(status)
            kept = {k: v for k, v in headers.items() if k.lower() not in ("connection", "transfer-encoding")}
            if "content-length" not in {name.lower() for name in kept}:
                kept["Content-Length"] = str(len(body))
            for name, value in kept.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def _break(self) -> None:
            # With no time to linger, closing sends a reset.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            self.close_connection = True

        def finish(self) -> None:
            with suppress(OSError, ValueError):
                super().finish()

        def log_message(self, format: str, *args: object) -> None: ...

    class ProxyServer(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """Clients that give up are part of the game."""

    server = ProxyServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), name="faulty-proxy", daemon=True)
    thread.start()
    try:
        yield Proxy(endpoint=f"http://127.0.0.1:{server.server_port}", requests=seen)
    finally:
        over.set()
        server.shutdown()
        server.server_close()
        thread.join()
