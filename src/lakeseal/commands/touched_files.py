"""Which files a condition touches, found before anything is rewritten: the first half of delete and update.

Files that cannot match are never opened, files whose rows all match are known by their statistics; of the others the
columns of the condition are read. What is found is noted as read by the transaction. Where only the engine can judge
the condition, what `expr` understands of it leaves out files, and the engine looks at all others.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from lakeseal.clock import now_ms
from lakeseal.commands.command import CommandContext
from lakeseal.commands.file_changes import live_rows, removal, removals, total_rows, with_vector
from lakeseal.commit.transaction import OptimisticTransaction
from lakeseal.errors import AppendOnlyTable, TableNotFound
from lakeseal.jobs.search import Found, Search
from lakeseal.log.data import DataFile, data_files
from lakeseal.log.files import add_actions
from lakeseal.log.snapshot import Snapshot
from lakeseal.protocol.actions import Action, AddFile, RemoveFile
from lakeseal.protocol.features import check_writable


class TouchedFiles(Struct, frozen=True, kw_only=True):
    whole: pa.Table
    """Files of which every row matches."""
    partly: pa.Table
    found: Mapping[str, Found]
    """What was found in files of both kinds that were read, by path."""
    judged: str | None = None
    """The condition as `expr` judges it; None where rows were chosen by the engine."""

    @property
    def all(self) -> pa.Table:
        return pa.concat_tables([self.whole, self.partly])

    @property
    def matched(self) -> int | None:
        """Rows that match; None where the log does not say how many rows a file has."""
        unread = total_rows(add for add in add_actions(self.whole) if add.path not in self.found)
        return None if unread is None else unread + sum(found.matched for found in self.found.values())

    def chosen(self, files: pa.Table) -> list[DataFile]:
        """Files of these, each with the rows in it that the engine chose."""
        return [
            msgspec.structs.replace(file, chosen=self.found[file.path].chosen if file.path in self.found else None)
            for file in data_files(files)
        ]

    @property
    def unmatched(self) -> int:
        return sum(found.rows - found.matched for found in self.found.values())

    def taken_out(self, *, by_vectors: bool) -> list[Action]:
        """What takes the rows that match out of the table: deletion vectors, or all rows of their files."""
        now = now_ms()
        partly = self._hidden(now) if by_vectors else removals(self.partly, now_ms=now)
        return [*removals(self.whole, now_ms=now), *partly]

    def _hidden(self, now_ms: int) -> list[AddFile | RemoveFile]:
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


def find(
    context: CommandContext,
    snapshot: Snapshot,
    where: str | None,
    *,
    now: datetime.datetime,
    by_vectors: bool,
    chosen: bool = False,
) -> TouchedFiles:
    """`by_vectors`: rows that match are to be hidden, so vectors that do are written. `chosen`: what is done to rows is
    the engine's, so it is told which rows they are, whoever found them."""
    txn, engine = context.txn, context.engine
    if where is None:
        files = txn.filter_files()
        judged = None if chosen else "true"
        return TouchedFiles(whole=files, partly=files.slice(0, 0), found={}, judged=judged)
    judged = engine.judged(where, snapshot.schema)
    files = txn.filter_files(engine.understood(where, snapshot.schema) if judged is None else judged)
    whole, unsure = files.slice(0, 0), files
    if judged is not None:
        every = snapshot.match(judged, files).all
        whole, unsure = files.filter(every), files.filter(pc.invert(every))
    context.progress.stage("searching", unsure.num_rows)
    search = Search.of(
        snapshot,
        context.store,
        unsure,
        judged or where,
        vectors=by_vectors,
        now=now,
        in_plan=judged is None,
        names_rows=chosen or judged is None,
        rows=_known_rows(unsure) if judged is None else None,
    )
    found = {one.path: one for one in engine.search(search, context.progress)} if unsure.num_rows else {}
    return TouchedFiles(
        whole=pa.concat_tables([whole, _named(unsure, [f.path for f in found.values() if f.is_whole])]),
        partly=_named(unsure, [f.path for f in found.values() if not f.is_whole]),
        found=found,
        judged=None if chosen else judged,
    )


def _known_rows(files: pa.Table) -> dict[str, int]:
    return {add.path: rows for add in add_actions(files) if (rows := live_rows(add)) is not None}


def _named(files: pa.Table, paths: list[str]) -> pa.Table:
    return files.filter(pc.is_in(files["path"], value_set=pa.array(paths, pa.string())))
