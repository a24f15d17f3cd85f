"""What an owner told at one moment, as the log's source of commits that are not in it under their own names yet."""

from __future__ import annotations

from collections.abc import Mapping

from lakeseal.commit.owner import KnownBytes
from lakeseal.owner.messages import TableCommits


class ToldCommits:
    """Always the same answer, so that a snapshot made of it is of that moment."""

    def __init__(self, told: TableCommits) -> None:
        self._keys = {commit.version: commit.key for commit in told.commits}
        self._bytes = KnownBytes()
        self._bytes.learn({commit.key: commit.sha256 for commit in told.commits})

    def unbackfilled(self, start_version: int) -> Mapping[int, str]:
        return {version: key for version, key in self._keys.items() if version >= start_version}

    def check(self, key: str, data: bytes) -> None:
        self._bytes.check(key, data)
