"""`RatifiedCommit`: a commit that an owner has ratified, and where its bytes are.

A small one's bytes come with it. Those of a large one are in a file, which whoever made it could still write to: they
count only if they are what was ratified.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from lakeseal.errors import TamperedCommit
from lakeseal.storage.base import Store


class RatifiedCommit(Struct, frozen=True, kw_only=True):
    version: int
    key: str
    """Of its file, from the table's root; where `data` is there, the name that it gets when it is published."""
    txn_id: str | None = None
    """None where the owner knows files only; the file itself says it."""
    in_commit_timestamp: int | None = None
    sha256: str | None = None
    """Of its bytes, in hexadecimal, where the owner knows it."""
    data: bytes | None = None

    def read(self, store: Store) -> bytes:
        return self.checked(store.get(self.key) if self.data is None else self.data)

    def checked(self, data: bytes) -> bytes:
        """`data`, which is what was ratified; `TamperedCommit` otherwise."""
        if self.sha256 not in (None, digest(data)):
            raise tampered(self.key)
        return data


class Told(Struct, frozen=True, kw_only=True):
    """What a source of commits tells at one moment."""

    commits: Mapping[int, RatifiedCommit] = {}
    """Those that may not be in the log under their own names yet, by version."""
    up_to: int | None = None
    """Of a catalog: its latest version. Everything above it is not part of the table, whoever put it into the log; and
    where a version is both told and in the log, what is told counts. None where the log decides as well."""

    def goes_to(self, version: int) -> bool:
        return self.up_to is None or version <= self.up_to


NOTHING_TOLD = Told()


class CommitSource(Protocol):
    """Who knows of ratified commits that may not be in the log under their own names yet."""

    def unbackfilled(self, start_version: int) -> Told:
        """All such commits from `start_version` on."""


def digest(data: bytes) -> str:
    """What tells a commit's bytes from any others."""
    return hashlib.sha256(data).hexdigest()


def tampered(key: str) -> TamperedCommit:
    return TamperedCommit("A commit's file is not what was ratified: somebody changed it", file=key)
