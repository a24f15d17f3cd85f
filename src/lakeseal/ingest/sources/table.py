"""`table`: the changes of a Lakeseal table, each version once.

Rows have the feed's columns behind the table's own: `_change_type`, `_commit_version`, `_commit_timestamp`. Without a
watermark the source begins with the table as it is now, all of it as inserts; from then on it follows the change feed,
which the table must have on (`delta.enableChangeDataFeed=true`).
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Literal

import msgspec
import pyarrow as pa

from lakeseal.errors import InvalidArgument, SourceChanged, SourceNotFound, TableNotFound
from lakeseal.ingest.idle_options import refuse_idle
from lakeseal.ingest.sources.source import Chunk, Plan, Source, Watermark, WorkUnit, at_least_one, register_source
from lakeseal.log import changes as change_feed
from lakeseal.log.data import ReadSpec
from lakeseal.log.snapshot import Snapshot
from lakeseal.log.timestamps import timestamp_of
from lakeseal.protocol.feed_columns import CHANGE_FIELDS, COMMIT_VERSION
from lakeseal.protocol.schema import StructType
from lakeseal.storage import StoreSpec
from lakeseal.table import Table

_INSERT = "insert"


@register_source
class TableSource(Source, frozen=True, kw_only=True, tag="table", dict=True):
    uri: str
    """Where the table is."""
    owner: str | None = None
    """Of the table's commits, if it has one: its URL, or its name in LAKESEAL_OWNERS."""
    start: Literal["now", "latest"] | int = "now"
    """Without a watermark: `now` begins with all rows, `latest` with the next version, a number with that version."""
    max_versions: int | None = None
    """In one run."""
    before: int | None = None
    """Only versions before this one."""
    storage_options: dict[str, str] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        at_least_one("max_versions", self.max_versions)
        if isinstance(self.start, str):
            refuse_idle(
                self,
                ["before"],
                f"where the source begins with start: {self.start}, the table as it is",
                "Give the version to begin with, too: start: 0",
            )
        # Absolute, so that it is the same place in a task.
        msgspec.structs.force_setattr(self, "uri", StoreSpec(uri=self.uri).uri)

    @property
    def has_records(self) -> bool:
        return False

    @property
    def commit_policies(self) -> tuple[str, ...]:
        return ("full",)

    def place(self) -> str:
        return self.uri

    def describe(self) -> str:
        return f"table {self.uri}"

    @cached_property
    def _table(self) -> Table:
        return Table(self.uri, owner=self.owner, storage_options=self.storage_options)

    @cached_property
    def _newest(self) -> Snapshot:
        try:
            return self._table.snapshot()
        except TableNotFound as error:
            raise SourceNotFound(f"There is no table at {self.uri}") from error

    @property
    def _tasks(self) -> Any:
        from lakeseal.spark import read_task  # whoever only configures a pipeline may not have pyspark

        return read_task

    def within(self, first: str, last: str) -> TableSource:
        if not (first.isdecimal() and last.isdecimal()):
            raise InvalidArgument(f"{first} and {last} are no versions", hint="Give versions of the table: 5 and 10")
        return msgspec.structs.replace(self, start=int(first), before=int(last), max_versions=None)

    def row_schema(self) -> StructType:
        return StructType((*self._newest.schema.fields, *CHANGE_FIELDS))

    def change_order(self) -> str | None:
        return COMMIT_VERSION

    def plan(self, watermarks: Mapping[str, Watermark]) -> Plan:
        self.__dict__.pop("_newest", None)
        newest, mark = self._newest, watermarks.get("")
        table_id = newest.metadata.id
        if mark is not None and mark["table_id"] != table_id:
            raise SourceChanged(
                f"The table at {self.uri} is another one than was read before",
                hint="Set its watermark by lakeseal ingest reset, to read it from its beginning",
            )
        if mark is not None and mark["version"] >= newest.version:
            return Plan()
        if mark is None and self.start in ("now", "latest"):
            splits = self._tasks.file_splits(newest.files) if self.start == "now" else []
            return self._plan(table_id, newest.version, splits, mark, whole=newest)
        first = self.start if mark is None else mark["version"] + 1
        assert isinstance(first, int)
        newest_wanted = newest.version if self.before is None else min(newest.version, self.before - 1)
        if first > newest_wanted:
            return Plan()
        last = newest_wanted if self.max_versions is None else min(newest_wanted, first + self.max_versions - 1)
        splits = self._tasks.change_splits(change_feed.changes(self._table._log, first, last, newest.schema))
        return msgspec.structs.replace(self._plan(table_id, last, splits, mark), has_more=last < newest_wanted)

    def _plan(
        self, table_id: str, version: int, splits: list[bytes], mark: Watermark, whole: Snapshot | None = None
    ) -> Plan:
        told: dict[str, Any] = {
            "schema": self._newest.schema.to_json(),
            "partition_columns": list(self._newest.partition_columns),
            "mapping": self._newest.properties.column_mapping_mode,
            "places": list(self._newest.places),
            "version": version,
        }
        if whole is not None:
            told["timestamp_ms"] = timestamp_of(self._table._log, whole)
        high = {"table_id": table_id, "version": version}
        cuts = [base64.b64encode(split).decode() for split in splits] or [""]
        return Plan(
            units=tuple(
                # Splits are no places to go on from: only behind all of them the version is done.
                WorkUnit(
                    partition="",
                    low=mark,
                    high=high if n == len(cuts) - 1 else None,
                    size=max(1, len(cut)),
                    payload={**told, "split": cut},
                )
                for n, cut in enumerate(cuts)
            )
        )

    def read(self, unit: WorkUnit) -> Iterator[Chunk]:
        payload = unit.payload
        split = base64.b64decode(payload["split"])
        if not split:
            return
        spec = ReadSpec(
            schema=StructType.from_json(payload["schema"]),
            partition_columns=tuple(payload["partition_columns"]),
            mapping=payload["mapping"],
            places=tuple(payload["places"]),
        )
        store = StoreSpec(uri=self.uri, storage_options=self.storage_options)
        if "timestamp_ms" not in payload:
            batches = self._tasks.ChangeTask(store=store, spec=spec).read(split)
        else:
            rows = self._tasks.ScanTask(store=store, spec=spec, version=payload["version"]).read(split)
            batches = (_inserted(batch, payload["version"], payload["timestamp_ms"]) for batch in rows)
        for batch in batches:
            yield Chunk(rows=batch, bytes=batch.nbytes)


def _inserted(batch: pa.RecordBatch, version: int, timestamp_ms: int) -> pa.RecordBatch:
    stamp = pa.scalar(timestamp_ms * 1000, pa.int64()).cast(pa.timestamp("us", "UTC"))
    values = (pa.scalar(_INSERT), pa.scalar(version, pa.int64()), stamp)
    for field, value in zip(CHANGE_FIELDS, values, strict=True):
        batch = batch.append_column(field.name, pa.repeat(value, batch.num_rows))
    return batch
