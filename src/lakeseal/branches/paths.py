"""Names: paths on branches, directories, names of branches and tags, addresses of objects. Pure.

What passes here names one thing and nothing else, on a disk as in a bucket; what does not raises `InvalidPath` or
`InvalidArgument`. Many paths are checked at once, in Arrow.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from lakeseal.errors import InvalidArgument, InvalidPath
from lakeseal.storage.keys import is_key, is_temporary

META = "_lakeseal/"
DATA = "data/"
JOBS = "_jobs/"

_leaves_root = r"(?:^|/)\.{0,2}(?:/|$)"
_control = r"[\x00-\x1f\x7f]"
_scheme = r"^[A-Za-z][A-Za-z0-9+.-]*://"
_commit_id = re.compile(r"[0-9a-f]{64}\Z")
_name_control = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
_LONGEST_PATH = 1024
_LONGEST_NAME = 512
_LONGEST_SEGMENT = 100


def check_path(path: str) -> str:
    """The path itself."""
    if not isinstance(path, str):
        raise InvalidPath(f"a path is text, not {path!r}")
    if not is_key(path) or is_temporary(path):
        raise InvalidPath(f"{path!r} can't be a path on a branch", file=path)
    if len(path.encode()) > _LONGEST_PATH:
        raise InvalidPath(f"the path {path[:60]!r}… has more than {_LONGEST_PATH} bytes", file=path)
    return path


def check_paths(paths: pa.ChunkedArray | pa.Array) -> None:
    for pattern in (_leaves_root, _control):
        _refuse(paths, pc.match_substring_regex(paths, pattern))
    _refuse(paths, pc.greater(pc.binary_length(paths), _LONGEST_PATH))
    _refuse(paths, pc.match_substring_regex(paths, r"(?:^|/)\.lakeseal-[0-9a-f]{32}\.tmp$"))


def text_array(values: Iterable[str]) -> pa.Array:
    try:
        return pa.array(values, pa.string())
    except (UnicodeError, pa.ArrowInvalid, pa.ArrowTypeError, TypeError) as error:
        raise InvalidPath(f"paths are valid Unicode text: {error}") from None


def directory(text: str) -> str:
    """The prefix of everything in a directory: "" or its path followed by "/"."""
    if not isinstance(text, str):
        raise InvalidPath(f"a directory is text, not {text!r}")
    stem = text.removesuffix("/")
    return f"{check_path(stem)}/" if stem else ""


def outermost(prefixes: Iterable[str]) -> tuple[str, ...]:
    """Sorted, without those that lie in another of them."""
    kept: list[str] = []
    for prefix in sorted(set(prefixes)):
        if not kept or not prefix.startswith(kept[-1]):
            kept.append(prefix)
    return tuple(kept)


def end_of(prefix: str) -> str | None:
    """The first text that sorts after everything with this prefix; None if nothing does."""
    # A prefix is "" or ends in "/", whose successor is "0".
    return prefix[:-1] + "0" if prefix else None


def overlap(a: str, b: str) -> bool:
    """Whether of two directories one holds the other."""
    first, second = directory(a), directory(b)
    return first.startswith(second) or second.startswith(first)


def check_name(name: str, what: str = "branch") -> str:
    """The name of a branch or tag, which may be any text that is no other kind of ref."""
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"a {what} needs a name")
    if _name_control.search(name) is not None or name != name.strip():
        raise InvalidArgument(f"{name!r} can't name a {what}", hint="No control characters, no blanks at its ends")
    if "~" in name or "^" in name:
        raise InvalidArgument(f"{name!r} can't name a {what}", hint="~ and ^ are steps back in history")
    if _commit_id.match(name) is not None:
        raise InvalidArgument(f"{name!r} looks like the id of a commit", hint=f"Give the {what} another name")
    if len(name.encode()) > _LONGEST_NAME:
        raise InvalidArgument(f"the name {name[:40]!r}… has more than {_LONGEST_NAME} bytes")
    return name


def check_own_name(name: str, what: str = "branch") -> str:
    """As `check_name`, for names that users give: those of jobs are made by jobs."""
    if check_name(name, what).startswith(JOBS):
        raise InvalidArgument(f"names below {JOBS} are those of jobs", hint=f"Give the {what} another name")
    return name


def check_job_id(job_id: str) -> str:
    """Any text that others can read."""
    if not isinstance(job_id, str) or not job_id.strip() or _name_control.search(job_id) is not None:
        raise InvalidArgument(f"{job_id!r} can't be the id of a job")
    if len(job_id.encode()) > _LONGEST_NAME:
        raise InvalidArgument(f"the job id {job_id[:40]!r}… has more than {_LONGEST_NAME} bytes")
    return job_id


def is_commit_id(text: str) -> bool:
    return _commit_id.match(text) is not None


def data_prefix(path: str, job_id: str) -> str:
    """Where the objects of a job go. One id with two output paths makes two jobs, so both are in the name."""
    segment = quote(job_id, safe="")
    if len(segment) > _LONGEST_SEGMENT:
        segment = hashlib.sha256(job_id.encode()).hexdigest()[:32]
    return f"{DATA}{segment}-{hashlib.sha256(path.encode()).hexdigest()[:12]}"


def check_addresses(addresses: pa.ChunkedArray | pa.Array) -> None:
    """Keys that stay below the repository's root and out of its own files, or absolute URIs."""
    elsewhere = pc.match_substring_regex(addresses, _scheme)
    inside = pc.filter(addresses, pc.invert(elsewhere))
    bad = pc.or_(
        pc.match_substring_regex(inside, _leaves_root),
        pc.or_(pc.match_substring_regex(inside, _control), pc.starts_with(inside, META)),
    )
    found = pc.filter(inside, bad)
    if len(found):
        raise InvalidPath(
            f"{found[0].as_py()!r} can't be the address of an object",
            hint="An address is a key below the repository, outside of _lakeseal/, or an absolute URI",
        )


def _refuse(paths: pa.ChunkedArray | pa.Array, bad: pa.ChunkedArray | pa.Array) -> None:
    if pc.any(bad).as_py():
        found = pc.filter(paths, bad)[0].as_py()
        raise InvalidPath(f"{found!r} can't be a path on a branch", file=found)
