"""Names in a MERGE: which side a column is of.

Expressions name columns by side (`t.id`, `source.id`), or alone where only one side that they may see has it. Here they
get one flat name per column, `t.id` or `s.id`, under which both sides stand next to each other in one schema.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import msgspec
import pyarrow as pa

from lakeseal import expr
from lakeseal.errors import InvalidExpression
from lakeseal.expr import syntax as sql
from lakeseal.expr.bind import CLOCKS
from lakeseal.expr.expression import Expression
from lakeseal.expr.render import render
from lakeseal.protocol.schema import StructField, StructType

TARGET, SOURCE = "t.", "s."
BOTH = (TARGET, SOURCE)


class MergeNames:
    def __init__(
        self, target: StructType, source: StructType, *, target_names: Collection[str], source_names: Collection[str]
    ) -> None:
        self._schemas = {TARGET: target, SOURCE: source}
        self._aliases = {name.lower(): TARGET for name in target_names}
        self._aliases |= {name.lower(): SOURCE for name in source_names}
        fields = [
            StructField(side + field.name, field.type, field.nullable, field.metadata)
            for side, schema in self._schemas.items()
            for field in schema.fields
        ]
        self.schema = StructType(tuple(fields))
        """Both sides, by their flat names."""

    def resolve(self, text: str, sides: Collection[str] = BOTH) -> Expression:
        """The expression over flat names; it may see columns of `sides`."""

        def flat(column: sql.Column) -> sql.Node:
            return self._flat(column, sides, text)

        root = _mapped(expr.parse(text).root, flat)
        return Expression(text, root)

    def _flat(self, column: sql.Column, sides: Collection[str], text: str) -> sql.Node:
        first, *rest = column.parts
        side = self._aliases.get(first.lower())
        if side is not None and rest:
            field = self._schemas[side].field(rest[0])
            if side not in sides:
                raise InvalidExpression(
                    f"{'.'.join(column.parts)} cannot be seen in {text[:100]!r}",
                    hint="Rows that are not matched have only one side",
                )
            if field is None:
                names = ", ".join(self._schemas[side].names[:20])
                raise InvalidExpression(f"There is no column {'.'.join(column.parts)}", hint=f"There are {names}")
            return msgspec.structs.replace(column, parts=(side + field.name, *rest[1:]))
        found = [(s, f) for s in sides if (f := self._schemas[s].field(first)) is not None]
        if len(found) > 1:
            raise InvalidExpression(
                f"The column {first!r} is in both, in {text[:100]!r}", hint=f"Write t.{first} or s.{first}"
            )
        if not found:
            if not rest and first.lower() in CLOCKS:
                return column
            names = ", ".join(name for s in sides for name in self._schemas[s].names[:20])
            raise InvalidExpression(f"There is no column {first!r}, in {text[:100]!r}", hint=f"There are {names}")
        ((only, field),) = found
        return msgspec.structs.replace(column, parts=(only + field.name, *rest))


def sides(expression: Expression) -> frozenset[str]:
    """Which sides it looks at."""
    return frozenset(path[0][: len(TARGET)] for path in expression.columns)


def own_names(expression: Expression) -> str:
    """SQL of an expression over one side, by that side's own names."""

    def plain(column: sql.Column) -> sql.Node:
        return msgspec.structs.replace(column, parts=(column.parts[0][len(TARGET) :], *column.parts[1:]))

    return render(_mapped(expression.root, plain))


def columns_of(side: str, paths: Iterable[tuple[str, ...]]) -> frozenset[str]:
    """The names, on their own side, of the columns at flat paths."""
    return frozenset(path[0][len(side) :] for path in paths if path[0].startswith(side))


def flat_columns(side: str, rows: pa.RecordBatch) -> dict[str, pa.Array]:
    return {side + name: rows.column(name) for name in rows.schema.names}


def _mapped(node: sql.Node, change: Callable[[sql.Column], sql.Node]) -> sql.Node:
    def inner(child: sql.Node) -> sql.Node:
        return _mapped(child, change)

    match node:
        case sql.Column():
            return change(node)
        case sql.Member(base=base):
            return msgspec.structs.replace(node, base=inner(base))
        case sql.Subscript(base=base, key=key):
            return msgspec.structs.replace(node, base=inner(base), key=inner(key))
        case sql.Cast(child=child):
            return msgspec.structs.replace(node, child=inner(child))
        case sql.Lambda(body=body):
            return msgspec.structs.replace(node, body=inner(body))
        case sql.Case(branches=branches, default=default, operand=operand):
            return msgspec.structs.replace(
                node,
                branches=tuple((inner(when), inner(then)) for when, then in branches),
                default=None if default is None else inner(default),
                operand=None if operand is None else inner(operand),
            )
        case sql.Call(args=args):
            return msgspec.structs.replace(node, args=tuple(inner(arg) for arg in args))
        case _:
            return node
