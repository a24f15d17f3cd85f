"""A service with a certificate."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from http.client import HTTPSConnection
from pathlib import Path

import psutil
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from lakeseal.errors import InvalidArgument, StorageError
from lakeseal.service.client import HttpOwner
from lakeseal.service.server import serve
from lakeseal.service.settings import ServiceSettings
from lakeseal.storage import Store
from service.crowd import MB, crowd, many_headers, memory, place_of, silent
from support.certificates import self_signed
from support.managed_tables import append, create


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    return self_signed(tmp_path)


def test_a_certificate_is_checked_and_one_of_ones_own_can_be_trusted(
    start, certificate: tuple[Path, Path], table: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--tls-certificate", str(certificate[0]), "--tls-key", str(certificate[1]))
    service = start(*options, certificate=certificate[0])
    assert service.url.startswith("https://")
    token = service.token("writer")
    stranger = HttpOwner(service.url, token=token)
    with pytest.raises(StorageError, match="is not trusted"):
        stranger.get_commits(table.uri)
    stranger.close()
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    log, managed = create(table, service.owner(token))
    assert append(log, managed, "a").version == 1


def test_those_who_never_finish_their_handshake_are_counted_closed_and_keep_nobody_out(
    start, certificate: tuple[Path, Path]
) -> None:
    options = ("--tls-certificate", str(certificate[0]), "--tls-key", str(certificate[1]))
    service = start(*options, "--rate", "0", "--max-connections-per-address", "50", certificate=certificate[0])
    where = place_of(service.url)
    trusting = ssl.create_default_context(cafile=certificate[0])
    hello = client_hello(trusting)

    def ask() -> int:
        """On a connection of its own, with the request right behind the handshake."""
        connection = HTTPSConnection(*where, context=trusting, timeout=60)
        connection.request("GET", "/health")
        status = connection.getresponse().status
        connection.close()
        return status

    assert [ask() for _ in range(20)] == [200] * 20
    before = memory(service.process.pid)
    with ExitStack() as stack:
        waiting = [stack.enter_context(socket.create_connection(where)) for _ in range(200)]
        for number, one in enumerate(waiting):
            with suppress(OSError):
                one.sendall(hello[: len(hello) - number % 3 * 20])
        assert [ask() for _ in range(20)] == [200] * 20
        assert memory(service.process.pid) - before < 50 * MB
        start_s = time.monotonic()
        for one in waiting:
            one.settimeout(30)
            with suppress(ConnectionResetError):
                while one.recv(65536):
                    pass
        assert time.monotonic() - start_s < 25, "each within ten seconds"
    assert ask() == 200
    assert socket_is_refused(where)
    assert service.stop() == 0
    assert "graceful shutdown exceeded" not in service.log(), "nothing of them is left"


@pytest.mark.parametrize("kind", [silent, many_headers], ids=lambda kind: kind.__name__)
def test_many_that_have_shaken_hands_and_are_not_known_take_bounded_memory(
    start, certificate: tuple[Path, Path], kind: Callable[[int], bytes]
) -> None:
    options = ("--tls-certificate", str(certificate[0]), "--tls-key", str(certificate[1]))
    service = start(*options, "--rate", "0", certificate=certificate[0])
    trusting = ssl.create_default_context(cafile=certificate[0])

    def ask() -> int:
        connection = HTTPSConnection(*place_of(service.url), context=trusting, timeout=60)
        connection.request("GET", "/health")
        status = connection.getresponse().status
        connection.close()
        return status

    assert [ask() for _ in range(20)] == [200] * 20
    before = memory(service.process.pid)
    with crowd(service.url, 1500, kind, addresses=10, encrypted=trusting):
        open_ones = psutil.Process(service.process.pid).net_connections("tcp")
        assert 0 < sum(one.status == psutil.CONN_ESTABLISHED for one in open_ones) <= 160
        assert memory(service.process.pid) - before < 50 * MB
        assert [ask() for _ in range(20)] == [200] * 20
        assert memory(service.process.pid) - before < 50 * MB


def client_hello(context: ssl.SSLContext) -> bytes:
    sent, received = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(received, sent, server_hostname="127.0.0.1").do_handshake()
    return sent.read()


def socket_is_refused(where: tuple[str, int]) -> bool:
    """Plain HTTP is no handshake."""
    with socket.create_connection(where, timeout=30) as plain:
        plain.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        with suppress(ConnectionResetError):
            return b"200" not in plain.recv(1000)
    return True


@pytest.mark.parametrize("what", ["nothing", "nonsense", "another key"])
def test_a_certificate_that_is_none_is_refused_at_the_start(
    certificate: tuple[Path, Path], tmp_path: Path, what: str
) -> None:
    key = certificate[1]
    if what == "nothing":
        key = tmp_path / "not there"
    elif what == "nonsense":
        key.write_text("nonsense")
    else:
        other = ec.generate_private_key(ec.SECP256R1())
        kind = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        key.write_bytes(other.private_bytes(*kind))
    settings = ServiceSettings(ledger="sqlite://", tls_certificate=str(certificate[0]), tls_key=str(key))
    with pytest.raises(InvalidArgument, match="certificate or its key"):
        serve(settings)
