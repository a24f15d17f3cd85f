"""Requests over kept connections, with servers that end, dawdle, or answer in other ways than ours: by the client's own
connections, and where those are turned off."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from lakeseal.errors import StorageUnavailable, UnknownOutcome
from lakeseal.service import http_client
from lakeseal.service.client import HttpOwner
from lakeseal.service.http_client import HttpClient
from lakeseal.storage import open_store
from support.certificates import self_signed
from support.managed_tables import append, create

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Scripted:
    """Each connection is served by what the script holds for it: answers, one for each request, and then its end."""

    def __init__(self, *script: list[bytes]) -> None:
        self._script = list(script)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.requests: list[bytes] = []
        self.ended = [threading.Event() for _ in script]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        for answers, ended in zip(self._script, self.ended, strict=True):
            connection, _ = self._listener.accept()
            with connection:
                for answer in answers:
                    self.requests.append(self._request(connection))
                    connection.sendall(answer)
            ended.set()

    @staticmethod
    def _request(connection: socket.socket) -> bytes:
        data = b""
        while b"\r\n\r\n" not in data or len(data.partition(b"\r\n\r\n")[2]) < _length(data):
            data += connection.recv(65536)
        return data

    def close(self) -> None:
        self._thread.join(timeout=10)
        self._listener.close()


def _length(data: bytes) -> int:
    said = data.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
    return int(said or 0)


@pytest.fixture(params=["by hand", "by httpx"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HttpClient, "by_hand", request.param == "by hand")


@contextmanager
def serving(*script: list[bytes]) -> Iterator[tuple[Scripted, HttpClient]]:
    server = Scripted(*script)
    client = HttpClient(server.url + "/prefix", token="one", timeout=httpx.Timeout(5.0))
    try:
        yield server, client
    finally:
        client.close()
        server.close()


def test_requests_follow_each_other_on_one_connection() -> None:
    with serving([OK, OK]) as (server, client):
        assert client.once("POST", "/v1/x", b"{}").content == b"{}"
        assert client.once("GET", "/v1/y?a=b", None).status == 200
    first, second = (request.decode() for request in server.requests)
    assert first.startswith("POST /prefix/v1/x HTTP/1.1\r\nHost: 127.0.0.1:")
    assert first.endswith("Authorization: Bearer one\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
    assert second.startswith("GET /prefix/v1/y?a=b HTTP/1.1\r\n")
    assert "Content-Length" not in second


def test_a_kept_connection_that_the_server_has_ended_is_not_used(either_way: None) -> None:
    with serving([OK], [OK]) as (server, client):
        client.once("POST", "/", b"")
        assert server.ended[0].wait(5)
        assert client.once("POST", "/", b"").status == 200


@pytest.mark.parametrize(
    ("answer", "content"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n3\r\nabc\r\n0\r\n\r\n", b"{}abc"),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", b"until the end"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}", b"{}"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + OK, b"{}"),
    ],
)
def test_an_answer_of_any_form_is_read_whole(either_way: None, answer: bytes, content: bytes) -> None:
    with serving([answer]) as (_, client):
        assert client.once("POST", "/", b"{}").content == content


@pytest.mark.parametrize(
    "answer",
    [b"", b"HTTP/1.1 200 OK\r\nContent-Le", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", b"SSH-2.0-x\r\n"],
)
def test_an_answer_that_is_cut_off_or_none_at_all_is_no_answer(either_way: None, answer: bytes) -> None:
    with serving([answer], [OK]) as (_, client):
        with pytest.raises(UnknownOutcome):
            client.once("POST", "/", b"{}")
        # What was left of it is nobody else's answer.
        assert client.once("POST", "/", b"{}").content == b"{}"


def test_what_comes_unasked_on_a_kept_connection_is_not_taken_for_the_next_answer() -> None:
    with serving([OK + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"], [OK]) as (_, client):
        with suppress(UnknownOutcome):
            assert client.once("POST", "/", b"{}").content == b"{}"
        assert client.once("POST", "/", b"{}").content == b"{}"


def test_another_protocol_that_nobody_asked_for_is_no_answer() -> None:
    switched = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"
    with serving([switched], [OK]) as (_, client):
        with pytest.raises(UnknownOutcome):
            client.once("POST", "/", b"{}")
        assert client.once("POST", "/", b"{}").content == b"{}"


def test_what_follows_a_large_body_that_was_refused_is_not_taken_for_it(inside) -> None:
    with inside() as service:
        client = HttpClient(str(service.base_url), token="wrong", timeout=httpx.Timeout(20.0))
        for _ in range(2):
            assert client.once("POST", "/v1/ratify", bytes(2**21)).status == 401
        client.close()


@pytest.mark.parametrize("asks", [False, True])
def test_a_large_body_is_sent_to_servers_that_ask_for_it_and_to_those_that_never_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asks: bool
) -> None:
    """Encrypted, where something comes before any answer."""
    certificate, key = self_signed(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    monkeypatch.setattr(http_client, "_WAITS_S", 0.5)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    received = []

    def serve() -> None:
        with context.wrap_socket(listener.accept()[0], server_side=True) as connection, suppress(OSError):
            data = b""
            while b"\r\n\r\n" not in data:
                data += connection.recv(65536)
            if asks:
                connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            while len(data.partition(b"\r\n\r\n")[2]) < 2**21:
                data += connection.recv(65536)
            received.append(data)
            # Also where it comes too late.
            connection.sendall((b"" if asks else b"HTTP/1.1 100 Continue\r\n\r\n") + OK)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve)
        server.start()
        client = HttpClient(f"https://127.0.0.1:{listener.getsockname()[1]}", timeout=httpx.Timeout(5.0))
        assert client.once("POST", "/", bytes(2**21)).content == b"{}"
        client.close()
        server.join()
    assert len(received) == 1


def test_where_nobody_listens_or_the_name_is_none_nothing_was_sent(either_way: None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    for url in (f"http://127.0.0.1:{port}", "http://" + "x" * 70 + ".invalid", "http://a..b"):
        with pytest.raises(StorageUnavailable):
            HttpClient(url, timeout=httpx.Timeout(5.0)).once("GET", "/", None)


def test_only_where_the_environment_names_a_proxy_for_the_host_is_one_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "near.example")

    def goes_by_httpx(url: str) -> bool:
        client = HttpClient(url)
        try:
            return client._connections().by_httpx is not None
        finally:
            client.close()

    assert goes_by_httpx("http://far.example")
    assert not goes_by_httpx("http://near.example")
    assert not goes_by_httpx("https://far.example")
    assert not goes_by_httpx("http://127.0.0.1:8700")


def test_connections_by_hand_can_be_turned_off(inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HttpClient, "by_hand", False)
    with inside(insecure=True) as service:
        owner = HttpOwner(str(service.base_url))
        assert append(*create(open_store(tmp_path / "t"), owner), "a").version == 1
        assert owner._http._connections().by_httpx is not None
        owner.close()
