"""`files`: a landing directory whose files are each read once.

A file is known by its key, its size and when it was last modified; that is its watermark. A file that is read again
because it changed after it was published is never taken for new by accident: `on_rewritten` says what happens. Files
that arrive late are read like any other, and noted.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from lakeseal.clock import now_ms
from lakeseal.errors import (
    BadRecord,
    BrokenDataFile,
    InvalidArgument,
    InvalidInput,
    ObjectNotFound,
    SchemaMismatch,
    SourceChanged,
    SourceNotFound,
    located,
)
from lakeseal.expr.schema_text import parse_schema
from lakeseal.files.compression import inflated
from lakeseal.files.csv_records import CsvDialect, CsvRows, line
from lakeseal.files.json_lines import lines
from lakeseal.files.json_records import JsonRecords
from lakeseal.files.records import check_texts, judged
from lakeseal.ingest.sources.source import (
    Chunk,
    Plan,
    RejectedRecord,
    Source,
    Watermark,
    WorkUnit,
    register_source,
)
from lakeseal.log.decoded_size import fitting_batches
from lakeseal.log.physical import Projection
from lakeseal.protocol.arrow import from_arrow, to_arrow
from lakeseal.protocol.schema import BINARY, LONG, STRING, TIMESTAMP, StructField, StructType
from lakeseal.storage import ObjectMeta, Store, StoreSpec
from lakeseal.storage.keys import listable
from lakeseal.storage.location import parse
from lakeseal.trust import Trust

_BATCH_ROWS = 65_536
_LARGEST_CONTENT = 2**30
_OWN = {
    "text": StructType((StructField("value", STRING),)),
    "binary": StructType(
        (
            StructField("path", STRING),
            StructField("modificationTime", TIMESTAMP),
            StructField("length", LONG),
            StructField("content", BINARY),
        )
    ),
}
"""Columns of formats that say what they are."""
_SHOWN = 5


class CsvOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    header: bool = True
    """Whether the first line names the columns; else they are the schema's, in its order."""
    delimiter: str = ","
    quote: str = '"'
    escape: str = '"'
    """Makes a quote plain inside of quotes: the quote itself, or a backslash as Spark writes."""
    null: str = ""
    """The text that stands for no value; so does nothing at all."""

    def __post_init__(self) -> None:
        assert self.dialect

    @property
    def dialect(self) -> CsvDialect:
        return CsvDialect(delimiter=self.delimiter, quote=self.quote, escape=self.escape, null=self.null)


@register_source
class FilesSource(Source, frozen=True, kw_only=True, tag="files", dict=True):
    path: str
    """A directory on any store."""
    format: Literal["json", "csv", "parquet", "text", "binary"]
    """json: one object per line. text: a row for each line, `value`. binary: a row for each file, as Spark's binaryFile
    has it: `path`, `modificationTime`, `length`, `content`. Others are decompressed by .gz, .bz2, .zst and .lz4."""
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
            if self.format in _OWN:
                raise InvalidArgument(
                    f"Files of the format {self.format} have a schema of their own", hint="Leave it out"
                )
        elif self.format in _OWN:
            return
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
        if self.format in _OWN:
            return _OWN[self.format]
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
        settled = now_ms() - self.settle_seconds * 1000
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
        for meta in self._all():
            found = True
            parts = meta.key.split("/")
            if not any(part.startswith(("_", ".")) for part in parts) and fnmatch.fnmatchcase(parts[-1], self.pattern):
                yield meta
        if not found and self._store.uri.startswith("file:"):
            self._must_exist()

    def _all(self) -> Iterator[ObjectMeta]:
        try:
            yield from self._store.list(recursive=self.recursive)
        except ObjectNotFound as error:
            raise SourceNotFound(f"The bucket of {self.path} is not there") from error

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
                yield from self._chunks(key, self.row_schema(), unit.high)
            except BrokenDataFile as error:
                raise BadRecord(error.message, hint="Mend or remove it") from error
            # Whoever rewrote it meanwhile may have mixed old bytes with new ones.
            self._check(unit)

    def _chunks(self, key: str, schema: StructType, known: Mapping[str, Any]) -> Iterator[Chunk]:
        match self.format:
            case "json":
                return json_rows(self._opened(key), schema)
            case "csv":
                return csv_rows(self._opened(key), schema, self.csv)
            case "parquet":
                return parquet_rows(self._store.open_read(key), schema)
            case "text":
                return text_rows(self._opened(key))
            case "binary":
                uri = f"{self._store.uri.rstrip('/')}/{key}"
                return binary_rows(self._store.open_read(key), uri, known["size"], known["modified"])

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


def json_rows(stream: Any, schema: StructType) -> Iterator[Chunk]:
    records = JsonRecords(schema)
    for block in lines(stream, Trust().max_decoded_bytes):
        parsed = records.parse(block.texts)
        bad = tuple(
            RejectedRecord.of(one.reason, block.texts[one.at], f"line {block.numbers[one.at]}")
            for one in parsed.misfits
        )
        yield Chunk(rows=parsed.rows, bad=bad, bytes=block.size)


def text_rows(stream: Any) -> Iterator[Chunk]:
    for block in lines(stream, Trust().max_decoded_bytes, blank=True):
        good, bad = [], []
        for at, text in enumerate(block.texts):
            try:
                good.append(text.decode())
            except UnicodeDecodeError:
                bad.append(RejectedRecord.of("It is not UTF-8", text, f"line {block.numbers[at]}"))
        rows = pa.RecordBatch.from_arrays([pa.array(good, pa.string())], schema=to_arrow(_OWN["text"]))
        yield Chunk(rows=rows, bad=tuple(bad), bytes=block.size)


def binary_rows(file: Any, uri: str, size: int, modified_ms: int) -> Iterator[Chunk]:
    if size > _LARGEST_CONTENT:
        raise BadRecord(
            f"The file has {size} bytes, and a row holds {_LARGEST_CONTENT}", hint="Leave it out by pattern"
        )
    with file:
        content = file.read()
    stamp = pa.array([modified_ms * 1000], pa.int64()).cast(pa.timestamp("us", "UTC"))
    columns = [pa.array([uri]), stamp, pa.array([len(content)], pa.int64()), pa.array([content], pa.binary())]
    rows = pa.RecordBatch.from_arrays(columns, schema=to_arrow(_OWN["binary"]))
    yield Chunk(rows=rows, bytes=len(content))


def csv_rows(stream: Any, schema: StructType, options: CsvOptions) -> Iterator[Chunk]:
    for block, parsed in CsvRows(stream, schema.fields, options.dialect, header=options.header).read():
        bad = [
            RejectedRecord.of(misfit.reason, line(block, misfit.at, options.delimiter), f"row {block.rows[misfit.at]}")
            for misfit in parsed.misfits
        ]
        bad += (RejectedRecord.of(torn.reason, torn.text, f"row {torn.row}") for torn in block.torn)
        yield Chunk(rows=parsed.rows, bad=tuple(bad), bytes=block.size)


def parquet_rows(file: pa.NativeFile, schema: StructType) -> Iterator[Chunk]:
    wanted = to_arrow(schema)
    try:
        parquet = pq.ParquetFile(file)
        projection = _projection(parquet.schema_arrow, schema)
        row = 1
        limit = Trust().max_decoded_bytes
        for batch in fitting_batches(parquet, file, projection.columns, rows=_BATCH_ROWS, limit=limit):

            def part(start: int, end: int, of: pa.RecordBatch = batch) -> pa.RecordBatch:
                piece = pa.RecordBatch.from_arrays(projection.apply(of.slice(start, end - start)), schema=wanted)
                check_texts(piece)
                return piece

            parsed = judged(batch.num_rows, part, (BrokenDataFile, InvalidInput))
            bad = tuple(
                RejectedRecord.of(one.reason, str(_values(batch, one.at)), f"row {row + one.at}")
                for one in parsed.misfits
            )
            yield Chunk(rows=parsed.rows, bad=bad, bytes=batch.nbytes)
            row += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise BadRecord(f"The file is not whole Parquet: {error}", hint="Mend or remove it") from error


def _projection(file: pa.Schema, schema: StructType) -> Projection:
    names = [name.lower() for name in file.names]
    for field in schema.fields:
        if names.count(field.name.lower()) > 1:
            raise SchemaMismatch(
                f"A Parquet file has several columns {field.name!r}", column=field.name, hint="Rename one of them"
            )
    try:
        return Projection.of(schema.fields, file, "none")
    except BrokenDataFile as error:
        raise SchemaMismatch(
            f"A column of a Parquet file is not what the schema says: {error.message}",
            column=error.column,
            hint="Mend the file, or the source's schema",
        ) from error


def _values(batch: pa.RecordBatch, at: int) -> dict[str, Any]:
    """What can be shown of a row."""
    values = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            values[name] = column[at].as_py()
        except UnicodeDecodeError:
            values[name] = column[at].cast(pa.binary()).as_py() if not pa.types.is_nested(column.type) else "?"
        except (ValueError, OverflowError):
            values[name] = str(column[at])
    return values
