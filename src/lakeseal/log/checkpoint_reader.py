"""Reading checkpoints: classic, multi-part, and V2 as JSON or Parquet with sidecars, into a `TableState`.

Only the columns that a state needs are read, and of the columns that are null nearly everywhere (protocol, metadata,
transactions, …) only the row groups whose statistics do not rule them out. A checkpoint that cannot be read whole
raises `BrokenCheckpoint`; the caller then does without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeseal.errors import BrokenCheckpoint, BrokenCommit, LakesealError, ObjectNotFound
from lakeseal.log.files import ADDS, REMOVES, adds_from_actions, concat, removes_from_actions
from lakeseal.log.replay import TableState
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
from lakeseal.protocol.paths import SIDECARS_DIR, LogFile
from lakeseal.storage.base import Store

_SMALL = ("txn", "metaData", "protocol", "domainMetadata", "checkpointMetadata", "sidecar")
_BATCH_ROWS = 65_536


def read_checkpoint(
    store: Store, version: int, files: tuple[LogFile, ...], *, with_removes: bool = False
) -> TableState:
    content = _Content(with_removes=with_removes)
    for file in files:
        content.read(store, file.key)
    for sidecar in content.sidecars():
        content.read(store, sidecar)
    return content.state(version, files)


class _Content:
    """What has been read of a checkpoint so far."""

    def __init__(self, *, with_removes: bool) -> None:
        self._with_removes = with_removes
        self._actions: list[Action] = []
        self._adds: list[pa.Table] = []
        self._removes: list[pa.Table] = []

    def read(self, store: Store, key: str) -> None:
        try:
            if key.endswith(".json"):
                self._read_json(store.get(key))
            else:
                with store.open_read(key) as source:
                    self._read_parquet(pq.ParquetFile(source))
        except ObjectNotFound as error:
            raise BrokenCheckpoint("A file of the checkpoint is missing", file=key) from error
        except BrokenCommit as error:
            raise BrokenCheckpoint(f"The checkpoint cannot be read: {error.message}", file=key) from error
        except LakesealError:
            raise
        except (pa.ArrowException, OSError, msgspec.MsgspecError, ValueError, KeyError, TypeError) as error:
            raise BrokenCheckpoint(f"The checkpoint cannot be read: {_first_line(error)}", file=key) from error

    def _read_json(self, data: bytes) -> None:
        actions = codec.decode(data)
        adds = [a for a in actions if isinstance(a, AddFile)]
        removes = [a for a in actions if isinstance(a, RemoveFile)]
        self._adds.append(adds_from_actions(adds, _unknown(adds)))
        if self._with_removes:
            self._removes.append(removes_from_actions(removes, _unknown(removes)))
        self._actions += [a for a in actions if not isinstance(a, AddFile | RemoveFile)]

    def _read_parquet(self, file: pq.ParquetFile) -> None:
        columns = _ParquetColumns(file)
        for name in _SMALL:
            for row in columns.rows(name):
                self._actions.append(BY_KEY[name].from_json(_without_nulls(row)))
        self._adds += columns.tables("add", ADDS)
        if self._with_removes:
            self._removes += columns.tables("remove", REMOVES)

    def sidecars(self) -> list[str]:
        keys = []
        for action in self._actions:
            if isinstance(action, SidecarFile):
                name = action.path.rpartition("/")[2]
                if not name or action.path not in (name, f"_sidecars/{name}", SIDECARS_DIR + name):
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
        return TableState(
            version=version,
            protocol=protocols[0],
            metadata=metadatas[0],
            txns={a.app_id: a for a in self._actions if isinstance(a, SetTransaction)},
            domains={a.domain: a for a in self._actions if isinstance(a, DomainMetadata) and not a.removed},
            files=concat(self._adds, ADDS),
            removes=concat(self._removes, REMOVES) if self._with_removes else None,
        )


class _ParquetColumns:
    def __init__(self, file: pq.ParquetFile) -> None:
        self._file = file
        schema = file.schema_arrow
        self._types = {field.name: field.type for field in schema if pa.types.is_struct(field.type)}
        self._leaves = {file.metadata.schema.column(n).path: n for n in range(file.metadata.num_columns)}

    def rows(self, name: str) -> Iterator[dict[str, Any]]:
        """The rows of a column that is null nearly everywhere, as Python values."""
        if name not in self._types:
            return
        groups = [g for g in range(self._file.num_row_groups) if self._may_have(name, g)]
        for batch in self._file.iter_batches(_BATCH_ROWS, row_groups=groups, columns=[name]):
            column = batch.column(0)
            if column.null_count < len(column):
                yield from column.drop_null().to_pylist(maps_as_pydicts="lossy")

    def tables(self, name: str, schema: pa.Schema) -> Iterator[pa.Table]:
        """The rows of `add` or `remove` as file actions in columns."""
        if name not in self._types:
            return
        present = {field.name for field in self._types[name]}
        wanted = [f"{name}.{column}" for column in schema.names if column in present]
        parsed = "stats_parsed" in present and "stats" not in present
        if parsed:
            wanted.append(f"{name}.stats_parsed")
        groups = [g for g in range(self._file.num_row_groups) if self._may_have(name, g)]
        for batch in self._file.iter_batches(_BATCH_ROWS, row_groups=groups, columns=wanted):
            rows = batch.column(0)
            if rows.null_count:
                rows = rows.drop_null()
            if len(rows):
                yield _to_schema(rows, schema, keep="stats_parsed" if parsed else None)

    def _may_have(self, name: str, group: int) -> bool:
        """Whether a row group can hold a non-null `name`: some leaf of it is not known to be all null."""
        row_group = self._file.metadata.row_group(group)
        for path, n in self._leaves.items():
            if path.startswith(f"{name}."):
                column = row_group.column(n)
                stats = column.statistics
                if stats is None or not stats.has_null_count or stats.null_count < column.num_values:
                    return True
        return False


def _to_schema(rows: pa.StructArray, schema: pa.Schema, *, keep: str | None) -> pa.Table:
    arrays = []
    for field in schema:
        place = rows.type.get_field_index(field.name)
        arrays.append(
            pa.nulls(len(rows), field.type) if place < 0 else _cast(pc.struct_field(rows, [place]), field.type)
        )
    table = pa.Table.from_arrays(arrays, schema=schema)
    if table["path"].null_count:
        raise BrokenCheckpoint("The checkpoint has a file without a path")
    if keep is not None:
        table = table.append_column(keep, pc.struct_field(rows, keep))
    return table


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
    return array.cast(wanted)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_nulls(v) for k, v in value.items() if v is not None}
    return value


def _unknown(actions: list[Any]) -> list[str | None] | None:
    if not any(a.unknown for a in actions):
        return None
    return [msgspec.json.encode(a.unknown).decode() if a.unknown else None for a in actions]


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
