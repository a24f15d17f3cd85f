"""SQL text to tokens, by Spark's lexical rules.

Names are letters, digits and `_` (they may start with a digit) or anything between backticks. Strings stand in single
or double quotes, with Spark's backslash escapes and doubled quotes; `r'…'` is raw. Numbers carry Spark's suffixes.
Comments are skipped. Every token knows where it starts, so that errors can point at it.
"""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct

from lakeseal.errors import InvalidExpression

MAX_LENGTH = 4_000_000

Kind = Literal["name", "quoted", "string", "number", "op", "end"]


class Token(Struct, frozen=True):
    kind: Kind
    text: str
    """What it stands for: a name as written, a string's content, a number with its suffix, an operator."""
    start: int
    end: int

    @property
    def keyword(self) -> str:
        """The upper-case word, if it can be a keyword."""
        return self.text.upper() if self.kind == "name" else ""


_TOKEN = re.compile(
    r"""
      (?P<blank> [ \t\n\f\r\v\u00a0\u1680\u2000-\u200a\u2028\u202f\u205f\u3000]+ | --(?:\\\n|[^\r\n])*\r?\n? )
    | (?P<comment> /\* )
    | (?P<raw> [rR](?: '[^']*' | "[^"]*" ) )
    | (?P<string> '(?: [^'\\] | \\. | '' )*' | "(?: [^"\\] | \\. | "" )*" )
    | (?P<quoted> `(?: [^`] | `` )*` )
    | (?P<number> (?: [0-9]+\.[0-9]* | \.[0-9]+ ) (?: [eE][+-]?[0-9]+ )? (?: [bB][dD] | [dDfF] )? (?! [A-Za-z0-9_] )
                | [0-9]+ (?: [eE][+-]?[0-9]+ )? (?: [bB][dD] | [dDfF] )? (?! [A-Za-z0-9_] )
                | [0-9]+ [lLsSyY]? (?! [A-Za-z0-9_] ) )
    | (?P<name> [A-Za-z0-9_]+ )
    | (?P<op> <=> | <> | != | <= | >= | !< | !> | == | \|\| | :: | -> | => | >>> | >> | <<
            | [-=<>+*/%~&|^()\[\],.:?@!;{}] )
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([01][0-7]{2})|(.))", re.DOTALL)
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}


def tokenize(text: str, *, strict: bool = True) -> list[Token]:
    """The tokens of `text`, ending with one of kind `end`.

    Unless `strict`, a character that belongs to no token is an operator of its own: whoever only cuts the text leaves
    it to another reader. What is not closed is never let through."""
    if len(text) > MAX_LENGTH:
        raise InvalidExpression(
            f"The expression has {len(text)} characters, the limit is {MAX_LENGTH}",
            hint="Write long lists of values to a table and join with it",
        )
    tokens: list[Token] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            if strict or text[position] in "'\"`":
                raise _unreadable(text, position)
            tokens.append(Token("op", text[position], position, position + 1))
            position += 1
            continue
        kind = match.lastgroup
        end = match.end()
        if kind == "comment":
            end = _comment_end(text, end)
        elif kind != "blank":
            tokens.append(_token(kind, match.group(), position, end, text, strict))
        position = end
    tokens.append(Token("end", "", len(text), len(text)))
    return tokens


def place(text: str, position: int) -> str:
    """Where a position is, as people count: line and column from 1."""
    line = text.count("\n", 0, position) + 1
    column = position - (text.rfind("\n", 0, position) + 1) + 1
    return f"line {line}, column {column}"


def _token(kind: str | None, raw: str, start: int, end: int, text: str, strict: bool) -> Token:
    match kind:
        case "string" | "raw" if not strict:
            return Token("string", raw, start, end)
        case "string":
            quote = raw[0]
            return Token("string", _unescape(raw[1:-1].replace(quote * 2, quote), text, start), start, end)
        case "raw":
            return Token("string", raw[2:-1], start, end)
        case "quoted":
            return Token("quoted", raw[1:-1].replace("``", "`"), start, end)
        case "number":
            return Token("number", raw, start, end)
        case "name":
            return Token("name", raw, start, end)
        case _:
            return Token("op", raw, start, end)


def _unescape(raw: str, text: str, start: int) -> str:
    if "\\" not in raw:
        return raw

    def replace(match: re.Match[str]) -> str:
        short, long, octal, char = match.groups()
        if short is not None or long is not None:
            code = int(short if short is not None else long, 16)
            if code > 0x10FFFF:
                raise InvalidExpression(f"There is no character U+{code:X}, at {place(text, start)}")
            return chr(code)
        if octal is not None:
            return chr(int(octal, 8))
        return _ESCAPED.get(char, char)

    plain = _ESCAPE.sub(replace, raw)
    try:
        # Two escapes may spell one character as a surrogate pair.
        return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise InvalidExpression(f"The string at {place(text, start)} holds half of a surrogate pair") from None


def _comment_end(text: str, position: int) -> int:
    depth = 1
    start = position - 2
    while depth:
        edge = _COMMENT_EDGE.search(text, position)
        if edge is None:
            raise InvalidExpression(f"The comment at {place(text, start)} is not closed", hint="Close it with */")
        depth += 1 if edge.group() == "/*" else -1
        position = edge.end()
    return position


def _unreadable(text: str, position: int) -> InvalidExpression:
    char = text[position]
    where = place(text, position)
    if char in "'\"`":
        return InvalidExpression(f"The {char} at {where} is not closed", hint=f"Close it with another {char}")
    if char.isalpha():
        return InvalidExpression(
            f"Unexpected character {char!r} at {where}", hint="Put names with letters beyond A to Z between backticks"
        )
    return InvalidExpression(f"Unexpected character {char!r} at {where}")
