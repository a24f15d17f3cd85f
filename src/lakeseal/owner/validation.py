"""What is in a commit that an owner must not ratify, whoever asks. Pure: decided on decoded actions, never on bytes.

`check_form`: what the format says of any commit, so that all readers understand the same by it.

- `commitInfo` is there once, and comes first: in-commit timestamps are read from the first line.
- One `metaData` and one `protocol` at most; one `txn` for each appId, one `domainMetadata` for each domain.
- A file is named once: added twice, removed twice, or added and removed, it would be there for some readers only.
  (The same file with another deletion vector is another one.) It is the file that counts, not how its path is spelled.
- Nothing that belongs into checkpoints.

`check_safe`: what an owner that trusts no client asks for beyond that.

- Files lie within the table, spelled without detours, and not in its log. A file elsewhere is fine where the table has
  it already: those of a shallow clone stay what they are.
- Sizes and counts are not negative.
- A protocol asks for nothing that Lakeseal does not know, and metadata can be read.
- The in-commit timestamp is not further ahead of the owner's clock than clocks differ.

Both raise `InvalidCommit` with the line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Hashable, Sequence
from urllib.parse import unquote

from lakeseal.errors import InvalidCommit, LakesealError, UnsafePath
from lakeseal.protocol import features
from lakeseal.protocol.actions import (
    Action,
    AddCDCFile,
    AddFile,
    CheckpointMetadata,
    CommitInfo,
    DeletionVectorDescriptor,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    SidecarFile,
)
from lakeseal.protocol.data_paths import decode_path, is_absolute
from lakeseal.protocol.deletion_vectors import INLINE, RELATIVE, relative_path
from lakeseal.protocol.paths import LOG_DIR
from lakeseal.protocol.properties import TableProperties
from lakeseal.protocol.schema import StructType

FURTHEST_AHEAD_MS = 2 * 86_400_000
"""A clock whose date is off by one is no reason to lose a night's work; one that is off by more is mended first."""

Lines = Sequence[tuple[int, Action]]
"""The actions of a commit, with the numbers of their lines."""
Known = Callable[[], Container[str]]
"""The paths of a table's files and deletion vectors, as its log spells them."""

_control = re.compile("[\x00-\x1f\x7f]")


def check_form(lines: Lines) -> None:
    if not lines or not isinstance(lines[0][1], CommitInfo):
        raise _invalid(lines[0][0] if lines else None, "A commit begins with its commitInfo")
    seen: dict[Hashable, int] = {}
    for number, action in lines:
        found = _once(action, number)
        if found is None:
            continue
        what, key = found
        first = seen.setdefault(key, number)
        if first != number:
            raise _invalid(number, f"{what} is in the commit twice, first in line {first}")


def _once(action: Action, number: int) -> tuple[str, Hashable] | None:
    """What a commit may hold once: in words, and as a key."""
    match action:
        case CommitInfo() | Metadata() | Protocol():
            return f"The action {action.key}", action.key
        case SetTransaction():
            return f"The txn of {action.app_id!r}", (action.key, action.app_id)
        case DomainMetadata():
            return f"The domain {action.domain!r}", (action.key, action.domain)
        case AddFile() | RemoveFile():
            vector = action.deletion_vector
            return f"The file {action.path}", (
                "file",
                _place(action.path),
                None if vector is None else vector.unique_id,
            )
        case AddCDCFile():
            return f"The file {action.path}", (action.key, _place(action.path))
        case CheckpointMetadata() | SidecarFile():
            raise _invalid(number, f"The action {action.key} belongs into checkpoints")
    return None


def _place(path: str) -> str:
    try:
        return decode_path(path)
    except UnsafePath:
        return path


def check_safe(lines: Lines, *, now: int, latest_timestamp: Callable[[], int | None], known: Known) -> None:
    """`latest_timestamp` is that of the version before, and `known` what the table has then: both are asked for only
    where the commit is unusual."""
    for number, action in lines:
        match action:
            case CommitInfo():
                _check_timestamp(number, action, now, latest_timestamp)
            case Protocol():
                _check_protocol(number, action)
            case Metadata():
                _check_metadata(number, action)
            case AddFile():
                _check_numbers(number, action.size, action.modification_time)
                _check_vector(number, action.deletion_vector, known)
                _check_path(number, action.path, known)
            case AddCDCFile():
                _check_numbers(number, action.size)
                _check_path(number, action.path, None)
            case RemoveFile():
                _check_numbers(number, action.size or 0)
                _check_vector(number, action.deletion_vector, known)
                _check_path(number, action.path, known)


def _check_timestamp(number: int, info: CommitInfo, now: int, latest: Callable[[], int | None]) -> None:
    stamp = info.in_commit_timestamp
    if stamp is None or stamp < 0:
        raise _invalid(number, f"The inCommitTimestamp is {stamp}, which is no time")
    if stamp <= now + FURTHEST_AHEAD_MS:
        return
    before = latest()
    # A clock that was wrong once must not keep everybody from committing: then time goes on by the millisecond.
    if before is None or stamp != before + 1:
        raise _invalid(
            number,
            f"The inCommitTimestamp {stamp} is {(stamp - now) // 1000} s ahead of the owner's clock",
            hint="Nothing was committed. Set the clock of the machine that commits",
        )


def _check_protocol(number: int, protocol: Protocol) -> None:
    try:
        features.check_readable(protocol)
        if protocol.min_writer_version > features.MAX_WRITER_VERSION:
            raise _invalid(number, f"The protocol asks for writer version {protocol.min_writer_version}")
    except InvalidCommit:
        raise
    except LakesealError as error:
        raise _invalid(number, f"The protocol cannot be taken: {error.message}") from None
    unknown = sorted(features.writer_features(protocol) - features.FEATURES.keys())
    if unknown:
        raise _invalid(number, f"The protocol asks for {', '.join(unknown)}, which Lakeseal does not know")


def _check_metadata(number: int, metadata: Metadata) -> None:
    try:
        schema = metadata.schema if metadata.schema_string else StructType()
        schema.to_physical()
        properties = TableProperties.of(metadata)
        _ = properties.column_mapping_mode, properties.managed_commit_owner_conf
    except LakesealError as error:
        raise _invalid(number, f"The metadata cannot be read: {error.message}") from None
    missing = [name for name in metadata.partition_columns if schema.field(name) is None]
    if missing:
        raise _invalid(number, f"The metadata partitions by {', '.join(missing)}, which is no column")
    if metadata.format.provider != "parquet":
        raise _invalid(number, f"The metadata says that files are {metadata.format.provider}, not parquet")


def _check_numbers(number: int, *counts: int) -> None:
    if any(count < 0 for count in counts):
        raise _invalid(number, f"A size or a time is {min(counts)}, which is negative")


def _check_vector(number: int, vector: DeletionVectorDescriptor | None, known: Known) -> None:
    if vector is None:
        return
    _check_numbers(number, vector.size_in_bytes, vector.cardinality, vector.offset or 0)
    if vector.storage_type == INLINE:
        return
    if vector.storage_type == RELATIVE:
        try:
            path = relative_path(vector)
        except LakesealError as error:
            raise _invalid(number, f"A deletion vector has no place: {error.message}") from None
        _check_key(number, path, path)
    else:
        _check_path(number, vector.path_or_inline_dv, known, absolute=True)


def _check_path(number: int, path: str, known: Known | None, *, absolute: bool = False) -> None:
    if not absolute and not is_absolute(path):
        _check_key(number, unquote(path), path)
    elif known is None or path not in known():
        raise _invalid(
            number,
            f"The file {path} is outside of the table",
            hint="Nothing was committed. Files of a table lie below its root, and are named from there",
        )


def _check_key(number: int, key: str, path: str) -> None:
    segments = key.split("/")
    if not all(segments) or "." in segments or ".." in segments:
        raise _invalid(number, f"The path {path!r} leaves the table, or takes a detour")
    if _control.search(key):
        raise _invalid(number, f"The path {path!r} holds control characters")
    if segments[0] == LOG_DIR.rstrip("/"):
        raise _invalid(number, f"The path {path!r} is in the table's log, where no data is")


def _invalid(number: int | None, what: str, *, hint: str | None = None) -> InvalidCommit:
    error = InvalidCommit(what if number is None else f"Line {number}: {what[0].lower()}{what[1:]}", hint=hint)
    error.line = number
    return error
