"""What may be a key, on every store alike.

A key that passes `check_key` names one object below the root and nothing else, on a disk as in a bucket.
"""

from __future__ import annotations

import re

from lakeseal.errors import InvalidArgument, UnsafePath

_leaves_root = re.compile(r"(?:\A|/)\.{0,2}(?:/|\Z)")
# Object stores refuse control characters, half a surrogate pair is no UTF-8, and a table must be movable.
_not_text = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
_temporary = re.compile(r"\.lakeseal-[0-9a-f]{32}\.tmp\Z")


def is_key(text: str) -> bool:
    return _leaves_root.search(text) is None and _not_text.search(text) is None


def check_key(key: str) -> str:
    """The key itself; `UnsafePath` if it could name anything but an object below the root."""
    if _leaves_root.search(key) is not None:
        raise UnsafePath(f"The key {key!r} has an empty, '.' or '..' segment, or starts or ends with '/'", file=key)
    if _not_text.search(key) is not None:
        raise UnsafePath(
            f"The key {key!r} has control characters or is not valid Unicode",
            hint="Escape such characters in names, as Hive partition directories do",
        )
    if key.endswith(".tmp") and is_temporary(key):
        raise UnsafePath(f"The key {key!r} is a name that unfinished files have", hint="Use another name")
    return key


def check_prefix(prefix: str) -> str:
    """The prefix itself: "" or a directory's key followed by "/"."""
    if prefix:
        if not prefix.endswith("/"):
            raise InvalidArgument(f"The prefix {prefix!r} does not end in '/'", hint="List directories, not name parts")
        check_key(prefix[:-1])
    return prefix


def check_range(start: int, length: int) -> None:
    if start < 0 or length < 0:
        raise InvalidArgument(f"A range cannot have start {start} and length {length}", hint="Both are 0 or more")


def parent(key: str) -> str:
    """The directory of a key, as a prefix."""
    return key[: key.rfind("/") + 1]


def listable(name: str) -> bool:
    """Whether a file's name can be (part of) a key, and is not that of an unfinished file."""
    return _not_text.search(name) is None and not is_temporary(name)


def is_temporary(key: str) -> bool:
    return _temporary.match(key, key.rfind("/") + 1) is not None


def temporary_name(unique: str) -> str:
    """A short name, so that a key of any legal length can have an unfinished file beside it."""
    return f".lakeseal-{unique}.tmp"
