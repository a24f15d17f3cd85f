"""Whether what many clients saw of a catalog's names can be told as one story: step after step, on a dictionary.

Each client does one operation after the other; each operation has a beginning and an end on one clock, and what came
of it. An operation is one or two steps, each of which happens at one moment in between: to find what a name means, and
then to do something to that table, which may have another name by then, or none. `check_serial` looks for an order of
all steps in which every outcome is the dictionary's. Tables are told apart by texts that no other table has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

GONE = "TableNotFound"
NO_SCHEMA = "SchemaNotFound"
TAKEN = "AlreadyExists"
REFUSED = "Refused"
CONFLICT = "ConcurrentModification"
OK = "ok"

Name = tuple[str, str]


class NameOp(Struct, frozen=True, kw_only=True):
    kind: str
    """create, rename, drop, show, read, list, drop_schema, replace."""
    start: int
    end: int
    outcome: str
    """`OK`, or the error's kind."""
    name: Name = ("", "")
    new: Name = ("", "")
    seen: Any = None
    """The table, or for a list the names and tables."""


class Names(Struct, frozen=True, kw_only=True):
    """The dictionary; it can be a key itself."""

    tables: frozenset[tuple[Name, str]] = frozenset()
    schemas: frozenset[tuple[str, int]] = frozenset()
    made: int = 0
    """How many schemas; one that is made again is another."""

    def table(self, name: Name) -> str | None:
        return next((table for known, table in self.tables if known == name), None)

    def name_of(self, table: str) -> Name | None:
        return next((known for known, other in self.tables if other == table), None)

    def schema(self, name: str) -> int | None:
        return next((number for known, number in self.schemas if known == name), None)

    def with_name(self, name: Name, table: str) -> Names:
        others = frozenset(one for one in self.tables if one[1] != table)
        schemas, made = self.schemas, self.made
        if self.schema(name[0]) is None:
            made += 1
            schemas |= {(name[0], made)}
        return Names(tables=others | {(name, table)}, schemas=schemas, made=made)

    def without(self, table: str) -> Names:
        return Names(
            tables=frozenset(one for one in self.tables if one[1] != table), schemas=self.schemas, made=self.made
        )


class At(Struct, frozen=True, kw_only=True):
    """Where a client is: before its n-th operation, or in the middle of it, with what it found."""

    op: int = 0
    found: str | int | None = None


_Ends = tuple[Names, str, Any]


def check_serial(clients: Sequence[Sequence[NameOp]]) -> int:
    """How many orders were begun; `AssertionError` if there is none that ends."""
    begin = (tuple(At() for _ in clients), Names())
    todo, known, furthest = [begin], {begin}, begin
    while todo:
        places, names = todo.pop()
        if _done(places) > _done(furthest[0]):
            furthest = (places, names)
        if all(place.op == len(ops) for place, ops in zip(places, clients, strict=True)):
            return len(known)
        for client, place in enumerate(places):
            for then in _steps(clients, places, names, client, place):
                if then not in known:
                    known.add(then)
                    todo.append(then)
    places, names = furthest
    at = [ops[place.op] for place, ops in zip(places, clients, strict=True) if place.op < len(ops)]
    raise AssertionError(f"After {_done(places)} operations in order, with {names}, none of these can be next: {at}")


def _done(places: Sequence[At]) -> int:
    return sum(place.op for place in places)


def _steps(
    clients: Sequence[Sequence[NameOp]], places: tuple[At, ...], names: Names, client: int, place: At
) -> list[tuple[tuple[At, ...], Names]]:
    if place.op == len(clients[client]):
        return []
    op = clients[client][place.op]
    for other, ops in zip(places, clients, strict=True):
        if other.op < len(ops) and ops[other.op].end < op.start:
            return []  # that one had ended before this one began
    if place.found is None and op.kind in _FIRST:
        found = _found(op, names)
        if found is not None:
            middle = At(op=place.op, found=found)
            return [((*places[:client], middle, *places[client + 1 :]), names)]
    after, outcome, seen = _ended(op, names, place.found)
    if outcome != op.outcome or (op.outcome == OK and seen != op.seen):
        return []
    return [((*places[:client], At(op=place.op + 1), *places[client + 1 :]), after)]


_FIRST = ("create", "rename", "drop", "drop_schema", "replace")


def _found(op: NameOp, names: Names) -> str | int | None:
    """What the first of two steps finds; None where the operation ends with it."""
    if op.kind == "drop_schema":
        return names.schema(op.name[0])
    table = names.table(op.name)
    if op.kind == "create":
        return "free" if table is None else None
    return table


def _ended(op: NameOp, names: Names, found: str | int | None) -> _Ends:
    match op.kind:
        case "show" | "read":
            table = names.table(op.name)
            return names, GONE if table is None else OK, table
        case "list":
            there = sorted((name[1], table) for name, table in names.tables if name[0] == op.name[0])
            return names, NO_SCHEMA if names.schema(op.name[0]) is None else OK, there
        case "create":
            if found is None or names.table(op.name) is not None:
                return names, TAKEN, None
            # Of one that failed after it had looked, nothing is left, and nobody knows what it was called.
            return (names.with_name(op.name, op.seen), OK, op.seen) if op.outcome == OK else (names, OK, None)
        case "drop_schema":
            if found is None:
                return names, NO_SCHEMA, None
            if (op.name[0], found) not in names.schemas:
                return names, OK, None
            if any(name[0] == op.name[0] for name, _ in names.tables):
                return names, REFUSED, None
            return Names(tables=names.tables, schemas=names.schemas - {(op.name[0], found)}, made=names.made), OK, None
    if found is None:
        return names, GONE, None
    table = str(found)
    name = names.name_of(table)
    match op.kind:
        case "drop":
            if name is None:
                return names, OK, table
            return (names.without(table), OK, table) if name == op.name else (names, GONE, None)
        case "rename":
            if name == op.new:
                return names, OK, table
            if name != op.name:
                return names, GONE, None
            if names.table(op.new) is not None:
                return names, TAKEN, None
            return names.with_name(op.new, table), OK, table
        case "replace":
            # Whatever others do to it meanwhile may refuse the whole; nothing has happened then.
            if op.outcome != OK or name != op.name:
                return names, CONFLICT if op.outcome == OK else op.outcome, None
            without = names.without(table)
            is_free = without.table(op.new) is None
            return (without.with_name(op.new, op.seen), OK, op.seen) if is_free else (names, TAKEN, None)
    raise AssertionError(op)
