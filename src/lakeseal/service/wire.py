"""What travels between a service and its clients, beside the owner's own messages: requests, replies, names.

Each call of `OwnerEndpoint` is `POST /v1/<its name with dashes>` with one JSON object, answered by one JSON value with
status 200. Everything else is an `ErrorReply`, whose `kind` says what happened; the status is for people and proxies.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from lakeseal.owner.messages import CommitRequest

MAX_INT = 2**63 - 1

Table = Annotated[str, Meta(min_length=1, max_length=4096, description="The URI of the table, in its normal form")]
Version = Annotated[int, Meta(ge=0, le=MAX_INT)]
ChangeId = Annotated[str, Meta(min_length=1, max_length=255)]

REQUEST_ID = "X-Request-Id"
OWNER = "/v1/owner"
TABLES = "/v1/tables"


def path_of(call: str) -> str:
    return "/v1/" + call.replace("_", "-")


class GetCommits(Struct, frozen=True, kw_only=True):
    table: Table
    start_version: Version = 0


class GetCommitsOf(Struct, frozen=True, kw_only=True):
    tables: Annotated[tuple[Table, ...], Meta(max_length=1000)]


class Backfill(Struct, frozen=True, kw_only=True):
    table: Table
    version: Version | None = None


class BeginTakeover(Struct, frozen=True, kw_only=True):
    table: Table
    takeover_id: ChangeId
    version: Version
    commit: CommitRequest | None = None
    """The one that creates the table, where version is 0."""


class TakeoverStep(Struct, frozen=True, kw_only=True):
    """To confirm or to withdraw it."""

    table: Table
    takeover_id: ChangeId


class BeginRelease(Struct, frozen=True, kw_only=True):
    table: Table
    release_id: ChangeId


class OneTable(Struct, frozen=True, kw_only=True):
    table: Table


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
