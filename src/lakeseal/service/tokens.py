"""Bearer tokens: made, listed, revoked and looked up in the ledger, which keeps only their hashes.

A token is `lks_<id>_<secret>`. The secret has 256 random bits, so a plain SHA-256 is enough: there is nothing to guess.
The text is shown once, by `create`. Whoever has the ledger can make tokens, and nobody can make them over HTTP.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from msgspec import Struct

from lakeseal import typed_json
from lakeseal.errors import BrokenLedger, InvalidArgument, NotFound
from lakeseal.ledger import Ledger, Row, Tx
from lakeseal.ledger.schema import tokens
from lakeseal.service.access import Grant, Role

TEXT = re.compile(r"lks_([0-9a-f]{12})_[A-Za-z0-9_-]{43}")
_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,100}")
# Each request goes through all of them.
MOST_GRANTS = 1000
# Databases bound how many values a statement may name.
_AT_ONCE = 500
_NOBODY = hashlib.sha256(b"").hexdigest()


class AccessToken(Struct, frozen=True, kw_only=True):
    """What the ledger knows of a token. Its `hash` is no secret worth showing either, so `repr` leaves it out."""

    token_id: str
    name: str
    grants: tuple[Grant, ...]
    created: int
    expires: int | None = None
    revoked: int | None = None
    hash: str = ""

    @classmethod
    def from_row(cls, row: Row) -> AccessToken:
        try:
            grants = typed_json.convert(row.roles, tuple[Grant, ...])
        except msgspec.ValidationError as error:
            raise BrokenLedger(f"The ledger's token {row.token_id} has roles that are none: {error}") from None
        return cls(
            token_id=row.token_id,
            name=row.name,
            grants=grants,
            created=row.created,
            expires=row.expires,
            revoked=row.revoked,
            hash=row.hash,
        )

    def is_valid(self, now: int) -> bool:
        return self.revoked is None and (self.expires is None or now < self.expires)

    def __repr__(self) -> str:
        return f"AccessToken({self.token_id!r}, name={self.name!r})"


def create(
    ledger: Ledger, name: str, grants: tuple[Grant, ...], *, now: int, expires: int | None = None
) -> tuple[str, AccessToken]:
    """The text, which nobody can show again, and what is kept of it."""
    if _NAME.fullmatch(name) is None:
        raise InvalidArgument("A token's name has 1 to 100 printable characters")
    if not grants:
        raise InvalidArgument("A token without a role can do nothing", hint="Grant one, such as reader")
    if expires is not None and expires <= now:
        raise InvalidArgument("The token would have expired already")
    token_id = secrets.token_hex(6)
    text = f"lks_{token_id}_{secrets.token_urlsafe(32)}"
    token = AccessToken(token_id=token_id, name=name, grants=grants, created=now, expires=expires, hash=_hash(text))

    def do(tx: Tx) -> None:
        tx.insert(
            tokens,
            token_id=token_id,
            name=name,
            hash=token.hash,
            roles=msgspec.to_builtins(grants),
            created=now,
            expires=expires,
            revoked=None,
        )

    ledger.write(do, idempotent=True)
    return text, token


def listed(ledger: Ledger) -> list[AccessToken]:
    """All of them, the oldest first."""
    query = sa.select(tokens).order_by(tokens.c.created, tokens.c.token_id)
    return ledger.read(lambda tx: [AccessToken.from_row(row) for row in tx.rows(query)])


def revoke(ledger: Ledger, token_id: str, *, now: int) -> AccessToken:
    """Revoked twice, it keeps the first time."""

    def do(tx: Tx) -> AccessToken:
        row = tx.get(tokens, token_id=token_id)
        if row is None:
            raise NotFound(f"There is no token {token_id!r}", hint="lakeseal owner token list shows their ids")
        if row.revoked is None:
            tx.update(tokens, {"token_id": token_id}, {"revoked": now})
        return (
            AccessToken.from_row(row)
            if row.revoked is not None
            else msgspec.structs.replace(AccessToken.from_row(row), revoked=now)
        )

    return ledger.write(do, idempotent=True)


def grant(ledger: Ledger, token_id: str, role: str, prefix: str) -> tuple[Grant, ...]:
    """Adds a role for a place to a token; all that it has then. One that it has already is not added again."""
    try:
        wanted = Grant(role=Role(role), prefix=prefix)
    except ValueError:
        raise InvalidArgument(f"There is no role {role!r}", hint=f"There are {', '.join(Role)}") from None

    def do(tx: Tx) -> tuple[Grant, ...]:
        row = tx.get(tokens, token_id=token_id)
        if row is None or row.revoked is not None:
            raise NotFound(f"There is no token {token_id!r}", hint="lakeseal owner token list shows their ids")
        grants = AccessToken.from_row(row).grants
        if wanted not in grants:
            if len(grants) >= MOST_GRANTS:
                raise InvalidArgument(f"A token has at most {MOST_GRANTS:,} roles", hint="Grant one for a whole folder")
            grants = (*grants, wanted)
            tx.update(tokens, {"token_id": token_id}, {"roles": msgspec.to_builtins(grants)})
        return grants

    return ledger.write(do, idempotent=True)


def find_all(ledger: Ledger, texts: Sequence[str]) -> dict[str, AccessToken]:
    """Those of these texts that are tokens, revoked and expired ones too."""
    ids = {text: named[1] for text in texts if (named := TEXT.fullmatch(text)) is not None}
    asked = sorted(set(ids.values()))

    def do(tx: Tx) -> dict[str, Row]:
        parts = (asked[start : start + _AT_ONCE] for start in range(0, len(asked), _AT_ONCE))
        return {row.token_id: row for ids in parts for row in tx.rows(_named(ids), lock=False)}

    rows = ledger.read(do) if asked else {}
    found = {}
    for text, token_id in ids.items():
        row = rows.get(token_id)
        # Compared in any case, so that the time taken does not tell which ids there are.
        same = hmac.compare_digest(_NOBODY if row is None else row.hash, _hash(text))
        if row is not None and same:
            found[text] = AccessToken.from_row(row)
    return found


def _named(ids: Sequence[str]) -> sa.Select[Any]:
    return sa.select(tokens).where(tokens.c.token_id.in_(ids))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
