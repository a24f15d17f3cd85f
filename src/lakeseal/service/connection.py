"""A client's connection, as the server has it: a reply is sent in one piece, as soon as it is there.

uvicorn writes the head of a reply and its body one after the other, and each would be a packet of its own, for which
the client is woken up. uvloop sends what was written when it has done everything else that is to be done in its round:
of several clients that are answered together, the first would wait for the last one's reply.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class Connection(HttpToolsProtocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._replies = _Replies(transport, self.loop)
        super().connection_made(cast(asyncio.Transport, self._replies))

    def on_response_complete(self) -> None:
        self._replies.send()
        super().on_response_complete()


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
