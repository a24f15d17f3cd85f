"""What an owner that trusts no client asks of a table's metadata and protocol: that others can read the table then, and
go on writing to it. Raises `InvalidCommit` with the line.

- Metadata has a schema that every reader understands alike, and partitions by some of its columns, not by all.
- A protocol asks for nothing that Lakeseal does not know.
- Each property that is set anew has a value that can be read. What a table has from elsewhere, it keeps.
- The protocol lists what metadata uses, and what files have: deletion vectors.
- Since when in-commit timestamps count stays as it is: by that, old versions are found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from lakeseal.errors import InvalidCommit, LakesealError
from lakeseal.log.snapshot import Snapshot
from lakeseal.protocol import codec, features
from lakeseal.protocol.actions import Action, AddFile, Metadata, Protocol
from lakeseal.protocol.properties import TableProperties, check_values
from lakeseal.protocol.schema import ArrayType, DataType, MapType, StructType, VariantType

_SINCE = (
    TableProperties.in_commit_timestamp_enablement_version.key,
    TableProperties.in_commit_timestamp_enablement_timestamp.key,
)


def check_protocol(number: int, protocol: Protocol) -> None:
    try:
        features.check_readable(protocol)
        if protocol.min_writer_version > features.MAX_WRITER_VERSION:
            raise invalid(number, f"The protocol asks for writer version {protocol.min_writer_version}")
    except InvalidCommit:
        raise
    except LakesealError as error:
        raise invalid(number, f"The protocol cannot be taken: {error.message}") from None
    unknown = sorted(features.writer_features(protocol) - features.FEATURES.keys())
    if unknown:
        raise invalid(number, f"The protocol asks for {', '.join(unknown)}, which Lakeseal does not know")


def check_metadata(number: int, metadata: Metadata) -> None:
    if not metadata.schema_string:
        raise invalid(number, "The metadata has no schema")
    doubled = codec.doubled_key(metadata.schema_string)
    if doubled is not None:
        raise invalid(number, f"The metadata's schema gives the key {doubled!r} twice")
    try:
        schema = metadata.schema
        schema.to_physical()
        properties = TableProperties.of(metadata)
        _ = properties.column_mapping_mode, properties.managed_commit_owner_conf
    except LakesealError as error:
        raise invalid(number, f"The metadata cannot be read: {error.message}") from None
    if any("\0" in name for name in _names(schema)):
        raise invalid(number, "The metadata has a column whose name holds a NUL character")
    _check_partitioning(number, schema, metadata.partition_columns)
    unset = sorted(key for key, text in metadata.configuration.items() if text is None)
    if unset:
        raise invalid(number, f"The metadata says of the property {unset[0]} that it is null")
    if metadata.format.provider != "parquet":
        raise invalid(number, f"The metadata says that files are {metadata.format.provider}, not parquet")


def _check_partitioning(number: int, schema: StructType, columns: Sequence[str]) -> None:
    by_name = {field.name: field.type for field in schema.fields}
    missing = [name for name in columns if name not in by_name]
    if missing:
        raise invalid(number, f"The metadata partitions by {', '.join(missing)}, which is no column")
    if len(set(columns)) != len(columns):
        raise invalid(number, f"The metadata partitions by a column twice: {', '.join(columns)}")
    if columns and len(columns) == len(by_name):
        raise invalid(number, "The metadata partitions by all of the table's columns")
    nested = [name for name in columns if isinstance(by_name[name], StructType | ArrayType | MapType | VariantType)]
    if nested:
        raise invalid(number, f"The metadata partitions by {nested[0]}, which is a {by_name[nested[0]]}")


def _names(kind: DataType) -> Iterable[str]:
    match kind:
        case StructType(fields=fields):
            for field in fields:
                yield field.name
                yield from _names(field.type)
        case ArrayType(element=element):
            yield from _names(element)
        case MapType(key=key, value=value):
            yield from _names(key)
            yield from _names(value)


def check_together(lines: Sequence[tuple[int, Action]], before: Callable[[], Snapshot | None]) -> None:
    """For a commit that changes metadata or protocol, or adds a file with a deletion vector."""
    metadata = next((one for one in lines if isinstance(one[1], Metadata)), None)
    protocol = next((one for one in lines if isinstance(one[1], Protocol)), None)
    vector = next((one[0] for one in lines if isinstance(one[1], AddFile) and one[1].deletion_vector is not None), None)
    was = before()
    after = protocol[1] if protocol is not None else None if was is None else was.protocol
    said = metadata[1] if metadata is not None else None if was is None else was.metadata
    if not isinstance(after, Protocol) or not isinstance(said, Metadata):
        raise invalid(None, "The first commit of a table has its protocol and its metadata")
    number = next(one[0] for one in (metadata, protocol, (vector or 0, None)) if one is not None)
    if metadata is not None:
        _check_values(number, said, None if was is None else was.metadata)
    missing = [name for name in _used(number, said) if not features.supports(after, name)]
    if was is not None:
        lacked = {name for name in _used(number, was.metadata) if not features.supports(was.protocol, name)}
        missing = [name for name in missing if name not in lacked]
    if missing:
        raise invalid(number, f"The metadata uses {', '.join(missing)}, which the protocol does not list")
    if not features.supports(after, "deletionVectors"):
        if vector is not None:
            raise invalid(vector, "A file has a deletion vector, and the protocol does not list deletionVectors")
        if protocol is not None and was is not None and was.files["deletionVector"].null_count < was.files.num_rows:
            raise invalid(protocol[0], "The protocol drops deletionVectors, which files of the table have")


def _used(number: int, metadata: Metadata) -> tuple[str, ...]:
    try:
        return features.required_features(metadata)
    except LakesealError as error:
        raise invalid(number, f"The metadata cannot be read: {error.message}") from None


def _check_values(number: int, metadata: Metadata, before: Metadata | None) -> None:
    had = {} if before is None else before.configuration
    said = {key: text for key, text in metadata.configuration.items() if had.get(key) != text and text is not None}
    try:
        check_values(said)
    except LakesealError as error:
        raise invalid(number, f"The metadata cannot be read: {error.message}") from None
    moved = [key for key in _SINCE if before is not None and metadata.configuration.get(key) != had.get(key)]
    if moved:
        raise invalid(number, f"The metadata changes {moved[0]}, by which old versions are found")


def invalid(number: int | None, what: str, *, hint: str | None = None) -> InvalidCommit:
    error = InvalidCommit(what if number is None else f"Line {number}: {what[0].lower()}{what[1:]}", hint=hint)
    error.line = number
    return error
