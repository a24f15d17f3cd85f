"""`_last_checkpoint`: a hint of where to start, never a fact.

`parse` gives None for whatever it cannot trust (torn, empty, a checksum that does not fit), and the caller then lists
the whole log. The checksum is an MD5 over the other members in a canonical form: keys sorted, nested values flattened
to `path=value` pairs, strings quoted and percent-encoded, as the format lays down.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct

from lakeseal import typed_json


class LastCheckpoint(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    version: int
    size: int
    """Actions in the checkpoint."""
    parts: int | None = None
    size_in_bytes: int | None = None
    num_of_add_files: int | None = None
    checkpoint_schema: dict[str, Any] | None = None

    def to_bytes(self) -> bytes:
        value = msgspec.to_builtins(self)
        return msgspec.json.encode({**value, "checksum": checksum(value)})


def parse(data: bytes) -> LastCheckpoint | None:
    try:
        value = msgspec.json.decode(data, type=dict[str, Any])
        given = value.pop("checksum", None)
        if given is not None and given != checksum(value):
            return None
        hint = typed_json.convert(value, LastCheckpoint)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return hint if 0 <= hint.version < 2**63 else None


def checksum(value: dict[str, Any]) -> str:
    return hashlib.md5(canonical(value).encode(), usedforsecurity=False).hexdigest()


def canonical(value: dict[str, Any]) -> str:
    pairs = sorted(_pairs("", {k: v for k, v in value.items() if k != "checksum"}))
    return ",".join(f"{path}={scalar}" for path, scalar in pairs)


def _pairs(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, child in value.items():
            yield from _pairs(f"{path}+{_quoted(key)}" if path else _quoted(key), child)
    elif isinstance(value, list):
        for place, child in enumerate(value):
            yield from _pairs(f"{path}+{place}" if path else str(place), child)
    else:
        yield path, _scalar(value)


def _scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return _quoted(value) if isinstance(value, str) else str(value)


def _quoted(text: str) -> str:
    return '"' + quote(text, safe="") + '"'
