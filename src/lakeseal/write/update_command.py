"""UPDATE: rows of a table get new values, in one transaction.

Only files with rows that match are touched. Where the table has deletion vectors on, the new rows go to new files and
the old ones are hidden; otherwise the files are rewritten. New rows keep to the table's constraints, and generated
columns follow what they are made of. The change feed gets each row as it was and as it is.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from lakeseal import expr
from lakeseal.commit.proposal import Operation
from lakeseal.commit.transaction import CommitResult, OptimisticTransaction, now_ms
from lakeseal.errors import located
from lakeseal.expr.render import quote_name
from lakeseal.protocol.actions import Action
from lakeseal.protocol.schema import DataType, StructType
from lakeseal.storage import StoreSpec
from lakeseal.write.assignments import Assigner, Assignment, assignments, with_defaults
from lakeseal.write.change_metrics import Stopwatch, file_metrics, known
from lakeseal.write.constraints import generation_expression
from lakeseal.write.engine import Engine
from lakeseal.write.file_changes import removals
from lakeseal.write.progress import progress
from lakeseal.write.rewrite import Rewrite, Rows
from lakeseal.write.touched_files import changeable, find
from lakeseal.write.transactional_write import TransactionalWrite, WriteOptions
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
        values = with_defaults(assignments(command.values), snapshot.schema)
        in_plan = not all(
            engine.evaluates(sql, snapshot.schema, target) for sql, target in _expressions(values, snapshot.schema)
        )
        in_plan |= not all(engine.evaluates(sql, snapshot.schema) for sql in snapshot.properties.constraints.values())
        if not in_plan:
            Assigner(snapshot.schema, [(value.column, expr.parse(value.sql)) for value in values])
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
            chosen=in_plan,
        )
        scan_time = watch.lap()
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
                touched.chosen(touched.all),
                update=Rows(judged=touched.judged),
                assignments=values,
                in_plan=in_plan,
                only_updated=by_vectors,
                changes=snapshot.properties.change_data_feed,
                now=command.now,
            )
            actions += TransactionalWrite(txn, engine.runner(bar), store=store).write_files(
                rewrite, WriteOptions(changes=rewrite.changes)
            )
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


def _expressions(values: Sequence[Assignment], table: StructType) -> Iterator[tuple[str, DataType]]:
    """New values and generated columns, with the types that they are stored in; constraints are asked for apart."""
    assigned = set()
    for value in values:
        field = table.field(value.column[0])
        if field is not None:
            assigned.add(field.name)
            yield value.sql, field.type
            # Whether a column is found under another case is the engine's word too.
            yield quote_name(value.column[0]), field.type
    for field in table.fields:
        sql = generation_expression(field)
        if sql is not None and field.name not in assigned:
            yield sql, field.type
