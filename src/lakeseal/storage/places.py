"""Whether one place is at or below another, as they are now: segment by segment, in one store, links followed.

`/lake/out-2` is not below `/lake/out`, a bucket is not another's, and on a disk a symbolic link is where it leads. A
place with `.` or `..` in it is below nothing: where a link is on the way, only the system knows where that goes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from lakeseal.errors import InvalidUri
from lakeseal.storage.location import parse

Place = tuple[str, str]
"""The URI of a store, and a key or a directory in it, which stands for itself."""

_LAKEFS = "lakefs://"


def is_in_any(place: Place, allowed: Iterable[str]) -> bool:
    inner = _segments(*place)
    if inner is None:
        return False
    text = _plain("/".join(place))
    # To follow links is to ask the disk about every segment. Where hundreds are allowed, the one that the place's own
    # text names is asked about first; nothing is believed because of a text.
    for uri in sorted(allowed, key=lambda uri: not text.startswith(_plain(uri))):
        outer = _segments(uri, "")
        if outer is not None and inner[: len(outer)] == outer:
            return True
    return False


def _segments(uri: str, key: str) -> tuple[str, ...] | None:
    """Of a place, its store first; None for one that could be anywhere."""
    if any(segment in (".", "..") for segment in (*uri.split("/"), *key.split("/"))) or "\0" in uri + key:
        return None
    if uri.startswith(_LAKEFS):
        return ("lakefs", *_parts(uri.removeprefix(_LAKEFS)), *_parts(key))
    try:
        location = parse(uri)
    except InvalidUri:
        return None
    if location.kind == "file":
        return ("file", *_parts(os.path.realpath(os.path.join(location.path, key.strip("/")))))
    return (location.kind, location.bucket, location.host, *_parts(location.path), *_parts(key))


def _plain(uri: str) -> str:
    return f"{uri.removeprefix('file://').rstrip('/')}/"


def _parts(path: str) -> list[str]:
    return [segment for segment in path.split("/") if segment]
