"""What an owner told at one moment, as the log's source of commits that are not in it under their own names yet."""

from __future__ import annotations

from lakeseal.log.ratified_commit import Told
from lakeseal.owner.messages import TableCommits


class ToldCommits:
    """Always the same answer, so that a snapshot made of it is of that moment."""

    def __init__(self, told: TableCommits) -> None:
        self._told = told.told()

    def unbackfilled(self, start_version: int) -> Told:
        later = {version: commit for version, commit in self._told.commits.items() if version >= start_version}
        return Told(commits=later, up_to=self._told.up_to)
