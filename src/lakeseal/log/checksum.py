"""Version checksums (`<v>.crc`): a summary of a version, written beside it and held against it when it is read.

A checksum file that is not JSON, or that lacks a number, proves nothing and is ignored. One that says something else
than the log is told of: either the log lost something, or the checksum is wrong; both want a look. The log is the
truth, so readers go on with a `ChecksumWarning`, one per version and process; `verify` raises `ChecksumMismatch`, for
readers that insist and for whoever would make the log's word permanent.

Writing one takes two sums over columns that are in memory. It is never overwritten: who was first has said it.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from lakeseal import typed_json
from lakeseal.errors import ChecksumMismatch, located
from lakeseal.log.snapshot import Snapshot
from lakeseal.protocol.actions import Metadata, Protocol
from lakeseal.protocol.paths import checksum_path

if TYPE_CHECKING:
    from lakeseal.log.delta_log import DeltaLog


class VersionChecksum(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    table_size_bytes: int
    num_files: int
    num_metadata: int = 1
    num_protocol: int = 1
    metadata: dict[str, Any] | None = None
    protocol: dict[str, Any] | None = None
    txn_id: str | None = None
    in_commit_timestamp_opt: int | None = None

    @classmethod
    def of(cls, snapshot: Snapshot) -> VersionChecksum:
        info = snapshot.state.commit_info
        return cls(
            table_size_bytes=snapshot.size_in_bytes,
            num_files=snapshot.files.num_rows,
            metadata=snapshot.metadata.to_json(),
            protocol=snapshot.protocol.to_json(),
            txn_id=info.txn_id if info is not None else None,
            in_commit_timestamp_opt=snapshot.in_commit_timestamp,
        )

    def to_bytes(self) -> bytes:
        value = msgspec.to_builtins(self)
        return msgspec.json.encode({**value, "numMetadata": self.num_metadata, "numProtocol": self.num_protocol})


def write_checksum(log: DeltaLog, snapshot: Snapshot) -> bool:
    """Writes the checksum of a version, unless there is one; whether it was written."""
    with located(table=snapshot.table, version=snapshot.version):
        return log.store.put_if_absent(checksum_path(snapshot.version), VersionChecksum.of(snapshot).to_bytes())


class ChecksumWarning(UserWarning):
    """The log was read, and its version checksum says something else."""


_warned: set[tuple[str, int]] = set()
_MOST_WARNINGS = 10_000


def verify(snapshot: Snapshot, data: bytes) -> None:
    """Raises `ChecksumMismatch` where a checksum says something else than the log."""
    found = mismatch(snapshot, data)
    if found is not None:
        raise found


def warn(found: ChecksumMismatch) -> None:
    """Tells of a mismatch, once."""
    told = (found.table or "", found.version or 0)
    if told in _warned or len(_warned) >= _MOST_WARNINGS:
        return
    _warned.add(told)
    warnings.warn(f"{found}", ChecksumWarning, stacklevel=2)


def mismatch(snapshot: Snapshot, data: bytes) -> ChecksumMismatch | None:
    """What a checksum says that the log does not, if anything."""
    try:
        stated = typed_json.decode(data, VersionChecksum)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    found = VersionChecksum.of(snapshot)
    differences = [
        f"{name} is {there} in the log and {said} in the checksum"
        for name, said, there in (
            ("the number of files", stated.num_files, found.num_files),
            ("the size in bytes", stated.table_size_bytes, found.table_size_bytes),
        )
        if said != there
    ]
    for name, said, there in (
        ("protocol", stated.protocol, snapshot.protocol),
        ("metadata", stated.metadata, snapshot.metadata),
    ):
        try:
            if said is not None and _compared(type(there).from_json(said)) != _compared(there):
                differences.append(f"the {name} differs")
        except msgspec.ValidationError:
            continue  # not what the format calls by that name, so it says nothing about ours
    if not differences:
        return None
    return ChecksumMismatch(
        f"The version's checksum does not fit its log: {'; '.join(differences)}",
        table=snapshot.table,
        version=snapshot.version,
        file=checksum_path(snapshot.version),
        hint="The log counts. Compare it with a backup; if it is right, delete the checksum file",
    )


def _compared(action: Protocol | Metadata) -> Any:
    """What makes a difference: the order of features does not, nor when and how a table was described."""
    if isinstance(action, Protocol):
        features = (frozenset(action.reader_features or ()), frozenset(action.writer_features or ()))
        return action.min_reader_version, action.min_writer_version, features
    return action.id, action.schema_string, action.partition_columns, action.configuration
