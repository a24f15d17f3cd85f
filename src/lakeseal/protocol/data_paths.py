"""Where a file of a table is: the `path` of an action, as the URI reference that it is.

The log holds percent-encoded URIs, absolute or relative to the table; a store holds keys that stand for themselves.
`encode_path` and `decode_path` go between the two and are inverse on keys. `+` is a plus sign, and names of partition
directories are escaped already before they are encoded, so a colon in a partition value ends up as `%253A`.

A log may be written by a stranger. A relative path never leaves the table; an absolute one is followed into the table,
and out of it only where the caller allows that. Otherwise `UnsafePath` is raised.
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from lakeseal.errors import UnsafePath

# What Java's URI leaves as it is in a path. Without the colon: in a first segment it would look like a scheme.
_LITERAL = "/!$&'()*+,;=@"
_ABSOLUTE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.\-]*:/")
_PARTS = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.\-]*):)?(?://([^/]*))?(.*)", re.DOTALL)
_SAME_SCHEME = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "abfss", "azure": "az", "adl": "az"}


class DataPath(Struct, frozen=True, kw_only=True):
    """An object as a store finds it."""

    root: str | None = None
    """The URI of the store that holds it; None for the table's own."""

    key: str


def encode_path(key: str) -> str:
    """A key of the table's store as a relative `path` of an action."""
    return quote(key, safe=_LITERAL)


def is_absolute(path: str) -> bool:
    """Whether the `path` of an action names its place by itself, wherever the table is."""
    return _ABSOLUTE.match(path) is not None


def decode_path(path: str) -> str:
    """The key of a relative `path`, or the decoded URI of an absolute one; `.` and `..` are resolved."""
    if _ABSOLUTE.match(path):
        scheme, authority, absolute = _absolute(path)
        return f"{scheme}://{authority}/{absolute}"
    key = _resolved(unquote(path), path)
    if not key:
        raise UnsafePath("The path of a file is empty", file=path)
    return key


def canonical_path(path: str) -> str:
    """The same text for all spellings of one absolute path; a relative path is its own. Never raises."""
    if not _ABSOLUTE.match(path):
        return path
    try:
        return decode_path(path)
    except UnsafePath:
        return path


def has_absolute(paths: pa.ChunkedArray) -> bool:
    return bool(pc.any(pc.match_substring_regex(paths, f"^(?:{_ABSOLUTE.pattern})"), min_count=0).as_py())


def canonical_paths(paths: pa.ChunkedArray) -> pa.ChunkedArray:
    """`canonical_path` for a column: relative paths, nearly always all of them, cost one look at their beginning."""
    absolute = pc.match_substring_regex(paths, f"^(?:{_ABSOLUTE.pattern})")
    if not pc.any(absolute, min_count=0).as_py():
        return paths
    spelled = pc.filter(paths, absolute)
    canonical = pa.array([canonical_path(p) for p in spelled.to_pylist()], paths.type)
    return pa.chunked_array([pc.replace_with_mask(_whole(paths), _whole(absolute), canonical)], paths.type)


def resolve_data_path(table_uri: str, path: str, *, allow_outside: bool = False) -> DataPath:
    """Where to read the file of an action. Objects beyond the table are reached only if `allow_outside`."""
    if not _ABSOLUTE.match(path):
        return DataPath(key=decode_path(path))
    scheme, authority, key = _absolute(path)
    for root in _roots(table_uri):
        if (scheme, authority) == root[:2] and key.startswith(f"{root[2]}/" if root[2] else ""):
            inside = key[len(root[2]) :].lstrip("/")
            if inside:
                return DataPath(key=inside)
    if not allow_outside:
        raise UnsafePath(f"A file of the table is outside of it: {path}", table=table_uri, file=path)
    return DataPath(root=f"{scheme}://{authority}/", key=key)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _roots(table_uri: str) -> list[tuple[str, str, str]]:
    # A root may be given as a file name or as a URI; only one that has a percent sign reads differently as the two.
    scheme, authority, path = _split(table_uri)
    return [(scheme, authority, path.strip("/")), (scheme, authority, unquote(path).strip("/"))]


def _split(uri: str) -> tuple[str, str, str]:
    parts = _PARTS.fullmatch(uri)
    assert parts is not None
    scheme = (parts[1] or "file").lower()
    scheme = _SAME_SCHEME.get(scheme, scheme)
    authority = parts[2] or ""
    return scheme, "" if scheme == "file" and authority == "localhost" else authority, parts[3]


def _absolute(path: str) -> tuple[str, str, str]:
    scheme, authority, rest = _split(path)
    key = _resolved(unquote(rest), path)
    if not key:
        raise UnsafePath("The path of a file names a whole store", file=path)
    return scheme, authority, key


def _resolved(decoded: str, path: str) -> str:
    if "\0" in decoded:
        raise UnsafePath("The path of a file holds a NUL character", file=path)
    if "//" not in decoded and "/." not in decoded and not decoded.startswith(("/", ".")):
        return decoded
    segments: list[str] = []
    for segment in decoded.split("/"):
        if segment == "..":
            if not segments:
                raise UnsafePath(f"The path of a file leaves the table: {path}", file=path)
            segments.pop()
        elif segment not in ("", "."):
            segments.append(segment)
    return "/".join(segments)
