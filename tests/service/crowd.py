"""Many connections of callers that nobody knows, and what a service has to say to somebody else meanwhile."""

from __future__ import annotations

import resource
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPConnection

import psutil

MB = 2**20
WRONG = f"Authorization: Bearer lks_{'0' * 12}_{'A' * 43}\r\n".encode()
POST = b"POST /v1/get-commits HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


def silent(number: int) -> bytes:
    return b""


def part_of_a_head(number: int) -> bytes:
    return b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Part: " + b"x" * 60_000


def many_headers(number: int) -> bytes:
    return b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"a:b\r\n" * 12_000


def body_without_a_token(number: int) -> bytes:
    return POST + b"Content-Length: 4000000\r\n\r\n" + b"x" * 200_000


def body_with_a_wrong_token(number: int) -> bytes:
    wrong = f"Authorization: Bearer lks_{number:012x}_{'A' * 43}\r\n".encode()
    return POST + wrong + b"Content-Length: 4000000\r\n\r\n" + b"x" * 200_000


def part_of_a_form(number: int) -> bytes:
    return b"POST /sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 20000\r\n\r\nform=" + b"x" * 10_000


def answers_that_are_not_read(number: int) -> bytes:
    return b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 5


def kept_with_a_large_head(number: int) -> bytes:
    return b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Large: " + b"x" * 60_000 + b"\r\n\r\n"


KINDS: tuple[Callable[[int], bytes], ...] = (
    silent,
    part_of_a_head,
    many_headers,
    body_without_a_token,
    body_with_a_wrong_token,
    part_of_a_form,
    answers_that_are_not_read,
    kept_with_a_large_head,
)


def place_of(url: str) -> tuple[str, int]:
    host, _, port = url.partition("://")[2].partition(":")
    return host, int(port)


@contextmanager
def crowd(
    url: str,
    count: int,
    says: Callable[[int], bytes],
    *,
    addresses: int = 1,
    encrypted: ssl.SSLContext | None = None,
) -> Iterator[list[socket.socket]]:
    """Connections that each send something and then nothing more; they do not read either."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count + 1000:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    made: list[socket.socket] = []
    try:
        for number in range(count):
            one = socket.socket()
            made.append(one)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.settimeout(5)
            one.bind((f"127.0.0.{2 + number % addresses}" if addresses > 1 else "127.0.0.1", 0))
            with suppress(OSError):  # it may have been closed to make room
                one.connect(place_of(url))
                if encrypted is not None:
                    made[-1] = one = encrypted.wrap_socket(one, server_hostname="127.0.0.1")
                one.setblocking(False)
                _send(one, says(number))
        yield made
    finally:
        for one in made:
            one.close()


def _send(one: socket.socket, data: bytes) -> None:
    deadline = time.monotonic() + 0.05
    while data and time.monotonic() < deadline:
        try:
            data = data[one.send(data) :]
        except (BlockingIOError, ssl.SSLWantWriteError):
            time.sleep(0.002)


def memory(pid: int) -> int:
    """Of a process and its children."""
    root = psutil.Process(pid)
    found: int = sum(process.memory_info().rss for process in (root, *root.children(recursive=True)))
    return found


def asked(url: str, path: str, headers: Mapping[str, str] | None = None) -> int:
    """The status of an answer on a connection of its own."""
    connection = HTTPConnection(*place_of(url), timeout=60)
    try:
        connection.request("GET", path, headers=dict(headers or {}))
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def seconds_of(ask: Callable[[], int], times: int) -> list[float]:
    """How long each took, the longest last."""
    took = []
    for _ in range(times):
        start = time.perf_counter()
        assert ask() == 200
        took.append(time.perf_counter() - start)
    return sorted(took)


def p99(took: Sequence[float]) -> float:
    return took[min(len(took) - 1, int(len(took) * 0.99))]
