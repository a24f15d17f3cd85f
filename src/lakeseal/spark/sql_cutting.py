"""Where the parts of a statement begin and end, so that they can be cut out of the text as they were written.

Tokens are Spark's (`expr/lexer`), and only their places count: a string may hold any keyword, a comment any quote. A
keyword ends a part where it stands outside of parentheses, brackets and CASE … END, and is no name behind a dot.
Whatever does not fit is refused with its place.
"""

from __future__ import annotations

from typing import NoReturn

from lakeseal.errors import InvalidExpression
from lakeseal.expr.lexer import Token, place, tokenize

_OPENS = {"(": ")", "[": "]", "{": "}"}


class Cutter:
    def __init__(self, text: str, double_quoted_names: bool = False) -> None:
        self.text = text
        self.tokens = tokenize(text, strict=False)
        self.at = 0
        self._double_quoted_names = double_quoted_names
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

    def expect(self, word: str) -> None:
        if not self.takes(word):
            self.refuse(f"{word} was expected")

    def expect_end(self) -> None:
        if self.token.kind != "end":
            self.refuse("The end was expected")

    def is_op(self, ahead: int, op: str) -> bool:
        place = self.at + ahead
        return place < len(self.tokens) and self.tokens[place].kind == "op" and self.tokens[place].text == op

    def takes_op(self, op: str) -> bool:
        found = self.is_op(0, op)
        if found:
            self.skip(1)
        return found

    def name_at(self, ahead: int) -> str | None:
        """The name there, without its quotes."""
        place = self.at + ahead
        if place >= len(self.tokens):
            return None
        token = self.tokens[place]
        if token.kind in ("name", "quoted"):
            return token.text
        if token.kind == "string" and token.text[0] == '"' and self._double_quoted_names:
            return token.text[1:-1].replace('""', '"')
        return None

    def text_of(self, first: int, last: int) -> str:
        """From one token up to another, which is not in it."""
        return self.text[self.tokens[first].start : self.tokens[last - 1].end]

    def cut_before(self, *words: str, commas: bool = False) -> str:
        """The text up to one of these keywords, to a comma if they count, to what closes, or to the end."""
        first = self.at
        self._skip_to(words, commas)
        if self.at == first:
            self.refuse("An expression was expected")
        return self.text_of(first, self.at)

    def cut_parentheses(self) -> str:
        """What is between those that begin here."""
        self.skip(1)
        first = self.at
        inside = self.cut_before()
        if not self.takes_op(")"):
            self.at = first - 1
            self.refuse("This is not closed")
        return inside

    def refuse(self, why: str, hint: str | None = None) -> NoReturn:
        raise InvalidExpression(
            f"{why}, at {place(self.text, self.token.start)} of {self.text.strip()[:100]!r}",
            hint=hint or "Mend the statement, or write it with the Table API",
        )

    def _skip_to(self, words: tuple[str, ...], commas: bool) -> None:
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
