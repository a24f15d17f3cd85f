"""Which address a request came from: that of its connection, or what a proxy that is trusted says.

A proxy appends the address that it was connected from to `X-Forwarded-For`. Whatever stands left of that came from
outside, so the list is read from its right end, for as long as those who wrote it are trusted: the first address that
is not a trusted proxy's is the client's. Without trusted proxies the header is not looked at.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from functools import lru_cache

from lakeseal.errors import InvalidArgument

FORWARDED = b"x-forwarded-for"
PROTOCOL = b"x-forwarded-proto"
# Longer ways through trusted proxies are nobody's network.
_MOST_HOPS = 32

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class TrustedProxies:
    def __init__(self, networks: Sequence[str] = ()) -> None:
        """Addresses and networks: `10.0.0.7`, `10.0.0.0/8`, `fd00::/8`."""
        self._networks = tuple(_network(text) for text in networks)
        self.trusts = lru_cache(maxsize=4096)(self._trusts) if networks else _trusts_nobody

    def client_of(self, peer: str, headers: Iterable[tuple[bytes, bytes]]) -> str:
        """The client of a request that came on a connection from `peer`; header names are in lower case."""
        if not self.trusts(peer):
            return peer
        said = b",".join(value for name, value in headers if name == FORWARDED)
        found = peer
        for part in reversed(said.rsplit(b",", _MOST_HOPS)[-_MOST_HOPS:]):
            address = _address(part)
            if address is None:
                # What follows was written by whoever is known; nothing is known of what comes before.
                return found
            found = str(address)
            if not self.trusts(found):
                return found
        return found

    def is_encrypted(self, peer: str, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Whether a proxy that is trusted says that the request came to it over TLS."""
        return self.trusts(peer) and any(name == PROTOCOL and _last_word(value) == b"https" for name, value in headers)

    def _trusts(self, address: str) -> bool:
        try:
            parsed = _plain(ipaddress.ip_address(address))
        except ValueError:
            return False
        return any(parsed in network for network in self._networks)


def _last_word(value: bytes) -> bytes:
    return value.rpartition(b",")[2].strip().lower()


def _trusts_nobody(address: str) -> bool:
    return False


def _network(text: str) -> _Network:
    try:
        return ipaddress.ip_network(text.strip())
    except ValueError:
        raise InvalidArgument(
            f"{text!r} is no address and no network of proxies", hint="Write 10.0.0.7, 10.0.0.0/8 or fd00::/8"
        ) from None


def _address(text: bytes) -> _Address | None:
    """Proxies also write ports: `192.0.2.1:4711`, `[2001:db8::1]:4711`."""
    said = text.strip().decode("latin-1")
    if said.startswith("["):
        said = said[1:].partition("]")[0]
    elif said.count(":") == 1:
        said = said.partition(":")[0]
    try:
        # A zone names an interface of another machine.
        return None if len(said) > 45 or "%" in said else _plain(ipaddress.ip_address(said))
    except ValueError:
        return None


def _plain(address: _Address) -> _Address:
    """An IPv4 address that a socket for both kinds tells of as IPv6 is the same address."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return address if mapped is None else mapped
