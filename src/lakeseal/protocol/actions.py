"""Actions: what one line of the log says, as frozen values.

`from_json` and `to_json` are inverse: fields that this module does not know travel in `unknown`, and actions that it
does not know travel whole in `UnknownAction`. Absent optional fields are left out when written, never written as null.
"""

from __future__ import annotations

from functools import cache, cached_property
from typing import Annotated, Any, ClassVar, Self

import msgspec
from msgspec import Meta, Struct, field

from lakeseal import typed_json
from lakeseal.protocol.schema import StructType

Int = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Long = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Json = dict[str, Any]

# No field of the format has this name; in a log it would be one more unknown field.
_UNKNOWN = "lakeseal.unknown"


class _Record(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A JSON object of the log, with what we do not know about it kept aside."""

    records: ClassVar[dict[str, type[_Record]]] = {}
    """Fields that are records themselves."""

    unknown: Json = field(default_factory=dict, name=_UNKNOWN)

    @classmethod
    def from_json(cls, value: Json) -> Self:
        """Raises `msgspec.ValidationError` where a known field has a wrong type; null is as good as absent."""
        known = _known_names(cls)
        present: Json = {}
        extra: Json = {}
        for name, content in value.items():
            if name not in known:
                extra[name] = content
            elif name in cls.records and isinstance(content, dict):
                present[name] = cls.records[name].from_json(content)
            elif content is not None:
                present[name] = content
        if extra:
            present[_UNKNOWN] = extra
        return typed_json.convert(present, cls)

    def to_json(self) -> Json:
        value: Json = msgspec.to_builtins(self)
        for name in self.records.keys() & value.keys():
            value[name] = _flat(value[name])
        return _flat(value)


def _flat(value: Json) -> Json:
    for name, content in value.pop(_UNKNOWN, {}).items():
        # What is known wins: a record must not say one thing and be written as another.
        value.setdefault(name, content)
    return value


@cache
def _known_names(cls: type[_Record]) -> frozenset[str]:
    return frozenset(f.encode_name for f in msgspec.structs.fields(cls)) - {_UNKNOWN}


class DeletionVectorDescriptor(_Record, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    storage_type: str
    path_or_inline_dv: str
    offset: Int | None = None
    size_in_bytes: Int
    cardinality: Long

    @property
    def unique_id(self) -> str:
        """The id that, with the path, is the key of a file in the log."""
        base = self.storage_type + self.path_or_inline_dv
        return base if self.offset is None else f"{base}@{self.offset}"


class AddFile(_Record, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    key: ClassVar[str] = "add"
    records = {"deletionVector": DeletionVectorDescriptor}
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
    records = {"deletionVector": DeletionVectorDescriptor}
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


class Format(_Record, frozen=True, kw_only=True, omit_defaults=False):
    provider: str = "parquet"
    options: dict[str, str | None] = field(default_factory=dict)


class Metadata(_Record, frozen=True, kw_only=True, rename="camel", omit_defaults=True, dict=True):
    key: ClassVar[str] = "metaData"
    records = {"format": Format}
    id: str
    name: str | None = None
    description: str | None = None
    format: Format = field(default_factory=Format)
    schema_string: str | None = None
    partition_columns: tuple[str, ...] = ()
    configuration: dict[str, str | None] = field(default_factory=dict)
    created_time: Long | None = None

    @classmethod
    def from_json(cls, value: Json) -> Self:
        """Raises `msgspec.ValidationError` where it does not say by what the table is partitioned, too: rows would have
        no values in these columns, as they are not in files."""
        if value.get("partitionColumns") is None:
            raise msgspec.ValidationError("Object missing required field `partitionColumns`")
        return super().from_json(value)

    @cached_property
    def schema(self) -> StructType:
        """What `schema_string` says, parsed once."""
        return StructType.from_json(self.schema_string or "")

    def to_json(self) -> Json:
        # Readers expect these three even when they are empty, which `omit_defaults` would drop.
        return {
            **super().to_json(),
            "format": self.format.to_json(),
            "partitionColumns": list(self.partition_columns),
            "configuration": dict(self.configuration),
        }


class Protocol(_Record, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    key: ClassVar[str] = "protocol"
    min_reader_version: Long
    min_writer_version: Long
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None

    def to_json(self) -> Json:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in super().to_json().items()}


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
    tags: Any = None


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
