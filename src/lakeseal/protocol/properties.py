"""Table properties, typed.

`TableProperties` reads a table's configuration: each attribute is one property, parsed when it is asked for, with
Delta's default where the table does not set it. A value that does not parse raises `InvalidMetadata` that names the
property, so a bad value stops only those who depend on it. Durations are milliseconds, sizes are bytes.

`settings` checks what a user wants to set: names in any case, values as they will be read later, no name that starts
with `delta.` and is unknown.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any, Generic, Self, TypeVar, overload

import msgspec
from msgspec import Struct

from lakeseal.errors import InvalidArgument, InvalidMetadata
from lakeseal.protocol.actions import Metadata

CONSTRAINT_PREFIX = "delta.constraints."
FEATURE_PREFIX = "delta.feature."
# Prefixes whose rest is free: names of constraints, and options of other formats that other clients keep here.
_FREE_PREFIXES = (CONSTRAINT_PREFIX, "delta.universalformat.config.")

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
    ) -> None:
        self.key = key
        self.parse = parse
        self.default = default
        self.older_key = older_key
        self.settable = settable
        self.secret = secret

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
        if text is None:
            return self.default
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


def parse_interval_ms(text: str) -> int:
    """Milliseconds of a calendar interval such as `interval 1 week 2 days` or `168 hours`.

    Months and years are refused, for their length differs. Raises `InvalidArgument`.
    """
    try:
        return _interval_ms(text)
    except _Malformed as error:
        raise InvalidArgument(f"An interval must be {error}, not {text[:100]!r}") from None


def _interval_ms(text: str) -> int:
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


_retention = _interval_ms
_DAY = 86_400_000


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
    expired_log_cleanup = Property("delta.enableExpiredLogCleanup", _boolean, True)

    column_mapping_mode = Property("delta.columnMapping.mode", _choice("none", "id", "name"), "none")
    column_mapping_max_id = Property("delta.columnMapping.maxColumnId", _integer(0), 0, settable=False)

    data_skipping_num_indexed_cols = Property("delta.dataSkippingNumIndexedCols", _integer(-1), 32)
    data_skipping_stats_columns = Property[tuple[tuple[str, ...], ...] | None](
        "delta.dataSkippingStatsColumns", _columns, None
    )
    data_skipping_string_prefix_length = Property("delta.dataSkippingStringPrefixLength", _integer(0), 32)

    target_file_size = Property[int | None]("delta.targetFileSize", _size, None)
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
    iceberg_compat_v1 = Property("delta.enableIcebergCompatV1", _boolean, False)
    iceberg_compat_v2 = Property("delta.enableIcebergCompatV2", _boolean, False)
    iceberg_compat_v3 = Property("delta.enableIcebergCompatV3", _boolean, False)

    managed_commit_owner_name = Property[str | None]("delta.managedCommitOwnerName", _text, None, settable=False)
    managed_commit_owner_conf = Property[dict[str, str] | None](
        "delta.managedCommitOwnerConf", _string_map, None, settable=False, secret=True
    )
    commit_coordinator = Property[str | None](
        "delta.coordinatedCommits.commitCoordinator-preview", _text, None, settable=False
    )

    @property
    def constraints(self) -> dict[str, str]:
        """CHECK constraints: name → SQL."""
        return {
            key[len(CONSTRAINT_PREFIX) :]: text
            for key, text in self.configuration.items()
            if key.lower().startswith(CONSTRAINT_PREFIX) and text is not None
        }


# Properties that Lakeseal keeps for other clients: they may be set, and change nothing here.
_OTHERS: tuple[Property[Any], ...] = (
    Property("delta.enableChangeDataCapture", _boolean, False),
    Property("delta.autoOptimize", _boolean, False),
    Property("delta.autoOptimize.autoCompact", _choice("true", "false", "auto", "legacy"), "false"),
    Property("delta.autoOptimize.optimizeWrite", _boolean, False),
    Property("delta.tuneFileSizesForRewrites", _boolean, False),
    Property("delta.sampleRetentionDuration", _retention, 7 * _DAY),
    Property("delta.checkpointRetentionDuration", _retention, 2 * _DAY),
    Property("delta.enableFullRetentionRollback", _boolean, True),
    Property("delta.dropFeatureTruncateHistory.retentionDuration", _retention, _DAY),
    Property("delta.compatibility.symlinkFormatManifest.enabled", _boolean, False),
    Property("delta.parquet.format.version", _text, "1.0.0"),
    Property("delta.writePartitionColumnsToParquet", _boolean, False),
    Property("delta.universalFormat.enabledFormats", _text, ""),
)
_BY_LOWERED: dict[str, Property[Any]] = {
    p.key.lower(): p for p in (*vars(TableProperties).values(), *_OTHERS) if isinstance(p, Property)
}


class Settings(Struct, frozen=True, kw_only=True):
    """What a user sets: configuration under its proper names (None removes), and features asked for by name."""

    configuration: dict[str, str | None]
    features: tuple[str, ...] = ()


def settings(changes: Mapping[str, Any]) -> Settings:
    """Raises `InvalidArgument` for a name or a value that cannot be set."""
    configuration: dict[str, str | None] = {}
    features: list[str] = []
    for key, value in changes.items():
        lowered = key.lower()
        text = _as_text(key, value)
        if lowered.startswith(FEATURE_PREFIX):
            if text not in ("supported", "enabled"):
                raise InvalidArgument(f"{key} can only be 'supported'", hint="A feature cannot be unset as a property")
            features.append(key[len(FEATURE_PREFIX) :])
        elif not lowered.startswith("delta.") or lowered.startswith(_FREE_PREFIXES):
            configuration[key] = text
        else:
            configuration[_checked_key(key, text)] = text
    return Settings(configuration=configuration, features=tuple(features))


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
            known.parse(text)
        except _Malformed as error:
            raise InvalidArgument(known.complaint(text, str(error))) from None
    return known.key
