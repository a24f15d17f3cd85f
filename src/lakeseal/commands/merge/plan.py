"""A MERGE worked out over schemas, before any row is read: what each clause does, in bound expressions.

Everything that can be wrong with a merge but its rows is found here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct

from lakeseal import expr
from lakeseal.commands.merge.clauses import Clause, MergeCommand
from lakeseal.commands.merge.evolution import own_path
from lakeseal.commands.merge.join import Condition, Key, Matcher, Rows, is_plain_column
from lakeseal.commands.merge.names import BOTH, SOURCE, TARGET, MergeNames, columns_of, own_names
from lakeseal.errors import InvalidArgument, SchemaMismatch, UnsupportedExpression, located
from lakeseal.expr.expression import BoundExpression, Expression
from lakeseal.expr.render import quote_name
from lakeseal.expr.values import truths
from lakeseal.files.assignments import Assigner, Path, default_or, value_sql
from lakeseal.files.normalize import sql_when_missing
from lakeseal.files.store_assignment import check_omittable
from lakeseal.protocol.identity import identity_of, refuse_changed, refuse_given
from lakeseal.protocol.schema import DOUBLE, FLOAT, StructType

_MAX_IN_LIST = 100
_SEES = {"matched": BOTH, "not_matched": (SOURCE,), "not_matched_by_source": (TARGET,)}


class PlannedClause(Struct, frozen=True, kw_only=True):
    clause: Clause
    condition: BoundExpression | None
    assigner: Assigner | None
    """None for a delete."""


class MergePlan:
    def __init__(self, command: MergeCommand, table: StructType, source: StructType) -> None:
        """`table` is the table's schema as it will be after the merge."""
        self.command = command
        self.table = table
        self.names = MergeNames(table, source, target_names=command.target_names, source_names=command.source_names)
        self.condition = Condition.of(self.names.resolve(command.on), self.names.schema)
        self._source = source
        self.clauses = tuple(self._planned(clause) for clause in command.clauses)

    def of(self, kind: str) -> list[tuple[int, PlannedClause]]:
        """Clauses of a kind, with their numbers."""
        return [(number, c) for number, c in enumerate(self.clauses) if c.clause.kind == kind]

    @property
    def search_columns(self) -> list[str]:
        """Columns of the table that say what becomes of a row."""
        paths = set(self.condition.reads)
        for planned in self.clauses:
            if planned.condition is not None:
                paths |= planned.condition.columns
        wanted = columns_of(TARGET, paths)
        return [name for name in self.table.names if name in wanted]

    def _planned(self, clause: Clause) -> PlannedClause:
        sees = _SEES[clause.kind]
        condition = None
        if clause.condition is not None:
            condition = expr.bind_predicate(self.names.resolve(clause.condition, sees), self.names.schema)
        assigner = None if clause.action == "delete" else self._assigner(clause, sees)
        return PlannedClause(clause=clause, condition=condition, assigner=assigner)

    def _assigner(self, clause: Clause, sees: tuple[str, ...]) -> Assigner:
        is_new = clause.action == "insert"
        values = self._all_columns(clause) if clause.values is None else self._set(clause.values, sees)
        check_identity(clause, self.table, [path[0] for path, _ in values])
        if is_new:
            values += self._missing({path[0].lower() for path, _ in values})
        evolves = self.command.merge_schema
        return Assigner(
            self.table,
            values,
            given=self.names.schema,
            now=self.command.now,
            is_new=is_new,
            may_lack=evolves,
            keeps=self.table.names if evolves and clause.values is None and not is_new else (),
        )

    def _set(self, values: Mapping[str, Any], sees: tuple[str, ...]) -> list[tuple[Path, Expression]]:
        if not values:
            raise InvalidArgument("A clause has nothing to set", hint='Give columns and values, or "*" for all')
        found = []
        for name, value in values.items():
            path = own_path(name, self.command, self.table)
            found.append((path, self.names.resolve(default_or(value_sql(value), self.table, path), sees)))
        return found

    def _all_columns(self, clause: Clause) -> list[tuple[Path, Expression]]:
        values: list[tuple[Path, Expression]] = []
        for field in self.table.fields:
            given = self._source.field(field.name)
            if given is not None:
                values.append(((field.name,), expr.column(SOURCE + given.name)))
            elif not self.command.merge_schema and identity_of(field) is None:
                raise SchemaMismatch(
                    f'The source has no such column, and {clause.name}("*") sets all columns of the table',
                    column=field.name,
                    hint="Set columns one by one, or merge with merge_schema=True",
                )
        return values

    def _missing(self, given: set[str]) -> list[tuple[Path, Expression]]:
        """Defaults of columns that new rows do not say; generated columns are the assigner's business."""
        values: list[tuple[Path, Expression]] = []
        for field in self.table.fields:
            if field.name.lower() in given or "delta.generationExpression" in field.metadata:
                continue
            sql = sql_when_missing(field)
            if sql is not None:
                with located(column=field.name):
                    values.append(((field.name,), expr.parse(sql)))
            elif identity_of(field) is None:
                check_omittable(field, (field.name,))
        return values


def check_identity(clause: Clause, table: StructType, names: list[str]) -> None:
    """Raises where a clause sets an identity column that it may not set."""
    if clause.action == "insert":
        refuse_given(table, names)
    else:
        refuse_changed(table, names)


def choose(clauses: list[tuple[int, PlannedClause]], rows: int, evaluate: Any) -> Rows:
    """For each row the number of the first clause whose condition holds; -1 if none does.

    `evaluate` gives a condition's values for some of the rows, which it is given as their numbers."""
    chosen = np.full(rows, -1, dtype=np.int64)
    for number, planned in clauses:
        left = np.flatnonzero(chosen < 0)
        if not len(left):
            break
        if planned.condition is None:
            chosen[left] = number
        else:
            chosen[left[truths(evaluate(planned.condition, left), len(left))]] = number
    return chosen


def target_predicate(plan: MergePlan, matcher: Matcher) -> str | None:
    """What rows of the table must be like to have a match, as SQL over the table; None where anything may."""
    if plan.command.of("not_matched_by_source"):
        return None
    parts = [own_names(part) for part in plan.condition.of_target]
    for key in plan.condition.keys:
        known = _key_predicate(key, matcher.source_values(key))
        if known is not None:
            parts.append(known)
    return " AND ".join(f"({part})" for part in parts) if parts else None


def _key_predicate(key: Key, values: pa.Array) -> str | None:
    root = key.target.root
    if not is_plain_column(root) or root.type in (FLOAT, DOUBLE):
        return None
    column = quote_name(root.option[0][len(TARGET) :])
    present = values.drop_null()
    try:
        known = _among(column, present)
    except (UnsupportedExpression, InvalidArgument, OverflowError, ValueError):
        return None
    if key.null_safe and values.null_count:
        return f"{known} OR {column} IS NULL"
    return known


def _among(column: str, values: pa.Array) -> str:
    unique = values.unique()
    if not len(unique):
        return "false"
    if len(unique) <= _MAX_IN_LIST:
        return f"{column} IN ({', '.join(expr.literal(value).sql for value in unique.to_pylist())})"
    bounds = pa.compute.min_max(unique)
    low, high = (expr.literal(bounds[name].as_py()).sql for name in ("min", "max"))
    return f"{column} BETWEEN {low} AND {high}"
