"""Whatever way a request comes in, it is answered the same, and nothing of a reply is lost when its connection ends."""

from __future__ import annotations

import json
import re
import socket
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lakeseal.clock import now_ms
from lakeseal.owner.managed_owner import ManagedOwner
from lakeseal.owner.messages import Batch
from lakeseal.protocol.actions import CommitInfo
from lakeseal.protocol.codec import encode
from lakeseal.service.client import HttpOwner
from lakeseal.storage import Store, open_store
from support.managed_tables import add, create, managed_log, paths

FUTURE = now_ms() + 3_000_000


def commit(owner: Any, store: Store, version: int, txn: str) -> bytes:
    info = CommitInfo(operation="WRITE", txn_id=txn, in_commit_timestamp=FUTURE + version)
    request = ManagedOwner(owner, store).request(
        version, encode([info, add(txn)]), txn_id=txn, in_commit_timestamp=FUTURE + version
    )
    return msgspec.json.encode(Batch(commits=(request,)))


def request(body: bytes, *headers: str, protocol: str = "1.1", kind: str = "application/json") -> bytes:
    lines = [f"POST /v1/ratify HTTP/{protocol}", "Host: 127.0.0.1", f"Content-Type: {kind}", *headers]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


def exchange(url: str, *pieces: bytes, replies: int = 1, pause: float = 0.0) -> list[tuple[int, str, Any]]:
    """Status, head and body of each reply."""
    host, port = url.removeprefix("http://").split(":")
    found: list[tuple[int, str, Any]] = []
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        for piece in pieces:
            connection.sendall(piece)
            time.sleep(pause)
        data = b""
        while len(found) < replies:
            part = connection.recv(65536)
            assert part, data
            data += part
            while (end := data.find(b"\r\n\r\n")) >= 0:
                head = data[:end].decode()
                length = int(re.findall("content-length: ([0-9]+)", head)[0])
                if len(data) < end + 4 + length:
                    break
                body = json.loads(data[end + 4 : end + 4 + length])
                found.append((int(head.split()[1]), head, body))
                data = data[end + 4 + length :]
        assert not data
    return found


def test_a_commit_is_answered_however_it_comes(open_service, tmp_path: Path) -> None:
    """In one piece, in pieces, before the one before it was answered, on a connection that is to be closed, by an old
    client, and with what has to be done alone."""
    store, owner = open_store(tmp_path / "t"), open_service.owner()
    create(store, owner)
    url = open_service.url
    for version in (1, 2, 3):
        ((status, head, body),) = exchange(url, request(commit(owner, store, version, f"t{version}")))
        assert (status, body["commits"][0]["type"]) == (200, "ratified")
        assert {"cache-control: no-store", "x-content-type-options: nosniff"} < set(head.split("\r\n"))
        assert "x-request-id: " in head
    whole = request(commit(owner, store, 4, "t4"), "X-Request-Id: mine")
    ((status, head, _),) = exchange(url, whole[:60], whole[60:-40], whole[-40:], pause=0.05)
    assert (status, "x-request-id: mine" in head) == (200, True)
    ((status, head, _),) = exchange(url, request(commit(owner, store, 5, "t5"), "X-Request-Id: mine"))
    assert (status, "x-request-id: mine" in head) == (200, True)
    two = [request(commit(owner, store, version, f"t{version}")) for version in (6, 7)]
    assert [status for status, _, _ in exchange(url, b"".join(two), replies=2)] == [200, 200]
    one = request(commit(owner, store, 6, "t6"))
    late = request(commit(owner, store, 7, "t7"))
    behind = exchange(url, one + late[:-30], late[-30:], replies=2, pause=0.1)
    assert [body["commits"][0]["type"] for _, _, body in behind] == ["ratified", "ratified"], "the same as before"
    ((_, head, _),) = exchange(url, request(commit(owner, store, 8, "t8"), "Connection: close"))
    assert "connection: close" in head
    ((_, head, _),) = exchange(url, request(commit(owner, store, 9, "t9"), protocol="1.0"))
    assert "connection: close" in head
    ((_, _, again),) = exchange(url, request(commit(owner, store, 9, "t9")))
    assert again["commits"][0]["type"] == "ratified"
    ((_, _, late),) = exchange(url, request(commit(owner, store, 9, "late")))
    assert late["commits"][0]["type"] == "taken"
    assert paths(managed_log(owner, store)[0]) == [f"t{version}" for version in range(1, 10)]


def test_what_is_wrong_with_a_commit_is_told_however_it_comes(open_service, tmp_path: Path) -> None:
    store, owner = open_store(tmp_path / "t"), open_service.owner()
    create(store, owner)
    url, good = open_service.url, commit(owner, store, 1, "t1")
    for sent, status, kind in (
        (request(b"{}"), 400, "invalid-argument"),
        (request(b""), 400, "invalid-argument"),
        (request(good, kind="text/plain"), 400, "invalid-argument"),
        (request(good).replace(b"Host: 127.0.0.1", b"Host: elsewhere.example"), 403, "not-allowed"),
        (request(good, "Authorization: Basic eDp5"), 401, "not-authenticated"),
        (request(good.replace(b'"version":1', b'"version":2')), 404, "version-not-found"),
    ):
        ((found, head, body),) = exchange(url, sent)
        assert (found, body["error"]["kind"]) == (status, kind)
        assert body["request_id"] in head
    assert paths(managed_log(owner, store)[0]) == []


def test_a_client_that_leaves_before_its_answer_has_committed(open_service, tmp_path: Path) -> None:
    store, owner = open_store(tmp_path / "t"), open_service.owner()
    create(store, owner)
    host, port = open_service.url.removeprefix("http://").split(":")
    for version in range(1, 6):
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            connection.sendall(request(commit(owner, store, version, f"t{version}")))
        while owner.get_commits(store.uri).latest < version:
            time.sleep(0.01)
    assert paths(managed_log(owner, store)[0]) == [f"t{version}" for version in range(1, 6)]
    assert open_service.get("/health").status_code == 200


@pytest.mark.parametrize("path", ["/health", "/v1/owner", "/metrics", "/openapi.json"])
def test_replies_of_a_service_arrive_whole(open_service, path: str) -> None:
    reply = open_service.get(path)
    assert reply.status_code == 200
    assert len(reply.content) == int(reply.headers["content-length"])


@pytest.mark.parametrize("size", [100_000, 7])
def test_the_body_of_a_request_that_asks_for_another_protocol_is_read(inside, table: Store, size: int) -> None:
    """As Java's client sends its first request to a server without TLS."""
    with inside(insecure=True) as client:
        owner = HttpOwner(str(client.base_url))
        create(table, owner)
        wish = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABk")
        sent = request(commit(owner, table, 1, "first"), *wish) + request(commit(owner, table, 2, "second"))
        pieces = [sent[start : start + size] for start in range(0, len(sent), size)]
        replies = exchange(str(client.base_url).rstrip("/"), *pieces, replies=2)
        owner.close()
    assert [(status, body["commits"][0]["version"]) for status, _, body in replies] == [(200, 1), (200, 2)]


def test_a_tunnel_is_refused(inside) -> None:
    with inside(insecure=True) as client:
        ((status, _, _),) = exchange(str(client.base_url).rstrip("/"), b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert status == 400
