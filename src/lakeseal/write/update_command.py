"""UPDATE: rows of a table get new values, in one transaction.

Only files with rows that match are touched. Where the table has deletion vectors on, the new rows go to new files and
the old ones are hidden; otherwise the files are rewritten. New rows keep to the table's constraints, and generated
columns follow what they are made of. The change feed gets each row as it was and as it is.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from lakeseal import expr
from lakeseal.commit.proposal import Operation
from lakeseal.commit.transaction import CommitResult, OptimisticTransaction, now_ms
from lakeseal.errors import located
from lakeseal.protocol.actions import Action
from lakeseal.storage import StoreSpec
from lakeseal.write.assignments import Assigner, assignments
from lakeseal.write.change_metrics import Stopwatch, file_metrics, known
from lakeseal.write.engine import Engine, PlansChanges
from lakeseal.write.file_changes import removals
from lakeseal.write.merge_clauses import Clause
from lakeseal.write.progress import progress
from lakeseal.write.rewrite import Rewrite
from lakeseal.write.touched_files import changeable, find, is_understood
from lakeseal.write.transactional_write import TransactionalWrite
from lakeseal.write.write_command import NothingToDo


class UpdateCommand(Struct, frozen=True, kw_only=True):
    values: Mapping[str, Any]
    """Columns, or fields as `a.b`, to SQL text; what is no text is a constant."""
    where: str | None = None
    user_metadata: str | None = None
    now: datetime.datetime = msgspec.field(default_factory=lambda: datetime.datetime.now(datetime.UTC))


def run(
    command: UpdateCommand, txn: OptimisticTransaction, *, engine: Engine, store: StoreSpec
) -> CommitResult | NothingToDo:
    with located(table=txn.table), progress("update") as bar:
        watch = Stopwatch()
        snapshot = changeable(txn)
        values = assignments(command.values)
        texts = [value.sql for value in values]
        if isinstance(engine, PlansChanges) and not is_understood(command.where, snapshot.schema, *texts):
            clause = Clause(
                kind="not_matched_by_source", action="update", condition=command.where, values=command.values
            )
            return engine.change_in_plan(
                clause, txn, store=store, user_metadata=command.user_metadata, now=command.now, progress=bar
            )
        Assigner(snapshot.schema, [(value.column, expr.parse(value.sql)) for value in values])
        touched = find(txn, snapshot, command.where, engine=engine, store=store, now=command.now, progress=bar)
        scan_time = watch.lap()
        by_vectors = snapshot.properties.deletion_vectors
        actions: list[Action] = [*removals(touched.whole, now_ms=now_ms())]
        if by_vectors:
            actions += touched.hidden(now_ms=now_ms())
        else:
            actions += removals(touched.partly, now_ms=now_ms())
        if actions:
            bar.stage("rewriting", touched.all.num_rows)
            rewrite = Rewrite.of(
                snapshot,
                store,
                touched.all,
                update_where=command.where or "true",
                assignments=values,
                only_updated=by_vectors,
                changes=snapshot.properties.change_data_feed,
                now=command.now,
            )
            actions += TransactionalWrite(txn, engine.runner(bar), store=store).write_files(rewrite)
        metrics = {
            **known(numUpdatedRows=touched.matched, numCopiedRows=0 if by_vectors else touched.unmatched),
            **file_metrics(actions),
            "scanTimeMs": scan_time,
            "rewriteTimeMs": watch.lap(),
            "executionTimeMs": watch.total,
        }
        if not actions:
            return NothingToDo(version=snapshot.version, reason="no row matches", metrics=metrics)
        bar.stage("committing")
        operation = Operation(
            name="UPDATE",
            parameters={"predicate": [] if command.where is None else [command.where]},
            metrics=metrics,
            user_metadata=command.user_metadata,
        )
        return txn.commit(actions, operation)
