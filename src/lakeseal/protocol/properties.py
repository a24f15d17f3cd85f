"""Table properties, typed.

`TableProperties` reads a table's configuration: each attribute is one property, parsed when it is asked for, with
Delta's default where the table does not set it. A value that does not parse raises `InvalidMetadata` that names the
property, so a bad value stops only those who depend on it. Durations are milliseconds, sizes are bytes.

`settings` checks what a user wants to set: names in any case, values as they will be read later, no name that starts
with `delta.` and is unknown. What is accepted is carried out; a property of other clients that Lakeseal does nothing
about is refused by name, with what to do instead, unless its value asks for nothing either. A table that has it from
elsewhere keeps it.

Features and protocol versions are asked for as properties too; they go into the protocol, never into the configuration
(`features.asked`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any, Generic, Self, TypeVar, overload

import msgspec
from msgspec import Struct

from lakeseal.errors import InvalidArgument, InvalidMetadata, UnsupportedFeature
from lakeseal.protocol.actions import Metadata

CONSTRAINT_PREFIX = "delta.constraints."
FEATURE_PREFIX = "delta.feature."
MIN_READER_VERSION = "delta.minReaderVersion"
MIN_WRITER_VERSION = "delta.minWriterVersion"
_OTHER_FORMATS_PREFIX = "delta.universalformat."

T = TypeVar("T")

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_INTERVAL = re.compile(r"\s*([+-]?)([0-9]{1,18})(?:\.([0-9]{1,9}))?\s+([a-z]+)(?=\s|$)")
_MICROSECONDS = {
    "week": 604_800_000_000,
    "day": 86_400_000_000,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1_000,
    "microsecond": 1,
}
_SIZE = re.compile(r"([0-9]{1,18})\s*([kmgt]?)(?:i?b)?")
_COLUMN_PART = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^`.,\s]+))\s*([.,]|$)")


class _Malformed(Exception):
    """Carries what the value should have been."""


class Property(Generic[T]):
    """One property: an attribute of `TableProperties`, and an entry among those that can be set."""

    def __init__(
        self,
        key: str,
        parse: Callable[[str], T],
        default: T,
        *,
        older_key: str | None = None,
        settable: bool = True,
        secret: bool = False,
        instead: str | None = None,
    ) -> None:
        """`instead` is for a property that nothing here follows: what to do where somebody wants it."""
        self.key = key
        self.parse = parse
        self.default = default
        self.older_key = older_key
        self.settable = settable
        self.secret = secret
        self.instead = instead

    @overload
    def __get__(self, instance: None, owner: type[object]) -> Self: ...

    @overload
    def __get__(self, instance: TableProperties, owner: type[object]) -> T: ...

    def __get__(self, instance: TableProperties | None, owner: type[object]) -> Self | T:
        if instance is None:
            return self
        text = instance.configuration.get(self.key)
        if text is None and self.older_key is not None:
            text = instance.configuration.get(self.older_key)
        return self.default if text is None else self.read(text)

    def read(self, text: str) -> T:
        try:
            return self.parse(text)
        except _Malformed as error:
            raise InvalidMetadata(
                self.complaint(text, str(error)), hint=f"Set {self.key} to a valid value, or remove it"
            ) from None

    def complaint(self, text: str, expected: str) -> str:
        shown = "" if self.secret else f", not {text[:100]!r}"
        return f"The property {self.key} must be {expected}{shown}"


def _boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise _Malformed("true or false")
    return lowered == "true"


def _integer(least: int, most: int = 2**63 - 1) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text) if _INTEGER.fullmatch(text) else None
        if value is None or not least <= value <= most:
            raise _Malformed(f"a whole number of at least {least}")
        return value

    return parse


def _choice(*choices: str) -> Callable[[str], str]:
    by_lowered = {choice.lower(): choice for choice in choices}

    def parse(text: str) -> str:
        choice = by_lowered.get(text.strip().lower())
        if choice is None:
            raise _Malformed(f"one of {', '.join(choices)}")
        return choice

    return parse


def _text(text: str) -> str:
    return text


def _retention(text: str) -> int:
    """Milliseconds of a calendar interval such as `interval 1 week 2 days` or `168 hours`.

    Months and years are refused, for their length differs."""
    expected = "an interval such as 'interval 2 weeks', in weeks to microseconds"
    rest = text.strip().lower()
    rest = rest.removeprefix("interval") if rest.startswith("interval ") else rest
    total = 0
    while rest:
        found = _INTERVAL.match(rest)
        unit = None if found is None else _MICROSECONDS.get(found[4].removesuffix("s"))
        if found is None or unit is None or (found[3] and unit != _MICROSECONDS["second"]):
            raise _Malformed(expected)
        amount = int(found[2]) * unit + (int(found[3][:6].ljust(6, "0")) if found[3] else 0)
        total += -amount if found[1] == "-" else amount
        rest = rest[found.end() :]
    if not text.strip() or text.strip().lower() == "interval" or not 0 <= total // 1000 < 2**63:
        raise _Malformed(expected)
    return total // 1000


def _size(text: str) -> int:
    found = _SIZE.fullmatch(text.strip().lower())
    if found is None or int(found[1]) == 0:
        raise _Malformed("a number of bytes such as '134217728' or '128mb'")
    return int(found[1]) << (10 * " kmgt".index(found[2] or " "))


def _columns(text: str) -> tuple[tuple[str, ...], ...]:
    columns: list[tuple[str, ...]] = []
    path: list[str] = []
    position = 0
    while True:
        found = _COLUMN_PART.match(text, position)
        if found is None:
            raise _Malformed("column names separated by commas, quoted by backticks where they are not plain words")
        path.append(found[1].replace("``", "`") if found[1] else found[2])
        position = found.end()
        if found[3] != ".":
            columns.append(tuple(path))
            path = []
        if not found[3]:
            return tuple(columns)


def _string_map(text: str) -> dict[str, str]:
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except (ValueError, RecursionError):
        raise _Malformed("a JSON object of strings") from None


_DAY = 86_400_000

_ICEBERG = "Nothing is written for Iceberg here: set it with a client that does, and let that one write the table"
_COORDINATOR = "Commits are managed by an owner here: lakeseal.create(…, owner=…) or Table.take_over(owner)"
_OPTIMIZE = "Say which of the two: delta.autoOptimize.autoCompact, delta.autoOptimize.optimizeWrite"
_PARTITION_COLUMNS = "Files hold no partition columns here; the values are in the log. Leave it out"
_KEPT_WITH_THE_LOG = "Checkpoints are kept for as long as the log needs them: set delta.logRetentionDuration"
_REDIRECT = "A table is not redirected here: point readers and writers at the other table"


class TableProperties(Struct, frozen=True, kw_only=True):
    configuration: Mapping[str, str | None]

    @classmethod
    def of(cls, metadata: Metadata) -> TableProperties:
        return cls(configuration=metadata.configuration)

    append_only = Property("delta.appendOnly", _boolean, False)
    change_data_feed = Property(
        "delta.enableChangeDataFeed", _boolean, False, older_key="delta.enableChangeDataCapture"
    )
    deletion_vectors = Property("delta.enableDeletionVectors", _boolean, False)
    isolation_level = Property(
        "delta.isolationLevel", _choice("Serializable", "WriteSerializable", "SnapshotIsolation"), "Serializable"
    )
    set_transaction_retention_ms = Property[int | None]("delta.setTransactionRetentionDuration", _retention, None)

    checkpoint_interval = Property("delta.checkpointInterval", _integer(1), 10)
    checkpoint_policy = Property("delta.checkpointPolicy", _choice("classic", "v2"), "classic")
    checkpoint_stats_as_json = Property("delta.checkpoint.writeStatsAsJson", _boolean, True)
    checkpoint_stats_as_struct = Property("delta.checkpoint.writeStatsAsStruct", _boolean, True)
    checkpoint_protection_before_version = Property(
        "delta.requireCheckpointProtectionBeforeVersion", _integer(0), 0, settable=False
    )
    log_retention_ms = Property("delta.logRetentionDuration", _retention, 30 * _DAY)
    deleted_file_retention_ms = Property("delta.deletedFileRetentionDuration", _retention, 7 * _DAY)
    drop_feature_retention_ms = Property("delta.dropFeatureTruncateHistory.retentionDuration", _retention, _DAY)
    expired_log_cleanup = Property("delta.enableExpiredLogCleanup", _boolean, True)

    column_mapping_mode = Property("delta.columnMapping.mode", _choice("none", "id", "name"), "none")
    column_mapping_max_id = Property("delta.columnMapping.maxColumnId", _integer(0), 0, settable=False)

    data_skipping_num_indexed_cols = Property("delta.dataSkippingNumIndexedCols", _integer(-1), 32)
    data_skipping_stats_columns = Property[tuple[tuple[str, ...], ...] | None](
        "delta.dataSkippingStatsColumns", _columns, None
    )
    data_skipping_string_prefix_length = Property("delta.dataSkippingStringPrefixLength", _integer(0), 32)

    target_file_size = Property[int | None]("delta.targetFileSize", _size, None)
    auto_compact = Property("delta.autoOptimize.autoCompact", _choice("false", "true", "auto", "legacy"), "false")
    optimize_write = Property("delta.autoOptimize.optimizeWrite", _boolean, False)
    randomize_file_prefixes = Property("delta.randomizeFilePrefixes", _boolean, False)
    random_prefix_length = Property("delta.randomPrefixLength", _integer(1, 100), 2)
    parquet_compression_codec = Property[str | None](
        "delta.parquet.compression.codec",
        _choice("uncompressed", "none", "snappy", "gzip", "lz4", "lz4_raw", "zstd", "brotli"),
        None,
    )

    in_commit_timestamps = Property("delta.enableInCommitTimestamps", _boolean, False)
    in_commit_timestamp_enablement_version = Property[int | None](
        "delta.inCommitTimestampEnablementVersion", _integer(0), None, settable=False
    )
    in_commit_timestamp_enablement_timestamp = Property[int | None](
        "delta.inCommitTimestampEnablementTimestamp", _integer(0), None, settable=False
    )

    row_tracking = Property("delta.enableRowTracking", _boolean, False)
    row_tracking_suspended = Property("delta.rowTrackingSuspended", _boolean, False)
    row_id_column = Property[str | None]("delta.rowTracking.materializedRowIdColumnName", _text, None, settable=False)
    row_commit_version_column = Property[str | None](
        "delta.rowTracking.materializedRowCommitVersionColumnName", _text, None, settable=False
    )
    type_widening = Property("delta.enableTypeWidening", _boolean, False)
    variant_shredding = Property("delta.enableVariantShredding", _boolean, False)
    iceberg_compat_v1 = Property("delta.enableIcebergCompatV1", _boolean, False, instead=_ICEBERG)
    iceberg_compat_v2 = Property("delta.enableIcebergCompatV2", _boolean, False, instead=_ICEBERG)
    iceberg_compat_v3 = Property("delta.enableIcebergCompatV3", _boolean, False, instead=_ICEBERG)

    managed_commit_owner_name = Property[str | None]("delta.managedCommitOwnerName", _text, None, settable=False)
    managed_commit_owner_conf = Property[dict[str, str] | None](
        "delta.managedCommitOwnerConf", _string_map, None, settable=False, secret=True
    )
    commit_coordinator = Property[str | None](
        "delta.coordinatedCommits.commitCoordinator-preview", _text, None, instead=_COORDINATOR
    )
    commit_coordinator_conf = Property(
        "delta.coordinatedCommits.commitCoordinatorConf-preview", _text, "", secret=True, instead=_COORDINATOR
    )
    coordinated_table_conf = Property(
        "delta.coordinatedCommits.tableConf-preview", _text, "", secret=True, instead=_COORDINATOR
    )
    # Of tables whose commits a catalog decides on. Theirs names no owner; ours does, so that it is found by path too.
    catalog_owner_name = Property[str | None]("lakeseal.catalogOwner", _text, None, settable=False)
    catalog_owner_conf = Property[dict[str, str] | None](
        "lakeseal.catalogOwnerConf", _string_map, None, settable=False, secret=True
    )
    catalog_table_id = Property[str | None]("io.unitycatalog.tableId", _text, None, settable=False)

    @property
    def owner_name(self) -> str | None:
        """Who decides on commits, by whatever kind of ownership; None for the file system, and for others' catalogs."""
        return self.managed_commit_owner_name or self.catalog_owner_name

    @property
    def owner_conf(self) -> dict[str, str]:
        """What the table keeps of that owner."""
        return self.managed_commit_owner_conf or self.catalog_owner_conf or {}

    @property
    def constraints(self) -> dict[str, str]:
        """CHECK constraints: name → SQL."""
        return {
            key[len(CONSTRAINT_PREFIX) :]: text
            for key, text in self.configuration.items()
            if key.lower().startswith(CONSTRAINT_PREFIX) and text is not None
        }


# Properties of other clients. The first is another name of one that is followed; the others are not.
_OTHERS: tuple[Property[Any], ...] = (
    Property("delta.enableChangeDataCapture", _boolean, False),
    Property("delta.autoOptimize", _boolean, False, instead=_OPTIMIZE),
    Property("delta.tuneFileSizesForRewrites", _boolean, False, instead="Set the size of files: delta.targetFileSize"),
    Property(
        "delta.sampleRetentionDuration", _retention, 7 * _DAY, instead="There are no samples of tables. Leave it out"
    ),
    Property("delta.checkpointRetentionDuration", _retention, 2 * _DAY, instead=_KEPT_WITH_THE_LOG),
    Property(
        "delta.enableFullRetentionRollback",
        _boolean,
        True,
        instead="Every version that the log keeps can be read and restored: set delta.logRetentionDuration",
    ),
    Property(
        "delta.compatibility.symlinkFormatManifest.enabled",
        _boolean,
        False,
        instead="Manifests are written when that is asked for: Table.generate(), after each change",
    ),
    Property(
        "delta.parquet.format.version",
        _text,
        "1.0.0",
        instead="Files are written in the version that every reader of Parquet knows. Leave it out",
    ),
    Property("delta.writePartitionColumnsToParquet", _boolean, False, instead=_PARTITION_COLUMNS),
    Property("delta.enableMaterializePartitionColumnsFeature", _boolean, False, instead=_PARTITION_COLUMNS),
    Property("delta.universalFormat.enabledFormats", _text, "", instead=_ICEBERG),
    Property("delta.universalFormat.iceberg.atomicConversion.supported", _boolean, False, instead=_ICEBERG),
    Property("delta.castIcebergTimeType", _boolean, False, instead=_ICEBERG),
    Property("delta.ignoreIcebergBucketPartition", _boolean, False, instead=_ICEBERG),
    Property(
        "delta.ignoreProtocolDefaults",
        _boolean,
        False,
        instead="A session has no defaults for protocols here, so there are none to ignore. Leave it out",
    ),
    Property("delta.redirectReaderWriter-preview", _text, "", instead=_REDIRECT),
    Property("delta.redirectWriterOnly-preview", _text, "", instead=_REDIRECT),
)
OWNER_KEYS = tuple(
    one.key
    for one in (
        TableProperties.managed_commit_owner_name,
        TableProperties.managed_commit_owner_conf,
        TableProperties.commit_coordinator,
        TableProperties.commit_coordinator_conf,
        TableProperties.coordinated_table_conf,
        TableProperties.catalog_owner_name,
        TableProperties.catalog_owner_conf,
        TableProperties.catalog_table_id,
    )
)
"""All that tells who decides on commits, by whatever kind of ownership."""
KNOWN: tuple[Property[Any], ...] = tuple(
    p for p in (*vars(TableProperties).values(), *_OTHERS) if isinstance(p, Property)
)
_BY_LOWERED = {p.key.lower(): p for p in KNOWN}


def check_values(configuration: Mapping[str, str]) -> None:
    """`InvalidMetadata` for a value that whoever depends on it could not read."""
    for known in KNOWN:
        if (text := configuration.get(known.key)) is not None:
            known.read(text)


class PropertySettings(Struct, frozen=True, kw_only=True):
    """What a user sets, under its proper names; None removes."""

    configuration: dict[str, str | None]


def is_asked_of_the_protocol(key: str) -> bool:
    """Whether a property is none of the table, but says what its protocol shall have."""
    lowered = key.lower()
    return lowered.startswith(FEATURE_PREFIX) or lowered in (MIN_READER_VERSION.lower(), MIN_WRITER_VERSION.lower())


def settings(changes: Mapping[str, Any]) -> PropertySettings:
    """Raises `InvalidArgument` for a name or a value that cannot be set, and `UnsupportedFeature` for a property that
    Lakeseal would not follow."""
    configuration: dict[str, str | None] = {}
    for key, value in changes.items():
        lowered = key.lower()
        text = _as_text(key, value)
        if is_asked_of_the_protocol(key):
            configuration[_protocol_key(key, text)] = text
        elif lowered not in _BY_LOWERED and (not lowered.startswith("delta.") or lowered.startswith(CONSTRAINT_PREFIX)):
            configuration[key] = text
        else:
            configuration[_checked_key(key, text)] = text
    return PropertySettings(configuration=configuration)


def _protocol_key(key: str, text: str | None) -> str:
    lowered = key.lower()
    if lowered.startswith(FEATURE_PREFIX):
        if text not in ("supported", "enabled"):
            raise InvalidArgument(f"{key} can only be 'supported'", hint="A feature cannot be unset as a property")
        return FEATURE_PREFIX + key[len(FEATURE_PREFIX) :]
    proper = MIN_READER_VERSION if lowered == MIN_READER_VERSION.lower() else MIN_WRITER_VERSION
    if text is None or not re.fullmatch(r"[1-9][0-9]{0,2}", text):
        raise InvalidArgument(f"{proper} must be a version of the protocol", hint="It cannot be removed, or lowered")
    return proper


def _as_text(key: str, value: Any) -> str | None:
    match value:
        case bool():
            return "true" if value else "false"
        case None | str():
            return value
        case int():
            return str(value)
        case _:
            raise InvalidArgument(f"The property {key} must be text, not {type(value).__name__}")


def _checked_key(key: str, text: str | None) -> str:
    known = _BY_LOWERED.get(key.lower())
    if known is None and key.lower().startswith(_OTHER_FORMATS_PREFIX):
        known = Property(key, _text, "", instead=_ICEBERG)
    if known is None:
        near = difflib.get_close_matches(key.lower(), _BY_LOWERED, n=3)
        names = ", ".join(_BY_LOWERED[name].key for name in near)
        raise InvalidArgument(
            f"There is no property {key}",
            hint=f"Did you mean {names}?" if names else "Names of your own must not start with 'delta.'",
        )
    if not known.settable:
        raise InvalidArgument(f"The property {known.key} is kept by Lakeseal and cannot be set")
    if text is not None:
        try:
            value = known.parse(text)
        except _Malformed as error:
            raise InvalidArgument(known.complaint(text, str(error))) from None
        if known.instead is not None and value != known.default:
            raise UnsupportedFeature(f"Lakeseal does not carry out the property {known.key}", hint=known.instead)
    return known.key
