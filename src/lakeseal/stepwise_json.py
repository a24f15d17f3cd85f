"""JSON of very many values, decoded in steps: between them other threads of the process run.

msgspec decodes a text in one go, and no other thread runs meanwhile. For almost all texts that is no time. A service
that decodes what somebody else filled with values would answer nobody for as long, so those are read by the parts of
the standard library's decoder that are written in Python, which takes ten times as long and holds up nobody.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from json.decoder import JSONArray, JSONObject, scanstring  # type: ignore[attr-defined]
from json.scanner import py_make_scanner  # type: ignore[attr-defined]
from typing import Any, NoReturn

MOST_AT_ONCE = 10_000
"""Values that are decoded in one go."""


def is_long(text: str) -> bool:
    """Whether it may have more values than that; what stands in texts is counted too."""
    return len(text) > MOST_AT_ONCE and sum(map(text.count, ",[{")) >= MOST_AT_ONCE


def decode(text: str) -> Any:
    """As msgspec would: `ValueError`, `RecursionError` or `StopIteration` where this is no JSON."""
    value, end = _scan(text, _SPACE.match(text, 0).end())  # type: ignore[union-attr]
    if _SPACE.match(text, end).end() != len(text):  # type: ignore[union-attr]
        raise ValueError("there is more behind it")
    return value


def _text(source: str, end: int, strict: bool = True) -> tuple[str, int]:
    found, end = scanstring(source, end, strict)
    if not found.isascii():
        # Half a character is none, and raises.
        found.encode()
    return found, end


def _float(text: str) -> float:
    found = float(text)
    if not math.isfinite(found):
        raise ValueError("a number is out of range")
    return found


def _constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON")


_SPACE = re.compile(r"[ \t\n\r]*")
_decoder = json.JSONDecoder(parse_float=_float, parse_constant=_constant)
_decoder.parse_object = JSONObject  # type: ignore[attr-defined]
_decoder.parse_array = JSONArray  # type: ignore[attr-defined]
_decoder.parse_string = _text  # type: ignore[attr-defined]
_scan: Callable[[str, int], tuple[Any, int]] = py_make_scanner(_decoder)
