"""What a transaction read: the part of the table that must not change under it.

Grows by values: every `with_…` gives a new read set. A predicate stands for all rows that match it, those that somebody
adds later included; files stand for themselves. Reading by predicate means both: the predicate and the files that it
matched then.
"""

from __future__ import annotations

import msgspec
import pyarrow as pa
from msgspec import Struct

from lakeseal.protocol.data_paths import canonical_paths


class ReadSet(Struct, frozen=True, kw_only=True):
    whole_table: bool = False
    predicates: tuple[str, ...] = ()
    """SQL over the columns of the table as it was read."""
    files: tuple[pa.Table, ...] = ()
    """Rows of the snapshot's files."""
    app_ids: frozenset[str] = frozenset()

    @property
    def depends_on_data(self) -> bool:
        return self.whole_table or bool(self.predicates) or any(table.num_rows for table in self.files)

    def with_whole_table(self) -> ReadSet:
        return msgspec.structs.replace(self, whole_table=True)

    def with_predicate(self, predicate: str) -> ReadSet:
        if predicate in self.predicates:
            return self
        return msgspec.structs.replace(self, predicates=(*self.predicates, predicate))

    def with_files(self, files: pa.Table) -> ReadSet:
        return msgspec.structs.replace(self, files=(*self.files, files))

    def with_app_id(self, app_id: str) -> ReadSet:
        return msgspec.structs.replace(self, app_ids=self.app_ids | {app_id})

    def paths(self) -> pa.ChunkedArray:
        """Canonical paths of the files read."""
        chunks = [chunk for table in self.files for chunk in canonical_paths(table["path"]).chunks]
        return pa.chunked_array(chunks, pa.string())
