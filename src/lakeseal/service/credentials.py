"""`Credentials`: what a service hands out so that engines reach tables' files, as it was configured.

A credential that stands in the configuration opens everything below its prefix, whatever table was asked for. So it is
for callers whose role holds for the whole prefix: `reader` where it reads, `writer` where it writes. One that `sts`
lends opens the one table, for an hour or as configured, and is for everybody who has the role for that table. Of those
that fit, the one with the longest prefix is given. It says nothing of itself in logs and messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from lakeseal.catalog.unity.messages import Credential
from lakeseal.clock import now_ms
from lakeseal.errors import InvalidArgument
from lakeseal.service.access import Caller, Role
from lakeseal.service.sts import Sts, StsSettings
from lakeseal.storage import is_below, prefix_of

READ = "READ"
READ_WRITE = "READ_WRITE"
_ROLES = {READ: Role.READER, READ_WRITE: Role.WRITER}
_KEPT_MS = 3_600_000
"""After which engines ask again, so that one that was changed reaches them."""


class _Configured(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    prefix: str
    operation: Literal["READ", "READ_WRITE"]
    config: dict[str, str] = {}
    sts: StsSettings | None = None

    def __repr__(self) -> str:
        return f"credential({self.prefix!r}, {self.operation})"


class Credentials:
    def __init__(self, configured: Sequence[dict[str, Any]] = ()) -> None:
        try:
            known = msgspec.convert(list(configured), tuple[_Configured, ...])
        except msgspec.ValidationError as error:
            raise InvalidArgument(
                f"These are no credentials: {error}",
                hint='Write [{"prefix": "s3://lake/tables", "operation": "READ", "config": {…}}]',
            ) from None
        found = [(prefix_of(one.prefix), one) for one in known]
        if any(not prefix for prefix, _ in found):
            raise InvalidArgument("A credential needs a prefix")
        for prefix, one in found:
            if one.sts is not None and not prefix.startswith("s3://"):
                raise InvalidArgument(f"STS lends credentials for S3, and not for {prefix}")
            if one.sts is None and not one.config:
                raise InvalidArgument(f"The credential for {prefix} has neither config nor sts")
        self._known = sorted(found, key=lambda one: len(one[0]), reverse=True)
        # Entries for reading and for writing may share one.
        self._sts = {one.sts: Sts(one.sts) for _, one in found if one.sts is not None}

    def of(self, table: str, operation: str, caller: Caller) -> tuple[Credential, ...]:
        """One, or none."""
        role = _ROLES.get(operation)
        if role is None:
            raise InvalidArgument(f"There is no operation {operation!r}", hint=f"Ask for {READ} or {READ_WRITE}")
        for prefix, one in self._known:
            if one.operation != operation or not is_below(table, prefix):
                continue
            if one.sts is not None and caller.may(role, table):
                return (self._lent(one.sts, table, operation, one.config),)
            if one.sts is None and caller.may(role, prefix):
                expires = now_ms() + _KEPT_MS
                said = Credential(prefix=prefix, operation=operation, expiration_time_ms=expires, config=one.config)
                return (said,)
        return ()

    def _lent(self, sts: StsSettings, table: str, operation: str, config: dict[str, str]) -> Credential:
        lent = self._sts[sts].lend(table, writes=operation == READ_WRITE)
        keys = {
            "s3.access-key-id": lent.access_key_id,
            "s3.secret-access-key": lent.secret_access_key,
            "s3.session-token": lent.session_token,
        }
        return Credential(
            prefix=table, operation=operation, expiration_time_ms=lent.expires_ms, config={**config, **keys}
        )
