"""An expression's tree back to SQL text.

`render` writes what Spark and this package read as the same tree: names are quoted where they must be, operands are
put in parentheses where their operators bind too loosely.
"""

from __future__ import annotations

import math
from decimal import Decimal

from lakeseal.expr.syntax import (
    AND,
    BINDING,
    COMPARISON,
    NOT,
    OR,
    POSTFIX,
    PREDICATE,
    RESERVED,
    UNARY,
    Call,
    Case,
    Cast,
    Column,
    Interval,
    Lambda,
    Literal,
    Member,
    Node,
    Subscript,
    Unit,
    Variable,
)
from lakeseal.protocol.schema import BYTE, DATE, FLOAT, LONG, SHORT, TIMESTAMP, TIMESTAMP_NTZ, DataType

_SUFFIX: dict[DataType, str] = {BYTE: "Y", SHORT: "S", LONG: "L"}
_MOMENT: dict[DataType, str] = {DATE: "DATE", TIMESTAMP: "TIMESTAMP", TIMESTAMP_NTZ: "TIMESTAMP_NTZ"}
_ESCAPED = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}


def render(node: Node) -> str:
    return _operand(node, 0)


def quote_name(name: str) -> str:
    if name.isascii() and name.isidentifier() and name.upper() not in RESERVED:
        return name
    return "`" + name.replace("`", "``") + "`"


def quote_string(text: str) -> str:
    return "'" + "".join(_ESCAPED.get(char, char) for char in text) + "'"


def _operand(node: Node, binding: int) -> str:
    """Text that can stand where operators bind as tightly as `binding`."""
    text, own = _text(node)
    return text if own >= binding else f"({text})"


def _text(node: Node) -> tuple[str, int]:
    match node:
        case Literal():
            return _literal(node)
        case Column(parts=parts):
            return ".".join(quote_name(part) for part in parts), POSTFIX
        case Member(base=base, name=name):
            return f"{_operand(base, POSTFIX)}.{quote_name(name)}", POSTFIX
        case Subscript(base=base, key=key):
            return f"{_operand(base, POSTFIX)}[{_operand(key, COMPARISON)}]", POSTFIX
        case Cast(child=child, type=data_type, attempt=attempt):
            return f"{'try_cast' if attempt else 'cast'}({_operand(child, 0)} AS {data_type})", POSTFIX
        case Case(branches=branches, default=default, operand=operand):
            words = ["CASE"] if operand is None else ["CASE", _operand(operand, 0)]
            words += [f"WHEN {_operand(when, 0)} THEN {_operand(then, 0)}" for when, then in branches]
            words += [] if default is None else [f"ELSE {_operand(default, 0)}"]
            return " ".join([*words, "END"]), POSTFIX
        case Interval(amount=amount, unit=unit):
            return f"INTERVAL '{amount}' {unit.upper()}", POSTFIX
        case Lambda(parameters=parameters, body=body):
            names = ", ".join(map(quote_name, parameters))
            return f"{names if len(parameters) == 1 else f'({names})'} -> {_operand(body, 0)}", 0
        case Variable(name=name):
            return quote_name(name), POSTFIX
        case Unit(name=name):
            return name.upper(), POSTFIX
        case Call():
            return _call(node)


def _call(node: Call) -> tuple[str, int]:
    name, args = node.name, node.args
    match name:
        case "or" | "and":
            own = OR if name == "or" else AND
            return f" {name.upper()} ".join(_operand(arg, own + 1) for arg in args), own
        case "||":
            return " || ".join(_operand(arg, BINDING[name] + 1) for arg in args), BINDING[name]
        case "not":
            return f"NOT {_operand(args[0], NOT)}", NOT
        case "neg":
            # A sign before digits would be read as part of the number.
            return f"-{_operand(args[0], POSTFIX)}" if isinstance(args[0], Column) else f"-({render(args[0])})", UNARY
        case "~":
            return f"~{_operand(args[0], UNARY)}", UNARY
        case "in":
            items = ", ".join(_operand(arg, 0) for arg in args[1:])
            return f"{_operand(args[0], COMPARISON)} IN ({items})", PREDICATE
        case "between":
            value, low, high = (_operand(arg, COMPARISON) for arg in args)
            return f"{value} BETWEEN {low} AND {high}", PREDICATE
        case "like" | "ilike" | "rlike":
            value, pattern = (_operand(arg, COMPARISON) for arg in args[:2])
            escape = f" ESCAPE {_operand(args[2], POSTFIX)}" if len(args) == 3 else ""
            return f"{value} {name.upper()} {pattern}{escape}", PREDICATE
        case "is null" | "is true" | "is false" | "is unknown":
            return f"{_operand(args[0], COMPARISON)} {name.upper()}", PREDICATE
        case "trim both" | "trim leading" | "trim trailing":
            chars = "" if len(args) == 1 else _operand(args[1], COMPARISON) + " "
            return f"{name.replace(' ', '(').upper()} {chars}FROM {_operand(args[0], COMPARISON)})", POSTFIX
        case _ if name in BINDING:
            own = BINDING[name]
            return f"{_operand(args[0], own)} {name.upper()} {_operand(args[1], own + 1)}", own
        case _:
            return f"{name}({', '.join(_operand(arg, 0) for arg in args)})", POSTFIX


def _literal(node: Literal) -> tuple[str, int]:
    value, data_type = node.value, node.type
    match value:
        case None:
            return "NULL", POSTFIX
        case bool():
            return str(value).upper(), POSTFIX
        case str() if data_type in _MOMENT:
            return f"{_MOMENT[data_type]} {quote_string(value)}", POSTFIX
        case str():
            return quote_string(value), POSTFIX
        case bytes():
            return f"X'{value.hex().upper()}'", POSTFIX
        case float():
            return _float(value, data_type)
        case Decimal():
            return f"{value:f}BD", POSTFIX if value >= 0 else UNARY
        case int():
            return f"{value}{_SUFFIX.get(data_type, '')}", POSTFIX if value >= 0 else UNARY


def _float(value: float, data_type: DataType) -> tuple[str, int]:
    if not math.isfinite(value):
        return f"cast('{value}' AS {data_type})", POSTFIX
    text = f"{value!r}{'F' if data_type == FLOAT else 'D'}"
    return text, UNARY if text.startswith("-") else POSTFIX
