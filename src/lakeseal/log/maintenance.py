"""What keeps a log quick to read, done after commits: checksums, checkpoints, clean-up.

Nothing here changes what the table says. It may be left out, done twice, or stopped anywhere.
"""

from __future__ import annotations

from msgspec import Struct

from lakeseal.log.checkpoint_writer import CheckpointInfo, write_checkpoint
from lakeseal.log.checksum import write_checksum
from lakeseal.log.cleanup import CleanupReport, clean_up_expired_logs
from lakeseal.log.delta_log import DeltaLog
from lakeseal.log.snapshot import Snapshot


class MaintenanceReport(Struct, frozen=True, kw_only=True):
    checksum_written: bool
    checkpoint: CheckpointInfo | None = None
    cleanup: CleanupReport | None = None


def checkpoint_is_due(snapshot: Snapshot) -> bool:
    return snapshot.version > 0 and snapshot.version % snapshot.properties.checkpoint_interval == 0


def maintain(log: DeltaLog, snapshot: Snapshot, *, now_ms: int) -> MaintenanceReport:
    """For the newest version, which is backfilled: its checksum, and where one is due a checkpoint, then a clean-up."""
    written = write_checksum(log, snapshot)
    if not checkpoint_is_due(snapshot):
        return MaintenanceReport(checksum_written=written)
    checkpoint = write_checkpoint(log, snapshot.version, now_ms=now_ms, known=snapshot)
    cleanup = clean_up_expired_logs(log, now_ms=now_ms)
    return MaintenanceReport(checksum_written=written, checkpoint=checkpoint, cleanup=cleanup)
