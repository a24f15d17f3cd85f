"""Where the parts of a statement begin and end, so that they can be cut out of the text as they were written.

Tokens are Spark's (`expr/lexer`), and only their places count: a string may hold any keyword, a comment any quote. A
keyword ends a part where it stands outside of parentheses, brackets and CASE … END, and is no name behind a dot.
Whatever does not fit is refused with its place.
"""

from __future__ import annotations

from typing import NoReturn, TypeVar

from lakeseal.errors import InvalidExpression
from lakeseal.expr.lexer import Token, place, tokenize
from lakeseal.statements.statement import PATH_SCHEMAS, Moment, StatedName

_OPENS = {"(": ")", "[": "]", "{": "}"}

N = TypeVar("N", int, float)


class Cutter:
    def __init__(self, text: str, double_quoted_names: bool = False) -> None:
        self.text = text
        self.tokens = tokenize(text, strict=False)
        self.at = 0
        self.double_quoted_names = double_quoted_names
        while len(self.tokens) > 1 and self.tokens[-2].text == ";" and self.tokens[-2].kind == "op":
            del self.tokens[-2]

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def skip(self, count: int) -> None:
        self.at = min(self.at + count, len(self.tokens) - 1)

    def sees(self, *words: str) -> bool:
        ahead = self.tokens[self.at : self.at + len(words)]
        return len(ahead) == len(words) and all(t.keyword == word for t, word in zip(ahead, words, strict=True))

    def takes(self, *words: str) -> bool:
        """Goes on behind these words, if they are next."""
        found = self.sees(*words)
        if found:
            self.skip(len(words))
        return found

    def expect(self, *words: str) -> None:
        for word in words:
            if not self.takes(word):
                self.refuse(f"{word} was expected")

    def expect_end(self) -> None:
        if self.token.kind != "end":
            self.refuse("The end was expected")

    def is_op(self, ahead: int, op: str) -> bool:
        place = self.at + ahead
        return 0 <= place < len(self.tokens) and self.tokens[place].kind == "op" and self.tokens[place].text == op

    def takes_op(self, op: str) -> bool:
        found = self.is_op(0, op)
        if found:
            self.skip(1)
        return found

    def expect_op(self, op: str) -> None:
        if not self.takes_op(op):
            self.refuse(f"{op} was expected")

    def name_at(self, ahead: int) -> str | None:
        """The name there, without its quotes."""
        place = self.at + ahead
        if place >= len(self.tokens):
            return None
        token = self.tokens[place]
        if token.kind in ("name", "quoted"):
            return token.text
        if self._is_double_quoted_name(token):
            return token.text[1:-1].replace('""', '"')
        return None

    def _is_double_quoted_name(self, token: Token) -> bool:
        return token.kind == "string" and token.text[0] == '"' and self.double_quoted_names

    def name(self, what: str = "A name") -> str:
        found = self.name_at(0)
        if found is None:
            self.refuse(f"{what} was expected")
        self.skip(1)
        return found

    def names(self, what: str = "A name") -> tuple[str, ...]:
        """`a.b.c`, without quotes."""
        found = [self.name(what)]
        while self.is_op(0, ".") and self.name_at(1) is not None:
            self.skip(1)
            found.append(self.name(what))
        return tuple(found)

    def table(self, *, travels: bool = False) -> StatedName:
        """A table by its path or by names; with the version of it, where one may be given."""
        first = self.at
        parts = self.names("A table")
        if len(parts) > 3:
            self.at = first
            self.refuse("A table has at most three names")
        moment = self.moment() if travels else None
        return self.table_name(parts, first, moment)

    def table_name(self, parts: tuple[str, ...], first: int, moment: Moment | None = None) -> StatedName:
        """What these names, which begin at the token `first`, are as a table."""
        if len(parts) == 2 and parts[0].lower() in PATH_SCHEMAS and self.tokens[first + 2].kind != "name":
            return StatedName.at_path(parts[1], moment)
        return StatedName(parts=parts, at=moment)

    def moment(self) -> Moment | None:
        """`VERSION AS OF 1`, `TIMESTAMP AS OF '…'`, `@v1`, if one is next."""
        if self.is_op(0, "@"):
            return self._at_sign()
        start = self.at
        self.takes("FOR")
        for word in ("VERSION", "SYSTEM_VERSION", "TIMESTAMP", "SYSTEM_TIME"):
            if self.takes(word, "AS", "OF"):
                if word.endswith("VERSION"):
                    text = self.string() if self.token.kind == "string" else ""
                    version = int(text) if text.isdecimal() and text.isascii() else self.number(int)
                    return Moment(version=version)
                return Moment(timestamp=self._moment_text())
        self.at = start
        return None

    def _at_sign(self) -> Moment:
        self.skip(1)
        found = at_sign(self.token.text) if self.token.kind in ("name", "number") else None
        if found is None:
            self.refuse("A version (@v3) or a moment (@yyyyMMddHHmmssSSS) was expected")
        self.skip(1)
        return found

    def _moment_text(self) -> str:
        """A text in quotes, a function of something or what is in parentheses, more or less an interval."""
        first = self.at
        if self.token.kind == "number":
            self.refuse("A moment was expected", hint="Write it in quotes: TIMESTAMP AS OF '2024-01-31 12:00:00'")
        self._operand()
        while self.is_op(0, "-") or self.is_op(0, "+"):
            self.skip(1)
            self._operand()
        return self.text_of(first, self.at)

    def _operand(self) -> None:
        if self.takes("INTERVAL"):
            self.skip(1)
            self.name("A unit")
            return
        if self.token.keyword in ("TIMESTAMP", "DATE", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ"):
            following = self.tokens[min(self.at + 1, len(self.tokens) - 1)]
            if following.kind == "string":
                self.skip(2)
                return
        if self.token.kind == "string" or self.token.kind == "number":
            self.skip(1)
            return
        if self.is_op(0, "("):
            self.cut_parentheses()
            return
        self.names("A moment")
        if self.is_op(0, "("):
            self._parentheses()

    def _parentheses(self) -> None:
        self.skip(1)
        if not self.takes_op(")"):
            self.skip_to((), commas=False)
            self.expect_op(")")

    def number(self, kind: type[N]) -> N:
        sign = "-" if self.is_op(0, "-") else ""
        token = self.tokens[min(self.at + len(sign), len(self.tokens) - 1)]
        try:
            number = kind(sign + token.text if token.kind == "number" else "")
        except ValueError:
            self.refuse("A number was expected")
        self.skip(1 + len(sign))
        return number

    def string(self) -> str:
        """What a text in quotes stands for."""
        if self.token.kind != "string" or self._is_double_quoted_name(self.token):
            self.refuse("A text in quotes was expected")
        (decoded, _) = tokenize(self.token.text)
        self.skip(1)
        return decoded.text

    def listed(self, what: str = "A column") -> tuple[str, ...]:
        """`(a, b)`, or `a, b` without parentheses."""
        in_parentheses = self.takes_op("(")
        found = [self.simple_name(what)]
        while self.takes_op(","):
            found.append(self.simple_name(what))
        if in_parentheses and not self.takes_op(")"):
            self.refuse("A comma or ) was expected")
        return tuple(found)

    def simple_name(self, what: str = "A column") -> str:
        name = self.name_at(0)
        if name is None or self.is_op(1, "."):
            self.refuse(f"{what} was expected")
        self.skip(1)
        return name

    def dotted(self, what: str = "A column") -> str:
        """A name with its fields, as it was written."""
        first = self.at
        while self.name_at(0) is not None:
            self.skip(1)
            if not self.is_op(0, "."):
                return self.text_of(first, self.at)
            self.skip(1)
        self.refuse(f"{what} was expected")

    def text_of(self, first: int, last: int) -> str:
        """From one token up to another, which is not in it."""
        return self.text[self.tokens[first].start : self.tokens[last - 1].end]

    def cut_before(self, *words: str, commas: bool = False) -> str:
        """The text up to one of these keywords, to a comma if they count, to what closes, or to the end."""
        first = self.at
        self.skip_to(words, commas)
        if self.at == first:
            self.refuse("An expression was expected")
        return self.text_of(first, self.at)

    def cut_rest(self) -> str:
        """All that is left, which must be one statement."""
        text = self.cut_before()
        self.expect_end()
        return text

    def cut_parentheses(self) -> str:
        """What is between those that begin here."""
        if not self.takes_op("("):
            self.refuse("( was expected")
        first = self.at
        inside = self.cut_before()
        # A comma is no end: the whole is what is meant.
        if not self.takes_op(")"):
            self.at = first - 1
            self.refuse("This is not closed")
        return inside

    def refuse(self, why: str, hint: str | None = None) -> NoReturn:
        raise InvalidExpression(
            f"{why}, at {place(self.text, self.token.start)} of {self.text.strip()[:100]!r}",
            hint=hint or "Mend the statement, or write it with the Table API",
        )

    def skip_to(self, words: tuple[str, ...], commas: bool) -> None:
        closing: list[str] = []
        while self.token.kind != "end":
            token, word = self.token, "" if self._is_field() else self.token.keyword
            if not closing and (word in words or (commas and self.is_op(0, ","))):
                return
            if token.kind == "op" and token.text in _OPENS.values():
                if not closing:
                    return
                if closing.pop() != token.text:
                    self.refuse(f"Unexpected {token.text}")
            elif token.kind == "op" and token.text in _OPENS:
                closing.append(_OPENS[token.text])
            elif token.kind == "op" and token.text == ";":
                self.refuse("There must be one statement only")
            elif word == "CASE":
                closing.append("END")
            elif word == "END" and closing and closing[-1] == "END":
                closing.pop()
            self.skip(1)
        if closing:
            self.refuse(f"{closing[-1]} is missing")

    def _is_field(self) -> bool:
        return self.at > 0 and self.is_op(-1, ".")


def at_sign(text: str) -> Moment | None:
    """What stands behind an @: `v3`, or a moment as seventeen digits."""
    if text[:1] in ("v", "V") and text[1:].isdecimal() and text.isascii():
        return Moment(version=int(text[1:]))
    if len(text) == 17 and text.isdecimal() and text.isascii():
        day, time = f"{text[:4]}-{text[4:6]}-{text[6:8]}", f"{text[8:10]}:{text[10:12]}:{text[12:14]}.{text[14:]}"
        return Moment(timestamp=f"'{day} {time}'")
    return None
