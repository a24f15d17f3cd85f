"""What travels between a service and its clients beside the calls: what can be looked at, and errors.

A call (see `call`) is `POST /v1/<its name with dashes>` with one JSON object, answered by one JSON value with status
200. Everything else is an `ErrorReply`, whose `kind` says what happened; the status is for people and proxies.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

REQUEST_ID = "X-Request-Id"
OWNER = "/v1/owner"
TABLES = "/v1/tables"


class OwnerInfo(Struct, frozen=True, kw_only=True):
    name: str
    """What tables call the owner."""
    batch_size: int
    inline_bytes: int
    ledger_id: str | None = None
    """The identity of its ledger."""
    version: str
    """Of Lakeseal, at the service."""


class TableStatus(Struct, frozen=True, kw_only=True):
    """How far a table is."""

    table: str
    state: str
    epoch: int
    latest: int
    """The newest ratified version; -1 if there is none."""
    backfilled: int
    unbackfilled: int
    """Commits that wait for their backfill."""
    lag_ms: int
    """How long the oldest of them has been waiting."""
    updated: int
    """Milliseconds since the epoch."""


class TableList(Struct, frozen=True, kw_only=True):
    tables: tuple[TableStatus, ...]
    """In the order of their URIs."""
    more: bool = False
    """There are more after the last one."""


class ErrorReply(Struct, frozen=True, kw_only=True):
    error: dict[str, Any]
    request_id: str = ""
