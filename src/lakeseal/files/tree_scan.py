"""What is in a directory on a branch, as files of rows: which files, of which shapes, with which columns.

A ref is looked up once, so that a scan reads one commit however long it takes. Hidden files (`_…`, `.…`) are passed
over. Files that a job of ours wrote say by their shape what is in them. For others, the format is told by their names,
the columns by all of them together (or by the caller, who may say all of it with a schema), and the partition columns
by the directories: whole numbers are longs, everything else is text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from lakeseal.branches.store import BranchStore, Entry, entries_of
from lakeseal.errors import BrokenDataFile, InvalidArgument, ObjectNotFound, located
from lakeseal.files import orc_stripes
from lakeseal.files.compression import inflated
from lakeseal.files.file_format import FileFormat, format_of
from lakeseal.files.inference import csv_columns, json_columns
from lakeseal.files.shape import DIRECTORY, Shape, is_hidden, shape_path, united
from lakeseal.files.tree_reader import TreeFile, TreeSpec
from lakeseal.protocol.arrow import from_arrow
from lakeseal.protocol.partitions import parse_partition_directory
from lakeseal.protocol.schema import LONG, STRING, StructField, StructType
from lakeseal.storage import StoreSpec

Values: TypeAlias = dict[str, str | None]
"""What the directories of a file state, by the columns' names."""
Layout: TypeAlias = tuple[str, ...]
"""The names of these columns."""

_THREADS = 8
_WHOLE = re.compile(r"-?\d{1,18}", re.ASCII)
_SHAPE = re.compile(rf"{DIRECTORY}/shape-[0-9a-f]{{16}}\.json")


class TreeScan(Struct, frozen=True, kw_only=True):
    store: StoreSpec
    """Where the files' objects are."""
    commit: str
    path: str
    spec: TreeSpec
    files: tuple[TreeFile, ...]

    def select(self, columns: Sequence[str] | None) -> TreeScan:
        if columns is None:
            return self
        spec = msgspec.structs.replace(self.spec, columns=tuple(columns))
        spec.table.wanted()
        return msgspec.structs.replace(self, spec=spec)

    def at_zone(self, zone: str) -> TreeScan:
        """With this as the zone of moments in texts that name none."""
        return msgspec.structs.replace(self, spec=msgspec.structs.replace(self.spec, zone=zone))


def scan(
    store: BranchStore,
    ref: str,
    path: str,
    *,
    schema: StructType | None = None,
    format: str | None = None,
    header: bool = False,
) -> TreeScan:
    """`schema`, `format` and `header` are for files that no job of ours wrote, and `schema` goes before all others."""
    with located(table=store.uri):
        commit = store.head(ref)
        return _Scan(store, commit, path.strip("/"), schema, format, header).found()


class _Scan:
    def __init__(
        self, store: BranchStore, commit: str, path: str, schema: StructType | None, format: str | None, header: bool
    ) -> None:
        self._store = store
        self._commit = commit
        self._path = path
        self._schema = schema
        self._format = format
        self._header = header
        self._shapes: list[Shape] = []
        self._numbers: dict[str, int] = {}

    def found(self) -> TreeScan:
        visible, described = self._entries()
        if not visible and not described:
            raise ObjectNotFound(
                "There are no files", file=self._path or "/", hint="Check the path and the ref; lakeseal branch ls"
            )
        values = {entry.path: parse_partition_directory(self._directory(entry.path)) for entry in visible}
        for shape_id in sorted({e.metadata["shape"] for e in visible if "shape" in e.metadata} or described):
            self._numbers[shape_id] = len(self._shapes)
            self._shapes.append(self._read_shape(shape_id))
        foreign = [entry for entry in visible if "shape" not in entry.metadata]
        layouts = self._told_by(foreign, values) if foreign else {}
        files = tuple(
            TreeFile(
                address=entry.address,
                path=entry.path,
                size=entry.size,
                shape=(
                    self._numbers[entry.metadata["shape"]]
                    if "shape" in entry.metadata
                    else layouts[tuple(values[entry.path])]
                ),
                partition_values=values[entry.path],
            )
            for entry in visible
        )
        spec = TreeSpec(
            schema=self._schema or united(self._shapes),
            shapes=tuple(self._shapes),
            trust=self._store.trust,
        )
        return TreeScan(store=self._store.objects, commit=self._commit, path=self._path, spec=spec, files=files)

    def _entries(self) -> tuple[list[Entry], set[str]]:
        """The files to read, and the shapes that are there."""
        visible: list[Entry] = []
        described: set[str] = set()
        for table in self._store.entry_tables(self._commit, self._path):
            for entry in entries_of(table):
                below = entry.path[len(self._path) + 1 :] if self._path else entry.path
                if _SHAPE.fullmatch(below):
                    described.add(below[-21:-5])
                elif not is_hidden(below):
                    visible.append(entry)
        if not visible and not described and self._path:
            try:
                visible = [self._store.stat(self._commit, self._path)]
            except ObjectNotFound:
                return [], set()
        return visible, described

    def _directory(self, path: str) -> str:
        below = path[len(self._path) + 1 :] if self._path else path
        return below.rpartition("/")[0]

    def _read_shape(self, shape_id: str) -> Shape:
        place = f"{self._path}/{shape_path(shape_id)}".removeprefix("/")
        return Shape.from_json(self._store.read(self._commit, place), file=place)

    def _told_by(self, files: Sequence[Entry], values: Mapping[str, Values]) -> dict[Layout, int]:
        """Shapes for files of others, by the columns that their directories name."""
        kinds = {self._format or format_of(entry.path) for entry in files}
        if len(kinds) != 1 or None in kinds:
            raise InvalidArgument(
                "Files must be of one format, told by their names or the caller",
                file=files[0].path,
                hint="Give format=, or read a narrower path",
            )
        format = FileFormat(name=str(kinds.pop()), header=self._header)
        own = self._schema or self._columns([entry for entry in files if entry.size] or files[:1], format)
        layouts = dict.fromkeys(tuple(values[entry.path]) for entry in files)
        partitions = {
            name: _partition(name, [values[entry.path].get(name) for entry in files])
            for name in dict.fromkeys(name for layout in layouts for name in layout)
        }
        numbers: dict[Layout, int] = {}
        for layout in layouts:
            numbers[layout] = len(self._shapes)
            stated = [partitions[name] for name in layout] if self._schema is None else []
            known = {field.name.lower() for field in stated}
            stored = (field for field in own.fields if field.name.lower() not in known)
            self._shapes.append(Shape.of(format, StructType((*stored, *stated)), layout))
        return numbers

    def _columns(self, files: Sequence[Entry], format: FileFormat) -> StructType:
        """What all of the files have, as far as they say it."""
        if format.describes_itself:
            with ThreadPoolExecutor(_THREADS, thread_name_prefix="lakeseal-footers") as pool:
                footers = list(pool.map(lambda entry: self._footer(entry, format), files))
            return united([Shape.of(format, columns) for columns in footers])
        opened = ((entry.path, partial(self._opened, entry)) for entry in files)
        return csv_columns(opened, header=format.header) if format.name == "csv" else json_columns(opened)

    def _opened(self, entry: Entry) -> Any:
        return inflated(self._store.open_entry(entry), entry.path)

    def _footer(self, entry: Entry, format: FileFormat) -> StructType:
        with located(file=entry.path), self._store.open_entry(entry) as source:
            try:
                found = pq.read_schema(source) if format.name == "parquet" else orc_stripes.file_schema(source)
                return from_arrow(found)
            except pa.ArrowException as error:
                raise BrokenDataFile(f"A file does not say which columns it has: {error}") from error


def _partition(name: str, texts: Iterable[str | None]) -> StructField:
    present = [text for text in texts if text is not None]
    is_whole = bool(present) and all(_WHOLE.fullmatch(text) for text in present)
    return StructField(name, LONG if is_whole else STRING)
