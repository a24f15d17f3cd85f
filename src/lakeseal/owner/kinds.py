"""`Kind`: in which form an owner has a table, as other clients see it.

- managed: the feature `managedCommits`. Whoever knows no owner reads the table as far as it is published.
- catalog: the feature `catalogManaged`. Other engines commit through the catalog's protocol; nobody reads it by path.
- coordinated: the preview feature `coordinatedCommits-preview`, a bridge for clients that speak nothing newer.

All are ratified alike; the kind says how the table's metadata tells of it, and where files of commits are staged.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from lakeseal.errors import InvalidArgument
from lakeseal.protocol.actions import Metadata
from lakeseal.protocol.paths import COMMITS_DIR, LOG_DIR, STAGED_COMMITS_DIR
from lakeseal.protocol.properties import TableProperties


class Kind(StrEnum):
    MANAGED = "managed"
    CATALOG = "catalog"
    COORDINATED = "coordinated"

    @property
    def feature(self) -> str:
        return _FEATURES[self]

    @property
    def staging(self) -> str:
        """The directory of files of commits that are not published yet."""
        return STAGED_COMMITS_DIR if self.speaks_to_all else COMMITS_DIR

    @property
    def speaks_to_all(self) -> bool:
        """Whether other engines commit to it, by the catalog's protocol."""
        return self is not Kind.MANAGED


class NewTable(Struct, frozen=True, kw_only=True):
    """How a table that is created is its owner's."""

    kind: Kind = Kind.MANAGED
    table_id: str | None = None
    """What its catalog calls it; a new UUID where that does not matter."""


NEW_TABLE = NewTable()

_FEATURES = {
    Kind.MANAGED: "managedCommits",
    Kind.CATALOG: "catalogManaged",
    Kind.COORDINATED: "coordinatedCommits-preview",
}


def parse_kind(text: str) -> Kind:
    try:
        return Kind(text)
    except ValueError:
        raise InvalidArgument(
            f"{text!r} is no kind of ownership", hint=f"Kinds are {', '.join(kind.value for kind in Kind)}"
        ) from None


def kind_of(metadata: Metadata) -> Kind | None:
    """None where the table names no owner that we know."""
    properties = TableProperties.of(metadata)
    if properties.managed_commit_owner_name is not None:
        return Kind.MANAGED
    if properties.catalog_owner_name is None:
        return None
    return Kind.CATALOG if properties.commit_coordinator is None else Kind.COORDINATED


def staged_key(file: str) -> str:
    """The key of a staged file as requests and rows name it: in `_commits`, unless its directory is said."""
    return LOG_DIR + file if "/" in file else COMMITS_DIR + file


def staged_name(key: str) -> str:
    """The reverse of `staged_key`."""
    return key.removeprefix(COMMITS_DIR) if key.startswith(COMMITS_DIR) else key.removeprefix(LOG_DIR)
