"""ALTER TABLE: the table's metadata changes, and no file.

Where a change is true only if the rows that are there keep to it (`RowsKeep`), they are looked at first, and whoever
adds or removes rows before the change is part of the table makes it begin anew, on what there is then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import msgspec
import pyarrow as pa
from msgspec import Struct

from lakeseal.commands.command import CommandContext, PlannedChange
from lakeseal.commands.create import InProcessJudge, Judge, check_condition, check_default, default_sql
from lakeseal.commands.restore import difference
from lakeseal.commit import alter, alter_columns
from lakeseal.commit.alter_columns import ColumnPlace, NewColumn
from lakeseal.commit.clustering import refuse_lost_columns
from lakeseal.commit.proposal import Operation
from lakeseal.errors import ConstraintViolation, TableNotFound
from lakeseal.expr.render import quote_name
from lakeseal.log.snapshot import Snapshot
from lakeseal.protocol.actions import Metadata
from lakeseal.protocol.schema import StructField, StructType, dotted, type_to_json

Change = Callable[[Metadata], Metadata]
FirstRow = Callable[[Snapshot, pa.Table, str], dict[str, Any] | None]
"""One of a snapshot's rows, in these files of it at least, for which a condition is true."""


class RowsKeep:
    """That a condition is true of all rows that are there. What was looked at once is not looked at again."""

    def __init__(self, condition: str, what: str, first_row: FirstRow) -> None:
        self._broken = f"NOT coalesce(({condition}), false)"
        self._what = what
        self._first_row = first_row
        self._looked_at: Snapshot | None = None

    def check(self, context: CommandContext, snapshot: Snapshot) -> None:
        context.txn.read_whole_table()
        files, before = snapshot.files, self._looked_at
        if before is not None and before.metadata == snapshot.metadata:
            files = difference(files, before.files)
        row = self._first_row(snapshot, files, self._broken)
        if row is not None:
            raise ConstraintViolation(
                f"A row that is there breaks {self._what}: {row}", hint="Mend or delete such rows first"
            )
        self._looked_at = snapshot


class AlterCommand(Struct, frozen=True, kw_only=True):
    shown: ClassVar[str | None] = None
    times: ClassVar[tuple[str, ...]] = ()

    operation: str
    parameters: Mapping[str, Any]
    change: Change
    rows: RowsKeep | None = None

    def decide(self, context: CommandContext) -> PlannedChange:
        txn, snapshot = context.txn, context.txn.snapshot
        if snapshot is None:
            raise TableNotFound("There is no table here")
        changed = self.change(txn.metadata)
        refuse_lost_columns(snapshot, changed)
        txn.update_metadata(changed)
        if self.rows is not None:
            self.rows.check(context, snapshot)
        operation = Operation(name=self.operation, parameters=self.parameters)
        return PlannedChange(finish=lambda _: ([], operation))


def set_properties(properties: Mapping[str, Any]) -> AlterCommand:
    return AlterCommand(
        operation="SET TBLPROPERTIES",
        parameters={"properties": dict(properties)},
        change=lambda metadata: alter.with_properties(metadata, properties),
    )


def add_constraint(name: str, condition: str, first_row: FirstRow, judge: Judge | None = None) -> AlterCommand:
    def change(metadata: Metadata) -> Metadata:
        if judge is not None:
            check_condition(condition, metadata.schema, judge, name)
        return alter.with_constraint(metadata, name, condition, is_checked=judge is not None)

    return AlterCommand(
        operation="ADD CONSTRAINT",
        parameters={"name": name, "expr": condition},
        change=change,
        rows=RowsKeep(condition, f"the constraint {name} ({condition})", first_row),
    )


def drop_constraint(name: str) -> AlterCommand:
    return AlterCommand(
        operation="DROP CONSTRAINT",
        parameters={"name": name},
        change=lambda metadata: alter.without_constraint(metadata, name),
    )


def add_columns(columns: Sequence[NewColumn]) -> AlterCommand:
    return AlterCommand(
        operation="ADD COLUMNS",
        parameters={"columns": [dotted((*column.parents, column.field.name)) for column in columns]},
        change=lambda metadata: alter_columns.with_new_columns(metadata, columns),
    )


def move_column(name: str, place: ColumnPlace) -> AlterCommand:
    says = {"position": "first"} if place.first else {"after": place.after}
    return _change_column(name, says, lambda metadata: alter_columns.with_moved_column(metadata, name, place))


def drop_columns(names: Sequence[str]) -> AlterCommand:
    return AlterCommand(
        operation="DROP COLUMNS",
        parameters={"columns": list(names)},
        change=lambda metadata: alter_columns.without_columns(metadata, names),
    )


def set_table_comment(comment: str | None) -> AlterCommand:
    return AlterCommand(
        operation="SET TBLPROPERTIES",
        parameters={"properties": {"comment": comment}},
        change=lambda metadata: msgspec.structs.replace(metadata, description=comment),
    )


def rename_column(name: str, new_name: str) -> AlterCommand:
    return AlterCommand(
        operation="RENAME COLUMN",
        parameters={"oldColumnPath": name, "newColumnPath": new_name},
        change=lambda metadata: alter_columns.with_renamed_column(metadata, name, new_name),
    )


def change_type(name: str, new: StructField) -> AlterCommand:
    """`new` is a column of the new type."""
    says = {"type": new.char_varchar or type_to_json(new.type)}
    return _change_column(name, says, lambda metadata: alter_columns.with_type(metadata, name, new))


def set_default(name: str, value: Any, judge: Judge | None = None) -> AlterCommand:
    sql = None if value is None else default_sql(value)

    def change(metadata: Metadata) -> Metadata:
        if sql is not None:
            check_default(sql, alter_columns.found(metadata.schema, name)[1], judge or InProcessJudge())
        return alter_columns.with_default(metadata, name, sql)

    return _change_column(name, {"default": sql}, change)


def set_comment(name: str, comment: str | None) -> AlterCommand:
    return _change_column(
        name, {"comment": comment}, lambda metadata: alter_columns.with_comment(metadata, name, comment)
    )


def drop_not_null(name: str) -> AlterCommand:
    return _change_column(
        name, {"nullable": True}, lambda metadata: alter_columns.with_nulls(metadata, name, allowed=True)
    )


def set_not_null(name: str, schema: StructType, first_row: FirstRow) -> AlterCommand:
    """`schema` is the table's, by which the column is found."""
    path, _ = alter_columns.found(schema, name)
    # A struct that is null has no fields that could be.
    parents = [f"{_sql(path[:depth])} IS NULL" for depth in range(1, len(path))]
    condition = " OR ".join([*parents, f"{_sql(path)} IS NOT NULL"])
    command = _change_column(
        name, {"nullable": False}, lambda metadata: alter_columns.with_nulls(metadata, name, allowed=False)
    )
    return msgspec.structs.replace(command, rows=RowsKeep(condition, f"NOT NULL of column {name}", first_row))


def _sql(path: tuple[str, ...]) -> str:
    return ".".join(quote_name(part) for part in path)


def _change_column(name: str, says: Mapping[str, Any], change: Change) -> AlterCommand:
    return AlterCommand(operation="CHANGE COLUMN", parameters={"column": {"name": name, **says}}, change=change)
