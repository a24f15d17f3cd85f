"""The tree of an expression as it was written, before any schema is known.

Nodes are frozen values. AND, OR and `||` hold any number of operands, so long chains stay flat. A literal's value is
`bool`, `int`, `float`, `Decimal`, `str`, `bytes` or `None`; a date or timestamp literal holds its text.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from msgspec import Struct

from lakeseal.protocol.schema import DataType

COMPARISONS = ("=", "<=>", "<>", "<", "<=", ">", ">=")
# How tightly operators bind, loosest first. The parser and the renderer both follow it.
OR, AND, NOT, PREDICATE, COMPARISON = 10, 20, 30, 40, 50
BINDING = {
    **dict.fromkeys(COMPARISONS, COMPARISON),
    "|": 60,
    "^": 70,
    "&": 80,
    "<<": 90,
    ">>": 90,
    ">>>": 90,
    "+": 100,
    "-": 100,
    "||": 100,
    "*": 110,
    "/": 110,
    "%": 110,
    "div": 110,
}
UNARY, POSTFIX = 120, 130

# Names that the parser takes for something else where a column could stand.
RESERVED = frozenset(
    word
    for line in (
        "ALL AND ANY AS BETWEEN CASE COLLATE DISTINCT DIV ELSE END ESCAPE EXISTS FALSE FOR FROM ILIKE IN INTERVAL IS",
        "LIKE NOT NULL OR OVER REGEXP RLIKE SELECT SOME THEN TRUE VALUES WHEN WITH",
    )
    for word in line.split()
)

Value = bool | int | float | Decimal | str | bytes | None


class Literal(Struct, frozen=True):
    value: Value
    type: DataType
    position: int = 0


class Column(Struct, frozen=True):
    """A column, or a field in a struct column: `a.b.c`."""

    parts: tuple[str, ...]
    position: int = 0


class Member(Struct, frozen=True):
    """A field of what is no plain column: `a[0].b`."""

    base: Node
    name: str
    position: int = 0


class Subscript(Struct, frozen=True):
    base: Node
    key: Node
    position: int = 0


class Cast(Struct, frozen=True):
    child: Node
    type: DataType
    attempt: bool = False
    """`try_cast`: NULL where the value does not fit."""
    position: int = 0


class Case(Struct, frozen=True):
    branches: tuple[tuple[Node, Node], ...]
    default: Node | None = None
    operand: Node | None = None
    position: int = 0


class Interval(Struct, frozen=True):
    amount: int
    unit: str
    """`year`, `month`, `week`, `day`, `hour`, `minute` or `second`."""
    position: int = 0


class Unit(Struct, frozen=True):
    """The unit that a call counts in, such as `month` in `dateadd(MONTH, 1, x)`."""

    name: str
    position: int = 0


class Lambda(Struct, frozen=True):
    """An argument that is called for each element: `x -> x > 0`, `(k, v) -> v`."""

    parameters: tuple[str, ...]
    body: Node
    position: int = 0


class Variable(Struct, frozen=True):
    """A parameter of a lambda around it."""

    name: str
    position: int = 0


class Call(Struct, frozen=True):
    """An operator or function by its lower-case name; predicates are `in`, `between`, `like`, `is null` and so on."""

    name: str
    args: tuple[Node, ...]
    position: int = 0


Node = Literal | Column | Member | Subscript | Cast | Case | Interval | Unit | Lambda | Variable | Call


def children(node: Node) -> tuple[Node, ...]:
    match node:
        case Member(base=base):
            return (base,)
        case Subscript(base=base, key=key):
            return (base, key)
        case Cast(child=child):
            return (child,)
        case Lambda(body=body):
            return (body,)
        case Case(branches=branches, default=default, operand=operand):
            parts = [operand, *(part for branch in branches for part in branch), default]
            return tuple(part for part in parts if part is not None)
        case Call(args=args):
            return args
        case _:
            return ()


def walk(root: Node) -> Iterator[tuple[Node, int]]:
    """Every node with its depth, without recursion."""
    stack = [(root, 1)]
    while stack:
        node, depth = stack.pop()
        yield node, depth
        stack.extend((child, depth + 1) for child in children(node))
