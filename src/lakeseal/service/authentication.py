"""From a request's credentials to a `Caller`, or `NotAuthenticated`.

What was looked up is remembered for `KEPT_S` seconds: so long may a token that was revoked still work. That it has
expired is seen at once. An address that wrong tokens come from again and again has to wait, without the ledger being
asked; those who came with good ones before are not held up by it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
import time
from collections import OrderedDict
from collections.abc import Callable

from lakeseal.commit.transaction import now_ms
from lakeseal.errors import NotAuthenticated, OwnerBusy, StorageError, StorageUnavailable
from lakeseal.ledger import Ledger
from lakeseal.service import tokens
from lakeseal.service.access import ANONYMOUS, Caller
from lakeseal.service.limits import Buckets
from lakeseal.service.tokens import Token

KEPT_S = 1.0
_MOST_KEPT = 1000
_FAILURES_PER_S = 5.0
_FAILURES_AT_ONCE = 20


class Authenticator:
    def __init__(
        self,
        ledger: Ledger,
        *,
        insecure: bool,
        clock: Callable[[], int] = now_ms,
        kept_s: float = KEPT_S,
    ) -> None:
        """`insecure`: callers without a token may do everything."""
        self._ledger = ledger
        self._insecure = insecure
        self._clock = clock
        self._kept_s = kept_s
        self._kept: OrderedDict[bytes, tuple[float, Token]] = OrderedDict()
        self._failures = Buckets(_FAILURES_PER_S, _FAILURES_AT_ONCE)

    def known(self, text: str | None, peer: str) -> Caller | None:
        """The caller, if the ledger need not be asked; `NotAuthenticated` if there is nothing to ask for."""
        if text is None:
            if self._insecure:
                return ANONYMOUS
            raise NotAuthenticated("There is no token")
        found = self._kept.get(_name(text))
        if found is None and (wait := self._failures.wait(peer)):
            raise OwnerBusy("Too many wrong tokens came from this address", hint=f"Wait {math.ceil(wait)} s")
        if found is None or found[0] < time.monotonic():
            return None
        return self._caller(found[1])

    def look_up(self, text: str) -> Token | None:
        """Asks the ledger."""
        try:
            return tokens.find(self._ledger, text)
        except StorageError:
            # Whoever is not known yet need not learn what the ledger is.
            raise StorageUnavailable("The service cannot check tokens now") from None

    def learn(self, text: str, token: Token | None, peer: str) -> Caller:
        if token is None:
            self._kept.pop(_name(text), None)
            self._failures.take(peer)
            raise NotAuthenticated("The token is not valid")
        self._kept[_name(text)] = (time.monotonic() + self._kept_s, token)
        while len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)
        return self._caller(token)

    def _caller(self, token: Token) -> Caller:
        if not token.is_valid(self._clock()):
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
