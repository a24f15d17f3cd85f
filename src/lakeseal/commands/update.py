"""UPDATE: rows of a table get new values, in one transaction.

Only files with rows that match are touched. Where the table has deletion vectors on, the new rows go to new files and
the old ones are hidden; otherwise the files are rewritten. New rows keep to the table's constraints, and generated
columns follow what they are made of. The change feed gets each row as it was and as it is.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import msgspec
from msgspec import Struct

from lakeseal import clock, expr
from lakeseal.commands.command import EVERY_TIME, CommandContext, FilesToWrite, PlannedChange, Written
from lakeseal.commands.file_changes import file_metrics, known
from lakeseal.commands.touched_files import changeable, find
from lakeseal.commands.transactional_write import WriteOptions
from lakeseal.commit.proposal import Operation
from lakeseal.expr.render import quote_name
from lakeseal.files.assignments import Assigner, Assignment, assignments, with_defaults
from lakeseal.files.constraints import generation_expression
from lakeseal.jobs.engine import Engine
from lakeseal.jobs.rewrite import ChosenRows, Rewrite
from lakeseal.log.snapshot import Snapshot
from lakeseal.protocol.actions import Action
from lakeseal.protocol.identity import refuse_changed
from lakeseal.protocol.schema import DataType, StructType


class UpdateCommand(Struct, frozen=True, kw_only=True):
    shown: ClassVar[str | None] = "update"
    times: ClassVar[tuple[str, ...]] = EVERY_TIME

    values: Mapping[str, Any]
    """Columns, or fields as `a.b`, to SQL text; what is no text is a constant."""
    where: str | None = None
    user_metadata: str | None = None
    now: datetime.datetime = msgspec.field(default_factory=clock.now)

    def decide(self, context: CommandContext) -> PlannedChange:
        snapshot = changeable(context.txn)
        values = with_defaults(assignments(self.values), snapshot.schema)
        refuse_changed(snapshot.schema, (value.column[0] for value in values))
        in_plan = _is_in_plan(values, snapshot, context.engine)
        if not in_plan:
            Assigner(snapshot.schema, [(value.column, expr.parse(value.sql)) for value in values])
        by_vectors = snapshot.properties.deletion_vectors
        touched = find(context, snapshot, self.where, now=self.now, by_vectors=by_vectors, chosen=in_plan)
        rewrite = Rewrite.of(
            snapshot,
            context.store,
            touched.chosen(touched.all),
            update=ChosenRows(judged=touched.judged),
            assignments=values,
            in_plan=in_plan,
            only_updated=by_vectors,
            changes=snapshot.properties.change_data_feed,
            now=self.now,
        )

        def finish(written: Written) -> tuple[list[Action], Operation]:
            actions = [*touched.taken_out(by_vectors=by_vectors), *written]
            rows = known(numUpdatedRows=touched.matched, numCopiedRows=0 if by_vectors else touched.unmatched)
            return actions, self._operation({**rows, **file_metrics(actions)})

        if touched.all.num_rows:
            write = FilesToWrite(data=rewrite, options=WriteOptions(changes=rewrite.changes, with_row_ids=True))
            return PlannedChange(finish=finish, writes=(write,), rewritten=touched.all.num_rows)
        if in_plan:
            context.engine.open(rewrite)  # values that cannot go into their columns are refused for no row, too
        return PlannedChange(finish=finish, nothing="no row matches")

    def _operation(self, metrics: dict[str, int | str]) -> Operation:
        return Operation(
            name="UPDATE",
            parameters={"predicate": [] if self.where is None else [self.where]},
            metrics=metrics,
            user_metadata=self.user_metadata,
        )


def _is_in_plan(values: Sequence[Assignment], snapshot: Snapshot, engine: Engine) -> bool:
    """Whether only the engine can evaluate the new values, or what the table asks of them."""
    schema = snapshot.schema
    in_plan = not all(engine.evaluates(sql, schema, target) for sql, target in _expressions(values, schema))
    return in_plan | (not all(engine.evaluates(sql, schema) for sql in snapshot.properties.constraints.values()))


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
