"""Patterns of names, as Hadoop and so Spark have them: `*`, `?`, `[a-z]`, `[^a]` or `[!a]`, `{a,b}`, and `\\` before a
sign that is to be itself.

What has no clear meaning is refused: half of a bracket or brace, a bracket in brackets, a backslash before nothing. In
brackets a comma is a comma, and after a backslash a letter is that letter, of which Hadoop makes more.
"""

from __future__ import annotations

import re

from lakeseal.errors import InvalidArgument


def name_pattern(pattern: str) -> re.Pattern[str]:
    """What a whole name has to match."""
    try:
        return re.compile(_Translation(pattern).regex(), re.DOTALL)
    except re.error as error:
        raise _refused(pattern, f"has a range that is none ({error.msg})") from None


class _Translation:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0

    def regex(self) -> str:
        parts: list[str] = []
        depth = 0
        while self._at < len(self._pattern):
            match sign := self._next():
                case "\\":
                    parts.append(re.escape(self._escaped()))
                case "*":
                    if parts[-1:] != [".*"]:
                        parts.append(".*")
                case "?":
                    parts.append(".")
                case "[":
                    parts.append(self._class())
                case "{":
                    depth += 1
                    parts.append("(?:")
                case "}" if depth:
                    depth -= 1
                    parts.append(")")
                case "}":
                    raise self._half("brace")
                case "," if depth:
                    parts.append("|")
                case _:
                    parts.append(re.escape(sign))
        if depth:
            raise self._half("brace")
        return "".join(parts)

    def _next(self) -> str:
        sign = self._pattern[self._at]
        self._at += 1
        return sign

    def _escaped(self) -> str:
        if self._at >= len(self._pattern):
            raise _refused(self._pattern, "ends with a backslash")
        return self._next()

    def _class(self) -> str:
        """Behind a `[`, up to its `]`; one that comes first is a sign of the class."""
        negated = self._pattern[self._at : self._at + 1] in ("!", "^")
        self._at += negated
        first, signs = self._at, list[str]()
        while True:
            if self._at >= len(self._pattern):
                raise self._half("bracket")
            is_first = self._at == first
            match sign := self._next():
                case "]" if not is_first:
                    return f"[{'^' if negated else ''}{''.join(signs)}]"
                case "[":
                    raise _refused(self._pattern, "has a bracket in brackets")
                case "\\":
                    signs.append(re.escape(self._escaped()))
                case "-" if not is_first and self._pattern[self._at : self._at + 1] != "]":
                    signs.append("-")
                case _:
                    signs.append(re.escape(sign))

    def _half(self, what: str) -> InvalidArgument:
        return _refused(self._pattern, f"has a {what} without the other")


def _refused(pattern: str, why: str) -> InvalidArgument:
    return InvalidArgument(
        f"The pattern {pattern!r} {why}", hint='pattern: "*.{csv,txt}"; a backslash makes signs plain'
    )
