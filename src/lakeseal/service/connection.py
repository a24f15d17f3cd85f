"""A client's connection, as the server has it: a reply is sent in one piece, as soon as it is there.

uvicorn writes the head of a reply and its body one after the other, and each would be a packet of its own, for which
the client is woken up. uvloop sends what was written when it has done everything else that is to be done in its round:
of several clients that are answered together, the first would wait for the last one's reply.

A commit that came whole joins the service's lane from here, if it can; see `direct`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from fastapi import FastAPI
from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from lakeseal.service.calls import RATIFY
from lakeseal.service.direct import joined, replied
from lakeseal.service.service import Done

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application


class Connection(HttpToolsProtocol):
    _is_reading = False
    _read: RequestResponseCycle | None = None
    """A commit, until it is known whether its body has come with it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._replies = _Replies(transport, self.loop)
        super().connection_made(cast(asyncio.Transport, self._replies))

    def data_received(self, data: bytes) -> None:
        self._is_reading = True
        super().data_received(data)
        self._is_reading = False
        if self._read is not None:
            # The rest comes later, or never.
            self._perform(self._read)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        cycle, self._read = self._read, None
        if cycle is not None and not self._joins(cycle):
            self._perform(cycle)

    def on_response_complete(self) -> None:
        self._replies.send()
        super().on_response_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        scope = cycle.scope
        is_commit = scope["path"] == RATIFY.path and scope["method"] == "POST"
        if self._is_reading and is_commit and cycle.more_body and app is self.app:
            self._read = cycle
        else:
            super()._start_asgi_task(cycle, app)

    def _perform(self, cycle: RequestResponseCycle) -> None:
        self._read = None
        super()._start_asgi_task(cycle, self.app)

    def _joins(self, cycle: RequestResponseCycle) -> bool:
        service = cast(FastAPI, self.app).state.service

        def tell(done: Done | None) -> None:
            assert note is not None
            if done is None:
                self._perform(cycle)
            else:
                self._reply(cycle, *replied(service, note, done))

        note = joined(service, cast(Scope, cycle.scope), bytes(cycle.body), tell)
        return note is not None

    def _reply(self, cycle: RequestResponseCycle, body: bytes, headers: Iterable[tuple[bytes, bytes]]) -> None:
        if cycle.disconnected:
            return
        cycle.response_started = cycle.response_complete = True
        said = [b"%b: %b\r\n" % header for header in (*cycle.default_headers, *headers)]
        closing = b"" if cycle.keep_alive else b"connection: close\r\n"
        self._replies.write(b"".join((b"HTTP/1.1 200 OK\r\n", *said, closing, b"\r\n", body)))
        if not cycle.keep_alive:
            self._replies.close()
        self.on_response_complete()


class _Replies:
    """A transport that keeps what is written until it is told to send it, or its writer lets the event loop go on."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._written: list[bytes] = []
        # Encrypted ones are the transport's business alone.
        plain = transport.get_extra_info("sslcontext") is None and transport.get_extra_info("socket")
        self._descriptor: int | None = plain.fileno() if plain else None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._written:
            self._loop.call_soon(self.send)
        self._written.append(data)

    def close(self) -> None:
        self.send()
        self._transport.close()

    def send(self) -> None:
        if not self._written or self._transport.is_closing():
            return
        data = b"".join(self._written)
        self._written = []
        if self._descriptor is not None and not self._transport.get_write_buffer_size():
            # If it fails, the transport will find out why, or that it was nothing.
            with contextlib.suppress(OSError):
                data = data[os.write(self._descriptor, data) :]
        if data:
            self._transport.write(data)
