"""OwnerConfig: an owner as its user configures it, and what holds where nothing is configured."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from lakeseal.errors import InvalidArgument

DEFAULT_NAME = "lakeseal"
DEFAULT_BATCH_SIZE = 10
INLINE_BYTES = 8192
MOST_UNBACKFILLED = 1000


class OwnerConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`repr` shows no secret."""

    url: str
    name: str = DEFAULT_NAME
    batch_size: int = DEFAULT_BATCH_SIZE
    """For tables that are created or taken over: how many commits wait for a service's publisher to backfill them
    together. An owner in this process does it right behind each commit; when so many come at once, without delay."""
    principal: str | None = None
    """Who this is, to policies of an owner in this process."""
    policies: tuple[dict[str, Any], ...] = ()
    """Of an owner in this process, as `policies.from_json` reads them."""
    storage_options: dict[str, str] = {}
    """For tables that the owner opens by itself."""
    inline_bytes: int = INLINE_BYTES
    most_unbackfilled: int = MOST_UNBACKFILLED
    token: str | None = None
    """Of a service."""

    def __post_init__(self) -> None:
        if not self.name or self.batch_size < 1 or self.most_unbackfilled < 1:
            raise InvalidArgument("An owner needs a name, and a batch size and a limit of at least 1")

    @property
    def scheme(self) -> str:
        return self.url.partition("://")[0].lower()

    def __repr__(self) -> str:
        shown = self.url if "@" not in self.url else f"{self.scheme}://***@{self.url.rpartition('@')[2]}"
        return f"OwnerConfig(name={self.name!r}, url={shown!r})"
