"""Expressions bound to a schema: every node has a type, every cast is explicit.

`op` names what a node does. Leaves are `literal` (its `option` is an Arrow scalar) and `column` (its `option` is the
exact path). `raises` says that some value could make the node, or a node below it, fail; what cannot fail may be
evaluated on rows that do not need it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from msgspec import Struct

from lakeseal.protocol.arrow import to_arrow_type
from lakeseal.protocol.schema import DataType

Path = tuple[str, ...]


class DayTimeInterval(Struct, frozen=True):
    """Of what lies between two moments; no column is of it (`intervals`)."""

    def __str__(self) -> str:
        return "interval day to second"


DAY_TIME: Any = DayTimeInterval()


def arrow_type(data_type: DataType) -> pa.DataType:
    return pa.duration("us") if data_type == DAY_TIME else to_arrow_type(data_type)


class Bound(Struct, frozen=True, eq=False):
    op: str
    type: DataType
    args: tuple[Bound, ...] = ()
    nullable: bool = True
    raises: bool = False
    option: Any = None

    @property
    def arrow(self) -> pa.DataType:
        return arrow_type(self.type)

    @property
    def is_literal(self) -> bool:
        return self.op == "literal"

    @property
    def value(self) -> Any:
        """A literal's value as Python has it."""
        assert self.op == "literal"
        return self.option.as_py()


def literal(scalar: pa.Scalar, data_type: DataType) -> Bound:
    return Bound("literal", data_type, nullable=not scalar.is_valid, option=scalar)


def walk(root: Bound) -> Iterator[Bound]:
    """Every node once, though parts may be shared."""
    seen: set[int] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            stack.extend(node.args)


def columns(root: Bound) -> frozenset[Path]:
    return frozenset(node.option for node in walk(root) if node.op == "column")


def conjuncts(root: Bound) -> tuple[Bound, ...]:
    return root.args if root.op == "and" else (root,)
