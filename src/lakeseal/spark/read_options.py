"""What a user may say to `format("lakeseal")` when reading, as one value; for batches and for streams.

Timestamps are ISO texts; without a zone they are in UTC.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from lakeseal.errors import InvalidArgument
from lakeseal.log.changes import version_range
from lakeseal.log.delta_log import DeltaLog
from lakeseal.log.timestamps import version_at
from lakeseal.owner.routing import Router
from lakeseal.spark.options import TABLE_OPTIONS, GivenOptions, GivenTable
from lakeseal.spark.sink_options import listed
from lakeseal.storage import StoreSpec

NAMES = (
    *TABLE_OPTIONS,
    "versionAsOf",
    "timestampAsOf",
    "columns",
    "where",
    "readChangeFeed",
    "startingVersion",
    "startingTimestamp",
    "endingVersion",
    "endingTimestamp",
    "maxFilesPerTrigger",
    "maxBytesPerTrigger",
    "ignoreDeletes",
    "ignoreChanges",
    "skipChangeCommits",
    "failOnDataLoss",
    "schemaTrackingLocation",
    "schemaLocation",
)
LATEST = "latest"
_BYTES = re.compile(r"\s*(\d+)\s*([kmgt]?)i?b?\s*", re.IGNORECASE | re.ASCII)
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


class ReadOptions(Struct, frozen=True, kw_only=True):
    table: GivenTable
    version_as_of: int | None = None
    timestamp_as_of: str | None = None
    columns: tuple[str, ...] | None = None
    """Of a batch: those to read, since Spark tells a source in Python of none that it does not need."""
    where: str | None = None
    """Of a batch: a condition that means the same in every session; rows for which it is true are read."""
    read_change_feed: bool = False
    starting_version: int | None = None
    starts_at_latest: bool = False
    """`startingVersion=latest`: only what is committed after the stream has started."""
    starting_timestamp: str | None = None
    ending_version: int | None = None
    ending_timestamp: str | None = None
    max_files_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    ignore_deletes: bool = False
    ignore_changes: bool = False
    """Of commits that change rows, give all rows of the files that they wrote: some come again."""
    skip_change_commits: bool = False
    fail_on_data_loss: bool = True
    schema_tracking_location: str | None = None
    """Where a stream keeps the schema that it is at."""

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> ReadOptions:
        given = GivenOptions.of(options, NAMES)
        latest = (given.text("startingVersion") or "").strip().lower() == LATEST
        found = cls(
            table=GivenTable.of(given, hint="Give it to load(uri)"),
            version_as_of=given.number("versionAsOf"),
            timestamp_as_of=given.text("timestampAsOf"),
            columns=listed("columns", given.text("columns")),
            where=given.text("where"),
            read_change_feed=given.flag("readChangeFeed"),
            starting_version=None if latest else given.number("startingVersion"),
            starts_at_latest=latest,
            starting_timestamp=given.text("startingTimestamp"),
            ending_version=given.number("endingVersion"),
            ending_timestamp=given.text("endingTimestamp"),
            max_files_per_trigger=given.number("maxFilesPerTrigger", least=1),
            max_bytes_per_trigger=_bytes("maxBytesPerTrigger", given.text("maxBytesPerTrigger")),
            ignore_deletes=given.flag("ignoreDeletes"),
            ignore_changes=given.flag("ignoreChanges"),
            skip_change_commits=given.flag("skipChangeCommits"),
            fail_on_data_loss=given.flag("failOnDataLoss", default=True),
            schema_tracking_location=_tracking(given),
        )
        for version, timestamp, names in (
            (found.version_as_of, found.timestamp_as_of, "versionAsOf or timestampAsOf"),
            (given.text("startingVersion"), found.starting_timestamp, "startingVersion or startingTimestamp"),
            (found.ending_version, found.ending_timestamp, "endingVersion or endingTimestamp"),
        ):
            if version is not None and timestamp is not None:
                raise InvalidArgument(f"Give {names}, not both")
        return found

    @property
    def store(self) -> StoreSpec:
        return self.table.store

    def open(self) -> Router:
        return self.table.open(creates=False)

    def pinned(self, log: DeltaLog) -> ReadOptions:
        """The same for a batch, with versions for moments and for "newest": what is read no longer depends on when."""
        self._check_batch()
        if self.read_change_feed:
            if self.starting_version is None and self.starting_timestamp is None:
                raise InvalidArgument(
                    "The change feed needs a start", hint="Give startingVersion or startingTimestamp", table=log.table
                )
            start = self.starting_version if self.starting_timestamp is None else self.starting_timestamp
            end = self.ending_version if self.ending_timestamp is None else self.ending_timestamp
            first, last = version_range(log, 0 if start is None else start, end)
            return msgspec.structs.replace(
                self, starting_version=first, starting_timestamp=None, ending_version=last, ending_timestamp=None
            )
        version = self.version_as_of
        if version is None:
            moment = self.timestamp_as_of
            version = log.snapshot().version if moment is None else version_at(log, moment)
        return msgspec.structs.replace(self, version_as_of=version, timestamp_as_of=None)

    def _check_batch(self) -> None:
        if self.starts_at_latest:
            raise InvalidArgument("startingVersion=latest is for streams", hint="Give a number")
        if self._stream_limits:
            raise InvalidArgument(f"The option {' and '.join(self._stream_limits)} is for streams", hint="Leave it out")
        travels = self.version_as_of is not None or self.timestamp_as_of is not None
        if self.read_change_feed and (self.columns is not None or self.where is not None):
            raise InvalidArgument(
                "The change feed comes whole: columns and where are for rows", hint="Select and filter the DataFrame"
            )
        if self.read_change_feed and travels:
            raise InvalidArgument(
                "The change feed has no versionAsOf or timestampAsOf", hint="Give startingVersion and endingVersion"
            )
        bounds = (self.starting_version, self.starting_timestamp, self.ending_version, self.ending_timestamp)
        if not self.read_change_feed and any(bound is not None for bound in bounds):
            raise InvalidArgument(
                "A range of versions is for the change feed and for streams",
                hint="Set readChangeFeed=true, or give versionAsOf",
            )

    @property
    def is_for_streams(self) -> bool:
        """Whether a stream may have these options, and a batch may not, whatever the table is."""
        starts = self.starting_version is not None or self.starting_timestamp is not None
        says_so = self.starts_at_latest or starts != self.read_change_feed or bool(self._stream_limits)
        return says_so and not self._batch_bounds

    @property
    def may_be_to_come(self) -> bool:
        """Whether a stream may have these options, and wait for what they name."""
        return self.read_change_feed and not self._batch_bounds

    @property
    def _batch_bounds(self) -> list[str]:
        bounds = {
            "versionAsOf": self.version_as_of,
            "timestampAsOf": self.timestamp_as_of,
            "endingVersion": self.ending_version,
            "endingTimestamp": self.ending_timestamp,
        }
        return [name for name, bound in bounds.items() if bound is not None]

    @property
    def _stream_limits(self) -> list[str]:
        limits = {
            "maxFilesPerTrigger": self.max_files_per_trigger,
            "maxBytesPerTrigger": self.max_bytes_per_trigger,
            "ignoreDeletes": self.ignore_deletes,
            "ignoreChanges": self.ignore_changes,
            "skipChangeCommits": self.skip_change_commits,
            "failOnDataLoss": not self.fail_on_data_loss,
            "schemaTrackingLocation": self.schema_tracking_location is not None,
        }
        return [name for name, given in limits.items() if given]

    def check_stream(self) -> None:
        if self.columns is not None or self.where is not None:
            raise InvalidArgument("columns and where are for batches", hint="Select and filter the stream's DataFrame")
        if self._batch_bounds:
            raise InvalidArgument(
                f"A stream has no end: {' and '.join(self._batch_bounds)} is for batches",
                hint="Say where it starts by startingVersion or startingTimestamp",
            )
        if self.read_change_feed and (self.ignore_deletes or self.ignore_changes or self.skip_change_commits):
            raise InvalidArgument(
                "A stream of changes gives them all: ignoreDeletes, ignoreChanges and skipChangeCommits are for "
                "streams of rows",
                hint="Leave readChangeFeed out, or filter by _change_type",
            )


def _tracking(given: GivenOptions) -> str | None:
    """Delta has two names for it."""
    found = {
        text.strip() for name in ("schemaTrackingLocation", "schemaLocation") if (text := given.text(name)) is not None
    }
    if len(found) > 1 or "" in found:
        raise InvalidArgument(
            "Give schemaTrackingLocation once", hint="The directory that the stream keeps its schema in"
        )
    return found.pop() if found else None


def _bytes(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    found = _BYTES.fullmatch(text)
    size = 0 if found is None else int(found[1]) * _UNITS[found[2].lower()]
    if not size:
        raise InvalidArgument(f"The option {name} cannot be {text!r}", hint="For instance 500m, 10g or 1048576")
    return size
