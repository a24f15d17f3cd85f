"""Which files a condition touches, found before anything is rewritten: the first half of delete and update.

Files that cannot match are never opened, files whose rows all match are known by their statistics; of the others the
columns of the condition are read. What is found is noted as read by the transaction.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from lakeseal import expr
from lakeseal.commit.transaction import OptimisticTransaction
from lakeseal.errors import AppendOnlyTable, InvalidInput, TableNotFound, UnsupportedExpression
from lakeseal.log.files import add_actions
from lakeseal.log.snapshot import Snapshot
from lakeseal.protocol.actions import AddFile, RemoveFile
from lakeseal.protocol.features import check_writable
from lakeseal.protocol.schema import StructType
from lakeseal.storage import StoreSpec
from lakeseal.write.engine import Engine
from lakeseal.write.file_changes import removal, total_rows, with_vector
from lakeseal.write.progress import Progress
from lakeseal.write.search import Found, Search


class TouchedFiles(Struct, frozen=True, kw_only=True):
    whole: pa.Table
    """Files of which every row matches."""
    partly: pa.Table
    found: Mapping[str, Found]
    """What was found in files of both kinds that were read, by path."""

    @property
    def all(self) -> pa.Table:
        return pa.concat_tables([self.whole, self.partly])

    @property
    def matched(self) -> int | None:
        """Rows that match; None where the log does not say how many rows a file has."""
        unread = total_rows(add for add in add_actions(self.whole) if add.path not in self.found)
        return None if unread is None else unread + sum(found.matched for found in self.found.values())

    @property
    def unmatched(self) -> int:
        return sum(found.rows - found.matched for found in self.found.values())

    def hidden(self, *, now_ms: int) -> list[AddFile | RemoveFile]:
        """The files of which a part matches again, with deletion vectors that hide that part."""
        actions: list[AddFile | RemoveFile] = []
        for add in add_actions(self.partly):
            found = self.found[add.path]
            assert found.vector is not None, "asked for with the search"
            actions.append(removal(add, now_ms=now_ms))
            actions.append(with_vector(add, found.vector, records=found.rows + found.hidden))
        return actions


def changeable(txn: OptimisticTransaction) -> Snapshot:
    """The table as the transaction sees it, if rows that are there may be changed."""
    snapshot = txn.snapshot
    if snapshot is None:
        raise TableNotFound("There is no table here", table=txn.table)
    check_writable(snapshot.protocol, snapshot.metadata, table=txn.table, version=snapshot.version)
    if snapshot.properties.append_only:
        raise AppendOnlyTable("The table only takes appends", table=txn.table)
    return snapshot


def is_understood(where: str | None, schema: StructType, *values: str) -> bool:
    """Whether all of it can be evaluated here; what is wrong anywhere is left for others to say."""
    try:
        for text in (*(() if where is None else (where,)), *values):
            expr.bind(expr.parse(text), schema)
    except UnsupportedExpression:
        return False
    except InvalidInput:
        return True
    return True


def find(
    txn: OptimisticTransaction,
    snapshot: Snapshot,
    where: str | None,
    *,
    engine: Engine,
    store: StoreSpec,
    now: datetime.datetime,
    progress: Progress,
) -> TouchedFiles:
    if where is None:
        files = txn.filter_files()
        return TouchedFiles(whole=files, partly=files.slice(0, 0), found={})
    expr.bind_predicate(expr.parse(where), snapshot.schema)
    files = txn.filter_files(where)
    every = snapshot.match(where, files).all
    whole, unsure = files.filter(every), files.filter(pc.invert(every))
    progress.stage("searching", unsure.num_rows)
    vectors = snapshot.properties.deletion_vectors
    search = Search.of(snapshot, store, unsure, where, vectors=vectors, now=now)
    found = {one.path: one for one in engine.search(search, progress)} if unsure.num_rows else {}
    return TouchedFiles(
        whole=pa.concat_tables([whole, _named(unsure, [f.path for f in found.values() if f.is_whole])]),
        partly=_named(unsure, [f.path for f in found.values() if not f.is_whole]),
        found=found,
    )


def _named(files: pa.Table, paths: list[str]) -> pa.Table:
    return files.filter(pc.is_in(files["path"], value_set=pa.array(paths, pa.string())))
