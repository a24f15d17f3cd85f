"""What a shallow clone recorded of where its files are.

A clone of ours says so in its metadata, under `CLONE_SOURCES`, all the places as JSON: that stays when its log is
cleaned up, and a clone of a clone names both. Other clients say it in their first commit only, as the operation's
source. A whole disk or bucket is no source.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

from lakeseal.errors import InvalidUri
from lakeseal.protocol.actions import CommitInfo
from lakeseal.storage.location import parse

CLONE_SOURCES = "lakeseal.cloneSources"
_QUOTED = re.compile(r"(?:delta\.)?`([^`]+)`")


def clone_sources(configuration: Mapping[str, str | None]) -> tuple[str, ...]:
    text = configuration.get(CLONE_SOURCES)
    if text is None:
        return ()
    try:
        return _sources(msgspec.json.decode(text, type=list[str]))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ()


def source_of_clone(info: CommitInfo | None) -> tuple[str, ...]:
    """Of a table's first commit, if that made a clone."""
    told = {} if info is None else info.to_json()
    parameters = told.get("operationParameters")
    if told.get("operation") != "CLONE" or not isinstance(parameters, dict):
        return ()
    source = parameters.get("source")
    if not isinstance(source, str):
        return ()
    quoted = _QUOTED.fullmatch(source)
    return _sources([quoted[1] if quoted else source])


def _sources(uris: Iterable[str]) -> tuple[str, ...]:
    return tuple(uri for uri in uris if _is_a_place(uri))


def _is_a_place(uri: str) -> bool:
    if not uri.startswith("/") and ":/" not in uri:
        return False  # a name in a catalog
    try:
        return bool(parse(uri).path.strip("/"))
    except InvalidUri:
        return False
