"""How a query is spelled: what Spark and DuckDB would read in two ways is refused, and names in backticks are put as
DuckDB wants them. Everything else stays as it was written."""

from __future__ import annotations

import re

from lakeseal.errors import UnsupportedExpression
from lakeseal.expr.lexer import Token, place, tokenize

# Operators that bind in another order, or in none of their own, for one of the two.
_LOOSE = frozenset(("||", "&", "|"))
_SUMS = frozenset(("+", "-"))
_COMPARES = frozenset(("=", "==", "<", ">", "<=", ">=", "<>", "!="))
_TESTS = frozenset(("IN", "LIKE", "BETWEEN"))
_DECIMALS = frozenset(("DECIMAL", "NUMERIC", "DEC"))
_PREFIXES = frozenset(("X", "B", "E", "U"))
_OPENS, _CLOSES = frozenset("([{"), frozenset(")]}")
_SUFFIXED = re.compile(r"[0-9.]+(?:[eE][+-]?[0-9]+)?[A-Za-z]+\Z")
# Words that are no part of an operand: what stands on their two sides is two expressions.
_BREAKS = frozenset(
    ("SELECT", "FROM", "WHERE", "AND", "OR", "ON", "GROUP", "BY", "HAVING", "ORDER", "LIMIT", "OFFSET", "CASE", "WHEN",
     "THEN", "ELSE", "END", "AS", "UNION", "EXCEPT", "INTERSECT", "JOIN", "USING", "VALUES", "WITH", "QUALIFY")
)  # fmt: skip


def spelled(text: str) -> str:
    """The text for DuckDB, in which Spark would read the same words."""
    tokens = tokenize(text, strict=False)
    if re.search(r"\\\r?\n", text):
        _refuse("A backslash at the end of a line", text, text.index("\\"), "Leave it out")
    for token in tokens:
        _check(token, text)
    for before, token, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        _check_between(before, token, after, text)
    _check_counted(tokens, text)
    _check_order(tokens, text)
    return text


def with_double_quotes(text: str) -> str:
    """Names in backticks as DuckDB quotes them."""
    parts, at = [], 0
    for token in tokenize(text, strict=False):
        if token.kind == "quoted":
            parts += [text[at : token.start], double_quoted(token.text)]
            at = token.end
    return "".join([*parts, text[at:]])


def double_quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _check(token: Token, text: str) -> None:
    if token.kind == "string" and token.text[0] == '"':
        _refuse("A double quote is a text to Spark and a name to DuckDB", text, token.start, "Write 'text' or `name`")
    if token.kind == "string" and token.text[0] in "rR":
        _refuse("r'…' is a text to Spark only", text, token.start, "Write '…'")
    if token.kind == "string" and "\\" in token.text:
        _refuse("A backslash escapes in Spark and not in DuckDB", text, token.start, "Leave it out")
    if token.kind == "number" and _SUFFIXED.match(token.text):
        _refuse(f"{token.text} is a number of another type to Spark only", text, token.start, "Write CAST(… AS …)")
    if token.kind == "name" and token.text[0].isdigit():
        _refuse(f"{token.text} is one name to Spark and two words to DuckDB", text, token.start, "Write `name`")
    if token.kind == "op" and token.text == "$":
        _refuse("$ begins a text or a parameter in DuckDB only", text, token.start, "Write '…'")


def _check_between(before: Token, token: Token, after: Token, text: str) -> None:
    """What depends on its neighbours."""
    is_type = before.keyword == "AS" or before.text == "::"
    if is_type and token.keyword in _DECIMALS and after.text != "(":
        _refuse("A decimal without digits is another one in Spark", text, token.start, "Write DECIMAL(10, 0)")
    for one, other in ((before, token), (token, after)):
        if one.keyword in _PREFIXES and other.kind == "string" and other.start == one.end:
            _refuse(f"{one.text}'…' are bytes to Spark only", text, one.start, "Leave it out")


def _check_counted(tokens: list[Token], text: str) -> None:
    for at, token in enumerate(tokens):
        if token.keyword != "COUNT" or tokens[at + 1].text != "(":
            continue
        for one, other in zip(tokens[at:], tokens[at + 1 :], strict=False):
            if one.text == ")":
                break
            if one.text == "." and other.text == "*":
                _refuse("Spark does not know count(t.*)", text, token.start, "Name one column, or *")


def _check_order(tokens: list[Token], text: str) -> None:
    """Where the order of operators is not the same in both, parentheses have to say it."""
    frames: list[set[str]] = [set()]
    for token in tokens:
        word, seen = token.keyword, frames[-1]
        if token.kind == "op" and token.text in _OPENS:
            frames.append(set())
        elif token.kind == "op" and token.text in _CLOSES:
            if len(frames) > 1:
                frames.pop()
        elif word in _BREAKS or (token.kind == "op" and token.text in (",", ";")):
            # The AND of BETWEEN ends no expression, and what it would join is compared by no other operator.
            seen.clear()
        elif token.kind == "op" and token.text in _LOOSE | _SUMS:
            seen.add("sum" if token.text in _SUMS else token.text)
            if len(seen & (_LOOSE | {"sum"})) > 1:
                _refuse("These operators have another order in Spark", text, token.start, "Put them in parentheses")
        elif (token.kind == "op" and token.text in _COMPARES) or word in _TESTS:
            seen.add("test" if word else "compare")
            seen -= _LOOSE | {"sum"}
            if {"test", "compare"} <= seen:
                _refuse("These operators have another order in Spark", text, token.start, "Put them in parentheses")


def _refuse(why: str, text: str, at: int, hint: str) -> None:
    raise UnsupportedExpression(
        f"Without Spark a query must mean the same to DuckDB: {why}, at {place(text, at)}",
        hint=f"{hint}, or give spark=…",
    )
