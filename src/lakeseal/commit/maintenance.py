"""The hook that keeps a log short to read: a checksum, a checkpoint and a clean-up, after commits and off their path.

It runs where the table's checkpoint interval says, not at every commit: each of the three has to know all live files,
and a commit must not cost more the more files there are. If commits come faster than it runs, only the newest counts.
"""

from __future__ import annotations

from lakeseal.clock import now_ms
from lakeseal.commit.post_commit import FreshCommit
from lakeseal.log.maintenance import checkpoint_is_due, maintain


class Maintenance:
    name = "maintenance"

    def wants(self, commit: FreshCommit) -> bool:
        return checkpoint_is_due(commit.snapshot)

    def run(self, commit: FreshCommit) -> None:
        # Only what is in the log under its own name may be checkpointed (B4).
        commit.owner.backfill_to_version(commit.version)
        maintain(commit.log, commit.snapshot, now_ms=now_ms())
