"""A schema as people write it, `"id long, at timestamp, tags array<string>"`: Spark's DDL, read without Spark.

CHAR(n) and VARCHAR(n) are strings. What a column of a table may have beside its type, but for NOT NULL and COMMENT, is
refused.
"""

from __future__ import annotations

import re
from typing import Never

from lakeseal.errors import InvalidArgument, InvalidExpression, UnsupportedExpression
from lakeseal.expr.cursor import Cursor
from lakeseal.expr.lexer import Token, tokenize
from lakeseal.expr.render import quote_name
from lakeseal.protocol.schema import (
    CHAR_VARCHAR,
    MAX_DEPTH,
    STRING,
    VARIANT,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    duplicate_name,
)

_LIMITED = ("CHAR", "CHARACTER", "VARCHAR")
_HINT = 'Write it as Spark does: "id long, at timestamp, tags array<string>, who struct<name: string>"'


def parse_schema(text: str) -> StructType:
    """`InvalidArgument` says what is wrong with it."""
    try:
        return _Fields(text).whole()
    except (InvalidExpression, UnsupportedExpression) as error:
        raise InvalidArgument(f"{text[:200]!r} is not a schema: {error.message}", hint=_HINT) from None


def parse_column_type(name: str, text: str) -> StructField:
    """A column of the type that the text says; CHAR(n) and VARCHAR(n) are strings that remember it, as Delta has them.
    Raises what parsing raises."""
    reader = _Fields(text)
    found = reader.nested_type(0)
    if not reader.at_end():
        reader.unexpected("the end of the type")
    tokens = tokenize(text)  # the reader has taken some of its own apart
    limited = any(token.keyword in _LIMITED for token in tokens)
    if limited and any(token.keyword in ("COMMENT", "NOT") for token in tokens):
        raise UnsupportedExpression("A struct with CHAR(n) or VARCHAR(n) in it cannot have comments or NOT NULL")
    return StructField(name, found, True, {CHAR_VARCHAR: _declared(tokens)} if limited else {})


def _declared(tokens: list[Token]) -> str:
    """The type in Spark's own spelling."""
    parts, after_name = [], False
    for token in tokens[:-1]:
        is_name = token.kind in ("name", "quoted")
        text = quote_name(token.text) if token.kind == "quoted" else token.text.lower()
        # A field's name may stand before its type without a colon.
        parts.append(f":{text}" if is_name and after_name else text)
        after_name = is_name
    return re.sub(r"\bcharacter\(", "char(", "".join(parts))


class _Fields(Cursor):
    def whole(self) -> StructType:
        fields = [self.field(0)]
        while self.take_op(","):
            fields.append(self.field(0))
        if not self.at_end():
            self.unexpected("',' or the end")
        return self.struct(fields)

    def struct(self, fields: list[StructField]) -> StructType:
        if (twice := duplicate_name(tuple(field.name for field in fields))) is not None:
            raise InvalidArgument(f"{self.text[:200]!r} has two columns called {twice!r}", column=twice)
        return StructType(tuple(fields))

    def field(self, depth: int) -> StructField:
        if self.token.kind not in ("name", "quoted"):
            self.unexpected("the name of a column")
        name = self.advance().text
        self.take_op(":")
        found = self.nested_type(depth)
        nullable = not self.take_word("NOT")
        if not nullable:
            self.expect_word("NULL")
        return StructField(name, found, nullable, {"comment": self.comment()} if self.take_word("COMMENT") else {})

    def comment(self) -> str:
        if self.token.kind != "string":
            self.unexpected("the text of the comment")
        return self.advance().text

    def nested_type(self, depth: int) -> DataType:
        if depth > MAX_DEPTH:
            self.refuse(f"More than {MAX_DEPTH} types within each other", self.token)
        token = self.token
        match token.keyword:
            case "ARRAY":
                self.open(token)
                element = self.nested_type(depth + 1)
                self.close()
                return ArrayType(element)
            case "MAP":
                self.open(token)
                key = self.nested_type(depth + 1)
                self.expect_op(",")
                value = self.nested_type(depth + 1)
                self.close()
                return MapType(key, value)
            case "STRUCT":
                return self.struct_type(token, depth)
            case "VARIANT":
                self.advance()
                return VARIANT
            case "CHAR" | "CHARACTER" | "VARCHAR":
                self.advance()
                self.expect_op("(")
                if not self.advance().text.isdecimal():
                    self.index -= 1
                    self.unexpected("a length")
                self.expect_op(")")
                return STRING
        return self.data_type()

    def struct_type(self, token: Token, depth: int) -> DataType:
        if self.following.text == "<>":
            self.advance()
            self.advance()
            return StructType(())
        self.open(token)
        fields = [self.field(depth + 1)]
        while self.take_op(","):
            fields.append(self.field(depth + 1))
        self.close()
        return self.struct(fields)

    def open(self, token: Token) -> None:
        self.advance()
        if not self.take_op("<"):
            self.without_types(token)

    def without_types(self, token: Token) -> Never:
        self.refuse(f"{token.text} without the types of what it holds", token)

    def close(self) -> None:
        """`>`, also as the first half of `>>`, which is an operator elsewhere."""
        token = self.token
        if self.at_op(">>", ">>>"):
            self.tokens[self.index] = Token("op", token.text[1:], token.start + 1, token.end)
        else:
            self.expect_op(">")
