"""The seam of commit owners: who decides whether a proposed version counts.

A `CommitOwner` serves one table. What a caller may rely on, whoever the owner is:

- `commit` makes `version` part of the table, all of it at once, and only if the version before it exists and it does
  not exist itself. A version belongs to one transaction for ever, and there are no gaps.
- Asking again with the same version, bytes and `txn_id` gives the first answer, however often and however late; so a
  lost reply is settled by asking again.
- When the answer is `Committed`, the bytes are durable and never change. When it is `Conflict`, the proposal is not
  and will never be part of the table at this version. `Unresolved` says that neither is known.
- What raises decided nothing new: `VersionNotFound` (the version before it is not there), `Refused` (a policy said no;
  final for this version and `txn_id`) and whatever the way to the owner reports. If an earlier call for the same
  version was unresolved, it still is.
- `get_commits` names the ratified commits from a version on, contiguous and ascending, and the latest of all. The
  first may be above the version asked for: the ones below are in the log under their own names. A small commit comes
  with its bytes. A file that it does not name, and that is not in the log under its own name, is not a commit.
- After `backfill_to_version(v)` every version up to `v` is in the log under its own name, byte for byte as ratified.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from msgspec import Struct

from lakeseal.log.ratified_commit import RatifiedCommit, Told
from lakeseal.protocol.actions import Metadata
from lakeseal.protocol.paths import commit_path


class Commits(Struct, frozen=True, kw_only=True):
    commits: tuple[RatifiedCommit, ...] = ()
    latest: int = -1
    """The latest ratified version; -1 if there is none."""
    up_to: int | None = None
    """Of a catalog: the latest version. What the log has above it is no part of the table."""


class Committed(Struct, frozen=True, kw_only=True):
    commit: RatifiedCommit

    @property
    def version(self) -> int:
        return self.commit.version


class Conflict(Struct, frozen=True, kw_only=True):
    """Another transaction has this version."""

    version: int
    is_next: bool = False
    """The owner keeps the next version for this transaction, for a moment."""


class Unresolved(Struct, frozen=True, kw_only=True):
    """The reply was lost: the version may be ours, another's, or still free with our request under way."""

    version: int
    reason: str


Outcome = Committed | Conflict | Unresolved


class CommitOwner(Protocol):
    def commit(self, version: int, data: bytes, *, txn_id: str, in_commit_timestamp: int | None = None) -> Outcome:
        """`data` is the whole commit file; its `commitInfo` carries `txn_id` and, if given, the timestamp."""

    def get_commits(self, start_version: int) -> Commits: ...

    def backfill_to_version(self, version: int) -> None:
        """`VersionNotFound` if `version` is not ratified."""


@runtime_checkable
class ClaimsTables(Protocol):
    """An owner that tables name in their metadata."""

    def claim(self, metadata: Metadata, before: Metadata | None) -> Metadata:
        """`metadata` with whom it has to name; `before` is the table's until now, None for a new one."""


@runtime_checkable
class AsksForFeatures(Protocol):
    """An owner whose new tables must have more in their protocol than their metadata needs."""

    @property
    def features(self) -> tuple[str, ...]: ...


class OwnedCommits:
    """An owner as the log's source of commits that are not in the log under their own names yet."""

    def __init__(self, owner: CommitOwner) -> None:
        self._owner = owner

    def unbackfilled(self, start_version: int) -> Told:
        found = self._owner.get_commits(start_version)
        told = (one for one in found.commits if one.data is not None or one.key != commit_path(one.version))
        return Told(commits={one.version: one for one in told}, up_to=found.up_to)
