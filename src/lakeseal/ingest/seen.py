"""A table as a transform reads it: as it is, or as a transaction is about to leave it."""

from __future__ import annotations

import pyarrow as pa
from msgspec import Struct

from lakeseal.commit.transaction import OptimisticTransaction
from lakeseal.log.scan import Scan
from lakeseal.log.snapshot import Snapshot
from lakeseal.storage import StoreSpec
from lakeseal.table import outside_of

INPUT = "input"
"""What a transform calls the rows that came from a source."""


class Seen(Struct, frozen=True, kw_only=True):
    """A table as somebody reads it."""

    store: StoreSpec
    fixed: Snapshot | None = None
    part: OptimisticTransaction | None = None
    """Of a transaction: then it is as that is about to leave it."""

    @property
    def snapshot(self) -> Snapshot:
        found = self.fixed if self.part is None else self.part.snapshot
        assert found is not None, "the table is there"
        return found

    def rows(self) -> pa.Table:
        return Scan(self.snapshot, self.store.open(), outside=outside_of(self.store)).to_arrow()
