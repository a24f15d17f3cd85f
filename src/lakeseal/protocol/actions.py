"""Actions: what one line of the log says, as frozen values.

`from_json` and `to_json` are inverse: fields that this module does not know travel in `unknown`, and actions that it
does not know travel whole in `UnknownAction`. Absent optional fields are left out when written, never written as null.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Self

import msgspec
from msgspec import Meta, Struct, field

Long = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Json = dict[str, Any]


class _Record(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A JSON object of the log, with what we do not know about it kept aside."""

    unknown: Json = field(default_factory=dict, name="lakeseal.unknown")

    @classmethod
    def from_json(cls, value: Json) -> Self:
        known = _known_names(cls)
        record = msgspec.convert({k: v for k, v in value.items() if k in known and v is not None}, cls)
        extra = {k: v for k, v in value.items() if k not in known}
        return msgspec.structs.replace(record, unknown=extra) if extra else record

    def to_json(self) -> Json:
        value: Json = msgspec.to_builtins(self)
        value.update(value.pop("lakeseal.unknown", {}))
        return value


_names: dict[type, frozenset[str]] = {}


def _known_names(cls: type[_Record]) -> frozenset[str]:
    names = _names.get(cls)
    if names is None:
        names = frozenset(f.encode_name for f in msgspec.structs.fields(cls)) - {"lakeseal.unknown"}
        _names[cls] = names
    return names


class DeletionVectorDescriptor(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    storage_type: str
    path_or_inline_dv: str
    offset: Long | None = None
    size_in_bytes: Long
    cardinality: Long

    @property
    def unique_id(self) -> str:
        """The id that, with the path, is the key of a file in the log."""
        base = self.storage_type + self.path_or_inline_dv
        return base if self.offset is None else f"{base}@{self.offset}"


class AddFile(_Record, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    key: ClassVar[str] = "add"
    path: str
    partition_values: dict[str, str | None]
    size: Long
    modification_time: Long
    data_change: bool
    stats: str | None = None
    tags: dict[str, str | None] | None = None
    deletion_vector: DeletionVectorDescriptor | None = None
    base_row_id: Long | None = None
    default_row_commit_version: Long | None = None
    clustering_provider: str | None = None


class RemoveFile(_Record, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    key: ClassVar[str] = "remove"
    path: str
    data_change: bool
    deletion_timestamp: Long | None = None
    extended_file_metadata: bool | None = None
    partition_values: dict[str, str | None] | None = None
    size: Long | None = None
    stats: str | None = None
    tags: dict[str, str | None] | None = None
    deletion_vector: DeletionVectorDescriptor | None = None
    base_row_id: Long | None = None
    default_row_commit_version: Long | None = None


class AddCDCFile(_Record, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    key: ClassVar[str] = "cdc"
    path: str
    partition_values: dict[str, str | None]
    size: Long
    data_change: bool
    tags: dict[str, str | None] | None = None


class Format(Struct, frozen=True, kw_only=True):
    provider: str = "parquet"
    options: dict[str, str] = field(default_factory=dict)


class Metadata(_Record, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    key: ClassVar[str] = "metaData"
    id: str
    name: str | None = None
    description: str | None = None
    format: Annotated[Format, Meta()] = field(default_factory=Format)
    schema_string: str | None = None
    partition_columns: tuple[str, ...] = ()
    configuration: dict[str, str | None] = field(default_factory=dict)
    created_time: Long | None = None

    def to_json(self) -> Json:
        # Readers expect these three even when they are empty, which `omit_defaults` would drop.
        return {
            **super().to_json(),
            "format": msgspec.to_builtins(self.format),
            "partitionColumns": list(self.partition_columns),
            "configuration": dict(self.configuration),
        }


class Protocol(_Record, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    key: ClassVar[str] = "protocol"
    min_reader_version: Long
    min_writer_version: Long
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None


class SetTransaction(_Record, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    key: ClassVar[str] = "txn"
    app_id: str
    version: Long
    last_updated: Long | None = None


class DomainMetadata(_Record, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    key: ClassVar[str] = "domainMetadata"
    domain: str
    configuration: str
    removed: bool

    def to_json(self) -> Json:
        return {**super().to_json(), "removed": self.removed}


class CommitInfo(_Record, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Free-form by the format: clients put what they like here, so only its numbers are checked."""

    key: ClassVar[str] = "commitInfo"
    timestamp: Any = None
    in_commit_timestamp: Long | None = None
    operation: Any = None
    operation_parameters: Any = None
    read_version: Any = None
    isolation_level: Any = None
    is_blind_append: Any = None
    operation_metrics: Any = None
    user_metadata: Any = None
    engine_info: Any = None
    txn_id: str | None = None


class CheckpointMetadata(_Record, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    key: ClassVar[str] = "checkpointMetadata"
    version: Long
    tags: dict[str, str | None] | None = None


class SidecarFile(_Record, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    key: ClassVar[str] = "sidecar"
    path: str
    size_in_bytes: Long
    modification_time: Long
    tags: dict[str, str | None] | None = None


class UnknownAction(Struct, frozen=True, kw_only=True):
    """An action of a later protocol: kept, passed on, never interpreted."""

    name: str
    value: Any


KnownAction = (
    AddFile
    | RemoveFile
    | AddCDCFile
    | Metadata
    | Protocol
    | SetTransaction
    | DomainMetadata
    | CommitInfo
    | CheckpointMetadata
    | SidecarFile
)
Action = KnownAction | UnknownAction

BY_KEY: dict[str, type[KnownAction]] = {
    cls.key: cls
    for cls in (
        AddFile,
        RemoveFile,
        AddCDCFile,
        Metadata,
        Protocol,
        SetTransaction,
        DomainMetadata,
        CommitInfo,
        CheckpointMetadata,
        SidecarFile,
    )
}
