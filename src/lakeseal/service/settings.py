"""How a service is to run: one frozen value, checked before anything starts."""

from __future__ import annotations

import ipaddress
from typing import Any

from msgspec import Struct

from lakeseal.errors import InvalidArgument
from lakeseal.ledger import parse
from lakeseal.owner.config import DEFAULT_BATCH_SIZE, DEFAULT_NAME, MOST_UNBACKFILLED
from lakeseal.service.proxies import TrustedProxies

MAX_BODY = 4 * 2**20
MAX_UPLOAD = 4 * 2**20
RATE = 500.0
MAX_CONNECTIONS = 10_000
MAX_CONNECTIONS_PER_ADDRESS = 512


class ServiceSettings(Struct, frozen=True, kw_only=True):
    ledger: str
    host: str = "127.0.0.1"
    port: int = 8700
    workers: int = 1
    insecure: bool = False
    """Callers without a token may do everything: on this machine's loopback only."""
    roots: tuple[str, ...] = ()
    """Tables are served at or below these; anywhere if there are none."""
    name: str = DEFAULT_NAME
    batch_size: int = DEFAULT_BATCH_SIZE
    policies: tuple[dict[str, Any], ...] = ()
    storage_options: dict[str, str] = {}
    credentials: tuple[dict[str, Any], ...] = ()
    """What engines are given to reach tables' files: see `credentials`."""
    max_body: int = MAX_BODY
    max_upload: int = MAX_UPLOAD
    """Bytes that larger requests may have, one or several at a time, in each worker: what pipelines record. To read
    or to store more than the default at once takes longer than 50 ms, during which nobody else is answered."""
    rate: float = RATE
    """Requests a second for each token, in each worker; 0 is no limit."""
    max_connections: int = MAX_CONNECTIONS
    """Open at a time, in each worker; fewer where the process may open fewer files."""
    max_connections_per_address: int = MAX_CONNECTIONS_PER_ADDRESS
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks whose `X-Forwarded-For` is believed."""
    most_unbackfilled: int = MOST_UNBACKFILLED
    publish_every_s: float = 1.0
    tls_certificate: str | None = None
    tls_key: str | None = None
    log_level: str = "info"

    def __post_init__(self) -> None:
        where = parse(self.ledger)
        if self.workers < 1 or self.max_body < 1 or self.max_upload < 1 or self.rate < 0 or self.most_unbackfilled < 1:
            raise InvalidArgument("Workers and limits are at least 1, and a rate is not negative")
        if self.max_connections < 1 or self.max_connections_per_address < 1:
            raise InvalidArgument("At least one connection is needed")
        TrustedProxies(self.trusted_proxies)
        if self.workers > 1 and where.kind == "memory":
            raise InvalidArgument("A ledger in memory belongs to one worker", hint="Use a file or PostgreSQL")
        if self.insecure and not is_loopback(self.host):
            raise InvalidArgument(
                f"--insecure lets everybody do everything, and {self.host} can be reached from other machines",
                hint="Listen on 127.0.0.1, or leave out --insecure and give clients tokens",
            )
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise InvalidArgument("TLS needs a certificate and its key")

    def __repr__(self) -> str:
        return f"ServiceSettings(ledger={parse(self.ledger).public!r}, host={self.host!r}, port={self.port})"


def parse_listen(text: str) -> tuple[str, int]:
    """`127.0.0.1:8700`, `[::1]:8700`, `localhost:0`."""
    host, colon, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not colon or not bare or (":" in bare) != host.startswith("[") or not port.isascii() or not port.isdecimal():
        raise InvalidArgument(f"{text!r} is no address to listen on", hint="Write host:port, such as 127.0.0.1:8700")
    if len(port) > 5 or int(port) > 65535:
        raise InvalidArgument(f"{port[:20]} is no port")
    return bare, int(port)


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
