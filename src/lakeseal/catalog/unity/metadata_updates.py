"""What a commit changes beside its rows, in the words of the catalog's protocol: a catalog of others does not read it
out of the commit's file, and its lists show what it was told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from lakeseal.catalog.unity.answers import DERIVED_PROPERTIES, FEATURE_PREFIX
from lakeseal.catalog.unity.columns import with_hyphens
from lakeseal.owner.content import Content
from lakeseal.protocol.actions import DomainMetadata, Metadata, Protocol
from lakeseal.protocol.codec import decode_line

# Those that the protocol has a place for.
_DOMAINS = ("delta.clustering", "delta.rowTracking")


def updates_of(data: bytes, content: Content, told: Mapping[str, str | None], partitions: tuple[str, ...]) -> list[Any]:
    """`told` are the table's properties, and `partitions` its partition columns, as the catalog has them now."""
    found: list[Any] = []
    if content.metadata is not None:
        found += _of_metadata(content.metadata, told, partitions)
    if content.protocol is not None:
        found.append({"action": "set-protocol", "protocol": protocol_json(content.protocol)})
    return found + _of_domains(data)


def protocol_json(protocol: Protocol) -> dict[str, Any]:
    said = {"min-reader-version": protocol.min_reader_version, "min-writer-version": protocol.min_writer_version}
    features = {"reader-features": protocol.reader_features, "writer-features": protocol.writer_features}
    return {**said, **{name: list(some) for name, some in features.items() if some is not None}}


def properties_of(metadata: Metadata) -> dict[str, str]:
    return {key: text for key, text in metadata.configuration.items() if text is not None}


def _of_metadata(metadata: Metadata, told: Mapping[str, str | None], partitions: tuple[str, ...]) -> list[Any]:
    found: list[Any] = [{"action": "set-columns", "columns": with_hyphens(metadata.schema)}]
    known = {key: text for key, text in told.items() if not _is_derived(key)}
    now = properties_of(metadata)
    changed = {key: text for key, text in now.items() if known.get(key) != text}
    gone = sorted(known.keys() - now.keys())
    if changed:
        found.append({"action": "set-properties", "updates": changed})
    if gone:
        found.append({"action": "remove-properties", "removals": gone})
    if metadata.partition_columns != partitions:
        found.append({"action": "set-partition-columns", "partition-columns": list(metadata.partition_columns)})
    if metadata.description is not None:
        found.append({"action": "set-table-comment", "comment": metadata.description})
    return found


def _of_domains(data: bytes) -> list[Any]:
    if b"domainMetadata" not in data:
        return []
    lines = [line for line in data.splitlines() if b'"domainMetadata"' in line]
    actions = [action for line in lines for action in decode_line(line) if isinstance(action, DomainMetadata)]
    known = [one for one in actions if one.domain in _DOMAINS]
    now = {one.domain: msgspec.json.decode(one.configuration) for one in known if not one.removed}
    gone = sorted(one.domain for one in known if one.removed)
    found: list[Any] = [{"action": "set-domain-metadata", "updates": now}] if now else []
    return [*found, *([{"action": "remove-domain-metadata", "domains": gone}] if gone else [])]


def _is_derived(key: str) -> bool:
    return key in DERIVED_PROPERTIES or key.startswith(FEATURE_PREFIX)
