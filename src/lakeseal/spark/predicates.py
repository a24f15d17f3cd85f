"""What can be told of rows without Spark, when a session is there to decide.

Spark has the last word on an expression, in its own dialect and with the session's settings. `expr` may stand in for it
only where it answers as this session would. That is said in three strengths:

- `judged`: the whole of a condition, so that nobody need ask Spark;
- `understood`: parts of it that hold wherever it does, to leave out files and rows earlier; the rest skips nothing;
- `portable`: an expression that has the same value in every session, or fails; for who cannot know the session.

A session that is as `expr` is (UTC, ANSI, names in any case, quotes as by default) judges as `expr` does. In any other,
nothing counts that can fail (sessions differ in whether it does) or that asks for the time; with ANSI mode off, nothing
that reads a string as something else (its rules are its own); and where the zone is not UTC, timestamps count only in
plain comparisons, whose texts are read in that zone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import StrEnum

import msgspec
from msgspec import Struct
from pyspark.sql import SparkSession

from lakeseal import expr
from lakeseal.errors import InvalidInput, UnsupportedExpression
from lakeseal.expr import syntax as sql
from lakeseal.expr.bind import CLOCKS
from lakeseal.expr.bound import walk
from lakeseal.expr.coercion import is_numeric
from lakeseal.expr.functions import OF_SESSION
from lakeseal.expr.render import render
from lakeseal.protocol.schema import (
    STRING,
    TIMESTAMP,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructType,
)
from lakeseal.protocol.text_values import format_micros, parse_micros
from lakeseal.spark.variables import has_variables

_UTC = frozenset({"utc", "z", "gmt", "etc/utc", "etc/gmt", "etc/uct", "uct", "zulu", "+00:00", "utc+00:00", "gmt+0"})
# Operators that mean the same in every zone, given operands that do.
_PLAIN = frozenset({*sql.COMPARISONS, "and", "or", "not", "is null", "between", "in", "like"})
_COMPARISONS = frozenset({*sql.COMPARISONS, "between", "in"})
# A date or timestamp is compared with a string as with a date or timestamp in every mode, but not looked for among
# strings.
_READS_MOMENTS = frozenset({*sql.COMPARISONS, "between"})
# Functions of strings that take something else besides.
_STRINGS_AND_OTHERS = frozenset(
    ("substring", "substr", "left", "right", "lpad", "rpad", "date_format", "trunc", "date_trunc", "case")
)
# They read what they are given as a timestamp, whatever it is.
_OF_ZONE = frozenset(("hour", "minute", "second", "date_format", "date_trunc"))
# What they give for null, or how, depends on more than one setting.
_NOT_PORTABLE = frozenset(("size", "cardinality"))
# Settings that change what an expression means in ways that are rare enough to leave all of it to Spark.
_RARE: dict[str, str] = {
    "spark.sql.timestampType": "timestamp_ltz",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.legacy.timeParserPolicy": "corrected",
    "spark.sql.legacy.consecutiveStringLiterals.enabled": "false",
    "spark.sql.legacy.exponentLiteralAsDecimal.enabled": "false",
    "spark.sql.legacy.literal.pickMinimumPrecision": "true",
    "spark.sql.legacy.decimal.retainFractionDigitsOnTruncate": "false",
    "spark.sql.legacy.typeCoercion.datetimeToString.enabled": "false",
    "spark.sql.legacy.javaCharsets": "false",
    "spark.sql.legacy.codingErrorAction": "false",
    "spark.sql.mapKeyDedupPolicy": "exception",
    "spark.sql.jsonGenerator.ignoreNullFields": "true",
    "spark.sql.legacy.interval.enabled": "false",
    # The session's own functions may be called as Spark's are.
    "spark.sql.functionResolution.sessionOrder": "second",
    "spark.sql.path.enabled": "false",
}


_LITERAL = re.compile(r"'(?:[^']|'')*'")


class StoreAssignment(StrEnum):
    """Which values may go into which columns, and what becomes of those that do not fit."""

    ANSI = "ANSI"
    LEGACY = "LEGACY"
    STRICT = "STRICT"


class Settings(Struct, frozen=True, kw_only=True):
    """Of a Spark session, what conditions and columns depend on."""

    zone: str = "UTC"
    case_sensitive: bool = False
    other_quotes: bool = False
    """Whether quotes or backslashes mean something else than they do by default."""
    one_line_base64: bool = False
    """Whether `base64` breaks no lines, as it does by default after 76 letters."""
    double_quoted_names: bool = False
    ansi: bool = True
    store_assignment: StoreAssignment = StoreAssignment.ANSI
    rare: bool = False
    """Whether a setting is on that nobody here follows."""
    plain_timestamps: bool = False
    """Whether the type TIMESTAMP is one without a zone."""
    pads_chars: bool = True
    """Whether values of `char(n)` are read with all their blanks."""

    @classmethod
    def of(cls, spark: SparkSession) -> Settings:
        def text(name: str, default: str) -> str:
            return str(spark.conf.get(name, default)).lower()

        ansi = str(spark.conf.get("spark.sql.ansi.enabled")).lower() == "true"
        double_quoted = ansi and text("spark.sql.ansi.doubleQuotedIdentifiers", "false") == "true"
        return cls(
            zone=str(spark.conf.get("spark.sql.session.timeZone", "UTC")),
            case_sensitive=text("spark.sql.caseSensitive", "false") == "true",
            double_quoted_names=double_quoted,
            other_quotes=double_quoted or text("spark.sql.parser.escapedStringLiterals", "false") == "true",
            one_line_base64=text("spark.sql.chunkBase64String.enabled", "true") == "false",
            ansi=ansi,
            store_assignment=StoreAssignment(text("spark.sql.storeAssignmentPolicy", "ansi").upper()),
            rare=any(text(name, usual) != usual for name, usual in _RARE.items()),
            plain_timestamps=text("spark.sql.timestampType", "timestamp_ltz") == "timestamp_ntz",
            pads_chars=text("spark.sql.readSideCharPadding", "true") == "true",
        )

    @property
    def is_utc(self) -> bool:
        return is_utc(self.zone)

    @property
    def judges_as_expr(self) -> bool:
        return self.is_utc and self.ansi and not (self.case_sensitive or self.other_quotes or self.rare)


def has_timestamps(data_type: DataType) -> bool:
    """Whether values of it have moments in them, which sessions show in their zones."""
    match data_type:
        case StructType(fields=fields):
            return any(has_timestamps(field.type) for field in fields)
        case ArrayType(element=element):
            return has_timestamps(element)
        case MapType(key=key, value=value):
            return has_timestamps(key) or has_timestamps(value)
        case _:
            return data_type == TIMESTAMP


def is_utc(zone: str) -> bool:
    return zone.lower() in _UTC


def judged(where: str, schema: StructType, settings: Settings) -> str | None:
    """The condition as `expr` is to judge it for this session; None if only Spark can."""
    if settings.judges_as_expr and not _has_other_base64(where, settings):
        return where if _is_bound(where, schema) else None
    parts = list(_parts(where, schema, settings))
    return None if not parts or None in parts else both(part for part in parts if part is not None)


def understood(where: str, schema: StructType, settings: Settings) -> str | None:
    """The part of a condition that may be judged here; None if there is none."""
    return both(part for part in _parts(where, schema, settings) if part is not None)


def same_value(text: str, schema: StructType, settings: Settings) -> bool:
    """Whether `expr` gives an expression the value that this session gives it. One of the table's may have variables,
    which only the session has values for."""
    if has_variables(text):
        return False
    if _has_other_base64(text, settings):
        return False
    if settings.judges_as_expr:
        return _is_bound(text, schema)
    if settings.rare or not (_plain_quotes(text) and _has_same_quotes(text, settings)):
        return False
    try:
        root = expr.parse(text).root
        bound = expr.bind(expr.parse(text), schema).root
    except InvalidInput:
        return False
    return not bound.raises and _is_free(root, schema) and not _has_clock(root) and not _of_zone(root, schema)


def check_portable(text: str, schema: StructType, *, zone_known: bool) -> None:
    """Raises `UnsupportedExpression` if an expression has different values in different sessions; those of different
    zones do not count where `zone_known`."""
    why = None
    root = expr.parse(text).root
    if has_variables(text):
        why = "it has variables, for which sessions put in values of their own"
    elif not _plain_quotes(text):
        why = "it has quotes or backslashes, which sessions read differently"
    elif not _is_free(root, schema):
        why = "sessions with ANSI mode on and off, or with names in other cases, read it differently"
    elif not zone_known and _of_zone(root, schema):
        why = "it depends on the session's time zone"
    if why is not None:
        raise UnsupportedExpression(f"What {text[:200]!r} is depends on the session: {why}")


def depends_on_zone(text: str, schema: StructType) -> bool:
    return _of_zone(expr.parse(text).root, schema)


def both(parts: Iterable[expr.Expression]) -> str | None:
    all_parts = list(parts)
    return all_parts[0].and_(*all_parts[1:]).sql if all_parts else None


def columns_of(where: str, schema: StructType, settings: Settings | None = None) -> tuple[str, ...]:
    """The table's columns that a condition needs: all of them, if that cannot be told."""
    if settings is not None and not _has_same_quotes(where, settings):
        return schema.names
    try:
        parsed = expr.parse(where)
        expr.bind(parsed, schema)
    except InvalidInput:
        return schema.names
    # As it is written: Spark wants to see columns, too, that do not decide anything.
    named = {path[0].lower() for path in parsed.columns}
    return tuple(name for name in schema.names if name.lower() in named)


def _is_bound(text: str, schema: StructType) -> bool:
    try:
        expr.bind(expr.parse(text), schema)
    except InvalidInput:
        return False
    return True


def _plain_quotes(text: str) -> bool:
    return '"' not in text and "\\" not in text


def _has_same_quotes(text: str, settings: Settings) -> bool:
    """Whether this session reads the quotes in a text as they are read by default. Where backslashes escape nothing,
    two quotes within a text are two."""
    if not settings.other_quotes:
        return True
    return _plain_quotes(text) and not any("''" in found[1:-1] for found in _LITERAL.findall(text))


def _has_other_base64(text: str, settings: Settings) -> bool:
    return settings.one_line_base64 and "base64" in text.lower()


def _parts(where: str, schema: StructType, settings: Settings) -> Iterator[expr.Expression | None]:
    """What AND joins, each as `expr` may judge it here, or None."""
    if settings.rare or not _has_same_quotes(where, settings):
        return
    try:
        parts = expr.parse(where).conjuncts()
    except InvalidInput:
        return
    for part in parts:
        yield _judged(part, schema, settings)


def _judged(part: expr.Expression, schema: StructType, settings: Settings) -> expr.Expression | None:
    try:
        expr.bind_predicate(part, schema)
    except InvalidInput:
        return None
    if _has_other_base64(part.sql, settings):
        return None
    if settings.case_sensitive and not _exact_names(part.root, schema):
        return None
    if not settings.ansi and not _is_free(part.root, schema):
        return None
    if not settings.is_utc and _of_zone(part.root, schema):
        moved = _in_zone(part.root, schema, settings.zone)
        if moved is None:
            return None
        part = expr.Expression(render(moved), moved)
    bound = expr.bind_predicate(part, schema)
    return None if bound.root.raises or any(node.op == "now" for node in walk(bound.root)) else part


def _nodes(root: sql.Node) -> Iterator[sql.Node]:
    return (node for node, _ in sql.walk(root))


def _type_of(node: sql.Node, schema: StructType) -> DataType | None:
    """None if it has none by itself, as an interval."""
    try:
        return expr.bind(expr.Expression("", node), schema).type
    except InvalidInput:
        return None


def _is_free(root: sql.Node, schema: StructType) -> bool:
    """Whether ANSI mode and the case of names make no difference but in what fails."""
    return _exact_names(root, schema) and all(_same_modes(node, schema) for node in _nodes(root))


def _same_modes(node: sql.Node, schema: StructType) -> bool:
    match node:
        case sql.Cast(child=child, type=target):
            return target != STRING or not isinstance(_type_of(child, schema), DecimalType)
        case sql.Call(name=name) if name in _NOT_PORTABLE or name in OF_SESSION:
            return False
        case sql.Call() | sql.Case():
            return _unmixed(node, schema)
        case _:
            return True


def _unmixed(node: sql.Call | sql.Case, schema: StructType) -> bool:
    name = node.name if isinstance(node, sql.Call) else "case"
    if name in _STRINGS_AND_OTHERS and name != "case":
        return True
    args = _results(node) if isinstance(node, sql.Case) else node.args
    types = [_type_of(arg, schema) for arg in args if not isinstance(arg, sql.Interval)]
    if any(found is None for found in types):
        return False
    kinds = {_kind(found) for found in types if found is not None and found != VOID}
    if len(kinds) < 2 or "string" not in kinds:
        return True
    strings = [arg for arg, found in zip(args, types, strict=True) if found == STRING]
    moments = kinds <= {"string", "date", "timestamp", "timestamp_ntz"}
    return name in _READS_MOMENTS and moments and all(isinstance(arg, sql.Literal) for arg in strings)


def _results(node: sql.Case) -> tuple[sql.Node, ...]:
    if node.operand is not None:
        return sql.children(node)
    values = [then for _, then in node.branches]
    return tuple(values if node.default is None else [*values, node.default])


def _kind(data_type: DataType) -> str:
    if is_numeric(data_type):
        return "number"
    return str(data_type)


def _exact_names(root: sql.Node, schema: StructType) -> bool:
    """A field of what is no plain column is not looked for."""
    return all(
        not isinstance(node, sql.Member) and (not isinstance(node, sql.Column) or _is_exact(node.parts, schema))
        for node in _nodes(root)
    )


def _is_exact(parts: tuple[str, ...], schema: StructType) -> bool:
    found: DataType = schema
    for name in parts:
        if not isinstance(found, StructType):
            return True
        field = found.field(name)
        if field is None:
            return found is schema and name.lower() in CLOCKS
        if field.name != name:
            return False
        found = field.type
    return True


def _has_clock(root: sql.Node) -> bool:
    clocks = {*CLOCKS, "curdate", "now", "localtimestamp"}
    return any(
        (isinstance(node, sql.Call) and node.name in clocks)
        or (isinstance(node, sql.Column) and node.parts[0].lower() in clocks)
        for node in _nodes(root)
    )


def _of_zone(root: sql.Node, schema: StructType) -> bool:
    """Whether it has to do with timestamps, or with today."""
    return _has_clock(root) or any(
        (isinstance(node, sql.Call) and (node.name in _OF_ZONE or node.name in OF_SESSION))
        or _type_of(node, schema) in (None, TIMESTAMP)
        for node in _nodes(root)
        if not isinstance(node, sql.Interval | sql.Unit)
    )


def _in_zone(node: sql.Node, schema: StructType, zone: str) -> sql.Node | None:
    """The same condition for a session in UTC, or None where that is not plain."""
    match node:
        case _ if not _of_zone(node, schema):
            return node
        case sql.Call(name="is null", args=(sql.Column(),)):
            return node
        case sql.Call(name=name, args=args) if name in _COMPARISONS and _any_moment(args, schema):
            return _with(node, [_moment(arg, schema, zone) for arg in args])
        case sql.Call(name=name, args=args) if name in _PLAIN:
            return _with(node, [_in_zone(arg, schema, zone) for arg in args])
        case _:
            return None


def _any_moment(args: tuple[sql.Node, ...], schema: StructType) -> bool:
    return any(isinstance(arg, sql.Column) and _type_of(arg, schema) == TIMESTAMP for arg in args)


def _moment(node: sql.Node, schema: StructType, zone: str) -> sql.Node | None:
    match node:
        case sql.Column():
            return node if _type_of(node, schema) == TIMESTAMP else None
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


def _with(node: sql.Call, args: list[sql.Node | None]) -> sql.Node | None:
    moved = tuple(arg for arg in args if arg is not None)
    return msgspec.structs.replace(node, args=moved) if len(moved) == len(args) else None
