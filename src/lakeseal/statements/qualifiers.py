"""Qualifiers in the text of an expression: put in front of names, exchanged or cut out, and all else left as it was.

A qualifier is a name that a dot follows and none precedes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise

from lakeseal import expr
from lakeseal.errors import InvalidExpression, InvalidInput
from lakeseal.expr import syntax as sql
from lakeseal.expr.lexer import Token, tokenize
from lakeseal.expr.render import quote_name
from lakeseal.protocol.schema import StructType

_QUERIES = ("SELECT", "WITH", "FROM", "TABLE", "VALUES")


def renamed(text: str, names: Collection[str], new: str, *, double_quoted_names: bool) -> str:
    """The text with the qualifier `new` in place of each of `names`."""
    return _spliced(text, [(t.start, t.end, quote_name(new)) for t, _ in _qualifiers(text, names, double_quoted_names)])


def qualified(text: str, schema: StructType, name: str, *, other_quotes: bool) -> str:
    """The text with `name` in front of columns that have no qualifier; as it is where `expr` cannot read it."""
    if other_quotes and ('"' in text or "\\" in text):
        return text
    try:
        root = expr.parse(text).root
    except InvalidInput:
        return text
    places = [
        node.position
        for node, _ in sql.walk(root)
        if isinstance(node, sql.Column)
        and not (len(node.parts) > 1 and node.parts[0].lower() == name.lower())
        and schema.field(node.parts[0]) is not None
    ]
    return _spliced(text, [(at, at, quote_name(name) + ".") for at in sorted(places)])


def unqualified(text: str, name: str, schema: StructType, *, case_sensitive: bool, double_quoted_names: bool) -> str:
    """The text without the qualifier `name`, which must be the table's and nothing else: no column is called so, no
    variable of a function, and it is not in a subquery, whose own columns a bare name would mean. Otherwise it is
    refused."""
    found = list(_qualifiers(text, [name], double_quoted_names, case_sensitive=case_sensitive))
    if not found:
        return text
    tokens = tokenize(text, strict=False)
    queries = _subqueries(tokens)
    in_query = any(start < token.start < end for token, _ in found for start, end in queries)
    if in_query or name.lower() in _variables(tokens) or schema.field(name) is not None:
        raise InvalidExpression(
            f"What {name}. means in {text[:100]!r} cannot be told for sure",
            hint="Leave the alias out, or give the table another one that nothing else is called by",
        )
    return _spliced(text, [(token.start, dot.end, "") for token, dot in found])


def _subqueries(tokens: Sequence[Token]) -> list[tuple[int, int]]:
    """From where to where the text is a query in parentheses, those inside of others too."""
    found: list[tuple[int, int]] = []
    open_at: list[tuple[int, bool]] = []
    for place, token in enumerate(tokens):
        if token.kind == "op" and token.text == "(":
            open_at.append((token.start, tokens[place + 1].keyword in _QUERIES))
        elif token.kind == "op" and token.text == ")" and open_at:
            start, is_query = open_at.pop()
            if is_query:
                found.append((start, token.end))
        elif token.keyword == "SELECT" and open_at:
            open_at[-1] = (open_at[-1][0], True)
    return found


def _variables(tokens: Sequence[Token]) -> set[str]:
    """Names of the variables of functions: `x -> …`, `(x, y) -> …`."""
    found: set[str] = set()
    for place, token in enumerate(tokens):
        if token.kind == "op" and token.text == "->":
            first = place - 1
            while tokens[place - 1].text == ")" and first > 0 and tokens[first].text != "(":
                first -= 1
            found |= {name.text.strip('"').lower() for name in tokens[max(first, 0) : place]}
    return found


def _qualifiers(
    text: str, names: Collection[str], double_quoted_names: bool, *, case_sensitive: bool = False
) -> Iterable[tuple[Token, Token]]:
    """Each with the dot behind it."""
    wanted = {name if case_sensitive else name.lower() for name in names}
    tokens = tokenize(text, strict=False)
    for place, (token, dot) in enumerate(pairwise(tokens)):
        if dot.kind != "op" or dot.text != "." or (place and tokens[place - 1].text == "."):
            continue
        name = token.text
        if token.kind == "string" and double_quoted_names and name[0] == '"':
            name = name[1:-1].replace('""', '"')
        elif token.kind not in ("name", "quoted"):
            continue
        if (name if case_sensitive else name.lower()) in wanted:
            yield token, dot


def _spliced(text: str, changes: list[tuple[int, int, str]]) -> str:
    for start, end, new in reversed(changes):
        text = text[:start] + new + text[end:]
    return text
