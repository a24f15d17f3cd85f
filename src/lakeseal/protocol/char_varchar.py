"""Columns that Spark declared as `char(n)` or `varchar(n)`: strings of limited length, written and read as Spark does.

`fit` is for writing: blanks at the end that are too many are dropped, `char(n)` is filled up with blanks to n
characters, and a string that is still too long is a `ConstraintViolation`. `padded` is for reading: Delta Spark stores
values of `char(n)` as they were given and fills them up when it reads them, so files have them in both ways.

The declared type stands in the metadata of the top-level column as text such as
`struct<a:varchar(5),b:array<char(2)>>`, so lengths are found through structs, arrays and maps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from lakeseal.errors import ConstraintViolation
from lakeseal.protocol.nested import children, list_like, map_like, struct_like
from lakeseal.protocol.schema import StructField

_TOKEN = re.compile(r"\s*(?:`((?:[^`]|``)*)`|([^<>(),:`\s]+)|([<>(),:]))\s*")


class Limit(Struct, frozen=True, kw_only=True):
    length: int
    is_char: bool


Limits: TypeAlias = "Limit | dict[str, Limits] | None"
"""Of a string: its limit. Of a struct, an array (`element`) or a map (`key`, `value`): those of its parts."""


class _NotUnderstood(Exception):
    pass


def limits(field: StructField) -> Limits:
    """What a column declares; None where that limits nothing, or is said in words that are not understood."""
    text = field.char_varchar
    if text is None:
        return None
    try:
        return _Reader(text).read()
    except _NotUnderstood:
        return None


def char_limits(field: StructField) -> Limits:
    """Those of `limits` that fill values up."""
    return _only_chars(limits(field))


def fit(array: pa.Array, limit: Limits, column: str) -> pa.Array:
    """The values as they are to be stored."""
    return _each(array, limit, column, _fit_strings)


def padded(array: pa.Array, limit: Limits) -> pa.Array:
    """The values as they are to be read; `limit` is of `char_limits`."""
    return _each(array, limit, "", lambda strings, found, _: pc.utf8_rpad(strings, found.length, " "))


def _only_chars(limit: Limits) -> Limits:
    if isinstance(limit, Limit):
        return limit if limit.is_char else None
    found: dict[str, Limits] = {}
    for name, inner in (limit or {}).items():
        part = _only_chars(inner)
        if part is not None:
            found[name] = part
    return found or None


def _each(array: pa.Array, limit: Limits, column: str, change: Callable[[pa.Array, Limit, str], pa.Array]) -> pa.Array:
    if limit is None:
        return array
    if isinstance(limit, Limit):
        return change(array, limit, column)
    if pa.types.is_struct(array.type):
        names = [array.type.field(n).name for n in range(array.type.num_fields)]
        parts = [
            _each(child, limit.get(name.lower()), f"{column}.{name}", change)
            for name, child in zip(names, children(array), strict=True)
        ]
        return struct_like(array, parts, array.type)
    if pa.types.is_map(array.type):
        keys = _each(array.keys, limit.get("key"), f"{column}.key", change)
        items = _each(array.items, limit.get("value"), f"{column}.value", change)
        return map_like(array, keys, items, array.type)
    return list_like(array, _each(array.values, limit.get("element"), f"{column}.element", change), array.type)


def _fit_strings(array: pa.Array, limit: Limit, column: str) -> pa.Array:
    lengths = pc.utf8_length(array)
    longest = pc.max(lengths).as_py()
    if longest is None:
        return array
    if longest > limit.length:
        # Only blanks beyond the limit are given up.
        over = pc.greater(lengths, limit.length)
        kept = pc.utf8_slice_codeunits(array, 0, limit.length)
        rest = pc.utf8_slice_codeunits(array, limit.length, 2**31 - 1)
        too_long = pc.and_(over, pc.not_equal(pc.ascii_ltrim(rest, characters=" "), ""))
        if pc.any(too_long).as_py():
            value = array.filter(too_long)[0].as_py()
            raise ConstraintViolation(
                f"The value {value[:100]!r} is longer than {'char' if limit.is_char else 'varchar'}({limit.length})",
                hint="Shorten it, or make the column wider",
                column=column,
            )
        array = pc.if_else(over, kept, array)
    return pc.utf8_rpad(array, limit.length, " ") if limit.is_char else array


class _Reader:
    """Reads Spark's text of a type, for the limits in it."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_lex(text))
        self._at = 0

    def read(self) -> Limits:
        limit = self._type()
        if self._at != len(self._tokens):
            raise _NotUnderstood
        return limit

    def _type(self) -> Limits:
        name = self._next().lower()
        if name in ("char", "varchar"):
            self._expect("(")
            length = self._next()
            self._expect(")")
            if not length.isdecimal():
                raise _NotUnderstood
            return Limit(length=int(length), is_char=name == "char")
        if name == "struct":
            return self._parts(named=True)
        if name == "array":
            return self._parts("element")
        if name == "map":
            return self._parts("key", "value")
        if self._peek() == "(":
            while self._next() != ")":
                continue
        return None

    def _parts(self, *names: str, named: bool = False) -> Limits:
        self._expect("<")
        found: dict[str, Limits] = {}
        place = 0
        while self._peek() != ">":
            if place:
                self._expect(",")
            if named:
                name = self._next().lower()
                self._expect(":")
            elif place < len(names):
                name = names[place]
            else:
                raise _NotUnderstood
            limit = self._type()
            if limit is not None:
                found[name] = limit
            place += 1
        self._expect(">")
        return found or None

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        if not token:
            raise _NotUnderstood
        self._at += 1
        return token

    def _expect(self, token: str) -> None:
        if self._next() != token:
            raise _NotUnderstood


def _lex(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise _NotUnderstood
        yield found[1].replace("``", "`") if found[1] is not None else found[2] or found[3]
        at = found.end()
