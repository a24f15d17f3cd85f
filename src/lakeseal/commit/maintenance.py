"""The hook that keeps a log short to read: checksums, checkpoints and clean-up, after commits and off their path."""

from __future__ import annotations

from lakeseal.commit.post_commit import FreshCommit
from lakeseal.commit.transaction import now_ms
from lakeseal.log.maintenance import maintain


class Maintenance:
    name = "maintenance"

    def wants(self, commit: FreshCommit) -> bool:
        return True

    def run(self, commit: FreshCommit) -> None:
        maintain(commit.log, commit.snapshot, now_ms=now_ms())
