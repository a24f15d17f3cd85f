"""Whether a commit that won leaves room for ours: a pure check, in the order of the format's table.

| the winner | ours fails when | exception |
| --- | --- | --- |
| changed the protocol | we change it too, or cannot write what it asks for | `ProtocolChangedException` |
| changed metadata | always, but for `is_safe` and identities, if we give out none | `MetadataChangedException` |
| set a domain that we set, or a txn of an app we read | always, but for row ids | `ConcurrentTransactionException` |
| set any domain | we change metadata, but for row ids | `ConcurrentTransactionException` |
| added files | they may match what we read, or have the path of one that we add | `ConcurrentAppendException` |
| removed files | one that we read, or any if we read the whole table | `ConcurrentDeleteReadException` |
| removed files | one that we remove too | `ConcurrentDeleteDeleteException` |
| vacuumed | we bring files back that the table had removed | `ConcurrentDeleteReadException` |

Which added files count against what we read: at `Serializable` all; at `WriteSerializable` those of commits that are
not blind appends; at `SnapshotIsolation` none; at every level all, if we change metadata. Files that only rearrange
rows (`dataChange=false`) bring nothing new, so that the files they replace decide, in the rows on removal.

A file is its path: the same path with another deletion vector is the same file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from lakeseal.commit.isolation import IsolationLevel
from lakeseal.commit.proposal import Proposal
from lakeseal.commit.winner import WinningCommit
from lakeseal.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentModification,
    ConcurrentTransactionException,
    LakesealError,
    MetadataChangedException,
    ProtocolChangedException,
)
from lakeseal.protocol.actions import Metadata
from lakeseal.protocol.data_paths import canonical_path, canonical_paths
from lakeseal.protocol.features import check_writable
from lakeseal.protocol.identity import differs_by_marks

ROW_TRACKING_DOMAIN = "delta.rowTracking"
VACUUM_START = "VACUUM START"
VACUUM_END = "VACUUM END"

MayMatch = Callable[[str, pa.Table], pa.Array]
"""Predicate and files → for each file, whether it may hold a row that matches."""


class Clash(Struct, frozen=True, kw_only=True):
    """Why ours cannot follow the winner."""

    error: type[ConcurrentModification]
    version: int
    operation: str
    what: str
    hint: str
    file: str | None = None

    def to_error(self, table: str) -> ConcurrentModification:
        return self.error(
            f"Version {self.version} ({self.operation}) was committed at the same time and {self.what}",
            table=table,
            version=self.version,
            file=self.file,
            hint=self.hint,
        )


def check(ours: Proposal, winner: WinningCommit, *, before: Metadata | None, may_match: MayMatch) -> Clash | None:
    """`before` is the table's metadata just before the winner; `may_match` reads predicates as of our snapshot."""
    return (
        _protocol(ours, winner, before)
        or _metadata(ours, winner, before)
        or _domains_and_txns(ours, winner)
        or _added(ours, winner, may_match)
        or _removed_read(ours, winner)
        or _removed_both(ours, winner)
        or _vacuumed(ours, winner)
    )


def _protocol(ours: Proposal, winner: WinningCommit, before: Metadata | None) -> Clash | None:
    if winner.protocol is None:
        return None
    if ours.protocol is not None:
        if ours.read_version < 0:
            return _clash(
                winner,
                ProtocolChangedException,
                "created the table",
                "The location was empty when this started: open the table that is there now and write to it",
            )
        return _clash(winner, ProtocolChangedException, "changed the protocol, as this transaction does", _READ_AGAIN)
    metadata = winner.metadata or before
    assert metadata is not None, "a transaction without a protocol of its own has read a table"
    try:
        check_writable(winner.protocol, metadata)
    except LakesealError as error:
        return _clash(
            winner, ProtocolChangedException, f"changed the protocol: {error.message}", error.hint or _READ_AGAIN
        )
    return None


def _metadata(ours: Proposal, winner: WinningCommit, before: Metadata | None) -> Clash | None:
    if winner.metadata is None:
        return None
    if ours.metadata is None and before is not None:
        only_adds = not ours.removes and not ours.cdc
        if differs_by_marks(before, winner.metadata) or is_safe(before, winner.metadata, only_adds=only_adds):
            return None
    return _clash(
        winner,
        MetadataChangedException,
        "changed the table's schema, partitioning or properties",
        "Read the table again, check that the data still fits it, and retry",
    )


def _domains_and_txns(ours: Proposal, winner: WinningCommit) -> Clash | None:
    domains = {d.domain for d in ours.domains} & winner.domains - {ROW_TRACKING_DOMAIN}
    if domains:
        what = f"set the metadata domain {min(domains)!r}, as this transaction does"
        return _clash(winner, ConcurrentTransactionException, what, _READ_AGAIN)
    if ours.metadata is not None and winner.domains - {ROW_TRACKING_DOMAIN}:
        # Domains tell of columns, as that of clustering does, and metadata that was good without them may not be now.
        what = f"set the metadata domain {min(winner.domains - {ROW_TRACKING_DOMAIN})!r}, while this changes metadata"
        return _clash(winner, ConcurrentTransactionException, what, _READ_AGAIN)
    app_ids = ours.reads.app_ids & winner.app_ids
    if app_ids:
        return _clash(
            winner,
            ConcurrentTransactionException,
            f"committed a batch of the application {min(app_ids)!r}, as this transaction does",
            "Two writers share one application id: read which batch the table has seen, then retry or stop one of them",
        )
    return None


def _added(ours: Proposal, winner: WinningCommit, may_match: MayMatch) -> Clash | None:
    ours_too = _first_in(winner.adds, [canonical_path(add.path) for add in ours.adds])
    if ours_too is not None:
        return _clash(winner, ConcurrentAppendException, "added a file that this adds too", _READ_AGAIN, ours_too)
    if not _counts_adds(ours, winner):
        return None
    adds = winner.adds.filter(winner.adds["dataChange"])
    if adds.num_rows == 0:
        return None
    if ours.reads.whole_table:
        what = "added files, while this transaction had read the whole table"
        return _clash(winner, ConcurrentAppendException, what, _narrower(ours), adds["path"][0].as_py())
    for predicate in ours.reads.predicates:
        matching = adds.filter(may_match(predicate, adds))
        if matching.num_rows:
            what = f"added files that may match what this transaction had read, {predicate}"
            file = matching["path"][0].as_py()
            return _clash(winner, ConcurrentAppendException, what, _narrower(ours), file)
    return None


def _counts_adds(ours: Proposal, winner: WinningCommit) -> bool:
    if ours.metadata is not None:
        # Metadata that was decided on by what the table held has to be true of what it holds: no level gives that away.
        return True
    match ours.isolation:
        case IsolationLevel.SERIALIZABLE:
            return True
        case IsolationLevel.WRITE_SERIALIZABLE:
            return not winner.is_blind_append
        case IsolationLevel.SNAPSHOT_ISOLATION:
            return False


def _removed_read(ours: Proposal, winner: WinningCommit) -> Clash | None:
    if winner.removes.num_rows == 0:
        return None
    if ours.reads.whole_table:
        what = "removed files, while this transaction had read the whole table"
        file = winner.removes["path"][0].as_py()
        return _clash(winner, ConcurrentDeleteReadException, what, _READ_AGAIN, file)
    file = _first_in(winner.removes, ours.reads.paths())
    if file is None:
        return None
    what = "removed or rewrote a file that this transaction had read"
    return _clash(winner, ConcurrentDeleteReadException, what, _READ_AGAIN, file)


def _removed_both(ours: Proposal, winner: WinningCommit) -> Clash | None:
    file = _first_in(winner.removes, [canonical_path(remove.path) for remove in ours.removes])
    if file is None:
        return None
    what = "removed or rewrote a file that this transaction removes or rewrites"
    return _clash(winner, ConcurrentDeleteDeleteException, what, _READ_AGAIN, file)


def _vacuumed(ours: Proposal, winner: WinningCommit) -> Clash | None:
    if not ours.brings_back or winner.operation not in (VACUUM_START, VACUUM_END):
        return None
    what = "deletes files that no version needed, and some of these this transaction brings back"
    return _clash(winner, ConcurrentDeleteReadException, what, "Run it again: it looks which files are still there")


_READ_AGAIN = "Read the table again and retry"


def _narrower(ours: Proposal) -> str:
    if ours.isolation is IsolationLevel.SERIALIZABLE:
        return (
            "Read the table again and retry; with a narrower condition, or at the isolation level WriteSerializable "
            "if what others merely append need not be seen, it would not conflict"
        )
    return "Read the table again and retry; a narrower condition, on partition columns best, conflicts less"


def _first_in(files: pa.Table, paths: Sequence[str] | pa.ChunkedArray) -> str | None:
    if files.num_rows == 0 or len(paths) == 0:
        return None
    values = pa.array(paths, pa.string()) if isinstance(paths, list) else paths
    where = pc.index(pc.is_in(canonical_paths(files["path"]), value_set=values), True).as_py()
    return None if where < 0 else files["path"][where].as_py()


def _clash(
    winner: WinningCommit, error: type[ConcurrentModification], what: str, hint: str, file: str | None = None
) -> Clash:
    return Clash(error=error, version=winner.version, operation=winner.operation, what=what, hint=hint, file=file)


_MAINTENANCE = frozenset(
    {
        "delta.checkpointInterval",
        "delta.deletedFileRetentionDuration",
        "delta.logRetentionDuration",
        "delta.setTransactionRetentionDuration",
    }
)
_IN_COMMIT_TIMESTAMPS = "delta.enableInCommitTimestamps"
_ENABLEMENT = frozenset({"delta.inCommitTimestampEnablementVersion", "delta.inCommitTimestampEnablementTimestamp"})
_ROW_TRACKING = "delta.enableRowTracking"
_ROW_TRACKING_PARTS = frozenset(
    {"delta.rowTracking.materializedRowIdColumnName", "delta.rowTracking.materializedRowCommitVersionColumnName"}
)


def is_safe(before: Metadata, after: Metadata, *, only_adds: bool) -> bool:
    changed = {
        name
        for name in before.configuration.keys() | after.configuration.keys()
        if before.configuration.get(name) != after.configuration.get(name)
    }
    allowed = set(_MAINTENANCE)
    if _is_on(after, _IN_COMMIT_TIMESTAMPS):
        allowed |= {_IN_COMMIT_TIMESTAMPS, *_ENABLEMENT}
    if only_adds and _is_on(after, _ROW_TRACKING):
        allowed |= {_ROW_TRACKING, *_ROW_TRACKING_PARTS}
    same_otherwise = msgspec.structs.replace(after, configuration=before.configuration) == before
    return same_otherwise and changed <= allowed


def _is_on(metadata: Metadata, name: str) -> bool:
    return (metadata.configuration.get(name) or "").lower() == "true"
