"""DELETE: the rows of a table for which a condition is true go away, in one transaction.

Files of which every row goes are taken out of the table without being read. Of the others, the rows that go are hidden
by deletion vectors where the table has them on, and otherwise the rows that stay are written into new files.

The change feed derives the deletes of whole files and of deletion vectors. As soon as one file is rewritten it cannot,
so then all deleted rows of the commit are written out for it.
"""

from __future__ import annotations

import datetime
from typing import ClassVar

import msgspec
from msgspec import Struct

from lakeseal import clock
from lakeseal.commands.command import EVERY_TIME, CommandContext, FilesToWrite, PlannedChange, Written
from lakeseal.commands.file_changes import file_metrics, known
from lakeseal.commands.touched_files import changeable, find
from lakeseal.commands.transactional_write import WriteOptions
from lakeseal.commit.proposal import Operation
from lakeseal.jobs.rewrite import ChosenRows, Rewrite
from lakeseal.protocol.actions import Action


class DeleteCommand(Struct, frozen=True, kw_only=True):
    shown: ClassVar[str | None] = "delete"
    times: ClassVar[tuple[str, ...]] = EVERY_TIME

    where: str | None = None
    """None: all rows."""
    user_metadata: str | None = None
    now: datetime.datetime = msgspec.field(default_factory=clock.now)

    def decide(self, context: CommandContext) -> PlannedChange:
        snapshot = changeable(context.txn)
        by_vectors = snapshot.properties.deletion_vectors
        touched = find(context, snapshot, self.where, now=self.now, by_vectors=by_vectors)
        rewrites = touched.partly.num_rows > 0 and not by_vectors
        changes = rewrites and snapshot.properties.change_data_feed
        files = touched.all if changes else touched.partly

        def finish(written: Written) -> tuple[list[Action], Operation]:
            actions = [*touched.taken_out(by_vectors=by_vectors), *written]
            rows = known(numDeletedRows=touched.matched, numCopiedRows=0 if by_vectors else touched.unmatched)
            return actions, self._operation({**rows, **file_metrics(actions)})

        if not rewrites:
            return PlannedChange(finish=finish, nothing="no row matches")
        where, chosen = ChosenRows(judged=touched.judged), touched.chosen(files)
        rewrite = Rewrite.of(snapshot, context.store, chosen, delete=where, changes=changes, now=self.now)
        write = FilesToWrite(data=rewrite, options=WriteOptions(own_rows=True, changes=changes, with_row_ids=True))
        return PlannedChange(finish=finish, writes=(write,), rewritten=files.num_rows)

    def _operation(self, metrics: dict[str, int | str]) -> Operation:
        return Operation(
            name="DELETE",
            parameters={"predicate": [] if self.where is None else [self.where]},
            metrics=metrics,
            user_metadata=self.user_metadata,
        )
