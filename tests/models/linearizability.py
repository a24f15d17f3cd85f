"""Whether what many clients saw of one table can be told as one story.

Every operation has a beginning and an end on one clock, and the version that it made or saw. The versions say in which
order things happened; the check is that no operation comes, in that order, before another that had ended before it
began, that every version was made by one operation, and that there are none missing among those acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct


class Op(Struct, frozen=True, kw_only=True):
    kind: Literal["commit", "read"]
    start: int
    end: int
    version: int
    client: str = ""
    txn_id: str = ""
    files: int = -1
    """A read: how many live files there were."""


def check_linearizable(ops: Iterable[Op], *, files_at_zero: int = 0) -> int:
    """The number of operations. Every commit adds one file; `AssertionError` says what does not fit."""
    order = sorted(ops, key=lambda op: (op.version, op.kind == "read", op.start))
    latest_start, latest = -1, None
    made: dict[int, Op] = {}
    for op in order:
        if op.kind == "commit":
            assert op.version not in made, f"version {op.version} was made twice: {made[op.version]} and {op}"
            made[op.version] = op
        elif op.files >= 0:
            expected = files_at_zero + op.version
            assert op.files == expected, f"{op} saw {op.files} files, and version {op.version} has {expected}"
        assert op.start <= op.end, f"{op} ended before it began"
        assert op.end >= latest_start, f"{op} had ended before {latest} began, and comes after it"
        if op.start > latest_start:
            latest_start, latest = op.start, op
    return len(order)
