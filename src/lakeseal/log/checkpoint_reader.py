"""Reading checkpoints: classic, multi-part, and V2 as JSON or Parquet with sidecars, into a `TableState`.

Only the columns that a state needs are read, and of the columns that are null nearly everywhere (protocol, metadata,
transactions, …) only the row groups whose statistics do not rule them out. Statistics are read as JSON, and from the
struct for the files that have none. A checkpoint that cannot be read whole raises `BrokenCheckpoint`; the caller then
does without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeseal.errors import BrokenCheckpoint, CorruptTable, DecodedTooLarge, ObjectNotFound, located
from lakeseal.log.decoded_size import DecodedSize, fitting_rows, leaves_below
from lakeseal.log.files import ADDS, REMOVES, adds_from_actions, concat, removes_from_actions, unknown_text
from lakeseal.log.live_files import LiveFiles
from lakeseal.log.replay import TableState
from lakeseal.log.stored_stats import STATS_PARSED
from lakeseal.protocol import codec
from lakeseal.protocol.actions import (
    BY_KEY,
    Action,
    AddFile,
    CheckpointMetadata,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    SidecarFile,
)
from lakeseal.protocol.decimal_text import recast
from lakeseal.protocol.parquet_footer import Footer
from lakeseal.protocol.paths import SIDECARS_DIR, LogFile
from lakeseal.storage.base import Store
from lakeseal.trust import Trust

UNKNOWN = "lakeseal_unknown"
"""A column of our own in every action: as JSON, the fields that the format's columns have no place for."""

_SMALL = ("txn", "metaData", "protocol", "domainMetadata", "checkpointMetadata", "sidecar")
_KEY_COLUMNS = ("path", "deletionVector")
# Other columns are left out where they are null throughout. The path tells rows from null rows, and an empty map looks
# like a null one in the statistics of a column.
_ALWAYS_READ = ("path", "partitionValues", "tags")
_BATCH_ROWS = 65_536

T = TypeVar("T")


def read_checkpoint(
    store: Store,
    version: int,
    files: tuple[LogFile, ...],
    *,
    with_removes: bool = False,
    only_keys: bool = False,
    limit: int | None = None,
) -> TableState:
    """`only_keys` leaves everything null in the live files that is not part of their keys; `limit` is what a small file
    may unfold to."""
    content = _Content(store, with_removes=with_removes, only_keys=only_keys, limit=limit)
    for file in files:
        content.read(file.key)
    for sidecar in content.sidecars():
        content.read(sidecar)
    return content.state(version, files)


def read_sidecar_keys(store: Store, files: tuple[LogFile, ...]) -> list[str]:
    """The keys of the sidecars that a checkpoint names; nothing else of it is kept."""
    content = _Content(store, with_files=False)
    for file in files:
        content.read(file.key)
    return content.sidecars()


def check_checkpoint(store: Store, version: int, files: tuple[LogFile, ...]) -> None:
    """Raises `BrokenCheckpoint` unless the checkpoint says what it must and all of its files are there and whole, as
    far as this can be told without reading every page."""
    content = _Content(store, with_files=False)
    for file in files:
        content.read(file.key)
    for sidecar in content.sidecars():
        content.read(sidecar)
    content.state(version, files)


class _Content:
    """What has been read of a checkpoint so far."""

    def __init__(
        self,
        store: Store,
        *,
        with_removes: bool = False,
        with_files: bool = True,
        only_keys: bool = False,
        limit: int | None = None,
    ) -> None:
        self._store = store
        self._limit = limit or Trust().max_decoded_bytes
        self._with_removes, self._with_files = with_removes, with_files
        self._add_columns = _KEY_COLUMNS if only_keys else ADDS.names
        self._actions: list[Action] = []
        self._adds: list[pa.Table] = []
        self._removes: list[pa.Table] = []

    def read(self, key: str) -> None:
        _or_broken(key, lambda: self._read(key))

    def _read(self, key: str) -> None:
        if key.endswith(".json"):
            self._read_json(self._store.get(key))
            return
        with self._store.open_read(key) as source:
            self._read_parquet(_ParquetColumns(source, self._limit, is_local=self._store.uri.startswith("file:")))

    def _read_json(self, data: bytes) -> None:
        if not data:
            raise BrokenCheckpoint("The checkpoint is empty")
        actions = codec.decode(data)
        adds = [a for a in actions if isinstance(a, AddFile)]
        removes = [a for a in actions if isinstance(a, RemoveFile)]
        if self._with_files:
            self._adds.append(adds_from_actions(adds, [unknown_text(a) for a in adds]))
        if self._with_removes:
            self._removes.append(removes_from_actions(removes, [unknown_text(a) for a in removes]))
        self._actions += [a for a in actions if not isinstance(a, AddFile | RemoveFile)]

    def _read_parquet(self, columns: _ParquetColumns) -> None:
        for name in _SMALL:
            for row in columns.rows(name):
                self._actions.append(BY_KEY[name].from_json(_with_unknown(_without_nulls(row))))
        if self._with_files:
            self._adds += columns.tables("add", ADDS, self._add_columns)
        if self._with_removes:
            self._removes += columns.tables("remove", REMOVES, REMOVES.names)

    def sidecars(self) -> list[str]:
        keys = []
        for action in self._actions:
            if isinstance(action, SidecarFile):
                folder, _, name = unquote(action.path).rpartition("/")
                if not name or not (folder in ("", "_sidecars") or f"/{folder}/".endswith(f"/{SIDECARS_DIR}")):
                    raise BrokenCheckpoint("A sidecar is not in the log's own folder", file=action.path)
                keys.append(SIDECARS_DIR + name)
        return keys

    def state(self, version: int, files: tuple[LogFile, ...]) -> TableState:
        protocols = [a for a in self._actions if isinstance(a, Protocol)]
        metadatas = [a for a in self._actions if isinstance(a, Metadata)]
        if len(protocols) != 1 or len(metadatas) != 1:
            raise BrokenCheckpoint(
                f"The checkpoint has {len(protocols)} protocols and {len(metadatas)} metadata actions, not one of each",
                version=version,
                file=files[0].name,
            )
        for action in self._actions:
            if isinstance(action, CheckpointMetadata) and action.version != version:
                raise BrokenCheckpoint(
                    f"The checkpoint says that it is of version {action.version}", file=files[0].name
                )
        return _or_broken(
            files[0].key,
            lambda: TableState(
                version=version,
                protocol=protocols[0],
                metadata=metadatas[0],
                txns={a.app_id: a for a in self._actions if isinstance(a, SetTransaction)},
                domains={a.domain: a for a in self._actions if isinstance(a, DomainMetadata) and not a.removed},
                live_files=LiveFiles(concat(self._adds, ADDS)),
                removes=concat(self._removes, REMOVES) if self._with_removes else None,
            ),
        )


class _ParquetColumns:
    def __init__(self, source: pa.NativeFile, limit: int, *, is_local: bool) -> None:
        file = pq.ParquetFile(source, page_checksum_verification=True)
        self._source, self._limit, self._is_local = source, limit, is_local
        self._decoded = DecodedSize(limit, source.size())
        self._file, self._footer = file, Footer(file.metadata, source)
        schema = file.schema_arrow
        self._types = {field.name: field.type for field in schema if pa.types.is_struct(field.type)}
        self._leaves = {file.metadata.schema.column(n).path: n for n in range(file.metadata.num_columns)}
        self._below: dict[str, list[int]] = {}

    def rows(self, name: str) -> Iterator[dict[str, Any]]:
        """The rows of a column that is null nearly everywhere, as Python values."""
        if name not in self._types:
            return
        for group in range(self._file.num_row_groups):
            if self._may_have(name, group):
                for batch in self._batches(group, [name]):
                    column = batch.column(0)
                    if column.null_count < len(column):
                        yield from column.drop_null().to_pylist(maps_as_pydicts="lossy")

    def tables(self, name: str, schema: pa.Schema, columns: Sequence[str]) -> Iterator[pa.Table]:
        """The rows of `add` or `remove` as file actions in columns, of which these are filled."""
        if name not in self._types:
            return
        wanted = {UNKNOWN if column == "unknown" else column for column in columns}
        present = {field.name for field in self._types[name]}
        for group in range(self._file.num_row_groups):
            if not self._may_have(name, group):
                continue
            parsed = {STATS_PARSED} if "stats" in columns and self._lacks_texts(name, group) else set()
            below = [f"{name}.{column}" for column in sorted((wanted | parsed) & present)]
            stored = [
                column
                for column in below
                if column.removeprefix(f"{name}.") in _ALWAYS_READ or self._may_have(column, group)
            ]
            for batch in self._batches(group, stored):
                rows = batch.column(0)
                if rows.null_count:
                    rows = rows.drop_null()
                if len(rows):
                    yield _to_schema(rows, schema)

    def _batches(self, group: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        leaves = leaves_below(self._file.metadata, columns)
        fitting = fitting_rows(
            self._footer,
            self._source,
            group,
            leaves,
            rows=_BATCH_ROWS,
            limit=self._limit // 4,
            page_limit=self._limit,
            is_local=self._is_local,
        )
        for batch in self._file.iter_batches(fitting.rows, row_groups=[group], columns=columns):
            self._decoded.add(batch.nbytes)
            yield batch

    def _may_have(self, name: str, group: int) -> bool:
        """Whether a row group can hold a non-null `name`: some leaf of it is not known to be all null."""
        chunks = self._footer.groups[group]
        below = (chunks[place] for place in self._places_below(name))
        return any(chunk.nulls is None or chunk.nulls < chunk.values for chunk in below)

    def _places_below(self, name: str) -> list[int]:
        if name not in self._below:
            self._below[name] = [
                place for leaf, place in self._leaves.items() if leaf == name or leaf.startswith(f"{name}.")
            ]
        return self._below[name]

    def _lacks_texts(self, name: str, group: int) -> bool:
        """Whether some file of a row group may have no JSON statistics."""
        nulls = []
        for leaf in (f"{name}.path", f"{name}.stats"):
            place = self._leaves.get(leaf)
            known = None if place is None else self._footer.groups[group][place].nulls
            if known is None:
                return True
            nulls.append(known)
        return nulls[0] < nulls[1]


def _to_schema(rows: pa.StructArray, schema: pa.Schema) -> pa.Table:
    arrays = {field.name: _field(rows, field) for field in schema if field.name != "unknown"}
    if arrays["path"].null_count:
        raise BrokenCheckpoint("The checkpoint has a file without a path")
    arrays["unknown"] = _unknown_texts(_field(rows, pa.field(UNKNOWN, pa.string())))
    table = pa.Table.from_arrays([arrays[field.name] for field in schema], schema=schema)
    if rows.type.get_field_index(STATS_PARSED) >= 0:
        parsed = pc.if_else(table["stats"].combine_chunks().is_null(), pc.struct_field(rows, STATS_PARSED), None)
        if parsed.null_count < len(parsed):
            table = table.append_column(STATS_PARSED, parsed)
    table.validate(full=True)  # Parquet readers take any bytes for text
    return table


def _field(rows: pa.StructArray, field: pa.Field) -> pa.Array:
    place = rows.type.get_field_index(field.name)
    return _nulls(len(rows), field.type) if place < 0 else _cast(pc.struct_field(rows, [place]), field.type)


@lru_cache(maxsize=64)
def _nulls(length: int, kind: pa.DataType) -> pa.Array:
    # Batches of equal length share them: for a million files the absent columns would take 50 MB.
    return pa.nulls(length, kind)


def _unknown_texts(texts: pa.Array) -> pa.Array:
    for text in texts.drop_null().to_pylist() if texts.null_count < len(texts) else ():
        msgspec.json.decode(text, type=dict[str, Any])
    return texts


def _cast(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    if array.type == wanted:
        return array
    if pa.types.is_struct(wanted):
        # Casting a struct wants all fields to be there, and other writers leave some out.
        places = {field.name: n for n, field in enumerate(array.type)}
        children = [
            _cast(array.field(places[f.name]), f.type) if f.name in places else pa.nulls(len(array), f.type)
            for f in wanted
        ]
        return pa.StructArray.from_arrays(children, fields=list(wanted), mask=array.is_null())
    return recast(array, wanted)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_nulls(v) for k, v in value.items() if v is not None}
    return value


def _with_unknown(row: dict[str, Any]) -> dict[str, Any]:
    text = row.pop(UNKNOWN, None)
    if text is None:
        return row
    unknown = msgspec.json.decode(text, type=dict[str, Any])
    for name, value in row.items():
        inner = unknown.get(name)
        unknown[name] = {**inner, **value} if isinstance(inner, dict) and isinstance(value, dict) else value
    return unknown


def _or_broken(key: str, read: Callable[[], T]) -> T:
    try:
        with located(file=key):
            return read()
    except BrokenCheckpoint:
        raise
    except ObjectNotFound as error:
        raise BrokenCheckpoint("A file of the checkpoint is missing", file=key) from error
    except CorruptTable as error:
        hint = error.hint if isinstance(error, DecodedTooLarge) else None
        raise BrokenCheckpoint(f"The checkpoint cannot be read: {error.message}", file=key, hint=hint) from error
    except (pa.ArrowException, OSError, msgspec.MsgspecError, ValueError, LookupError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise BrokenCheckpoint(f"The checkpoint cannot be read: {reason}", file=key) from error
