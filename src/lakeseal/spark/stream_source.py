"""`spark.readStream.format("lakeseal")`: the rows that a table has, then those that are added to it, each once.

A stream starts with the snapshot of the version that it finds, oldest files first, and goes on with the commits after
it, one after the other; or at a version or moment that the user names. With `readChangeFeed` it gives changes instead:
the rows of the snapshot as inserts, then what each commit did.

Offsets say exactly which files have been read, and the pages that they count in never change, so a query that is
started again reads what it has not read yet, and no more. What a stream cannot follow (rows that were taken away,
another schema, another table, commits that are no longer in the log) stops it with `SourceChanged` or
`VersionNotFound`. Files are read by tasks; the driver reads the log only.

Spark asks for the initial offset when it plans the first batch, and again whenever it runs it, so that is always the
same: `StreamOffset.beginning`. `latestOffset` decides where the beginning is, and the batch's end keeps it. A moment
that no commit has reached yet leaves the stream at the beginning; commits before the moment are never given.

Spark makes the function that tasks read by once for a DataFrame, however often queries are started from it, so what
tasks must know of the table comes to them with the splits. For the same reason a source that only reads opens nothing.

Spark asks for the newest offset with a start and a limit since 4.2. Before that it gives neither: the stream then goes
on from where `partitions` was last called for, and only limits that the user set are kept, because a trigger that is to
read everything could not say so.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, partial
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from lakeseal.errors import LakesealError, LogGap, SourceChanged, TableNotFound, VersionNotFound, located
from lakeseal.log.changes import CommitTimes, first_version_from, told_changes
from lakeseal.log.delta_log import DeltaLog
from lakeseal.log.scan import read_spec
from lakeseal.log.snapshot import Snapshot
from lakeseal.log.timestamps import timestamp_of
from lakeseal.owner.routing import Router
from lakeseal.protocol.actions import Action, Metadata
from lakeseal.spark.batch_read import open_table, selected
from lakeseal.spark.failures import noted
from lakeseal.spark.read_options import ReadOptions
from lakeseal.spark.read_task import ChangeTask, ScanTask
from lakeseal.spark.stream_offsets import ReadLimits, StreamOffset
from lakeseal.spark.stream_pages import Part, StreamPage, added_page, changes_page, snapshot_page, splits
from lakeseal.spark.stream_schema import check_inferred, check_metadata
from lakeseal.spark.stream_tracking import SchemaTracking

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxBytes,
        ReadMaxFiles,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # Spark 4.1

    class ReadAllAvailable:  # type: ignore[no-redef]
        pass

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        pass


DEFAULT_MAX_FILES = 1000
# After so many commits without rows the offset moves on by itself: a batch without rows now and then is cheaper than a
# stream whose next commit was cleaned up while it waited.
_IDLE_VERSIONS = 100
_KEPT_PAGES = 64


class StreamSource(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`inferred`: the schema is not the user's, but the table's when the DataFrame was made."""

    def __init__(self, options: ReadOptions, schema: StructType, *, inferred: bool = False) -> None:
        self._options = options
        self._schema = schema
        self._inferred = inferred
        self._last: int | None = None
        self._position: StreamOffset | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Whoever reads is told by the splits.
        return {}

    @cached_property
    def _pages(self) -> _Pages:
        """Opens the table; refused if nothing that is planned could be read."""
        self._options.check_stream()
        pages = _Pages(self._options, open_table(self._options))
        self._task = self._task_on(pages.started)
        pages.begin()
        return pages

    def _task_on(self, started: Snapshot) -> ScanTask | ChangeTask:
        kind = ChangeTask if self._options.read_change_feed else ScanTask
        task = kind(store=self._options.store, spec=read_spec(started))
        if self._inferred:
            check_inferred(self._schema, task.schema, table=started.table)
            return task
        return selected(task, self._schema, table=started.table)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's name
        with noted():
            return self._pages.beginning().to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        with noted():
            self._last = self._pages.latest().version

    def getDefaultReadLimit(self) -> Any:  # noqa: N802  Spark's name
        limits = self._limits()
        if limits.max_files is not None:
            return ReadMaxFiles(limits.max_files)
        assert limits.max_bytes is not None
        return ReadMaxBytes(limits.max_bytes)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's name
        with noted():
            return self._pages.end().to_json()

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802  Spark's name
        with noted():
            if start is None:
                given = self._options.max_files_per_trigger or self._options.max_bytes_per_trigger
                return self._advance(self._position or self._pages.beginning(), given is None)
            return self._advance(StreamOffset.from_json(start), isinstance(limit, ReadAllAvailable))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        with noted():
            first, last = StreamOffset.from_json(start), StreamOffset.from_json(end)
            self._position = last
            parts = self._pages.between(first, last)
            return [InputPartition((self._task, split)) for split in splits(parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Where there are no splits, Spark makes a partition of its own.
        if partition.value is not None:
            task, split = partition.value
            with noted():
                yield from task.read(split)

    def _advance(self, start: StreamOffset, unlimited: bool) -> dict[str, Any]:
        limits = ReadLimits() if unlimited else self._limits()
        return self._pages.next(start, limits, self._last).to_json()

    def _limits(self) -> ReadLimits:
        files, size = self._options.max_files_per_trigger, self._options.max_bytes_per_trigger
        return ReadLimits(max_files=DEFAULT_MAX_FILES if files is None and size is None else files, max_bytes=size)


class _Pages:
    """The pages of a table's versions, read when they are needed, a few of them kept."""

    def __init__(self, options: ReadOptions, router: Router) -> None:
        self._options = options
        self._router = router
        self._tracking = SchemaTracking.of(options)
        log = router.route().log
        self.started: Snapshot = log.snapshot() if self._tracking is None else self._tracking.started(log, options)
        """The table as the stream has known it from its start on: the schema of all that it gives."""
        self._times: tuple[DeltaLog, CommitTimes] | None = None
        self._kept: dict[tuple[int, bool], StreamPage] = {}
        self._known: tuple[int, Metadata] | None = None
        """The last version whose metadata was looked at, and what was in force then."""
        self._next_schema: tuple[int, Metadata] | None = None
        """At the version that was come to last and changes the schema."""
        self._idle: tuple[StreamOffset, int] | None = None
        """An offset from which on there was nothing, up to a version."""

    def begin(self) -> None:
        if self._tracking is not None:
            self._tracking.begin(self.started)

    @property
    def _log(self) -> DeltaLog:
        # The table may change its owner while the stream runs.
        return self._router.route().log

    def latest(self) -> Snapshot:
        snapshot = self._router.snapshot()
        if snapshot is None:
            raise TableNotFound("The table is no longer there", table=self.started.table)
        if snapshot.metadata.id != self.started.metadata.id:
            raise SourceChanged("The table was dropped and made anew", table=self._log.table)
        return snapshot

    def end(self) -> StreamOffset:
        return self.beginning().at(self.latest().version + 1)

    def beginning(self) -> StreamOffset:
        return StreamOffset.beginning(self.started.metadata.id, is_feed=self._options.read_change_feed)

    def next(self, start: StreamOffset, limits: ReadLimits, last: int | None) -> StreamOffset:
        """How far a batch that starts at `start` goes; `start` itself if there is nothing to read.
        No batch goes beyond the version `last`."""
        self._check(start)
        if not start.is_beginning:
            return self._advance(start, limits, last)
        origin = self._origin(self.latest().version if last is None else last)
        return start if origin is None else self._advance(origin, limits, last).from_beginning(origin)

    def _origin(self, latest: int) -> StreamOffset | None:
        """Where the beginning is for a table whose newest version is `latest`; None if it is yet to come."""
        options, beginning = self._options, self.beginning()
        if options.starting_timestamp is not None:
            version = first_version_from(self._log, options.starting_timestamp)
            if version > latest:
                return None
            if version and version == min(self._log.listing().commits):
                self._lost(version - 1, None)
            return beginning.at(version)
        if options.starts_at_latest:
            return beginning.at(latest + 1)
        if options.starting_version is None:
            return beginning.at(latest, is_initial=True)
        if options.starting_version > latest + 1:
            raise VersionNotFound(
                f"Version {options.starting_version} is not there yet",
                table=self._log.table,
                hint=f"The newest is {latest}; startingVersion=latest waits for the next one",
            )
        return beginning.at(options.starting_version)

    def _advance(self, start: StreamOffset, limits: ReadLimits, last: int | None) -> StreamOffset:
        latest = self.latest().version
        last = latest if last is None else min(last, latest)
        position, files, size = start, 0, 0
        try:
            for page_start, page in self._from(start, last, skip_idle=True):
                sizes = page.sizes[page_start.index :]
                count = limits.admitted(sizes, files, size)
                position = page_start.behind(page_start.index + count, len(page.sizes))
                files, size = files + count, size + int(sizes[:count].sum())
                if count < len(sizes):
                    break
        except LakesealError as error:
            if not files:
                self._note_schema(error)
                raise
            # What comes before the trouble is still read; the next batch will start at it.
        if files:
            return position
        self._idle = (start, position.version - 1)
        return position if position.version - start.version > _IDLE_VERSIONS else start

    def between(self, start: StreamOffset, end: StreamOffset) -> list[Part]:
        """What a batch from `start` to `end` has to read."""
        self._check(start)
        self._check(end)
        if start == end:
            return []
        with located(table=self._log.table):
            start = start.start(end)
        parts = []
        for page_start, page in self._from(start, end.version if end.is_initial or end.index else end.version - 1):
            is_last = page_start.page == end.page
            stop = end.index if is_last else len(page.sizes)
            if page_start.index < stop:
                parts.append(page.take(page_start.index, stop))
            if is_last:
                break
        return parts

    def _from(
        self, start: StreamOffset, last: int, skip_idle: bool = False
    ) -> Iterator[tuple[StreamOffset, StreamPage]]:
        """Pages with the offsets at which reading of them starts."""
        version, at = start.version, start
        if start.is_initial:
            page = self._initial(version)
            if page is not None:
                yield start, page
            version, at = version + 1, start.at(version + 1)
        if skip_idle and self._idle is not None and self._idle[0] == start and self._idle[1] >= version:
            version, at = self._idle[1] + 1, start.at(self._idle[1] + 1)
        while version <= last:
            found = self._commit(version)
            if found is None:
                version = min((v for v in self._log.listing().commits if v > version), default=last + 1)
            else:
                yield at, found
                version += 1
            at = start.at(version)

    def _initial(self, version: int) -> StreamPage | None:
        key = (version, True)
        if key not in self._kept:
            try:
                snapshot = self._log.snapshot(version)
            except (VersionNotFound, LogGap) as error:
                self._lost(version, error)
                return None
            self._check_metadata(snapshot.metadata, version)
            time = timestamp_of(self._log, snapshot) if self._options.read_change_feed else None
            self._keep(key, snapshot_page(snapshot, time))
        return self._kept[key]

    def _commit(self, version: int) -> StreamPage | None:
        """None if the log no longer has it."""
        key = (version, False)
        if key not in self._kept:
            with located(table=self._log.table, version=version):
                try:
                    actions = self._log.commit_actions(version)
                    metadata = self._metadata_at(version, [a for a in actions if isinstance(a, Metadata)])
                except (VersionNotFound, LogGap) as error:
                    self._lost(version, error)
                    return None
                if self._options.read_change_feed:
                    changes = partial(told_changes, self._log, version, actions)
                    page = changes_page(version, self._time(version, actions), changes, metadata)
                else:
                    page = added_page(actions, self._options)
            self._keep(key, page)
        return self._kept[key]

    def _time(self, version: int, actions: list[Action]) -> int:
        log = self._log
        if self._times is None or self._times[0] is not log:
            self._times = (log, CommitTimes(log))
        return self._times[1].of(version, actions)

    def _keep(self, key: tuple[int, bool], page: StreamPage) -> None:
        while len(self._kept) >= _KEPT_PAGES:
            del self._kept[next(iter(self._kept))]
        self._kept[key] = page

    def _metadata_at(self, version: int, stated: list[Metadata]) -> Metadata:
        """The metadata in force at a version, checked where it is new to us."""
        if stated:
            metadata = stated[-1]
        elif self._known is not None and self._known[0] == version - 1:
            metadata = self._known[1]
        else:
            metadata = self._log.snapshot(version).metadata
        if self._known is None or self._known[1] is not metadata:
            self._check_metadata(metadata, version)
        self._next_schema = None
        self._known = (version, metadata)
        return metadata

    def _note_schema(self, error: LakesealError) -> None:
        """All before the change was read, so the next start begins with it."""
        if self._tracking is None or self._next_schema is None or not isinstance(error, SourceChanged):
            return
        self._tracking.note(*self._next_schema)
        error.hint = "The new schema is noted: load the table anew, and start the query again, and it goes on with it"

    def _check_metadata(self, metadata: Metadata, version: int) -> None:
        own = self.started
        self._next_schema = (version, metadata) if version > own.version and metadata.id == own.metadata.id else None
        with located(table=self._log.table):
            check_metadata(metadata, version, own=own.metadata, own_version=own.version, latest=self.latest().metadata)

    def _check(self, offset: StreamOffset) -> None:
        latest = self.latest()
        if offset.table_id != latest.metadata.id:
            raise SourceChanged("The table is not the one that the checkpoint is of", table=self._log.table)
        if offset.is_feed != self._options.read_change_feed:
            kinds = ("rows", "changes") if self._options.read_change_feed else ("changes", "rows")
            raise SourceChanged(
                f"The checkpoint is of a stream of {kinds[0]}, and this is one of {kinds[1]}",
                table=self._log.table,
                hint="Set readChangeFeed as it was, or start with a new checkpoint",
            )
        if offset.version > latest.version + 1:
            raise SourceChanged(
                f"The table's log ends at version {latest.version}, before the checkpoint's {offset.version - 1}",
                table=self._log.table,
            )

    def _lost(self, version: int, error: Exception | None) -> None:
        if self._options.fail_on_data_loss:
            raise VersionNotFound(
                "The log no longer has a version that the stream has not read",
                table=self._log.table,
                version=version,
                hint="Start with a new checkpoint, or set failOnDataLoss=false to go on without its rows",
            ) from error
