"""A reply is sent in one piece, and nothing of it is lost when its connection ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lakeseal.service.connection import _Replies


class Sent:
    """A transport that remembers."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes) -> None:
        assert not self.is_closed
        self.pieces.append(data)

    def is_closing(self) -> bool:
        return self.is_closed

    def get_extra_info(self, name: str) -> None:
        return None

    def close(self) -> None:
        self.is_closed = True


def gathered(do: Any) -> Sent:
    async def run() -> Sent:
        sent = Sent()
        await do(_Replies(sent, asyncio.get_running_loop()))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        return sent

    return asyncio.run(run())


def test_what_is_written_at_once_is_one_piece() -> None:
    async def do(transport: Any) -> None:
        transport.write(b"head")
        transport.write(b"body")
        await asyncio.sleep(0)
        transport.write(b"next")
        assert not transport.is_closing()

    assert gathered(do).pieces == [b"headbody", b"next"]


def test_a_connection_that_is_closed_has_sent_what_was_written() -> None:
    async def do(transport: Any) -> None:
        transport.write(b"head")
        transport.write(b"body")
        transport.close()

    sent = gathered(do)
    assert sent.pieces == [b"headbody"]
    assert sent.is_closed


def test_to_a_client_that_is_gone_nothing_is_written() -> None:
    async def do(transport: Any) -> None:
        transport.write(b"head")
        transport._transport.close()

    assert gathered(do).pieces == []


@pytest.mark.parametrize("path", ["/health", "/v1/owner", "/metrics", "/openapi.json"])
def test_replies_of_a_service_arrive_whole(open_service, path: str) -> None:
    reply = open_service.get(path)
    assert reply.status_code == 200
    assert len(reply.content) == int(reply.headers["content-length"])
