"""Row tracking: every row of a table has an id, and the version that last changed it. Pure.

A row's id is its file's `baseRowId` plus its position. New files get ids above all that the table ever gave out, which
its metadata domain remembers, so no id is ever given twice; files that stay keep theirs. Rows that are copied into new
files or updated carry theirs over in a column of the files (`RowTrackingColumns`), whose name, and one for versions,
are part of the table's metadata from the start. A table that supports row tracking and has it not on has no such
columns: rows that move get new ids there, and the commit says so by the tag `delta.rowTracking.preserved`.
"""

from __future__ import annotations

import json
from uuid import uuid4

import msgspec
from msgspec import Struct

from lakeseal import typed_json
from lakeseal.commit.conflicts import ROW_TRACKING_DOMAIN
from lakeseal.commit.proposal import Proposal, num_records
from lakeseal.errors import InvalidArgument, InvalidMetadata
from lakeseal.protocol.actions import AddFile, DomainMetadata, Metadata
from lakeseal.protocol.properties import TableProperties
from lakeseal.protocol.row_tracking import RowTrackingColumns

_PRESERVED = "delta.rowTracking.preserved"
# What these add and remove are the same rows; of what other operations add, the rows are new.
_REWRITES = ("DELETE", "UPDATE", "MERGE", "OPTIMIZE", "TRANSACTION")


def with_columns(metadata: Metadata) -> Metadata:
    """Where row tracking is on, with names for the columns of ids and versions that are carried over."""
    properties = TableProperties.of(metadata)
    if not properties.row_tracking:
        return metadata
    names = {
        TableProperties.row_id_column.key: f"_row-id-col-{uuid4()}",
        TableProperties.row_commit_version_column.key: f"_row-commit-version-col-{uuid4()}",
    }
    configuration = {**names, **metadata.configuration}
    return msgspec.structs.replace(metadata, configuration=configuration)


def tags(proposal: Proposal, properties: TableProperties) -> dict[str, str]:
    """For `commitInfo`: whether all rows that were there have kept their ids."""
    if RowTrackingColumns.of(properties) is not None:
        return {_PRESERVED: "true"}
    moved = proposal.operation.name in _REWRITES and any(add.base_row_id is None for add in proposal.adds)
    return {_PRESERVED: "false" if moved and proposal.removes else "true"}


def numbered(
    adds: tuple[AddFile, ...], domain: DomainMetadata | None, version: int
) -> tuple[tuple[AddFile, ...], DomainMetadata | None]:
    """The files with ids for their rows, and the domain that remembers them, if there are new ones."""
    before = high = high_water_mark(domain)
    found = []
    for add in adds:
        base_row_id = add.base_row_id
        if base_row_id is None:
            records = num_records(add)
            if records is None:
                raise InvalidArgument(
                    "A table with row tracking takes files only with their number of records",
                    file=add.path,
                    hint="Give the file statistics with numRecords",
                )
            base_row_id = high + 1
            high += records
        since = add.default_row_commit_version
        found.append(
            msgspec.structs.replace(
                add,
                base_row_id=base_row_id,
                default_row_commit_version=version if since is None else since,
            )
        )
    if high == before:
        return tuple(found), None
    configuration = json.dumps({"rowIdHighWaterMark": high}, separators=(",", ":"))
    return tuple(found), DomainMetadata(domain=ROW_TRACKING_DOMAIN, configuration=configuration, removed=False)


class _HighWater(Struct, rename="camel"):
    row_id_high_water_mark: int


def high_water_mark(domain: DomainMetadata | None) -> int:
    """The highest id that the table has given out; -1 where it has given none."""
    if domain is None or domain.removed:
        return -1
    try:
        return typed_json.decode(domain.configuration, _HighWater).row_id_high_water_mark
    except (msgspec.DecodeError, UnicodeError) as error:
        raise InvalidMetadata(
            f"The metadata domain {ROW_TRACKING_DOMAIN} does not say which row ids are taken: {error}",
            hint="Rows cannot be added before the client that wrote it repairs it",
        ) from error
