"""Who may do what, as values: roles on prefixes of tables.

A grant gives a role for every table at or below a prefix, segment by segment: `file:///data/t1` covers
`file:///data/t1/x` and not `file:///data/t10`. A role includes those before it:

- reader: learn which commits there are.
- writer: commit, create tables, ask for backfill.
- admin: take over tables that are there, release them, and drop those that were deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from lakeseal.errors import InvalidArgument, NotAllowed
from lakeseal.storage import is_below, prefix_of

EVERYTHING = ""


class Role(StrEnum):
    READER = "reader"
    WRITER = "writer"
    ADMIN = "admin"

    def includes(self, other: Role) -> bool:
        return _ORDER.index(self) >= _ORDER.index(other)


_ORDER = (Role.READER, Role.WRITER, Role.ADMIN)


class Grant(Struct, frozen=True, kw_only=True):
    role: Role
    prefix: str = EVERYTHING
    """The normal form of a URI; empty for all tables."""

    @classmethod
    def from_text(cls, text: str) -> Grant:
        """`writer`, `reader:/data/team`, `admin:s3://bucket/raw`."""
        role, _, prefix = text.partition(":")
        try:
            return cls(role=Role(role), prefix=prefix_of(prefix))
        except ValueError:
            raise InvalidArgument(
                f"{text!r} grants no role",
                hint="Write reader, writer or admin, or one of them with a prefix: writer:s3://bucket/raw",
            ) from None

    def __str__(self) -> str:
        return f"{self.role}:{self.prefix}" if self.prefix else str(self.role)


class Caller(Struct, frozen=True, kw_only=True):
    """Who asks, as far as a service knows."""

    principal: str | None
    """The token's name, which policies know; None for a caller without a token."""
    token_id: str
    grants: tuple[Grant, ...]

    def may(self, role: Role, table: str) -> bool:
        return any(grant.role.includes(role) and is_below(table, grant.prefix) for grant in self.grants)

    def may_everywhere(self, role: Role) -> bool:
        return any(grant.role.includes(role) and grant.prefix == EVERYTHING for grant in self.grants)

    def check(self, role: Role, tables: Iterable[str]) -> None:
        for table in tables:
            if not self.may(role, table):
                raise NotAllowed(f"{self.principal or 'This caller'} needs the role {role} for this table", table=table)


ANONYMOUS = Caller(principal=None, token_id="anonymous", grants=(Grant(role=Role.ADMIN),))  # noqa: S106  no password
"""Whoever reaches a service that was started insecure."""
