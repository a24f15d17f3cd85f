"""What can be told of rows before Spark looks at them.

Spark has the last word on a condition, in its own dialect and with the session's settings. A part of the condition may
be used to leave out files and rows earlier if `expr` understands it and judges as this session would: nothing that can
fail (sessions differ in whether it does), nothing that asks for the time, and, where the session's zone is not UTC,
timestamps only in plain comparisons, whose texts are read in that zone. The rest of the condition just skips nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Struct
from pyspark.sql import SparkSession

from lakeseal import expr
from lakeseal.errors import InvalidInput
from lakeseal.expr import syntax as sql
from lakeseal.expr.bound import walk
from lakeseal.expr.render import render
from lakeseal.protocol.schema import STRING, TIMESTAMP, VOID, DataType, StructType
from lakeseal.protocol.text_values import format_micros, parse_micros

_UTC = frozenset({"utc", "z", "gmt", "etc/utc", "etc/gmt", "etc/uct", "uct", "zulu", "+00:00", "utc+00:00", "gmt+0"})
# Operators that mean the same in every zone, given operands that do.
_PLAIN = frozenset({*sql.COMPARISONS, "and", "or", "not", "is null", "between", "in", "like"})
_COMPARISONS = frozenset({*sql.COMPARISONS, "between", "in"})


class Settings(Struct, frozen=True, kw_only=True):
    """Of a Spark session, what conditions and columns depend on."""

    zone: str = "UTC"
    case_sensitive: bool = False
    other_quotes: bool = False
    """Whether quotes or backslashes mean something else than they do by default."""

    @classmethod
    def of(cls, spark: SparkSession) -> Settings:
        def flag(name: str) -> bool:
            return str(spark.conf.get(name, "false")).lower() == "true"

        return cls(
            zone=str(spark.conf.get("spark.sql.session.timeZone", "UTC")),
            case_sensitive=flag("spark.sql.caseSensitive"),
            other_quotes=flag("spark.sql.ansi.doubleQuotedIdentifiers")
            or flag("spark.sql.parser.escapedStringLiterals"),
        )


def understood(where: str, schema: StructType, settings: Settings) -> str | None:
    """The part of a condition that may be judged here; None if there is none."""
    if settings.other_quotes and ('"' in where or "\\" in where):
        return None
    try:
        parts = expr.parse(where).conjuncts()
    except InvalidInput:
        return None
    return both(part for whole in parts if (part := _judged(whole, schema, settings)) is not None)


def both(parts: Iterable[expr.Expression]) -> str | None:
    all_parts = list(parts)
    return all_parts[0].and_(*all_parts[1:]).sql if all_parts else None


def columns_of(where: str, schema: StructType) -> tuple[str, ...]:
    """The table's columns that a condition needs: all of them, if that cannot be told."""
    try:
        named = {path[0].lower() for path in expr.bind(expr.parse(where), schema).columns}
    except InvalidInput:
        return schema.names
    return tuple(name for name in schema.names if name.lower() in named)


def _judged(part: expr.Expression, schema: StructType, settings: Settings) -> expr.Expression | None:
    if settings.zone.lower() not in _UTC:
        moved = _in_zone(part.root, schema, settings.zone)
        if moved is None:
            return None
        part = expr.Expression(render(moved), moved)
    try:
        bound = expr.bind_predicate(part, schema)
    except InvalidInput:
        return None
    return None if bound.root.raises or any(node.op == "now" for node in walk(bound.root)) else part


def _in_zone(node: sql.Node, schema: StructType, zone: str) -> sql.Node | None:
    """The same condition for a session in UTC, or None where that is not plain."""
    match node:
        case sql.Column():
            return None if _type(node, schema) == TIMESTAMP else node
        case sql.Literal():
            return None if node.type == TIMESTAMP else node
        case sql.Call(name="is null", args=(sql.Column(),)):
            return node
        case sql.Call(name=name, args=args) if name in _COMPARISONS and _any_moment(args, schema):
            return _with(node, [_moment(arg, schema, zone) for arg in args])
        case sql.Call(name=name, args=args) if name in _PLAIN:
            return _with(node, [_in_zone(arg, schema, zone) for arg in args])
        case _:
            return None


def _any_moment(args: tuple[sql.Node, ...], schema: StructType) -> bool:
    return any(isinstance(arg, sql.Column) and _type(arg, schema) == TIMESTAMP for arg in args)


def _moment(node: sql.Node, schema: StructType, zone: str) -> sql.Node | None:
    match node:
        case sql.Column():
            return node if _type(node, schema) == TIMESTAMP else None
        case sql.Literal(value=str(text)) if node.type in (STRING, TIMESTAMP):
            if parse_micros(f"{text} UTC", zoned=True) is None:
                # It has a zone of its own, or is no timestamp, which binding will tell.
                return node
            local = parse_micros(f"{text} {zone}", zoned=True)
            return None if local is None else sql.Literal(f"{format_micros(local)}Z", TIMESTAMP, node.position)
        case sql.Literal(type=data_type) if data_type == VOID:
            return node
        case _:
            return None


def _type(column: sql.Column, schema: StructType) -> DataType | None:
    found: DataType = schema
    for name in column.parts:
        field = found.field(name) if isinstance(found, StructType) else None
        if field is None:
            return None
        found = field.type
    return found


def _with(node: sql.Call, args: list[sql.Node | None]) -> sql.Node | None:
    moved = tuple(arg for arg in args if arg is not None)
    return msgspec.structs.replace(node, args=moved) if len(moved) == len(args) else None
