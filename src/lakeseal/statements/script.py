"""Several statements in one text, with a semicolon behind each, as they were written."""

from __future__ import annotations

from lakeseal.errors import InvalidExpression
from lakeseal.expr.lexer import tokenize


def split(text: str) -> list[str]:
    """Those that say anything; raises where a quote or a comment is not closed."""
    found, start = [], None
    end = 0
    for token in tokenize(text, strict=False):
        is_end = token.kind == "end" or (token.kind == "op" and token.text == ";")
        if not is_end:
            start, end = (token.start if start is None else start), token.end
        elif start is not None:
            found.append(text[start:end])
            start = None
    return found


def is_whole(text: str) -> bool:
    """Whether the text ends with a semicolon that ends a statement: nothing of it is still open."""
    try:
        tokens = tokenize(text, strict=False)
    except InvalidExpression:
        return False
    return len(tokens) > 1 and tokens[-2].kind == "op" and tokens[-2].text == ";"
