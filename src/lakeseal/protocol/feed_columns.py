"""Columns that the change feed has behind the table's own, and that a table with a feed cannot have itself.

Names count in any case, as all names of columns do. In a struct they are names like any other.
"""

from __future__ import annotations

from lakeseal.errors import SchemaMismatch
from lakeseal.protocol.actions import Metadata
from lakeseal.protocol.properties import TableProperties
from lakeseal.protocol.schema import LONG, STRING, TIMESTAMP, StructField, StructType

CHANGE_TYPE = "_change_type"
COMMIT_VERSION = "_commit_version"
COMMIT_TIMESTAMP = "_commit_timestamp"
CHANGE_FIELDS = (
    StructField(CHANGE_TYPE, STRING),
    StructField(COMMIT_VERSION, LONG),
    StructField(COMMIT_TIMESTAMP, TIMESTAMP),
)


def check_feed_columns(metadata: Metadata) -> None:
    """Raises `SchemaMismatch` if a table has its feed on and a column of the feed."""
    if TableProperties.of(metadata).change_data_feed and metadata.schema_string:
        check_no_feed_columns(metadata.schema)


def check_no_feed_columns(table: StructType) -> None:
    for field in CHANGE_FIELDS:
        own = table.field(field.name)
        if own is not None:
            raise SchemaMismatch(
                f"A table with a change feed cannot have a column {own.name}: the feed has one of that name",
                column=own.name,
                hint="Give the column another name, or leave delta.enableChangeDataFeed off",
            )
