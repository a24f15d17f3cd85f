"""What those whom nobody knows may cost a service: heads, bodies, time, places and memory are bounded, and others do
not notice."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import httpx
import pytest

from lakeseal.console import session
from lakeseal.service import connections
from service.crowd import KINDS, MB, POST, WRONG, asked, crowd, memory, p99, place_of, seconds_of

GET = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@contextmanager
def connected(url: Any, *, source: str = "127.0.0.1") -> Iterator[socket.socket]:
    where = place_of(str(url).rstrip("/"))
    with socket.create_connection(where, timeout=30, source_address=(source, 0)) as found:
        yield found


def answer_to(url: Any, *pieces: bytes, pause: float = 0.0) -> bytes:
    """Everything that comes until the service closes the connection."""
    with connected(url) as one:
        for piece in pieces:
            with suppress(OSError):
                one.sendall(piece)
            time.sleep(pause)
        return until_closed(one)


def until_closed(one: socket.socket) -> bytes:
    said = b""
    with suppress(ConnectionResetError):
        while part := one.recv(65536):
            said += part
    return said


def is_open(one: socket.socket) -> bool:
    one.settimeout(0.2)
    try:
        return one.recv(1, socket.MSG_PEEK) != b""
    except TimeoutError:
        return True
    except OSError:
        return False


def get(one: socket.socket, *headers: bytes) -> bytes:
    one.sendall(GET + b"".join(headers) + b"\r\n")
    return reply(one)


def reply(one: socket.socket) -> bytes:
    """One of them, whole."""
    said = b""
    while (found := re.search(rb"content-length: (\d+)\r\n(?:.*?\r\n)?\r\n", said, re.S)) is None or len(
        said
    ) < found.end() + int(found[1]):
        part = one.recv(65536)
        if not part:
            break
        said += part
    return said


def status(said: bytes) -> int:
    return int(said.split(maxsplit=2)[1])


@pytest.mark.parametrize(
    "head",
    [
        GET + b"X-Large: " + b"x" * 66_000 + b"\r\n\r\n",
        GET + b"X-Never-Ends: " + b"x" * 70_000,
        GET + b"".join(b"X-%d: %b\r\n" % (number, b"x" * 1000) for number in range(70)) + b"\r\n",
        GET + b"a:b\r\n" * 101 + b"\r\n",
        GET + b"a:b\r\n" * 14_000,
        b"GET /" + b"x" * 33_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /" + b"x" * 70_000,
        b"\r\n" * 40_000,
    ],
    ids=["a header", "one without end", "together", "number", "number without end", "address", "line", "nothing"],
)
def test_a_head_that_is_too_large_is_431_as_soon_as_it_is(open_service, head: bytes) -> None:
    said = answer_to(open_service.url, head)
    assert status(said) == 431
    assert b'"kind":"request-too-large"' in said
    assert b"connection: close" in said


def test_a_head_of_almost_64_kb_is_taken(open_service) -> None:
    with connected(open_service.url) as one:
        headers = [b"X-%d: %b\r\n" % (number, b"x" * 650) for number in range(97)]
        assert status(get(one, *headers)) == 200
        assert status(get(one, b"X-Large: " + b"x" * 65_000 + b"\r\n")) == 200


@pytest.mark.parametrize("bad", [b"\x16\x03\x01\x02\x00", b"hello\r\n\r\n", GET + b"no colon\r\n\r\n"])
def test_what_is_no_http_is_400_in_the_form_of_all_errors(open_service, bad: bytes) -> None:
    said = answer_to(open_service.url, bad)
    assert status(said) == 400
    assert b'"kind":"invalid-argument"' in said


def test_whoever_sends_too_slowly_is_closed_and_who_waits_for_an_answer_is_not(inside, monkeypatch) -> None:
    """A byte at a time, empty lines, nothing at all, a body nobody wants: none of them lasts."""
    for name in ("FIRST_BYTE_S", "HEAD_S", "REST_S"):
        assert getattr(connections, name) == 10.0, "what is promised"
        monkeypatch.setattr(connections, name, 0.6)
    with inside() as client, ExitStack() as stack:
        start = time.monotonic()
        url = client.base_url
        quiet, dripping, empty_lines, rest, kept, second = (stack.enter_context(connected(url)) for _ in range(6))
        rest.sendall(POST + b"Content-Length: 100000\r\n\r\n")
        assert status(reply(rest)) == 401
        for one in (kept, second):
            assert status(get(one)) == 200
        second.sendall(GET[:10])
        dripping.sendall(b"GET /")
        gone: dict[str, float] = {}
        sent = {"dripping": (dripping, b"A"), "empty lines": (empty_lines, b"\r\n"), "rest": (rest, b"x")}
        while len(gone) < 3 and time.monotonic() < start + 20:
            for name, (one, data) in sent.items():
                try:
                    one.sendall(data)
                except OSError:
                    gone.setdefault(name, time.monotonic() - start)
            time.sleep(0.1)
        assert set(gone) == set(sent)
        assert min(gone.values()) > 0.5
        assert until_closed(quiet) == b"", "it has asked for nothing"
        assert status(until_closed(second)) == 408
        assert is_open(kept)
        assert status(get(kept)) == 200


@pytest.mark.parametrize("piece", [b"a: b\r\n" * 10_000, b"T: " + b"x" * 60_000, b"1;" + b"x" * 60_000], ids=len)
def test_what_nobody_asks_for_behind_a_body_is_not_kept_and_has_an_end(inside, piece: bytes) -> None:
    """Also of a caller that is known, and may only read."""
    with inside() as client, connected(client.base_url) as one:
        login = f"Authorization: {client.login('reader')['Authorization']}\r\n".encode()
        one.sendall(POST + login + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n")
        one.sendall(b"" if piece.startswith(b"1;") else b"0\r\n")
        before = memory(os.getpid())
        sent = 0
        with suppress(OSError):
            for _ in range(1000):
                one.sendall(piece.removeprefix(b"1;").removeprefix(b"T: ") if sent > 0 else piece)
                sent += len(piece)
        assert sent < 16 * MB, "the connection was closed"
        assert memory(os.getpid()) - before < 32 * MB


def test_fields_behind_a_body_do_not_count(inside) -> None:
    with inside() as client, connected(client.base_url) as one:
        login = f"Authorization: {client.login('reader')['Authorization']}\r\n".encode()
        body = b'{"table":"file:///t"}'
        chunked = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n" % (len(body), body)
        one.sendall(POST + chunked + login + b"\r\n")
        assert status(reply(one)) == 401
    with inside() as client, connected(client.base_url) as one:
        login = f"Authorization: {client.login('reader')['Authorization']}\r\n".encode()
        one.sendall(POST + login + chunked + b"Content-Type: text/plain\r\nX: y\r\n\r\n")
        assert status(reply(one)) == 200
        assert status(get(one)) == 200


def test_a_form_that_never_comes_takes_no_place_from_anybody(inside, monkeypatch) -> None:
    """Whoever signs in is not known yet, and has a body to send."""
    assert session.FORM_S == 10.0, "what is promised"
    unsent = b"POST /sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\nform="
    with inside(max_connections_per_address=4) as client, ExitStack() as stack:
        slow = [stack.enter_context(connected(client.base_url)) for _ in range(4)]
        for one in slow:
            one.sendall(unsent)
        time.sleep(0.2)
        assert status(get(stack.enter_context(connected(client.base_url)))) == 200
        assert sum(map(is_open, slow)) == 3
        monkeypatch.setattr(session, "FORM_S", 0.3)
        last = stack.enter_context(connected(client.base_url))
        last.sendall(unsent)
        assert status(reply(last)) == 400


def test_requests_may_follow_each_other_unasked_but_not_without_end(open_service) -> None:
    one = GET + b"\r\n"
    with connected(open_service.url) as few:
        few.sendall(one * 5)
        said = b""
        while said.count(b"alive") < 5:
            said += few.recv(65536)
        assert is_open(few)
    assert answer_to(open_service.url, one * 10_000).count(b"alive") <= 5


def test_a_body_is_not_read_before_its_sender_is_known(closed_service) -> None:
    """The answer comes without it; a connection whose body never ends is closed."""
    for credentials in (b"", WRONG):
        with connected(closed_service.url) as one:
            one.sendall(POST + credentials + b"Content-Length: 10000000\r\n\r\n")
            assert status(reply(one)) == 401
            sent = 0
            with suppress(OSError):
                for _ in range(100):
                    sent += one.send(b"x" * 100_000)
            assert until_closed(one) == b""
    with connected(closed_service.url) as patient:
        patient.sendall(POST + WRONG + b"Expect: 100-continue\r\nContent-Length: 10\r\n\r\n")
        assert status(reply(patient)) == 401, "nobody is told to go on"


def test_a_new_connection_takes_the_place_of_the_one_that_was_idle_longest(inside) -> None:
    with inside(max_connections_per_address=4) as client, ExitStack() as stack:
        login = client.login("reader")
        authorization = f"Authorization: {login['Authorization']}\r\n".encode()
        known, first, second, third = (stack.enter_context(connected(client.base_url)) for _ in range(4))
        for one in (first, second, third):
            get(one)
        known.sendall(b"GET /v1/owner HTTP/1.1\r\nHost: 127.0.0.1\r\n" + authorization + b"\r\n")
        assert status(reply(known)) == 200
        get(first)
        new = [stack.enter_context(connected(client.base_url)) for _ in range(2)]
        assert all(status(get(one)) == 200 for one in new)
        assert [is_open(one) for one in (second, third)] == [False, False]
        assert [is_open(one) for one in (known, first)] == [True, True], "known ones go last"
        elsewhere = stack.enter_context(connected(client.base_url, source="127.0.0.9"))
        assert status(get(elsewhere)) == 200
        assert is_open(first), "others have places of their own"


def test_a_connection_that_waits_for_its_answer_keeps_its_place(inside) -> None:
    with inside(max_connections_per_address=2, insecure=True) as client, ExitStack() as stack:
        waiting = [stack.enter_context(connected(client.base_url)) for _ in range(2)]
        for one in waiting:
            one.sendall(POST + b"Content-Length: 21\r\n\r\n")
        time.sleep(0.2)
        assert until_closed(stack.enter_context(connected(client.base_url))) == b"", "none is idle"
        for one in waiting:
            one.sendall(b'{"table":"file:///t"}')
            assert status(reply(one)) == 200
        assert status(get(stack.enter_context(connected(client.base_url)))) == 200


def test_a_trusted_proxy_has_as_many_connections_as_it_needs(inside) -> None:
    with (
        inside(max_connections_per_address=2, trusted_proxies=("127.0.0.0/30",)) as client,
        ExitStack() as stack,
    ):
        proxied = [stack.enter_context(connected(client.base_url)) for _ in range(5)]
        others = [stack.enter_context(connected(client.base_url, source="127.0.0.9")) for _ in range(5)]
        assert all(status(get(one)) == 200 for one in proxied)
        assert sum(is_open(one) for one in others) == 2


def test_in_all_there_are_so_many_connections_and_known_ones_stay(inside) -> None:
    with inside(max_connections=20, max_connections_per_address=15) as client:
        login = client.login("reader")
        assert client.get("/v1/owner", headers=login).status_code == 200
        with ExitStack() as stack:
            crowd_of = [
                stack.enter_context(connected(client.base_url, source=f"127.0.0.{2 + number % 5}"))
                for number in range(50)
            ]
            assert client.get("/v1/owner", headers=login).status_code == 200
            assert sum(is_open(one) for one in crowd_of) == 19


def test_what_unknown_callers_send_is_held_up_to_a_bound_and_the_newest_is_heard(inside, monkeypatch) -> None:
    monkeypatch.setattr(connections, "MOST_HELD", 300_000)
    with inside() as client, ExitStack() as stack:
        parts = [stack.enter_context(connected(client.base_url)) for _ in range(20)]
        for one in parts:
            one.sendall(GET + b"X-Part: " + b"x" * 50_000)
            time.sleep(0.02)
        alive = [is_open(one) for one in parts]
        assert 0 < sum(alive) <= 6
        assert alive == sorted(alive), "those that began first were closed"
        assert status(get(stack.enter_context(connected(client.base_url)))) == 200


def stand(start: Callable[..., Any], count: int, addresses: int, kinds: Any, asks: int) -> dict[str, Any]:
    """What a valid client, and whoever asks for health, meets while each kind of crowd is there."""
    service = start("--rate", "0")
    login = {"Authorization": f"Bearer {service.token('reader')}"}
    sent = {"Content-Type": "application/json", **login}
    seen: dict[str, Any] = {}
    with httpx.Client(base_url=service.url, trust_env=False, timeout=60) as kept:

        def valid() -> int:
            return kept.post("/v1/get-commits", content=b'{"table":"file:///t"}', headers=sent).status_code

        def fresh() -> int:
            return asked(service.url, "/v1/owner", login)

        def health() -> int:
            return asked(service.url, "/health")

        for ask in (valid, fresh, health):
            seconds_of(ask, 50)
        before = memory(service.process.pid)
        for kind in kinds:
            with crowd(service.url, count, kind, addresses=addresses):
                peak = memory(service.process.pid)
                took = [seconds_of(ask, asks) for ask in (valid, fresh, health)]
                peak = max(peak, memory(service.process.pid))
            seen[kind.__name__] = {
                "growth_mb": round((peak - before) / MB, 1),
                **{
                    name: (round(p99(one) * 1000, 1), round(one[-1] * 1000, 1))
                    for name, one in zip(("valid_p99_max_ms", "new_p99_max_ms", "health_p99_max_ms"), took, strict=True)
                },
            }
            print(kind.__name__, seen[kind.__name__], flush=True)
    return seen


def test_with_300_connections_of_any_kind_everybody_is_served_in_bounded_memory(start) -> None:
    for kind, seen in stand(start, 300, 3, KINDS, 30).items():
        assert seen["growth_mb"] < 50, (kind, seen)


@pytest.mark.stress
@pytest.mark.parametrize("addresses", [1, 10])
def test_with_2000_connections_of_any_kind_nobody_else_notices(start, addresses: int) -> None:
    for kind, seen in stand(start, 2000, addresses, KINDS, 300).items():
        assert seen["growth_mb"] < 50, (kind, seen)
        assert seen["valid_p99_max_ms"][0] < 1000, (kind, seen)
        assert seen["new_p99_max_ms"][0] < 1000, (kind, seen)
        assert seen["health_p99_max_ms"][0] < 100, (kind, seen)
