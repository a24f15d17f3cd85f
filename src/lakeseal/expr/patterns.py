"""LIKE and RLIKE patterns, translated to what Arrow's RE2 matches in the same way.

LIKE becomes a plain comparison where it can: equality, prefix, suffix or containment. RLIKE patterns are Java's, so
only constructs that mean the same in RE2, or can be rewritten so that they do, are taken; the rest raises
`UnsupportedExpression`. Matching is a yes or no, so it does not matter which of several matches is found.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import pyarrow.compute as pc
from msgspec import Struct

from lakeseal.errors import InvalidExpression, UnsupportedExpression
from lakeseal.expr.values import Datum

Form = Literal["equal", "prefix", "suffix", "contains", "regex"]


class LikePattern(Struct, frozen=True):
    form: Form
    text: str
    """What to compare with, or the RE2 pattern."""
    prefix: str
    """What every match starts with."""


def like_pattern(pattern: str, escape: str) -> LikePattern:
    """Parts are literal text, `%` for anything and `_` for one character."""
    parts = _like_parts(pattern, escape)
    prefix = parts[0][1] if parts and parts[0][0] == "text" else ""
    match [kind for kind, _ in parts]:
        case []:
            return LikePattern("equal", "", "")
        case ["text"]:
            return LikePattern("equal", prefix, prefix)
        case ["text", "any"]:
            return LikePattern("prefix", prefix, prefix)
        case ["any", "text"]:
            return LikePattern("suffix", parts[1][1], "")
        case ["any", "text", "any"]:
            return LikePattern("contains", parts[1][1], "")
        case _:
            regex = "".join(re2_escape(text) if kind == "text" else text for kind, text in parts)
            return LikePattern("regex", rf"(?s)\A{regex}\z", prefix)


def match_like(value: Datum, pattern: LikePattern) -> Datum:
    match pattern.form:
        case "equal":
            return pc.equal(value, pattern.text)
        case "prefix":
            return pc.starts_with(value, pattern.text)
        case "suffix":
            return pc.ends_with(value, pattern.text)
        case "contains":
            return pc.match_substring(value, pattern.text)
        case _:
            return pc.match_substring_regex(value, pattern.text)


def re2_escape(text: str) -> str:
    return "".join(rf"\x{{{ord(c):x}}}" if not (c.isascii() and c.isalnum()) else c for c in text)


def _like_parts(pattern: str, escape: str) -> list[tuple[str, str]]:
    parts: list[tuple[str, str]] = []
    index = 0
    while index < len(pattern):
        char = pattern[index]
        if char == escape:
            index += 1
            if index == len(pattern):
                raise InvalidExpression(f"The pattern {pattern!r} ends with its escape character", hint="Double it")
            char = pattern[index]
            if char not in ("_", "%", escape):
                raise InvalidExpression(
                    f"The pattern {pattern!r} escapes {char!r}", hint=f"Only _, % and {escape} can be escaped"
                )
            kind, text = "text", char
        elif char == "%":
            kind, text = "any", ".*"
        elif char == "_":
            kind, text = "one", "."
        else:
            kind, text = "text", char
        if parts and kind == parts[-1][0] == "text":
            parts[-1] = ("text", parts[-1][1] + text)
        elif not (parts and kind == parts[-1][0] == "any"):
            parts.append((kind, text))
        index += 1
    return parts


_LINE_END = r"(?:\r\n|[\n\r\x{85}\x{2028}\x{2029}])"
_NOT_LINE_END = r"[^\n\r\x{85}\x{2028}\x{2029}]"
_CLASSES = {
    "d": "0-9",
    "w": "a-zA-Z0-9_",
    "s": r" \t\n\x0b\f\r",
}
_CONTROLS = {"t": r"\t", "n": r"\n", "r": r"\r", "f": r"\f", "a": r"\x07", "e": r"\x1b"}
_QUANTIFIER = re.compile(r"[*+?]|\{[0-9]{1,3}(?:,[0-9]{0,3})?\}")
_HEX = re.compile(r"x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})")
_MAX_LENGTH = 10_000


class Translation:
    """Walks a Java pattern and writes the RE2 pattern that finds the same strings."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.index = 0
        self.groups = 0
        self.out: list[str] = []

    def refuse(self, what: str) -> Any:
        raise UnsupportedExpression(
            f"The regular expression {self.pattern[:100]!r} uses {what}, which is not supported"
        )

    def peek(self, text: str) -> bool:
        return self.pattern.startswith(text, self.index)

    def translate(self) -> str:
        if len(self.pattern) > _MAX_LENGTH:
            self.refuse(f"more than {_MAX_LENGTH} characters")
        quantifiable = False
        while self.index < len(self.pattern):
            quantifier = _QUANTIFIER.match(self.pattern, self.index)
            if quantifier is not None:
                if not quantifiable:
                    self.refuse("a quantifier after nothing")
                self.quantifier(quantifier)
                quantifiable = False
                continue
            quantifiable = self.atom()
        if self.groups:
            self.refuse("a group that is not closed")
        return "".join(self.out)

    def quantifier(self, match: re.Match[str]) -> None:
        self.index = match.end()
        if self.peek("+"):
            self.refuse("a possessive quantifier")
        reluctant = self.peek("?")
        self.index += reluctant
        if _QUANTIFIER.match(self.pattern, self.index):
            self.refuse("a quantifier after a quantifier")
        self.out.append(match.group() + self.reluctance(reluctant=reluctant))

    def reluctance(self, *, reluctant: bool) -> str:
        """Which match is found does not matter here, so a reluctant quantifier is a plain one."""
        return ""

    def group_start(self, *, captures: bool) -> str:
        return "(?:"

    def atom(self) -> bool:
        """One unit; returns whether a quantifier may follow it."""
        char = self.pattern[self.index]
        match char:
            case "\\":
                self.index += 1
                self.out.append(self.escape(in_class=False))
                return True
            case "[":
                self.out.append(self.char_class())
                return True
            case "(":
                return self.open_group()
            case ")":
                if not self.groups:
                    self.refuse("a closing parenthesis too many")
                self.groups -= 1
            case "|":
                self.out.append("|")
                self.index += 1
                return False
            case ".":
                self.out.append(_NOT_LINE_END)
                self.index += 1
                return True
            case "^":
                self.out.append(r"\A")
                self.index += 1
                return False
            case "$":
                return self.end_anchor()
            case "{" | "}" | "]":
                self.refuse(f"{char!r} without a backslash")
            case _:
                self.out.append(re2_escape(char))
                self.index += 1
                return True
        self.out.append(char)
        self.index += 1
        return True

    def open_group(self) -> bool:
        captures = not self.peek("(?:")
        if captures and self.peek("(?"):
            self.refuse("a group with options, a name or a look-around")
        self.index += 1 if captures else 3
        self.groups += 1
        self.out.append(self.group_start(captures=captures))
        return False

    def end_anchor(self) -> bool:
        self.index += 1
        # Java's $ also stands before a line end that closes the text. Only at the very end can RE2 say so.
        if self.index != len(self.pattern) or self.groups:
            self.refuse("$ before its end")
        self.out.append(rf"{_LINE_END}?\z")
        return False

    def escape(self, *, in_class: bool) -> str:
        if self.index == len(self.pattern):
            self.refuse("a backslash at its end")
        char = self.pattern[self.index]
        hexadecimal = _HEX.match(self.pattern, self.index)
        if hexadecimal is not None:
            self.index = hexadecimal.end()
            return re2_escape(chr(int(hexadecimal[1] or hexadecimal[2], 16)))
        self.index += 1
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char.lower() in _CLASSES:
            content = _CLASSES[char.lower()]
            if char.isupper() and in_class:
                self.refuse(f"\\{char} between brackets")
            return content if in_class else f"[{'^' if char.isupper() else ''}{content}]"
        if char.isascii() and char.isalnum():
            self.refuse(f"\\{char}")
        return re2_escape(char)

    def char_class(self) -> str:
        self.index += 1
        out = ["["]
        if self.peek("^"):
            out.append("^")
            self.index += 1
        while True:
            if self.index >= len(self.pattern):
                self.refuse("a bracket that is not closed")
            char = self.pattern[self.index]
            self.index += 1
            if char == "]":
                if len(out) - ("^" in out) == 1:
                    self.refuse("an empty bracket")
                return "".join([*out, "]"])
            if char in "[&^" or (char == "-" and not self.range_sign(out)):
                self.refuse(f"{char!r} between brackets")
            out.append(self.escape(in_class=True) if char == "\\" else "-" if char == "-" else re2_escape(char))

    def range_sign(self, out: list[str]) -> bool:
        """Whether a dash stands between two plain characters."""
        before = out[-1] if len(out) > 1 else ""
        after = self.pattern[self.index : self.index + 1]
        return before not in ("", "^", "-", *_CLASSES.values()) and after not in ("", "]", "\\", "[", "&", "^", "-")


def java_regex(pattern: str) -> str:
    """The RE2 pattern that finds something exactly where Java's `pattern` does."""
    translated = Translation(pattern).translate()
    try:
        pc.match_substring_regex("", translated)
    except Exception as error:
        raise UnsupportedExpression(f"The regular expression {pattern[:100]!r} is not supported: {error}") from error
    return translated
