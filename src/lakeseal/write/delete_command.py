"""DELETE: the rows of a table for which a condition is true go away, in one transaction.

Files of which every row goes are taken out of the table without being read. Of the others, the rows that go are hidden
by deletion vectors where the table has them on, and otherwise the rows that stay are written into new files.

The change feed derives the deletes of whole files and of deletion vectors. As soon as one file is rewritten it cannot,
so then all deleted rows of the commit are written out for it.
"""

from __future__ import annotations

import datetime

import msgspec
from msgspec import Struct

from lakeseal.commit.proposal import Operation
from lakeseal.commit.transaction import CommitResult, OptimisticTransaction, now_ms
from lakeseal.errors import located
from lakeseal.protocol.actions import Action
from lakeseal.storage import StoreSpec
from lakeseal.write.change_metrics import Stopwatch, file_metrics, known
from lakeseal.write.engine import Engine
from lakeseal.write.file_changes import removals
from lakeseal.write.progress import progress
from lakeseal.write.rewrite import Rewrite, Rows
from lakeseal.write.touched_files import TouchedFiles, changeable, find
from lakeseal.write.transactional_write import TransactionalWrite, WriteOptions
from lakeseal.write.write_command import NothingToDo


class DeleteCommand(Struct, frozen=True, kw_only=True):
    where: str | None = None
    """None: all rows."""
    user_metadata: str | None = None
    now: datetime.datetime = msgspec.field(default_factory=lambda: datetime.datetime.now(datetime.UTC))


def run(
    command: DeleteCommand, txn: OptimisticTransaction, *, engine: Engine, store: StoreSpec
) -> CommitResult | NothingToDo:
    with located(table=txn.table), progress("delete") as bar:
        watch = Stopwatch()
        snapshot = changeable(txn)
        by_vectors = snapshot.properties.deletion_vectors
        touched = find(
            txn,
            snapshot,
            command.where,
            engine=engine,
            store=store,
            now=command.now,
            progress=bar,
            by_vectors=by_vectors,
        )
        scan_time = watch.lap()
        changes = snapshot.properties.change_data_feed and not by_vectors and touched.partly.num_rows > 0
        actions: list[Action] = [*removals(touched.whole, now_ms=now_ms())]
        if by_vectors:
            actions += touched.hidden(now_ms=now_ms())
        elif touched.partly.num_rows:
            files = touched.all if changes else touched.partly
            bar.stage("rewriting", files.num_rows)
            where = Rows(judged=touched.judged)
            rewrite = Rewrite.of(snapshot, store, touched.chosen(files), delete=where, changes=changes, now=command.now)
            written = TransactionalWrite(txn, engine.runner(bar), store=store)
            actions += written.write_files(rewrite, WriteOptions(own_rows=True, changes=changes))
            actions += removals(touched.partly, now_ms=now_ms())
        metrics = {
            **_rows(touched, copied=not by_vectors),
            **file_metrics(actions),
            "scanTimeMs": scan_time,
            "rewriteTimeMs": watch.lap(),
            "executionTimeMs": watch.total,
        }
        if not actions:
            return NothingToDo(version=snapshot.version, reason="no row matches", metrics=metrics)
        bar.stage("committing")
        operation = Operation(
            name="DELETE",
            parameters={"predicate": [] if command.where is None else [command.where]},
            metrics=metrics,
            user_metadata=command.user_metadata,
        )
        return txn.commit(actions, operation)


def _rows(touched: TouchedFiles, *, copied: bool) -> dict[str, int | str]:
    return known(numDeletedRows=touched.matched, numCopiedRows=touched.unmatched if copied else 0)
