"""Where a store is: a URI taken apart, with one spelling for one place.

- No scheme, or `file:/p`, `file:///p`: local disk. Only `file:` URIs are percent-decoded; `~/` is the home directory.
- `memory://name/p`, `s3://bucket/p` (also `s3a`), `gs://bucket/p` (also `gcs`), and for Azure `az://container/p` (also
  `azure`, `adl`, `abfs`, `abfss`) or `abfss://container@account.dfs.core.windows.net/p`. Their paths are taken as they
  are, as Spark and the vendors' tools take them: `%20` is three characters.
- `encoded=True` reads a URI as a table's log writes it: percent-encoded, whatever the scheme.
- Repeated and trailing slashes, `.` and `..` are resolved by text; a `..` that leaves the bucket raises `InvalidUri`.
- A URI with credentials in it raises `InvalidUri`, and the error does not repeat it.
"""

from __future__ import annotations

import os
import re
from typing import Literal
from urllib.parse import quote, unquote

from msgspec import Struct

from lakeseal.errors import InvalidUri

Kind = Literal["file", "memory", "s3", "gs", "az"]

_kinds: dict[str, Kind] = {
    "file": "file",
    "memory": "memory",
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "gcs": "gs",
    "az": "az",
    "azure": "az",
    "adl": "az",
    "abfs": "az",
    "abfss": "az",
}
_scheme = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(/|\Z)")
_account_host = re.compile(r"[a-z0-9-]+\.(?:dfs|blob)\.(?:core\.windows\.net|fabric\.microsoft\.com)\Z")
_signed = re.compile(r"[?&](?:sig|x-amz-[a-z-]+|x-goog-[a-z-]+|[a-z_]*(?:token|secret|key))=", re.IGNORECASE)
_control = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


class Location(Struct, frozen=True, kw_only=True):
    kind: Kind
    bucket: str = ""
    """Bucket, container, or name of a memory store; empty for local disk."""
    host: str = ""
    """The account's host, for Azure, where the URI names it."""
    path: str = ""
    """Absolute on local disk; elsewhere relative to the bucket, without slashes at its ends."""

    @property
    def uri(self) -> str:
        if self.kind == "file":
            return file_uri(self.path)
        bucket = f"abfss://{self.bucket}@{self.host}" if self.host else f"{self.kind}://{self.bucket}"
        return f"{bucket}/{self.path}" if self.path else bucket


def file_uri(path: str) -> str:
    return "file://" + quote(path, safe="/=:@+,;!$&'()*~")


def parse(uri: str | os.PathLike[str], *, encoded: bool = False) -> Location:
    text = os.fspath(uri)
    if not text:
        raise InvalidUri("The URI is empty")
    match = _scheme.match(text)
    if match is None or text[:5].lower() == "file:":
        return Location(kind="file", path=_local_path(text, encoded=encoded))
    kind = _kinds.get(match[1].lower())
    if kind is None:
        raise InvalidUri(f"The scheme {match[1]!r} is not known")
    if not text.startswith("://", match.end(1)):
        raise InvalidUri(f"After {match[1]}: there must be two slashes and a bucket")
    authority, _, path = text[match.end(1) + 3 :].partition("/")
    if _signed.search(text) is not None:
        raise InvalidUri("The URI carries credentials", hint="Pass credentials in storage_options or the environment")
    bucket, host = _authority(kind, authority)
    path = _decode(path) if encoded else path
    if _control.search(path) is not None:
        raise InvalidUri(f"{path!r} has control characters or is not valid Unicode")
    return Location(kind=kind, bucket=bucket, host=host, path=_resolve_dots(path))


def real_uri(uri: str) -> str:
    """A URI of local disk without links; any other as it is."""
    return file_uri(os.path.realpath(parse(uri).path)) if uri[:5].lower() == "file:" else uri


def prefix_of(text: str) -> str:
    """A place that others are below, in the spelling that tables are known by; empty for everywhere."""
    return "" if text in ("", "*") else parse(text).uri.rstrip("/")


def is_below(uri: str, prefix: str) -> bool:
    """At the prefix or below it, segment by segment, whichever path leads to the prefix."""
    stem = prefix.rstrip("/")
    return not stem or any(uri == one or uri.startswith(one + "/") for one in (stem, real_uri(stem)))


def _local_path(text: str, *, encoded: bool) -> str:
    if text[:5].lower() == "file:":
        rest = text[5:]
        if rest.startswith("//"):
            host, slash, rest = rest[2:].partition("/")
            if host not in ("", "localhost") or not slash:
                raise InvalidUri("A file: URI names no absolute path on this machine", hint="Write file:///path")
            rest = "/" + rest
        if not rest.startswith("/"):
            raise InvalidUri(f"{text!r} is not absolute", hint="Write file:///path, or a path without file:")
        path = _decode(rest)
    else:
        path = _decode(text) if encoded else text
        if path == "~" or path.startswith("~/"):
            path = os.path.expanduser(path)
    if "\0" in path:
        raise InvalidUri("A path cannot hold a NUL character")
    # POSIX keeps two leading slashes apart from one; Linux and macOS do not.
    return "/" + os.path.abspath(path).lstrip("/")


def _authority(kind: Kind, authority: str) -> tuple[str, str]:
    bucket, at, host = authority.partition("@")
    if at and (kind != "az" or ":" in bucket or _account_host.match(host) is None):
        # What stands before an @ may be a password, so it is not repeated.
        raise InvalidUri(
            "The URI has an '@' where none is expected",
            hint="Use scheme://bucket/path, or for Azure abfss://container@account.dfs.core.windows.net/path; "
            "pass credentials in storage_options",
        )
    if not bucket:
        raise InvalidUri(f"The {kind}:// URI names no bucket", hint=f"Write {kind}://bucket/path")
    if _control.search(bucket) is not None or bucket in (".", ".."):
        raise InvalidUri(f"{bucket!r} cannot name a bucket")
    return bucket, host


def _decode(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError as error:
        raise InvalidUri(f"{text!r} does not decode to UTF-8") from error


def _resolve_dots(path: str) -> str:
    kept: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            if not kept:
                raise InvalidUri(f"{path!r} leaves its bucket", hint="Write the path without '..'")
            kept.pop()
        elif segment not in ("", "."):
            kept.append(segment)
    return "/".join(kept)
