"""A client's connection, as the server has it: what is written to it at once is sent at once.

uvicorn writes the head of a reply and its body one after the other, and each would be a packet of its own, for which
the client is woken up.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class Connection(HttpToolsProtocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast(asyncio.Transport, _Gathered(transport, self.loop)))


class _Gathered:
    """A transport that sends what was written, in one piece, as soon as its writer lets the event loop go on."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._written: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._written:
            self._loop.call_soon(self._send)
        self._written.append(data)

    def close(self) -> None:
        self._send()
        self._transport.close()

    def _send(self) -> None:
        written, self._written = self._written, []
        if written and not self._transport.is_closing():
            self._transport.write(b"".join(written))
