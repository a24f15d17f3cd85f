"""`files`: a landing directory whose files are each read once.

A file is known by its key, its size and when it was last modified; that is its watermark. A file that is read again
because it changed after it was published is never taken for new by accident: `on_rewritten` says what happens. Files
that arrive late are read like any other, and noted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import islice
from typing import Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from lakeseal.clock import now_ms
from lakeseal.errors import (
    BadRecord,
    BrokenDataFile,
    InvalidArgument,
    ObjectNotFound,
    SourceChanged,
    SourceNotFound,
    located,
)
from lakeseal.expr.schema_text import parse_schema
from lakeseal.files.compression import inflated
from lakeseal.files.shape import is_hidden
from lakeseal.files.xml_records import XmlRows
from lakeseal.ingest.idle_options import refuse_idle
from lakeseal.ingest.sources.directories import Stated, named_columns
from lakeseal.ingest.sources.file_rows import (
    OWN_COLUMNS,
    CsvOptions,
    binary_rows,
    csv_rows,
    json_rows,
    parquet_rows,
    text_rows,
    xml_rows,
)
from lakeseal.ingest.sources.inference import Inference, learned
from lakeseal.ingest.sources.name_patterns import name_pattern
from lakeseal.ingest.sources.rescue import CsvRescue, JsonRescue, ParquetRescue
from lakeseal.ingest.sources.source import Chunk, Plan, Source, Watermark, WorkUnit, at_least_one, register_source
from lakeseal.ingest.sources.typed_rows import avro_rows, columns_of, orc_rows
from lakeseal.protocol.arrow import from_arrow
from lakeseal.protocol.schema import StructType
from lakeseal.storage import ObjectMeta, Store, StoreSpec
from lakeseal.storage.keys import listable
from lakeseal.storage.location import parse

_SHOWN = 5
_SCHEMA = "_schema"
"""Has the columns that are known, where they are learnt; no file that is read is called so."""
_FIRST_FILES = 10


@register_source
class FilesSource(Source, frozen=True, kw_only=True, tag="files", dict=True):
    path: str
    """A directory on any store."""
    format: Literal["json", "csv", "parquet", "orc", "avro", "xml", "text", "binary"]
    """json: one object per line. xml: a row for each element `row_tag`. text: a row for each line, `value`. binary: a
    row for each file, as Spark's binaryFile has it: `path`, `modificationTime`, `length`, `content`. Others are
    decompressed by .gz, .bz2, .zst and .lz4."""
    schema: str | None = None
    """Of the rows, as Spark writes it; Parquet, ORC and Avro files may go without."""
    pattern: str = "*"
    """Names of files, such as `*.json` or `[ab]?.{csv,txt}`; a backslash makes a sign plain. Those that begin with `.`,
    or with `_` and have no `=`, or end with `._COPYING_`, are never read; nor is what is below such a directory."""
    recursive: bool = True
    """Whether directories below it are looked at, too."""
    ordered: bool = False
    """Names only grow: a run lists what comes behind the last one that is published, and nothing else is kept or looked
    at, however many files there are. One that arrives with a smaller name, or is rewritten, is never seen."""
    on_rewritten: Literal["fail", "ingest", "ignore"] | None = None
    """What to do about a file that changed after it was published: `fail`, if nothing is said."""
    span: tuple[str, str] | None = None
    """Only files whose keys are from the first text on and before the second, as texts compare."""
    max_files: int | None = None
    """In one run, in the order of their names."""
    settle_seconds: float = 0.0
    """Leave alone what was modified less than this ago: it may still be growing."""
    infer: bool | Inference = False
    """Learn the columns from the files, run by run; `schema` is then what is known before."""
    csv: CsvOptions | None = None
    """How CSV is written."""
    row_tag: str | None = None
    """Of XML: the element that is a row."""
    storage_options: dict[str, str] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        # Absolute, so that it is the same place in a task.
        msgspec.structs.force_setattr(self, "path", StoreSpec(uri=self.path).uri)
        at_least_one("max_files", self.max_files)
        _ = self._names
        if not self.settle_seconds >= 0:
            raise InvalidArgument(f"settle_seconds must be 0 or more, not {self.settle_seconds:g}")
        if self.ordered:
            refuse_idle(self, ["on_rewritten"], "of names that only grow (ordered): what is rewritten is never seen")
        if self.format != "csv":
            refuse_idle(self, ["csv"], f"of files of the format {self.format}")
        if self.schema is not None:
            parse_schema(self.schema)
            if self.format in OWN_COLUMNS:
                raise InvalidArgument(
                    f"Files of the format {self.format} have a schema of their own", hint="Leave it out"
                )
        if self.infer and self.format not in ("json", "csv", "parquet"):
            raise InvalidArgument(f"Columns of {self.format} files are not inferred", hint="Leave infer out")
        if (self.format == "xml") != (self.row_tag is not None):
            raise InvalidArgument("Files of XML, and no others, name the element that is a row", hint="row_tag: order")
        if self.format == "xml" and self.schema is not None:
            XmlRows(parse_schema(self.schema), self.row_tag or "")
        if self.schema is None and not self.infer and self.format in ("json", "csv", "xml"):
            raise InvalidArgument(
                f"Files of the format {self.format} need a schema",
                hint='Add schema: "id long, at timestamp", or infer: true',
            )

    @property
    def has_records(self) -> bool:
        return self.format != "binary"

    @property
    def commit_policies(self) -> tuple[str, ...]:
        return ("full", "partial") if self.ordered else ("full", "successful", "partial")

    def place(self) -> str:
        return self.path

    def describe(self) -> str:
        return f"files {self.path}"

    @cached_property
    def _store(self) -> Store:
        return StoreSpec(uri=self.path, storage_options=self.storage_options).open()

    @cached_property
    def _names(self) -> re.Pattern[str]:
        return name_pattern(self.pattern)

    @property
    def _csv(self) -> CsvOptions:
        return self.csv or CsvOptions()

    @property
    def _inference(self) -> Inference | None:
        return Inference() if self.infer is True else self.infer or None

    def _known(self, mark: Watermark) -> StructType | None:
        if mark is not None:
            return StructType.from_json(mark["schema"])
        return None if self.schema is None else parse_schema(self.schema)

    def _learned(self, how: Inference, keys: Iterable[str], mark: Watermark) -> StructType:
        opening = self._store.open_read if self.format == "parquet" else self._opened
        files = ((key, partial(opening, key)) for key in keys)
        return learned(self.format, files, self._known(mark), how, self._csv)

    def within(self, first: str, last: str) -> FilesSource:
        return msgspec.structs.replace(self, span=(first, last), max_files=None)

    def learnt(self, watermarks: Mapping[str, Watermark]) -> Mapping[str, Watermark]:
        return {name: mark for name, mark in watermarks.items() if name == _SCHEMA}

    def row_schema(self) -> StructType:
        if (how := self._inference) is not None:  # as far as the first files tell; a plan has all of it
            first = [meta.key for meta in islice(self._listed(), _FIRST_FILES)]
            return how.with_rescued(self._learned(how, first, None))
        if self.schema is not None:
            return parse_schema(self.schema)
        if self.format in OWN_COLUMNS:
            return OWN_COLUMNS[self.format]
        for meta in self._listed():
            if self.format in ("orc", "avro"):
                with located(file=meta.key):
                    return columns_of(self.format, self._store.open_read(meta.key))
            with self._store.open_read(meta.key) as file, located(file=meta.key):
                try:
                    return from_arrow(pq.read_schema(file))
                except (pa.ArrowException, OSError) as error:
                    raise InvalidArgument(f"The file is not Parquet: {error}", hint="Give a schema") from error
        raise SourceNotFound(f"There is no file in {self.path} to learn the schema from", hint="Give a schema")

    def plan(self, watermarks: Mapping[str, Watermark]) -> Plan:
        found = self._behind(watermarks) if self.ordered else self._new(watermarks)
        if not found.units:
            return found
        keys, how, mark = [_key(unit) for unit in found.units], self._inference, watermarks.get(_SCHEMA)
        if how is not None:
            found = self._with_schema(found, how, mark)
        if not (named := named_columns(keys)):
            return found
        known = self.row_schema() if found.schema is None else StructType.from_json(found.schema)
        if unread := sorted(name for name in named if known.field(name) is None):
            note = f"directories name {', '.join(unread)}, which no schema does: what they say of it is not read"
            found = msgspec.structs.replace(found, notes=(*found.notes, note))
        return found

    def _behind(self, watermarks: Mapping[str, Watermark]) -> Plan:
        """Files behind the last name, up to the first that may still be growing."""
        low = watermarks.get("")
        settled = now_ms() - self.settle_seconds * 1000
        units = []
        for meta in sorted(self._listed(None if low is None else low["key"]), key=lambda meta: meta.key):
            if self.settle_seconds and meta.modified_ms > settled:
                break
            high = {"key": meta.key}
            payload = {"key": meta.key, "size": meta.size, "modified": meta.modified_ms}
            units.append(WorkUnit(partition="", low=low, high=high, size=max(1, meta.size), payload=payload))
            low = high
        return self._cut(units)

    def _cut(self, units: Sequence[WorkUnit], notes: Sequence[str] = ()) -> Plan:
        """As many as a run takes; they are in the order of their names."""
        taken = units[: self.max_files]
        return Plan(units=tuple(taken), notes=tuple(notes), has_more=len(taken) < len(units))

    def _new(self, watermarks: Mapping[str, Watermark]) -> Plan:
        units: list[WorkUnit] = []
        rewritten: list[str] = []
        late = 0
        newest = max((mark["modified"] for key, mark in watermarks.items() if key != _SCHEMA), default=0)
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
        if rewritten and self.on_rewritten in (None, "fail"):
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
        unnamed, linked = self._passed_over()
        if unnamed:
            notes.append(f"{len(unnamed)} files have names that are no keys, and are never read: {_some(unnamed)}")
        if linked:
            notes.append(f"{len(linked)} directories are symbolic links, and are never read: {_some(linked)}")
        return self._cut(units, notes)

    def _with_schema(self, plan: Plan, how: Inference, mark: Watermark) -> Plan:
        """What is known of the columns is a watermark too, and moves with the rows."""
        known = self._learned(how, [_key(unit) for unit in plan.units], mark)
        text = known.to_json()
        units = [msgspec.structs.replace(unit, payload={**unit.payload, "schema": text}) for unit in plan.units]
        if mark is None or mark["schema"] != text:
            generation = 0 if mark is None else mark["generation"] + 1
            units.append(WorkUnit(partition=_SCHEMA, low=mark, high={"generation": generation, "schema": text}))
        return msgspec.structs.replace(plan, units=tuple(units), schema=how.with_rescued(known).to_json())

    def _listed(self, after: str | None = None) -> Iterator[ObjectMeta]:
        found = after is not None
        for meta in self._all(after):
            found = True
            parts = meta.key.split("/")
            if self.span is not None and not self.span[0] <= meta.key < self.span[1]:
                continue
            if is_hidden(meta.key):
                continue
            if self._names.fullmatch(parts[-1]):
                yield meta
        if not found and self._store.uri.startswith("file:"):
            self._must_exist()

    def _all(self, after: str | None) -> Iterator[ObjectMeta]:
        try:
            yield from self._store.list(after=after, recursive=self.recursive)
        except ObjectNotFound as error:
            raise SourceNotFound(f"The bucket of {self.path} is not there") from error

    def _passed_over(self) -> tuple[list[str], list[str]]:
        """What listings of a disk pass over: files whose names are not UTF-8, or have signs that no store takes; and
        directories that are symbolic links."""
        unnamed: list[str] = []
        linked: list[str] = []
        if not self._store.uri.startswith("file:"):
            return unnamed, linked
        for above, folders, files in os.walk(parse(self._store.uri).path):
            folders[:] = [name for name in folders if self.recursive and not is_hidden(name)]
            unnamed += [name for name in (*folders, *files) if not listable(name) and not is_hidden(name)]
            linked += [name for name in folders if os.path.islink(os.path.join(above, name))]
        return [ascii(name) for name in unnamed], [ascii(name) for name in linked]

    def _must_exist(self) -> None:
        # A store cannot tell an empty directory from none; on a disk the difference is a slip or a lost mount.
        if not os.path.isdir(parse(self._store.uri).path):
            raise SourceNotFound(f"The directory {self.path} is not there")

    def read(self, unit: WorkUnit) -> Iterator[Chunk]:
        if unit.partition == _SCHEMA:
            return
        key = _key(unit)
        with located(file=key):
            self._check(unit)
            try:
                if (how := self._inference) is not None:
                    known = StructType.from_json(unit.payload["schema"])
                    stated = Stated.of(key, known)
                    chunks = stated.beside(self._rescued(key, stated.left, how), how.with_rescued(known))
                else:
                    schema = self.row_schema()
                    stated = Stated.of(key, schema)
                    chunks = stated.beside(self._chunks(key, stated.left, _known_of(unit)), schema)
                yield from (_placed(chunk, key) for chunk in chunks) if self.ordered else chunks
            except BrokenDataFile as error:
                raise BadRecord(error.message, hint="Mend or remove it") from error
            # Whoever rewrote it meanwhile may have mixed old bytes with new ones.
            self._check(unit)

    def _chunks(self, key: str, schema: StructType, known: Mapping[str, Any]) -> Iterator[Chunk]:
        match self.format:
            case "json":
                return json_rows(self._opened(key), schema)
            case "csv":
                return csv_rows(self._opened(key), schema, self._csv)
            case "parquet":
                return parquet_rows(self._store.open_read(key), schema)
            case "orc":
                return orc_rows(self._store.open_read(key), schema)
            case "avro":
                return avro_rows(self._store.open_read(key), schema)
            case "xml":
                return xml_rows(self._opened(key), schema, self.row_tag or "")
            case "text":
                return text_rows(self._opened(key))
            case "binary":
                return binary_rows(self._store.open_read(key), self._path(key), known["size"], known["modified"])

    def _path(self, key: str) -> str:
        """As Spark spells it: with one slash on a disk, and with no sign that stands for another."""
        place = parse(self._store.uri)
        root = f"file:{place.path}" if place.kind == "file" else place.uri
        return f"{root.rstrip('/')}/{key}"

    def _rescued(self, key: str, known: StructType, how: Inference) -> Iterator[Chunk]:
        match self.format:
            case "json":
                return JsonRescue(known, how).read(self._opened(key))
            case "csv":
                return CsvRescue(known, how).read(partial(self._opened, key), self._csv)
        return ParquetRescue(known, how).read(self._store.open_read(key))

    def _opened(self, key: str) -> Any:
        return inflated(self._store.open_read(key), key)

    def _check(self, unit: WorkUnit) -> None:
        try:
            meta = self._store.head(_key(unit))
        except ObjectNotFound as error:
            raise SourceNotFound("A file vanished before it was read", hint="Run it again") from error
        known = _known_of(unit)
        if (meta.size, meta.modified_ms) != (known["size"], known["modified"]):
            raise SourceChanged("A file changed while it was being ingested", hint="Run it again when it is finished")


def _key(unit: WorkUnit) -> str:
    return str(unit.payload.get("key", unit.partition))


def _known_of(unit: WorkUnit) -> Mapping[str, Any]:
    """The file as it was planned."""
    return unit.payload if "key" in unit.payload else dict(unit.high)


def _placed(chunk: Chunk, key: str) -> Chunk:
    """Where files are no partitions, records say which one they are of."""
    bad = tuple(msgspec.structs.replace(one, position=f"{key}, {one.position}") for one in chunk.bad)
    return msgspec.structs.replace(chunk, bad=bad) if bad else chunk


def _some(keys: list[str]) -> str:
    more = f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
    return f"{', '.join(sorted(keys)[:_SHOWN])}{more}"
