"""Java's regular expressions where it matters what is found: groups, replacements, parts.

They are translated to Python's, which look for matches in the same order as Java's do; what is not taken for RLIKE is
not taken here either.
"""

from __future__ import annotations

import re
from functools import lru_cache

from lakeseal.errors import EvaluationError, UnsupportedExpression
from lakeseal.expr.patterns import Translation

_CODE = re.compile(r"\\x\{([0-9a-f]+)\}")
_REPLACEMENT = re.compile(r"\\(?P<escaped>.)|\$(?P<group>\d)(?!\d)|(?P<text>[^\\$])", re.DOTALL)


class _Finding(Translation):
    """With the groups that capture, and the quantifiers that take as little as they can."""

    def group_start(self, *, captures: bool) -> str:
        return "(" if captures else "(?:"

    def reluctance(self, *, reluctant: bool) -> str:
        return "?" if reluctant else ""


@lru_cache(maxsize=256)
def java_pattern(pattern: str) -> re.Pattern[str]:
    translated = _Finding(pattern).translate().replace(r"\z", r"\Z")
    plain = _CODE.sub(lambda match: re.escape(chr(int(match[1], 16))), translated)
    try:
        return re.compile(plain)
    except re.error as error:
        raise UnsupportedExpression(f"The regular expression {pattern[:100]!r} is not supported: {error}") from error


def _group(match: re.Match[str] | None, pattern: re.Pattern[str], index: int) -> str:
    if match is None:
        return ""
    if not 0 <= index <= pattern.groups:
        raise EvaluationError(f"The regular expression has no group {index}")
    return match[index] or ""


def regexp_extract(text: str, pattern: str, index: int = 1) -> str:
    compiled = java_pattern(pattern)
    return _group(compiled.search(text), compiled, index)


def regexp_extract_all(text: str, pattern: str, index: int = 1) -> list[str]:
    compiled = java_pattern(pattern)
    return [_group(match, compiled, index) for match in compiled.finditer(text)]


def regexp_count(text: str, pattern: str) -> int:
    return sum(1 for _ in java_pattern(pattern).finditer(text))


def regexp_substr(text: str, pattern: str) -> str | None:
    match = java_pattern(pattern).search(text)
    return None if match is None else match[0] or None


def regexp_instr(text: str, pattern: str) -> int:
    match = java_pattern(pattern).search(text)
    return 0 if match is None else match.start() + 1


def regexp_replace(text: str, pattern: str, replacement: str) -> str:
    compiled = java_pattern(pattern)
    parts: list[str | int] = []
    at = 0
    while at < len(replacement):
        found = _REPLACEMENT.match(replacement, at)
        if found is None:
            raise UnsupportedExpression(f"The replacement {replacement[:50]!r} is not supported")
        at = found.end()
        parts.append(int(found["group"]) if found["group"] else found["escaped"] or found["text"])
    if any(isinstance(part, int) and part > compiled.groups for part in parts):
        raise EvaluationError(f"The replacement {replacement[:50]!r} has a group that the pattern has not")

    def one(match: re.Match[str]) -> str:
        return "".join(match[part] or "" if isinstance(part, int) else part for part in parts)

    return compiled.sub(one, text)


def split(text: str, pattern: str, limit: int = -1) -> list[str]:
    compiled = java_pattern(pattern)
    if compiled.match("") is not None:
        raise UnsupportedExpression("Splitting where nothing stands is not supported")
    parts: list[str] = []
    at = 0
    for match in compiled.finditer(text):
        if 0 < limit == len(parts) + 1:
            break
        parts.append(text[at : match.start()])
        at = match.end()
    return [*parts, text[at:]]
