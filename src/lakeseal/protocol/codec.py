"""Lines of the log ↔ actions, exactly.

`decode` keeps what it does not know and refuses what it cannot trust: every line is one JSON object with one action
(or one that is known beside others that are not); keys with null are as good as absent, blank lines are skipped, and
nothing else is forgiven (cut-off lines, a key given
twice, wrong types, numbers beyond 64 bits in known fields, a byte-order mark, nesting beyond `MAX_DEPTH`, a line beyond
`MAX_LINE_BYTES`). What is refused raises `BrokenCommit` with the number of the line, counted from 1. An empty file has
no actions.

`encode` writes one compact line per action, each ended by a newline, in UTF-8. `decode(encode(actions)) == actions`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from typing import Any

import msgspec

from lakeseal.errors import BrokenCommit, InvalidArgument
from lakeseal.protocol.actions import BY_KEY, Action, UnknownAction

MAX_DEPTH = 100
MAX_LINE_BYTES = 64 * 2**20
BLANKS = b" \t\r\n"
"""What JSON takes for nothing. Python would strip more, and take lines that others cannot read."""

_BOM = b"\xef\xbb\xbf"


def decode(data: bytes) -> list[Action]:
    return [action for _, action in decode_numbered(data)]


def decode_numbered(data: bytes) -> list[tuple[int, Action]]:
    """Each action with the number of its line."""
    return [
        (number, action)
        for number, line in enumerate(io.BytesIO(data), start=1)
        if line.strip(BLANKS)
        for action in decode_line(line, number)
    ]


def decode_line(line: bytes, number: int = 1) -> list[Action]:
    """The action of one line, and after it what stands beside it; `number` is the line's place in its file."""
    value = _parse(line.strip(BLANKS), number)
    if not isinstance(value, dict):
        raise _broken(number, "is not a JSON object")
    present = {key: content for key, content in value.items() if content is not None}
    known = [key for key in present if key in BY_KEY]
    if not present or len(known) > 1 or (not known and len(present) > 1):
        raise _broken(number, f"holds {len(present)} actions" if present else "holds no action")
    actions: list[Action] = [_known(key, present[key], number) for key in known]
    return actions + [UnknownAction(name=key, value=present[key]) for key in present if key not in BY_KEY]


def _known(key: str, content: Any, number: int) -> Action:
    if not isinstance(content, dict):
        raise _broken(number, f"holds an action {key!r} that is not an object")
    try:
        return BY_KEY[key].from_json(content)
    except msgspec.ValidationError as error:
        raise _broken(number, f"holds an action {key!r} that is malformed: {error}") from error


def encode(actions: Iterable[Action]) -> bytes:
    try:
        return b"".join(msgspec.json.encode(to_json(action)) + b"\n" for action in actions)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidArgument(f"An action cannot be written as JSON: {error}") from error


def to_json(action: Action) -> dict[str, Any]:
    """An action as its line says it: the one key and the action's object."""
    if isinstance(action, UnknownAction):
        return {action.name: action.value}
    return {action.key: action.to_json()}


def _parse(line: bytes, number: int) -> Any:
    if line.startswith(_BOM):
        raise _broken(number, "starts with a byte-order mark")
    if len(line) > MAX_LINE_BYTES:
        raise _broken(number, f"is longer than {MAX_LINE_BYTES} bytes")
    try:
        value = msgspec.json.decode(line)
        # Other clients write compact JSON, and then equal bytes prove cheaply that no key was given twice.
        if msgspec.json.encode(value) != line:
            json.loads(line.decode(), object_pairs_hook=_refuse_doubled, parse_int=str)
    except _DoubledKey as error:
        raise _broken(number, f"gives the key {error} twice") from None
    except (ValueError, RecursionError) as error:
        raise _broken(number, f"is not valid JSON, or cut off: {error}") from error
    if line.count(b"{") + line.count(b"[") > MAX_DEPTH and _depth(value) > MAX_DEPTH:
        raise _broken(number, f"is nested deeper than {MAX_DEPTH} levels")
    return value


def doubled_key(text: str) -> str | None:
    """The first key that an object in a JSON text gives twice: readers differ on which of the two counts."""
    try:
        json.loads(text, object_pairs_hook=_refuse_doubled, parse_int=str)
    except _DoubledKey as error:
        return error.key
    except (ValueError, RecursionError):
        pass  # it is no JSON, which others tell
    return None


class _DoubledKey(Exception):
    def __init__(self, key: str) -> None:
        super().__init__(repr(key))
        self.key = key


def _refuse_doubled(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise _DoubledKey(key)
        seen.add(key)


def _depth(value: Any) -> int:
    depth = 0
    level = [value]
    while level:
        depth += 1
        level = [
            child
            for node in level
            if isinstance(node, dict | list)
            for child in (node.values() if isinstance(node, dict) else node)
        ]
    return depth


def _broken(number: int, what: str) -> BrokenCommit:
    return BrokenCommit(f"Line {number} {what}")
