"""What is in a commit that an owner must not ratify, whoever asks. Pure: decided on decoded actions, never on bytes.

`check_form`: what the format says of any commit, so that all readers understand the same by it.

- `commitInfo` is there once, and comes first: in-commit timestamps are read from the first line.
- One `metaData` and one `protocol` at most; one `txn` for each appId, one `domainMetadata` for each domain.
- A file is named once: added twice, removed twice, or added and removed, it would be there for some readers only.
  (The same file with another deletion vector is another one.) It is the file that counts, not how its path is spelled.
- Nothing that belongs into checkpoints.

`check_safe`: what an owner that trusts no client asks for beyond that.

- Files lie within the table, spelled without detours and as the URI references that they are, and not in its log. A
  file elsewhere is fine where the table has it already: those of a shallow clone stay what they are.
- Sizes and counts are not negative.
- The in-commit timestamp is not further ahead of the owner's clock than clocks differ, and row ids are not further
  ahead of those that the table has given out than a commit could use.
- What is deleted by vectors is deleted in a table whose protocol says so.
- Metadata has a schema that every reader understands alike, and partitions by some of its columns, not by all.
- A protocol asks for nothing that Lakeseal does not know, and lists what metadata uses, and what files have.
- Each property that is set anew has a value that can be read. What a table has from elsewhere, it keeps.
- Since when in-commit timestamps count stays as it is: by that, old versions are found.

Both raise `InvalidCommit` with the line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Hashable, Iterable, Sequence
from urllib.parse import unquote

from lakeseal.commit.conflicts import ROW_TRACKING_DOMAIN
from lakeseal.commit.row_ids import high_water_mark
from lakeseal.errors import InvalidCommit, LakesealError, UnsafePath
from lakeseal.log.snapshot import Snapshot
from lakeseal.protocol import codec, features
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
from lakeseal.protocol.properties import TableProperties, check_values
from lakeseal.protocol.schema import ArrayType, DataType, MapType, StructType, VariantType

FURTHEST_AHEAD_MS = 2 * 86_400_000
"""A clock whose date is off by one is no reason to lose a night's work; one that is off by more is mended first."""

Lines = Sequence[tuple[int, Action]]
"""The actions of a commit, with the numbers of their lines."""
Known = Callable[[], Container[str]]
"""The paths of a table's files and deletion vectors, as its log spells them."""

MOST_NEW_ROW_IDS = 2**40
"""That one commit may take. Ids are used up for ever: a commit that took all of them would be the table's last."""

_SINCE = (
    TableProperties.in_commit_timestamp_enablement_version.key,
    TableProperties.in_commit_timestamp_enablement_timestamp.key,
)

_control = re.compile("[\x00-\x1f\x7f]")
_no_uri = re.compile(r"""[\x00-\x20\x7f"<>\\^`{|}?#]|%(?![0-9A-Fa-f]{2})""")
_scheme = re.compile(r"[^/]*:")


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


def check_safe(lines: Lines, *, now: int, before: Callable[[], Snapshot | None]) -> None:
    """`before` is the table that the commit is made to, None where it creates one. It is asked for only where the
    commit is unusual."""

    def latest_timestamp() -> int | None:
        found = before()
        return None if found is None else found.in_commit_timestamp

    def known() -> frozenset[str]:
        return _paths(before())

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
    _check_together(lines, before)
    _check_row_ids(lines, before)


def _paths(snapshot: Snapshot | None) -> frozenset[str]:
    if snapshot is None:
        return frozenset()
    vectors = (vector for vector in snapshot.files["deletionVector"].to_pylist() if vector is not None)
    return frozenset([*snapshot.files["path"].to_pylist(), *(vector["pathOrInlineDv"] for vector in vectors)])


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


def _check_row_ids(lines: Lines, before: Callable[[], Snapshot | None]) -> None:
    files = [(n, one.base_row_id) for n, one in lines if isinstance(one, AddFile) and one.base_row_id is not None]
    domain = next(
        ((n, one) for n, one in lines if isinstance(one, DomainMetadata) and one.domain == ROW_TRACKING_DOMAIN), None
    )
    if not files and domain is None:
        return
    was = before()
    given = -1 if was is None else high_water_mark(was.domains.get(ROW_TRACKING_DOMAIN))
    for number, row_id in files:
        if not 0 <= row_id <= given + MOST_NEW_ROW_IDS:
            raise _invalid(number, f"The baseRowId {row_id} is none that comes next")
    if domain is None or (domain[1].removed and not _tracks_rows(lines, was)):
        return
    try:
        high = high_water_mark(domain[1])
    except LakesealError as error:
        raise _invalid(domain[0], error.message) from None
    if not given <= high <= given + MOST_NEW_ROW_IDS:
        raise _invalid(domain[0], f"Row ids up to {given} are given out, and the commit says up to {high}")


def _tracks_rows(lines: Lines, before: Snapshot | None) -> bool:
    metadata = next((one for _, one in lines if isinstance(one, Metadata)), None)
    if metadata is None:
        return before is not None and before.properties.row_tracking
    return TableProperties.of(metadata).row_tracking


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
        if not _is_reference(path) and (known is None or path not in known()):
            raise _invalid(
                number,
                f"The path {path!r} is not spelled as a URI",
                hint="Nothing was committed. Write other characters than those of a URI's path as % and two digits",
            )
        _check_key(number, unquote(path), path)
    elif known is None or path not in known():
        raise _invalid(
            number,
            f"The file {path} is outside of the table",
            hint="Nothing was committed. Files of a table lie below its root, and are named from there",
        )


def _is_reference(path: str) -> bool:
    """Whether all readers find the same by it: Java's refuse what is no URI, and take what looks like a scheme, a query
    or a fragment for one."""
    try:
        unquote(path, errors="strict")
    except UnicodeDecodeError:
        return False
    return _no_uri.search(path) is None and _scheme.match(path) is None


def _check_key(number: int, key: str, path: str) -> None:
    segments = key.split("/")
    if not all(segments) or "." in segments or ".." in segments:
        raise _invalid(number, f"The path {path!r} leaves the table, or takes a detour")
    if _control.search(key):
        raise _invalid(number, f"The path {path!r} holds control characters")
    if segments[0] == LOG_DIR.rstrip("/"):
        raise _invalid(number, f"The path {path!r} is in the table's log, where no data is")


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
    if not metadata.schema_string:
        raise _invalid(number, "The metadata has no schema")
    doubled = codec.doubled_key(metadata.schema_string)
    if doubled is not None:
        raise _invalid(number, f"The metadata's schema gives the key {doubled!r} twice")
    try:
        schema = metadata.schema
        schema.to_physical()
        properties = TableProperties.of(metadata)
        _ = properties.column_mapping_mode, properties.managed_commit_owner_conf
    except LakesealError as error:
        raise _invalid(number, f"The metadata cannot be read: {error.message}") from None
    if any("\0" in name for name in _column_names(schema)):
        raise _invalid(number, "The metadata has a column whose name holds a NUL character")
    _check_partitioning(number, schema, metadata.partition_columns)
    unset = sorted(key for key, text in metadata.configuration.items() if text is None)
    if unset:
        raise _invalid(number, f"The metadata says of the property {unset[0]} that it is null")
    if metadata.format.provider != "parquet":
        raise _invalid(number, f"The metadata says that files are {metadata.format.provider}, not parquet")


def _check_partitioning(number: int, schema: StructType, columns: Sequence[str]) -> None:
    by_name = {field.name: field.type for field in schema.fields}
    missing = [name for name in columns if name not in by_name]
    if missing:
        raise _invalid(number, f"The metadata partitions by {', '.join(missing)}, which is no column")
    if len(set(columns)) != len(columns):
        raise _invalid(number, f"The metadata partitions by a column twice: {', '.join(columns)}")
    if columns and len(columns) == len(by_name):
        raise _invalid(number, "The metadata partitions by all of the table's columns")
    nested = [name for name in columns if isinstance(by_name[name], StructType | ArrayType | MapType | VariantType)]
    if nested:
        raise _invalid(number, f"The metadata partitions by {nested[0]}, which is a {by_name[nested[0]]}")


def _column_names(kind: DataType) -> Iterable[str]:
    match kind:
        case StructType(fields=fields):
            for field in fields:
                yield field.name
                yield from _column_names(field.type)
        case ArrayType(element=element):
            yield from _column_names(element)
        case MapType(key=key, value=value):
            yield from _column_names(key)
            yield from _column_names(value)


def _check_together(lines: Lines, before: Callable[[], Snapshot | None]) -> None:
    """`before` is asked for only where the commit changes metadata or protocol, or deletes by a vector."""
    metadata = next((one for one in lines if isinstance(one[1], Metadata)), None)
    protocol = next((one for one in lines if isinstance(one[1], Protocol)), None)
    vector = next((one[0] for one in lines if isinstance(one[1], AddFile) and one[1].deletion_vector is not None), None)
    if metadata is None and protocol is None and vector is None:
        return
    was = before()
    after = protocol[1] if protocol is not None else None if was is None else was.protocol
    said = metadata[1] if metadata is not None else None if was is None else was.metadata
    if not isinstance(after, Protocol) or not isinstance(said, Metadata):
        raise _invalid(None, "The first commit of a table has its protocol and its metadata")
    number = next(one[0] for one in (metadata, protocol, (vector or 0, None)) if one is not None)
    if metadata is not None:
        _check_values(number, said, None if was is None else was.metadata)
    missing = [name for name in _used(number, said) if not features.supports(after, name)]
    if was is not None:
        lacked = {name for name in _used(number, was.metadata) if not features.supports(was.protocol, name)}
        missing = [name for name in missing if name not in lacked]
    if missing:
        raise _invalid(number, f"The metadata uses {', '.join(missing)}, which the protocol does not list")
    if not features.supports(after, "deletionVectors"):
        if vector is not None:
            raise _invalid(vector, "A file has a deletion vector, and the protocol does not list deletionVectors")
        if protocol is not None and was is not None and was.files["deletionVector"].null_count < was.files.num_rows:
            raise _invalid(protocol[0], "The protocol drops deletionVectors, which files of the table have")


def _used(number: int, metadata: Metadata) -> tuple[str, ...]:
    try:
        return features.required_features(metadata)
    except LakesealError as error:
        raise _invalid(number, f"The metadata cannot be read: {error.message}") from None


def _check_values(number: int, metadata: Metadata, before: Metadata | None) -> None:
    had = {} if before is None else before.configuration
    said = {key: text for key, text in metadata.configuration.items() if had.get(key) != text and text is not None}
    try:
        check_values(said)
    except LakesealError as error:
        raise _invalid(number, f"The metadata cannot be read: {error.message}") from None
    moved = [key for key in _SINCE if before is not None and metadata.configuration.get(key) != had.get(key)]
    if moved:
        raise _invalid(number, f"The metadata changes {moved[0]}, by which old versions are found")


def _invalid(number: int | None, what: str, *, hint: str | None = None) -> InvalidCommit:
    error = InvalidCommit(what if number is None else f"Line {number}: {what[0].lower()}{what[1:]}", hint=hint)
    error.line = number
    return error
