"""Functions of texts and bytes, one row at a time."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import urllib.parse
import zlib
from collections.abc import Callable
from typing import Any

from lakeseal.errors import EvaluationError, UnsupportedExpression
from lakeseal.expr.row_function import MAX_TEXT, RowFunction, row_function, too_long
from lakeseal.protocol.schema import BINARY, BOOLEAN, INTEGER, LONG, STRING

_SOUNDEX = dict(zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "01230127022455012623017202", strict=True))
_FORMAT = re.compile(r"%(?P<flags>[-0]*)(?P<width>\d{0,4})(?P<kind>[sdxXc%n])|%")
_BASE64 = re.compile(rb"[^A-Za-z0-9+/=]")


def _locate(wanted: str, text: str, start: int | None = 1) -> int | None:
    if wanted is None or text is None:
        return 0 if start is None else None
    if start is None or start < 1:
        return 0
    return 1 if not wanted else text.find(wanted, start - 1) + 1


def _char(code: int) -> str:
    return "" if code < 0 else chr(code & 0xFF)


def _initcap(text: str) -> str:
    if not text.isascii():
        raise UnsupportedExpression("initcap of other letters than ASCII is not supported")
    return " ".join(word[:1].upper() + word[1:].lower() for word in text.split(" "))


def _repeat(text: str, count: int) -> str:
    if len(text) * max(count, 0) > MAX_TEXT:
        raise too_long()
    return text * max(count, 0)


def _translate(text: str, letters: str, others: str) -> str:
    table: dict[int, str | None] = {}
    for n, letter in enumerate(letters):
        table.setdefault(ord(letter), others[n] if n < len(others) else None)
    return text.translate(table)


MOST_CHARACTERS = (1 << 31) - 1
"""What Spark takes of a text that is asked for up to its end: less than all where it begins at the smallest integer."""


def substring(text: Any, start: int, count: int | None = None) -> Any:
    """SQL's substring, of characters or of bytes."""
    begin = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    if count is None and isinstance(text, str):
        count = MOST_CHARACTERS
    end = len(text) if count is None else begin + count
    return text[max(begin, 0) : max(end, 0)] if end > begin else text[:0]


def replace(text: str, search: str, replacement: str = "") -> str:
    return text.replace(search, replacement) if search else text


def _left(text: str, count: int) -> str:
    return text[: max(count, 0)]


def _right(text: str, count: int) -> str:
    return text[-count:] if count > 0 else ""


SIDES: dict[str, Callable[[str, int], str]] = {"left": _left, "right": _right}


def _overlay(text: Any, other: Any, start: int, count: int = -1) -> Any:
    taken = count if count >= 0 else len(other)
    return substring(text, 1, start - 1) + other + substring(text, start + taken)


def _split_part(text: str, delimiter: str, part: int) -> str:
    if part == 0:
        raise EvaluationError("split_part has no part 0", hint="Parts count from 1, or from -1 at the end")
    parts = text.split(delimiter) if delimiter else [text]
    if abs(part) > len(parts):
        return ""
    return parts[part - 1] if part > 0 else parts[part]


def _substring_index(text: str, delimiter: str, count: int) -> str:
    if not delimiter or not count:
        return ""
    if count > 0:
        at = -1
        for _ in range(count):
            at = text.find(delimiter, at + 1)
            if at < 0:
                return text
        return text[:at]
    at = len(text) - len(delimiter) + 1
    for _ in range(-count):
        at = text.rfind(delimiter, 0, max(at - 1 + len(delimiter), 0)) if at > 0 else -1
        if at < 0:
            return text
    return text[at + len(delimiter) :]


def _levenshtein(left: str, right: str, limit: int | None = None) -> int:
    row = list(range(len(right) + 1))
    for n, a in enumerate(left, 1):
        before, row[0] = row[0], n
        for m, b in enumerate(right, 1):
            before, row[m] = row[m], min(row[m] + 1, row[m - 1] + 1, before + (a != b))
    return -1 if limit is not None and row[-1] > limit else row[-1]


def _soundex(text: str) -> str:
    first = text[:1].upper() if text[:1].isascii() else ""
    if first not in _SOUNDEX:
        return text
    code, last = first, _SOUNDEX[first]
    for letter in text[1:]:
        digit = _SOUNDEX.get(letter.upper()) if letter.isascii() else None
        if digit is None:
            last = "0"
        elif digit != "7":
            if digit not in ("0", last):
                code += digit
            last = digit
        if len(code) == 4:
            break
    return code.ljust(4, "0")


def _base64(data: bytes) -> str:
    """In lines of 76 letters, as MIME has it and Spark by default."""
    text = base64.b64encode(data).decode()
    return "\r\n".join(text[start : start + 76] for start in range(0, len(text), 76))


def _unbase64(text: str) -> bytes:
    kept = _BASE64.sub(b"", text.encode())
    body, _, tail = kept.partition(b"=")
    if tail.strip(b"=") or len(body) % 4 == 1 or ((tail or kept.endswith(b"=")) and len(kept) % 4):
        raise UnsupportedExpression("A text that is no base64 is not supported")
    return base64.b64decode(body + b"=" * (-len(body) % 4))


def _unhex(text: str) -> bytes | None:
    try:
        return binascii.unhexlify(text.rjust(len(text) + len(text) % 2, "0"))
    except (binascii.Error, ValueError):
        return None


def _utf8(name: str) -> None:
    if name.upper() not in ("UTF-8", "UTF8"):
        raise UnsupportedExpression(f"The character set {name!r} is not supported")


def _encode(text: str, name: str) -> bytes:
    _utf8(name)
    return text.encode()


def _decode(data: bytes, name: str) -> str:
    _utf8(name)
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise EvaluationError("Bytes that are no UTF-8 text cannot be decoded") from None


def _mask(
    text: str, upper: str | None = "X", lower: str | None = "x", digit: str | None = "n", other: str | None = None
) -> str | None:
    if text is None:
        return None
    if any(mark is not None and len(mark) != 1 for mark in (upper, lower, digit, other)):
        raise EvaluationError("mask puts single characters into a text")
    if not text.isascii():
        raise UnsupportedExpression("mask of other letters than ASCII is not supported")

    def one(char: str) -> str:
        mark = upper if char.isupper() else lower if char.islower() else digit if char.isdigit() else other
        return char if mark is None else mark

    return "".join(map(one, text))


def _find_in_set(text: str, listed: str) -> int:
    parts = listed.split(",")
    return parts.index(text) + 1 if text in parts else 0


def _format_string(pattern: str, *values: Any) -> str | None:
    """Java's format, of whole numbers and texts."""
    if pattern is None:
        return None
    left = iter(values)

    def one(match: re.Match[str]) -> str:
        kind = match["kind"]
        if kind in ("%", "n") and not match["flags"] and not match["width"]:
            return "%" if kind == "%" else "\n"
        flags, width = match["flags"] or "", int(match["width"] or 0)
        if kind is None or kind == "n" or kind == "%" or len(flags) > 1 or (flags and not width):
            raise UnsupportedExpression(f"The format {pattern[:50]!r} is not supported")
        try:
            value = next(left)
        except StopIteration:
            raise EvaluationError(f"The format {pattern[:50]!r} has more places than values") from None
        return _padded(_shown(value, kind, zeros="0" in flags), flags, width, kind)

    return _FORMAT.sub(one, pattern)


def _shown(value: Any, kind: str, *, zeros: bool) -> str:
    if kind == "s" and not zeros:
        return (
            "null"
            if value is None
            else {True: "true", False: "false"}.get(value, str(value))
            if isinstance(value, bool)
            else str(value)
        )
    if kind == "d" and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if kind == "d" and value is None and not zeros:
        return "null"
    raise UnsupportedExpression(f"The format %{kind} of {type(value).__name__} is not supported")


def _padded(text: str, flags: str, width: int, kind: str) -> str:
    if "0" in flags:
        return text.zfill(width)
    return text.ljust(width) if "-" in flags else text.rjust(width)


def _concat_ws(separator: str | None, *parts: Any) -> str | None:
    if separator is None:
        return None
    texts: list[str] = []
    for part in parts:
        if isinstance(part, list):
            texts += [text for text in part if text is not None]
        elif part is not None:
            texts.append(part)
    return separator.join(texts)


def _sha2(data: bytes, bits: int) -> str | None:
    if bits in (0, 256):
        return hashlib.sha256(data).hexdigest()
    return hashlib.new(f"sha{bits}", data).hexdigest() if bits in (224, 384, 512) else None


def _url_encode(text: str) -> str:
    return urllib.parse.quote_plus(text, safe="*").replace("~", "%7E")


def _url_decode(text: str) -> str:
    if re.search(r"%(?![0-9a-fA-F]{2})", text):
        raise EvaluationError(f"{text[:50]!r} is no encoded URL")
    try:
        return urllib.parse.unquote_plus(text, errors="strict")
    except UnicodeDecodeError:
        raise UnsupportedExpression("Bytes that are no UTF-8 text in a URL are not supported") from None


def _luhn(text: str) -> bool:
    if not text or not text.isascii() or not text.isdigit():
        return False
    total = 0
    for n, digit in enumerate(reversed(text)):
        value = int(digit) * (1 + n % 2)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def pad(text: Any, width: int, padding: Any, *, left: bool) -> Any:
    if width > MAX_TEXT:
        raise too_long()
    if width <= len(text) or not padding:
        return text[: max(width, 0)]
    missing = width - len(text)
    fill = (padding * (missing // len(padding) + 1))[:missing]
    return fill + text if left else text + fill


TEXT_FUNCTIONS: dict[str, RowFunction] = (
    row_function("instr", lambda text, wanted: text.find(wanted) + 1, (STRING, STRING), INTEGER)
    | row_function("locate position", _locate, (STRING, STRING, INTEGER), INTEGER, least=2, with_nulls=True)
    | row_function("ascii", lambda text: ord(text[0]) if text else 0, (STRING,), INTEGER)
    | row_function("chr char", _char, (LONG,), STRING)
    | row_function("initcap", _initcap, (STRING,), STRING, raises=True)
    | row_function("repeat", _repeat, (STRING, INTEGER), STRING, raises=True)
    | row_function("space", lambda count: _repeat(" ", count), (INTEGER,), STRING, raises=True)
    | row_function("translate", _translate, (STRING, STRING, STRING), STRING)
    | row_function("overlay", _overlay, (STRING, STRING, INTEGER, INTEGER), STRING, least=3)
    | row_function("split_part", _split_part, (STRING, STRING, INTEGER), STRING, raises=True)
    | row_function("substring_index", _substring_index, (STRING, STRING, INTEGER), STRING)
    | row_function("levenshtein", _levenshtein, (STRING, STRING, INTEGER), INTEGER, least=2)
    | row_function("soundex", _soundex, (STRING,), STRING, exact=True)
    | row_function("base64", _base64, (BINARY,), STRING)
    | row_function("unbase64", _unbase64, (STRING,), BINARY, raises=True)
    | row_function("unhex", _unhex, (STRING,), BINARY)
    | row_function("encode", _encode, (STRING, STRING), BINARY, raises=True)
    | row_function("decode", _decode, (BINARY, STRING), STRING, raises=True)
    | row_function("mask", _mask, (STRING,), STRING, least=1, most=5, raises=True, with_nulls=True, exact=True)
    | row_function("find_in_set", _find_in_set, (STRING, STRING), INTEGER)
    | row_function("md5", lambda data: hashlib.md5(data, usedforsecurity=False).hexdigest(), (BINARY,), STRING)
    | row_function("sha sha1", lambda data: hashlib.sha1(data, usedforsecurity=False).hexdigest(), (BINARY,), STRING)
    | row_function("sha2", _sha2, (BINARY, INTEGER), STRING)
    | row_function("crc32", zlib.crc32, (BINARY,), LONG)
    | row_function("url_encode", _url_encode, (STRING,), STRING)
    | row_function("url_decode", _url_decode, (STRING,), STRING, raises=True)
    | row_function("luhn_check", _luhn, (STRING,), BOOLEAN)
)
"""Those that are bound by their types alone."""

format_string = _format_string
unhex = _unhex
concat_ws = _concat_ws
overlay = _overlay
