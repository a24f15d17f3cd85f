"""A place in an expression's tokens, and the parts that need no operators: literals and names of types."""

from __future__ import annotations

from typing import Never

from lakeseal.errors import InvalidExpression, UnsupportedExpression
from lakeseal.expr.lexer import Token, place, tokenize
from lakeseal.expr.syntax import Interval, Literal, Node
from lakeseal.protocol.schema import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    DataType,
    DecimalType,
)

_TYPES: dict[str, DataType] = {
    "BOOLEAN": BOOLEAN,
    "TINYINT": BYTE,
    "BYTE": BYTE,
    "SMALLINT": SHORT,
    "SHORT": SHORT,
    "INT": INTEGER,
    "INTEGER": INTEGER,
    "BIGINT": LONG,
    "LONG": LONG,
    "FLOAT": FLOAT,
    "REAL": FLOAT,
    "DOUBLE": DOUBLE,
    "DATE": DATE,
    "TIMESTAMP": TIMESTAMP,
    "TIMESTAMP_LTZ": TIMESTAMP,
    "TIMESTAMP_NTZ": TIMESTAMP_NTZ,
    "STRING": STRING,
    "BINARY": BINARY,
    "VOID": VOID,
}
_TYPED_LITERALS = {"DATE": DATE, "TIMESTAMP": TIMESTAMP, "TIMESTAMP_LTZ": TIMESTAMP, "TIMESTAMP_NTZ": TIMESTAMP_NTZ}
_UNITS = frozenset(["year", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond"])
_MONTHS = {"year": 12, "month": 1}
_DAYS = {"week": 7, "day": 1}
_MICROS = {
    **{"week": 7 * 86_400_000_000, "day": 86_400_000_000, "hour": 3_600_000_000, "minute": 60_000_000},
    **{"second": 1_000_000, "millisecond": 1000, "microsecond": 1},
}


class Cursor:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokenize(text)
        self.index = 0

    @property
    def token(self) -> Token:
        return self.tokens[self.index]

    @property
    def following(self) -> Token:
        return self.tokens[min(self.index + 1, len(self.tokens) - 1)]

    def advance(self) -> Token:
        token = self.token
        self.index += 1
        return token

    def at_end(self) -> bool:
        return self.token.kind == "end"

    def at_op(self, *ops: str) -> bool:
        return self.token.kind == "op" and self.token.text in ops

    def at_word(self, *words: str) -> bool:
        return self.token.keyword in words

    def take_op(self, op: str) -> bool:
        if self.at_op(op):
            self.index += 1
            return True
        return False

    def take_word(self, *words: str) -> bool:
        if self.at_word(*words):
            self.index += 1
            return True
        return False

    def expect_op(self, op: str) -> None:
        if not self.take_op(op):
            self.unexpected(repr(op))

    def expect_word(self, word: str) -> None:
        if not self.take_word(word):
            self.unexpected(word)

    def unexpected(self, wanted: str) -> Never:
        token = self.token
        found = "the end" if token.kind == "end" else repr(self.text[token.start : token.end][:40])
        raise InvalidExpression(f"Expected {wanted}, found {found} at {place(self.text, token.start)}")

    def refuse(self, what: str, token: Token, hint: str | None = None) -> Never:
        raise InvalidExpression(f"{what} cannot be used here, at {place(self.text, token.start)}", hint=hint)

    def unsupported(self, what: str, token: Token) -> Never:
        raise UnsupportedExpression(f"{what} is not supported, at {place(self.text, token.start)}")

    def string(self) -> Node:
        start = self.token.start
        parts = []
        while self.token.kind == "string":
            parts.append(self.advance().text)
        return Literal("".join(parts), STRING, start)

    def typed_literal(self) -> Node:
        token = self.advance()
        word, content = token.keyword, self.advance().text
        if word in _TYPED_LITERALS:
            return Literal(content, _TYPED_LITERALS[word], token.start)
        if word == "X":
            try:
                return Literal(bytes.fromhex(content.rjust(len(content) + len(content) % 2, "0")), BINARY, token.start)
            except ValueError:
                raise InvalidExpression(
                    f"X'{content[:40]}' is no hexadecimal text, at {place(self.text, token.start)}"
                ) from None
        if word == "TIME":
            self.unsupported("A time of the day", token)
        self.index -= 1
        self.unexpected("an operator")

    def interval(self) -> Node:
        token = self.advance()
        parts = [self.amount_of_unit(token)]
        while self.token.kind in ("number", "string") or (
            self.at_op("-", "+") and self.following.kind in ("number", "string") and self._unit_follows()
        ):
            parts.append(self.amount_of_unit(token))
        if self.at_word("TO"):
            self.unsupported("An interval from one unit to another", token)
        if self.at_op("::"):
            self.unsupported("The cast of an interval", token)
        if len(parts) == 1:
            return Interval(*parts[0], token.start)
        units = [unit for _, unit in parts]
        for unit, table in (("month", _MONTHS), ("day", _DAYS), ("microsecond", _MICROS)):
            if all(one in table for one in units) and len(set(units)) == len(units):
                return Interval(sum(amount * table[one] for amount, one in parts), unit, token.start)
        self.unsupported("An interval of months and days, or twice of one unit", token)

    def _unit_follows(self) -> bool:
        after = self.tokens[min(self.index + 2, len(self.tokens) - 1)]
        return after.kind == "name" and after.text.lower().removesuffix("s") in _UNITS

    def amount_of_unit(self, token: Token) -> tuple[int, str]:
        sign = -1 if self.at_op("-") else 1
        if self.at_op("-", "+"):
            self.advance()
        digits = self.advance().text.strip()
        unit = self.token.text.lower().removesuffix("s")
        if unit not in _UNITS or not digits.lstrip("+-").isdecimal() or not digits.isascii() or len(digits) > 12:
            self.unsupported("An interval other than of whole numbers of units", token)
        self.advance()
        return sign * int(digits), unit

    def data_type(self) -> DataType:
        token = self.advance()
        word = token.keyword
        if word in ("DECIMAL", "DEC", "NUMERIC"):
            return self.decimal_type(token)
        if word in _TYPES:
            if self.at_op("(") or self.at_word("WITH", "WITHOUT", "COLLATE"):
                self.unsupported(f"The type {word.lower()} with parameters", token)
            return _TYPES[word]
        self.unsupported(f"The type {token.text[:40]!r}", token)

    def decimal_type(self, token: Token) -> DataType:
        numbers = [10, 0]
        if self.take_op("("):
            digits = [self.advance().text]
            while self.take_op(","):
                digits.append(self.advance().text)
            self.expect_op(")")
            if len(digits) > 2 or not all(d.isdecimal() and len(d) < 4 for d in digits):
                self.refuse(f"decimal({','.join(digits)[:40]})", token)
            numbers[: len(digits)] = [int(d) for d in digits]
        precision, scale = numbers
        if not 0 <= scale <= precision <= 38 or precision == 0:
            self.refuse(f"decimal({precision},{scale})", token, "A decimal has at most 38 digits")
        return DecimalType(precision, scale)
