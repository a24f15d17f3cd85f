"""Who sends a request: from its headers and its connection to a `Caller`, or an error."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import urlsplit

from anyio import to_thread
from starlette.types import Scope

from lakeseal.errors import NotAllowed, OwnerBusy
from lakeseal.service.access import Caller
from lakeseal.service.observed import Note
from lakeseal.service.service import Service
from lakeseal.service.settings import is_loopback


def header(scope: Scope, name: bytes) -> str | None:
    """The first of this name, which is given in lower case."""
    for found, value in scope["headers"]:
        if found == name:
            return str(value, "latin-1")
    return None


async def caller_of(service: Service, scope: Scope, note: Note, text: str | None) -> Caller:
    """`text` is the token. Also counts the request."""
    caller = known_caller(service, scope, text)
    if caller is None:
        assert text is not None, "whoever has no token is known, or refused"
        authenticator, peer = service.authenticator, _peer(scope)
        caller = authenticator.learn(text, await to_thread.run_sync(authenticator.look_up, text), peer)
    note.token_id = caller.token_id
    note.wait_s = service.buckets.take(caller.token_id)
    if note.wait_s:
        raise OwnerBusy(
            f"More than {service.settings.rate:g} requests a second came with this token",
            hint="Wait a moment, and ask less often",
        )
    return caller


def known_caller(service: Service, scope: Scope, text: str | None) -> Caller | None:
    """None if the ledger has to be asked."""
    if service.settings.insecure and not _is_here(header(scope, b"host")):
        # A name that somebody else's DNS makes point here, in the browser of somebody on this machine.
        raise NotAllowed("A service that was started with --insecure is reached as localhost or 127.0.0.1 only")
    return service.authenticator.known(text, _peer(scope))


def _peer(scope: Scope) -> str:
    return scope["client"][0] if scope.get("client") else ""


@lru_cache(maxsize=256)
def _is_here(host: str | None) -> bool:
    """HTTP/1.0 names no host, and no web page can speak it."""
    try:
        return host is None or is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False
