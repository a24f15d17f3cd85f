"""Who sends a request, and not too often: from its headers and its connection to a `Caller`, or `NotAuthenticated`.

What was looked up is remembered for `KEPT_S` seconds: so long may a token that was revoked still work. That it has
expired is seen at once. Tokens are looked up together: one question to the ledger at a time, for all that came
meanwhile, so that many wrong ones cost it little and hold up nobody who has a right one. An address that wrong tokens
come from again and again is told to wait; a right one from there gets in all the same.

`caller_of` does all of it for a request, and counts it: each token has a bucket (`Buckets`).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import Scope

from lakeseal.clock import now_ms
from lakeseal.console.session import check_site
from lakeseal.errors import LakesealError, NotAllowed, NotAuthenticated, OwnerBusy, StorageUnavailable
from lakeseal.ledger import Ledger
from lakeseal.service import tokens
from lakeseal.service.access import ANONYMOUS, Caller
from lakeseal.service.connections import known
from lakeseal.service.observed import Note
from lakeseal.service.settings import is_loopback
from lakeseal.service.tokens import AccessToken

if TYPE_CHECKING:
    from lakeseal.service.service import Service

_log = logging.getLogger(__name__)

KEPT_S = 1.0
_MOST_KEPT = 1000
_FAILURES_PER_S = 5.0
_FAILURES_AT_ONCE = 20
_MOST_KEYS = 10_000


class Buckets:
    """A token bucket per key: `rate` a second, and `burst` at once after a pause. Not for several threads."""

    def __init__(self, rate: float, burst: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        """A rate of 0 is no limit."""
        self._rate = rate
        self._burst = max(burst, 1.0)
        self._clock = clock
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str) -> float:
        """0 if there was one to take; otherwise the seconds until there will be."""
        now = self._clock()
        level, then = self._levels.get(key, (self._burst, 0.0))
        level = min(self._burst, level + (now - then) * self._rate)
        if self._rate and level < 1:
            return (1 - level) / self._rate
        self._levels[key] = (level - 1, now)
        self._levels.move_to_end(key)
        if len(self._levels) > _MOST_KEYS:
            # Whoever was silent longest has a full bucket again anyway.
            self._levels.popitem(last=False)
        return 0.0


class Authenticator:
    """For the event loop."""

    def __init__(self, ledger: Ledger, *, insecure: bool) -> None:
        """`insecure`: callers without a token may do everything."""
        self.keeps_s = KEPT_S
        """With 0 each request asks the ledger."""
        self._ledger = ledger
        self._insecure = insecure
        self._kept: OrderedDict[bytes, tuple[float, AccessToken]] = OrderedDict()
        self._failures = Buckets(_FAILURES_PER_S, _FAILURES_AT_ONCE)
        self._waiting: dict[str, asyncio.Future[AccessToken | None]] = {}
        self._asking: asyncio.Task[None] | None = None

    def known(self, text: str | None) -> Caller | None:
        """The caller, if nobody need be asked; `NotAuthenticated` if there is nothing to ask for."""
        if text is None:
            if self._insecure:
                return ANONYMOUS
            raise NotAuthenticated("There is no token")
        found = self._kept.get(_name(text))
        if found is None or found[0] <= time.monotonic():
            return None
        return self._caller(found[1])

    async def ask(self, text: str, peer: str) -> Caller:
        """The caller, by the ledger; `peer` is the address that a wrong token counts for."""
        # Every caller with the form of a token is looked up, whatever came from its address before: nobody can tell a
        # right one from a wrong one otherwise.
        token = await self._find(text) if tokens.TEXT.fullmatch(text) else None
        if token is None:
            self._kept.pop(_name(text), None)
            if wait := self._failures.take(peer):
                raise OwnerBusy("Too many wrong tokens came from this address", hint=f"Wait {math.ceil(wait)} s")
            raise NotAuthenticated("The token is not valid")
        self._kept[_name(text)] = (time.monotonic() + self.keeps_s, token)
        while len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)
        return self._caller(token)

    async def _find(self, text: str) -> AccessToken | None:
        found = self._waiting.get(text)
        if found is None:
            found = self._waiting[text] = asyncio.get_running_loop().create_future()
            if self._asking is None:
                self._asking = asyncio.get_running_loop().create_task(self._ask_ledger())
        # Others may wait for the same one.
        return await asyncio.shield(found)

    async def _ask_ledger(self) -> None:
        while self._waiting:
            asked, self._waiting = self._waiting, {}
            error: Exception | None = None
            found: dict[str, AccessToken] = {}
            try:
                found = await asyncio.to_thread(tokens.find_all, self._ledger, tuple(asked))
            except LakesealError as failed:
                _log.warning("tokens could not be looked up: %s", failed)
                # Whoever is not known yet need not learn what the ledger is.
                error = StorageUnavailable("The service cannot check tokens now")
            except Exception as failed:
                error = failed
            for text, future in asked.items():
                if error is None:
                    future.set_result(found.get(text))
                else:
                    future.set_exception(error)
                    # Nobody may be waiting any more.
                    future.exception()
        self._asking = None

    def _caller(self, token: AccessToken) -> Caller:
        if not token.is_valid(now_ms()):
            raise NotAuthenticated("The token was revoked or has expired")
        return Caller(principal=token.name, token_id=token.token_id, grants=token.grants)


def bearer(header: str | None) -> str | None:
    """The token of an `Authorization` header; None without one."""
    if header is None:
        return None
    scheme, _, text = header.partition(" ")
    if scheme.lower() != "bearer" or not text.strip():
        raise NotAuthenticated("The Authorization header holds no bearer token", hint="Authorization: Bearer <token>")
    return text.strip()


def bearer_or_password(header: str | None) -> str | None:
    """For pages, where a browser asks for a name and a password: the token is the password, the name is anything."""
    if header is None or header[:6].lower() != "basic ":
        return bearer(header)
    try:
        return base64.b64decode(header[6:].strip(), validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        raise NotAuthenticated("The Authorization header is malformed") from None


def _name(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()


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
        peer = scope["client"][0] if scope.get("client") else ""
        caller = await service.authenticator.ask(text, service.proxies.client_of(peer, scope["headers"]))
        known(scope)
    note.token_id, note.who = caller.token_id, caller.principal or ""
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
    if service.settings.insecure and scope["method"] not in ("GET", "HEAD"):
        # Browsers send to this machine what any page tells them to, and here nobody needs a token.
        check_site(Headers(scope=scope))
    caller = service.authenticator.known(text)
    if caller is not None:
        known(scope)
    return caller


@lru_cache(maxsize=256)
def _is_here(host: str | None) -> bool:
    """HTTP/1.0 names no host, and no web page can speak it."""
    try:
        return host is None or is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False
