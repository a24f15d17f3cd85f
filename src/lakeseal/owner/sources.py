"""What an owner told at one moment, as the log's source of commits that are not in it under their own names yet."""

from __future__ import annotations

from collections.abc import Mapping

from lakeseal.log.ratified_commit import RatifiedCommit
from lakeseal.owner.messages import TableCommits


class ToldCommits:
    """Always the same answer, so that a snapshot made of it is of that moment."""

    def __init__(self, told: TableCommits) -> None:
        self._commits = {commit.version: commit.ratified() for commit in told.commits}

    def unbackfilled(self, start_version: int) -> Mapping[int, RatifiedCommit]:
        return {version: commit for version, commit in self._commits.items() if version >= start_version}
