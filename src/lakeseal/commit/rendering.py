"""A proposal as the bytes of one attempt: pure, and done anew for every version that is tried.

What depends on the version goes in here: the in-commit timestamp, which is always greater than the one before it
whatever the clocks say; the properties that record when in-commit timestamps were switched on; row ids, above those
that the table has given out. `commitInfo` is the first line.
"""

from __future__ import annotations

from importlib.metadata import version as _version_of

import msgspec
from msgspec import Struct

from lakeseal.commit import row_ids
from lakeseal.commit.proposal import Proposal
from lakeseal.errors import InvalidArgument
from lakeseal.protocol.actions import CommitInfo, DomainMetadata, Metadata, Protocol
from lakeseal.protocol.codec import encode
from lakeseal.protocol.features import supports
from lakeseal.protocol.properties import TableProperties

ENGINE_INFO = f"Lakeseal/{_version_of('lakeseal')}"


class Base(Struct, frozen=True, kw_only=True):
    """What an attempt builds on: the table at the version just before it."""

    version: int = -1
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    timestamp_ms: int | None = None
    """When `version` was committed; None if nobody needs it."""
    row_tracking: DomainMetadata | None = None


class Attempt(Struct, frozen=True, kw_only=True):
    version: int
    data: bytes
    timestamp_ms: int
    in_commit_timestamp: int | None


def render(proposal: Proposal, base: Base, *, now_ms: int, numbers_rows: bool = True) -> Attempt:
    """Without `numbers_rows` the files have no row ids yet: it is a preview, and others may still take them."""
    version = base.version + 1
    protocol = proposal.protocol or base.protocol
    metadata = proposal.metadata or base.metadata
    if protocol is None or metadata is None:
        raise InvalidArgument("The first commit of a table needs its protocol and its metadata")
    in_commit = has_in_commit_timestamps(protocol, metadata)
    timestamp = now_ms if not in_commit or base.timestamp_ms is None else max(now_ms, base.timestamp_ms + 1)
    new_metadata = proposal.metadata
    if in_commit and new_metadata is not None and base.metadata is not None and base.protocol is not None:
        new_metadata = _with_enablement(new_metadata, base.protocol, base.metadata, version, timestamp)
    adds, row_tracking, tags = proposal.adds, None, None
    properties = TableProperties.of(metadata)
    if numbers_rows and supports(protocol, "rowTracking") and not properties.row_tracking_suspended:
        adds, row_tracking = row_ids.numbered(proposal.adds, base.row_tracking, version)
        tags = row_ids.tags(proposal, properties)
    info = CommitInfo(
        timestamp=timestamp,
        in_commit_timestamp=timestamp if in_commit else None,
        operation=proposal.operation.name,
        operation_parameters=proposal.operation.parameters_json(),
        read_version=proposal.read_version if proposal.read_version >= 0 else None,
        isolation_level=proposal.isolation.value,
        is_blind_append=proposal.is_blind_append,
        operation_metrics=proposal.operation.metrics_json(),
        user_metadata=proposal.operation.user_metadata,
        engine_info=ENGINE_INFO,
        txn_id=proposal.txn_id,
        tags=tags,
    )
    data = encode(
        (
            info,
            *((proposal.protocol,) if proposal.protocol is not None else ()),
            *((new_metadata,) if new_metadata is not None else ()),
            *proposal.txns,
            *proposal.domains,
            *((row_tracking,) if row_tracking is not None else ()),
            *proposal.removes,
            *adds,
            *proposal.cdc,
        )
    )
    return Attempt(
        version=version, data=data, timestamp_ms=timestamp, in_commit_timestamp=timestamp if in_commit else None
    )


def has_in_commit_timestamps(protocol: Protocol, metadata: Metadata) -> bool:
    return supports(protocol, "inCommitTimestamp") and TableProperties.of(metadata).in_commit_timestamps


def _with_enablement(
    metadata: Metadata, old_protocol: Protocol, old_metadata: Metadata, version: int, timestamp: int
) -> Metadata:
    if has_in_commit_timestamps(old_protocol, old_metadata):
        return metadata
    configuration = {
        **metadata.configuration,
        TableProperties.in_commit_timestamp_enablement_version.key: str(version),
        TableProperties.in_commit_timestamp_enablement_timestamp.key: str(timestamp),
    }
    return msgspec.structs.replace(metadata, configuration=configuration)
