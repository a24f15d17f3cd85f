"""What may be committed at all, whoever else writes: a pure look at a proposal before its first attempt.

Raises for what would break the format or the table's own rules: the same file added and removed, or added twice; two
actions where one is allowed; partition values that are not the partition columns'; features that are used and not
listed, or listed and not honoured by us; rows removed from an append-only table.
"""

from __future__ import annotations

from functools import lru_cache

from lakeseal.commit.conflicts import ROW_TRACKING_DOMAIN
from lakeseal.commit.proposal import Proposal, num_records
from lakeseal.errors import AppendOnlyTable, InvalidArgument, LakesealError, SchemaMismatch
from lakeseal.protocol.actions import AddFile, DeletionVectorDescriptor, Metadata, Protocol
from lakeseal.protocol.data_paths import canonical_path
from lakeseal.protocol.features import check_consistent, check_writable, required_features, supports
from lakeseal.protocol.feed_columns import check_feed_columns
from lakeseal.protocol.properties import TableProperties
from lakeseal.protocol.schema import StructType


def validate(proposal: Proposal, *, protocol: Protocol | None, metadata: Metadata | None, table: str) -> None:
    """`protocol` and `metadata` are the table's as it was read; None where there was no table."""
    try:
        if protocol is not None and metadata is not None:
            check_writable(protocol, metadata)
        new_protocol, new_metadata = proposal.protocol or protocol, proposal.metadata or metadata
        if new_protocol is None or new_metadata is None:
            raise InvalidArgument("The first commit of a table needs its protocol and its metadata")
        if proposal.protocol is not None or proposal.metadata is not None:
            _check_table(new_protocol, new_metadata)
        _check_once("transaction", [txn.app_id for txn in proposal.txns])
        _check_once("metadata domain", [domain.domain for domain in proposal.domains])
        _check_domains(proposal, new_protocol)
        _check_files(proposal)
        _check_partition_values(proposal, new_metadata)
        _check_deletion_vectors(proposal.adds, new_protocol)
        _check_append_only(proposal, new_metadata)
    except LakesealError as error:
        raise error.at(table=table) from error.__cause__


def _check_table(protocol: Protocol, metadata: Metadata) -> None:
    check_consistent(protocol)
    if not metadata.schema_string:
        raise InvalidArgument("A table needs a schema", hint="Set the metadata's schema_string")
    names = {field.name for field in metadata.schema.fields}
    strange = [name for name in metadata.partition_columns if name not in names]
    if strange:
        raise InvalidArgument(
            f"The table is to be partitioned by {strange[0]!r}, which is not one of its columns", column=strange[0]
        )
    missing = [name for name in required_features(metadata) if not supports(protocol, name)]
    if missing:
        raise InvalidArgument(
            f"The table's metadata uses {', '.join(missing)}, which its protocol does not list",
            hint="Enable the feature in the protocol together with the metadata that needs it",
        )
    check_writable(protocol, metadata)
    check_feed_columns(metadata)


def _check_once(what: str, names: list[str]) -> None:
    if len(set(names)) < len(names):
        name = next(name for name in names if names.count(name) > 1)
        raise InvalidArgument(f"One commit can set the {what} {name!r} only once")


def _check_domains(proposal: Proposal, protocol: Protocol) -> None:
    if not proposal.domains:
        return
    if any(domain.domain == ROW_TRACKING_DOMAIN for domain in proposal.domains):
        raise InvalidArgument(f"The metadata domain {ROW_TRACKING_DOMAIN} is kept by the commit itself")
    if not supports(protocol, "domainMetadata"):
        raise InvalidArgument(
            "Metadata domains need the feature domainMetadata", hint="Enable it in the protocol in the same commit"
        )


def _check_files(proposal: Proposal) -> None:
    if len(proposal.adds) + len(proposal.removes) < 2:
        return
    added: dict[str, str | None] = {}
    for add in proposal.adds:
        path = canonical_path(add.path)
        if path in added:
            raise InvalidArgument("One commit cannot add the same file twice", file=add.path)
        added[path] = _id(add.deletion_vector)
    removed: set[tuple[str, str | None]] = set()
    for remove in proposal.removes:
        key = (canonical_path(remove.path), _id(remove.deletion_vector))
        if key in removed:
            raise InvalidArgument("One commit cannot remove the same file twice", file=remove.path)
        if key[0] in added and added[key[0]] == key[1]:
            raise InvalidArgument("One commit cannot add and remove the same file", file=remove.path)
        removed.add(key)


def _id(vector: DeletionVectorDescriptor | None) -> str | None:
    return None if vector is None else vector.unique_id


def _check_partition_values(proposal: Proposal, metadata: Metadata) -> None:
    mapped = TableProperties.of(metadata).column_mapping_mode != "none"
    columns = _partition_keys(metadata.schema_string or "", metadata.partition_columns, mapped)
    values = [(add.path, add.partition_values) for add in proposal.adds]
    values += [(cdc.path, cdc.partition_values) for cdc in proposal.cdc]
    for path, of_file in values:
        if of_file.keys() != columns:
            raise SchemaMismatch(
                f"A file has partition values for {', '.join(sorted(of_file)) or 'none'}; the table is partitioned by "
                f"{', '.join(sorted(columns)) or 'nothing'}",
                file=path,
                hint="Write the files with the table's partition columns (physical names, where columns are mapped)",
            )


@lru_cache(maxsize=128)
def _partition_keys(schema_string: str, partition_columns: tuple[str, ...], mapped: bool) -> frozenset[str]:
    if not mapped or not partition_columns:
        return frozenset(partition_columns)
    fields = {field.name: field.physical_name for field in StructType.from_json(schema_string).fields}
    return frozenset(fields.get(name, name) for name in partition_columns)


def _check_deletion_vectors(adds: tuple[AddFile, ...], protocol: Protocol) -> None:
    with_vectors = [add for add in adds if add.deletion_vector is not None]
    if not with_vectors:
        return
    if not supports(protocol, "deletionVectors"):
        raise InvalidArgument(
            "A file comes with a deletion vector, and the table's protocol does not list deletionVectors",
            file=with_vectors[0].path,
        )
    for add in with_vectors:
        if num_records(add) is None:
            raise InvalidArgument("A file with a deletion vector needs numRecords in its statistics", file=add.path)


def _check_append_only(proposal: Proposal, metadata: Metadata) -> None:
    removed = next((remove for remove in proposal.removes if remove.data_change), None)
    if removed is not None and TableProperties.of(metadata).append_only:
        raise AppendOnlyTable("The table only takes appends", file=removed.path)
