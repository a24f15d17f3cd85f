"""Row tracking in data files: the columns in which rows that were moved keep their ids and versions.

A row's id is its file's `baseRowId` plus its position, and its version the file's, unless these columns say otherwise:
whoever writes a row of the table again writes down what it was called. Their names are the table's own (properties),
and no column of its schema has them.
"""

from __future__ import annotations

import pyarrow as pa
from msgspec import Struct

from lakeseal.protocol.properties import TableProperties
from lakeseal.protocol.schema import LONG, StructField

ROW_ID = "_row_id"
ROW_COMMIT_VERSION = "_row_commit_version"
"""What readers call them, who ask for them; `_metadata.row_id` and `_metadata.row_commit_version` in Delta Spark."""


class RowTrackingColumns(Struct, frozen=True, kw_only=True):
    row_id: str
    commit_version: str

    @classmethod
    def of(cls, properties: TableProperties) -> RowTrackingColumns | None:
        """None where row tracking is not on: rows that are written again get new ids there."""
        row_id, commit_version = properties.row_id_column, properties.row_commit_version_column
        if not properties.row_tracking or row_id is None or commit_version is None:
            return None
        return cls(row_id=row_id, commit_version=commit_version)

    @property
    def names(self) -> tuple[str, str]:
        return self.row_id, self.commit_version

    @property
    def fields(self) -> tuple[StructField, ...]:
        return tuple(StructField(name, LONG) for name in self.names)

    def updated(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows with new values: they keep their ids, and their version is that of the commit."""
        place = rows.schema.get_field_index(self.commit_version)
        return rows.set_column(place, rows.schema.field(place), pa.nulls(rows.num_rows, pa.int64()))
