"""Version checksums (`<v>.crc`): a summary of a version, written beside it and held against it when it is read.

A checksum file that is not JSON, or that lacks a number, proves nothing and is ignored. One that says something else
than the log raises `ChecksumMismatch`: either the log lost something, or the checksum is wrong; both want a look.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from lakeseal.errors import ChecksumMismatch
from lakeseal.log.snapshot import Snapshot
from lakeseal.protocol.actions import Metadata, Protocol
from lakeseal.protocol.paths import checksum_path


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


def verify(snapshot: Snapshot, data: bytes) -> None:
    try:
        stated = msgspec.json.decode(data, type=VersionChecksum)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    found = VersionChecksum.of(snapshot)
    differences = [
        f"{name} is {there} in the log and {said} in the checksum"
        for name, said, there in (
            ("the number of files", stated.num_files, found.num_files),
            ("the size in bytes", stated.table_size_bytes, found.table_size_bytes),
        )
        if said != there
    ]
    if stated.protocol is not None and Protocol.from_json(stated.protocol) != snapshot.protocol:
        differences.append("the protocol differs")
    if stated.metadata is not None and not _same_metadata(Metadata.from_json(stated.metadata), snapshot.metadata):
        differences.append("the metadata differs")
    if differences:
        raise ChecksumMismatch(
            f"The version's checksum does not fit its log: {'; '.join(differences)}",
            table=snapshot.table,
            version=snapshot.version,
            file=checksum_path(snapshot.version),
            hint="Compare the log with a backup; if the log is right, delete the checksum file",
        )


def _same_metadata(one: Metadata, other: Metadata) -> bool:
    def compared(metadata: Metadata) -> Any:
        return (
            metadata.id,
            metadata.schema_string,
            metadata.partition_columns,
            metadata.configuration,
        )

    return bool(compared(one) == compared(other))
