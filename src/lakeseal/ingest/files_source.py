"""`files`: a landing directory whose files are each read once.

A file is known by its key, its size and when it was last modified; that is its watermark. A file that is read again
because it changed after it was published is never taken for new by accident: `on_rewritten` says what happens. Files
that arrive late are read like any other, and noted.
"""

from __future__ import annotations

import fnmatch
import os
import time
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from lakeseal.errors import (
    BadRecord,
    BrokenDataFile,
    InvalidArgument,
    ObjectNotFound,
    SourceChanged,
    SourceNotFound,
    located,
)
from lakeseal.formats.compression import inflated
from lakeseal.ingest import file_formats
from lakeseal.ingest.file_formats import CsvOptions
from lakeseal.ingest.schema_text import parse_schema
from lakeseal.ingest.source import Chunk, Plan, Source, Watermark, WorkUnit, register_source
from lakeseal.protocol.arrow import from_arrow
from lakeseal.protocol.schema import StructType
from lakeseal.storage import ObjectMeta, Store, StoreSpec
from lakeseal.storage.keys import listable
from lakeseal.storage.location import parse

_SHOWN = 5


@register_source
class FilesSource(Source, frozen=True, kw_only=True, tag="files", dict=True):
    path: str
    """A directory on any store."""
    format: Literal["json", "csv", "parquet"]
    """json: one object per line. Names that end in .gz, .bz2, .zst or .lz4 are compressed."""
    schema: str | None = None
    """Of the rows, as Spark writes it; Parquet files may go without."""
    pattern: str = "*"
    """Names of files, such as `*.json`. Those that begin with `_` or `.` are never read."""
    recursive: bool = True
    on_rewritten: Literal["fail", "ingest", "ignore"] = "fail"
    """What to do about a file that changed after it was published."""
    settle_seconds: float = 0.0
    """Leave alone what was modified less than this ago: it may still be growing."""
    csv: CsvOptions = CsvOptions()
    storage_options: dict[str, str] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        # Absolute, so that it is the same place in a task.
        msgspec.structs.force_setattr(self, "path", StoreSpec(uri=self.path).uri)
        if self.schema is not None:
            parse_schema(self.schema)
        elif self.format != "parquet":
            raise InvalidArgument(
                f"Files of the format {self.format} need a schema", hint='Add schema: "id long, at timestamp"'
            )

    def describe(self) -> str:
        return f"files {self.path}"

    @cached_property
    def _store(self) -> Store:
        return StoreSpec(uri=self.path, storage_options=self.storage_options).open()

    def row_schema(self) -> StructType:
        if self.schema is not None:
            return parse_schema(self.schema)
        for meta in self._listed():
            with self._store.open_read(meta.key) as file, located(file=meta.key):
                try:
                    return from_arrow(pq.read_schema(file))
                except (pa.ArrowException, OSError) as error:
                    raise InvalidArgument(f"The file is not Parquet: {error}", hint="Give a schema") from error
        raise SourceNotFound(f"There is no file in {self.path} to learn the schema from", hint="Give a schema")

    def plan(self, watermarks: Mapping[str, Watermark]) -> Plan:
        units: list[WorkUnit] = []
        rewritten: list[str] = []
        late = 0
        newest = max((mark["modified"] for mark in watermarks.values()), default=0)
        settled = (time.time() - self.settle_seconds) * 1000
        for meta in self._listed():
            known = watermarks.get(meta.key)
            if known is not None and (known["size"], known["modified"]) == (meta.size, meta.modified_ms):
                continue
            if self.settle_seconds and meta.modified_ms > settled:
                continue
            if known is not None:
                rewritten.append(meta.key)
                if self.on_rewritten == "ignore":
                    continue
            elif meta.modified_ms < newest:
                late += 1
            generation = 0 if known is None else known["generation"] + 1
            high = {"generation": generation, "size": meta.size, "modified": meta.modified_ms}
            units.append(WorkUnit(partition=meta.key, low=known, high=high, size=max(1, meta.size)))
        if rewritten and self.on_rewritten == "fail":
            raise SourceChanged(
                f"{_some(rewritten)} changed after being published",
                hint="Land new files under new names; or say on_rewritten: ingest, or ignore",
            )
        notes = []
        if late:
            notes.append(f"{late} late files, modified before others that were published in earlier runs")
        if rewritten:
            done = "published again" if self.on_rewritten == "ingest" else "ignored"
            notes.append(f"{_some(rewritten)} changed after being published: {done}")
        if unnamed := self._unnamed():
            notes.append(f"{len(unnamed)} files have names that are no keys, and are never read: {_some(unnamed)}")
        return Plan(units=tuple(units), notes=tuple(notes))

    def _listed(self) -> Iterator[ObjectMeta]:
        found = False
        for meta in self._store.list(recursive=self.recursive):
            found = True
            parts = meta.key.split("/")
            if not any(part.startswith(("_", ".")) for part in parts) and fnmatch.fnmatchcase(parts[-1], self.pattern):
                yield meta
        if not found and self._store.uri.startswith("file:"):
            self._must_exist()

    def _unnamed(self) -> list[str]:
        """Files on a disk whose names are not UTF-8, or have signs that no store takes: listings pass over them."""
        if not self._store.uri.startswith("file:"):
            return []
        found = []
        for _, folders, files in os.walk(parse(self._store.uri).path):
            folders[:] = [name for name in folders if self.recursive and not name.startswith(("_", "."))]
            found += [name for name in (*folders, *files) if not listable(name) and not name.startswith(("_", "."))]
        return [ascii(name) for name in found]

    def _must_exist(self) -> None:
        # A store cannot tell an empty directory from none; on a disk the difference is a slip or a lost mount.
        if not os.path.isdir(parse(self._store.uri).path):
            raise SourceNotFound(f"The directory {self.path} is not there")

    def read(self, unit: WorkUnit) -> Iterator[Chunk]:
        key = unit.partition
        with located(file=key):
            self._check(unit)
            try:
                yield from self._chunks(key, self.row_schema())
            except BrokenDataFile as error:
                raise BadRecord(error.message, hint="Mend or remove it") from error
            # Whoever rewrote it meanwhile may have mixed old bytes with new ones.
            self._check(unit)

    def _chunks(self, key: str, schema: StructType) -> Iterator[Chunk]:
        match self.format:
            case "json":
                return file_formats.json_rows(self._opened(key), schema)
            case "csv":
                return file_formats.csv_rows(self._opened(key), schema, self.csv)
            case "parquet":
                return file_formats.parquet_rows(self._store.open_read(key), schema)

    def _opened(self, key: str) -> Any:
        return inflated(self._store.open_read(key), key)

    def _check(self, unit: WorkUnit) -> None:
        try:
            meta = self._store.head(unit.partition)
        except ObjectNotFound as error:
            raise SourceNotFound("A file vanished before it was read", hint="Run it again") from error
        if (meta.size, meta.modified_ms) != (unit.high["size"], unit.high["modified"]):
            raise SourceChanged("A file changed while it was being ingested", hint="Run it again when it is finished")


def _some(keys: list[str]) -> str:
    more = f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
    return f"{', '.join(sorted(keys)[:_SHOWN])}{more}"
