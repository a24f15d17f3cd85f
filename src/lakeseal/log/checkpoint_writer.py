"""Writing checkpoints: a version's whole state in one place, so that readers need not replay the log from its start.

- A checkpoint holds what the log says as it is stored. What a snapshot in memory has read already is used only if it
  has exactly the files that the log has.
- Only a version whose commit is in the log under its own name gets one (B4); otherwise `NotBackfilled` is raised.
- Every file of it is written whole, or not at all. Sidecars come first, then the checkpoint that names them, then
  `_last_checkpoint`; stopped in between, the log reads as before. Before the pointer moves, what was written is counted
  again: every live file must be in it.
- `_last_checkpoint` never goes back to an older version.
- Rows are made a batch at a time: on top of the state itself, memory does not grow with the table.
- Pages have checksums, so a reader tells a checkpoint that has rotted.

Classic checkpoints are single Parquet files. A table that says `delta.checkpointPolicy=v2` gets a V2 checkpoint with
sidecars of bounded length. Fields that Lakeseal does not know are kept (see `checkpoint_rows`); actions that it does
not know are left out, since nobody can say which of them still hold.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct
from msgspec.structs import replace

from lakeseal.errors import BrokenCheckpoint, NotBackfilled, ObjectNotFound, located
from lakeseal.log import last_checkpoint
from lakeseal.log.checkpoint_reader import UNKNOWN
from lakeseal.log.checkpoint_rows import CheckpointRows, other_rows
from lakeseal.log.checksum import verify
from lakeseal.log.delta_log import DeltaLog, check_upkeep
from lakeseal.log.files import keys
from lakeseal.log.last_checkpoint import LastCheckpoint
from lakeseal.log.replay import TableState
from lakeseal.log.segment import sort_out
from lakeseal.log.snapshot import Snapshot
from lakeseal.protocol import codec
from lakeseal.protocol.actions import CheckpointMetadata, KnownAction, SidecarFile
from lakeseal.protocol.features import supports
from lakeseal.protocol.parquet_footer import Footer
from lakeseal.protocol.paths import (
    LAST_CHECKPOINT,
    LOG_DIR,
    SIDECARS_DIR,
    checkpoint_path,
    checksum_path,
    commit_path,
    sidecar_path,
    v2_checkpoint_path,
    version_prefix,
)
from lakeseal.storage.base import Store

SIDECAR_ROWS = 250_000
_ACTIONS = ("txn", "metaData", "protocol", "domainMetadata")
_V2_ACTIONS = (*_ACTIONS, "checkpointMetadata", "sidecar")
# Texts that are all different: a dictionary of them would be built and thrown away.
_UNIQUE = ("path", "stats", "schemaString", "pathOrInlineDv", UNKNOWN)


class CheckpointInfo(Struct, frozen=True, kw_only=True):
    version: int
    files: tuple[str, ...]
    """Keys of what was written: the checkpoint, then its sidecars."""
    size: int
    """Actions in it."""
    size_in_bytes: int
    num_adds: int
    num_removes: int
    pointer_moved: bool
    """False where `_last_checkpoint` names a newer version."""


def write_checkpoint(
    log: DeltaLog,
    version: int,
    *,
    now_ms: int,
    known: Snapshot | None = None,
    sidecar_rows: int = SIDECAR_ROWS,
    v2_format: Literal["parquet", "json"] = "parquet",
) -> CheckpointInfo:
    """`known` is the snapshot of that version, where the caller has it; it is compared with what the log says, and
    spares reading all of that. `sidecar_rows` and `v2_format` matter to V2 checkpoints only."""
    with located(table=log.table, version=version):
        _check_backfilled(log, version)
        snapshot = Snapshot.of(log.table, _state(log, version, known or log.in_memory(version)), log.trust)
        check_upkeep(log, snapshot)
        _check_complete(log.store, snapshot)
        rows = CheckpointRows(snapshot, now_ms=now_ms)
        if snapshot.properties.checkpoint_policy == "v2" and supports(snapshot.protocol, "v2Checkpoint"):
            written = _write_v2(log.store, version, rows, now_ms, sidecar_rows, v2_format)
        else:
            written = _write_classic(log.store, version, rows)
        info = CheckpointInfo(
            version=version,
            files=tuple(key for key, _ in written),
            size=len(rows.others) + rows.num_files,
            size_in_bytes=sum(size for _, size in written),
            num_adds=rows.adds.num_rows,
            num_removes=rows.removes.num_rows,
            pointer_moved=_pointer_may_move(log.store, version),
        )
        if info.pointer_moved:
            log.store.put(LAST_CHECKPOINT, _pointer(info).to_bytes())
        return info


def _check_backfilled(log: DeltaLog, version: int) -> None:
    try:
        log.store.head(commit_path(version))
    except ObjectNotFound:
        log.commit_bytes(version)  # VersionNotFound, unless the table's owner has it
        raise NotBackfilled("The version is committed, but not in the log under its own name yet") from None


def _state(log: DeltaLog, version: int, known: Snapshot | None) -> TableState:
    if known is not None:
        state = log.state(version, with_removes=True, only_keys=True)
        if _same_files(known.files, state.files):
            return replace(state, live_files=known.state.live_files)
    return log.state(version, with_removes=True)


def _same_files(some: pa.Table, others: pa.Table) -> bool:
    """Keys are unique on both sides, so as many, and all of them found, are the same."""
    found = pc.is_in(keys(some), value_set=keys(others))
    return some.num_rows == others.num_rows and bool(pc.all(found, min_count=0).as_py())


def _check_complete(store: Store, snapshot: Snapshot) -> None:
    """What a writer of the version stated about it is evidence of its own: files that it counts must be there."""
    try:
        verify(snapshot, store.get(checksum_path(snapshot.version)))
    except ObjectNotFound:
        return


def _write_classic(store: Store, version: int, rows: CheckpointRows) -> list[tuple[str, int]]:
    others = other_rows(rows.others, _ACTIONS)
    schema = pa.schema([*others.schema, *rows.files_schema])
    batches = (_widened(batch, schema) for batch in chain(others.to_batches(), rows.file_batches()))
    key = checkpoint_path(version)
    size = _write_parquet(store, key, schema, batches)
    _check_written(store, {key: len(rows.others) + rows.num_files}, rows)
    return [(key, size)]


def _write_v2(
    store: Store, version: int, rows: CheckpointRows, now_ms: int, sidecar_rows: int, v2_format: str
) -> list[tuple[str, int]]:
    sidecars: list[tuple[str, int]] = []
    counts: dict[str, int] = {}
    for first in range(0, rows.num_files, sidecar_rows):
        last = min(first + sidecar_rows, rows.num_files)
        key = sidecar_path(f"{uuid.uuid4()}.parquet")
        sidecars.append((key, _write_parquet(store, key, rows.files_schema, rows.file_batches(first, last))))
        counts[key] = last - first
    _check_written(store, counts, rows)
    actions: list[KnownAction] = [
        CheckpointMetadata(version=version),
        *rows.others,
        *(
            SidecarFile(path=key.removeprefix(SIDECARS_DIR), size_in_bytes=size, modification_time=now_ms)
            for key, size in sidecars
        ),
    ]
    key = v2_checkpoint_path(version, str(uuid.uuid4()), v2_format)
    if v2_format == "json":
        data = codec.encode(actions)
        store.put(key, data)
        return [(key, len(data)), *sidecars]
    others = other_rows(actions, _V2_ACTIONS)
    # Delta Spark looks for the columns of files here too, though all of them are in sidecars.
    schema = pa.schema([*others.schema, *rows.files_schema])
    batches = (_widened(batch, schema) for batch in others.to_batches())
    return [(key, _write_parquet(store, key, schema, batches)), *sidecars]


def _write_parquet(store: Store, key: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    """The size of the new object."""
    dictionary = [leaf for field in schema for leaf in _leaves(field, "") if leaf.rpartition(".")[2] not in _UNIQUE]
    with store.open_write(key) as stream:
        with pq.ParquetWriter(
            stream,
            schema,
            compression="snappy",
            use_dictionary=dictionary,
            write_page_checksum=True,
            store_schema=False,
        ) as writer:
            for batch in batches:
                writer.write_batch(batch, row_group_size=batch.num_rows)
        return stream.tell()


def _leaves(field: pa.Field, above: str) -> Iterator[str]:
    """The names that Parquet gives to what is below a field."""
    path, kind = f"{above}{field.name}", field.type
    if pa.types.is_struct(kind):
        for child in kind:
            yield from _leaves(child, f"{path}.")
    elif pa.types.is_map(kind):
        yield from (f"{path}.key_value.key", f"{path}.key_value.value")
    elif pa.types.is_list(kind):
        yield f"{path}.list.element"
    else:
        yield path


def _widened(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with nulls in the columns that it does not have."""
    own = dict(zip(batch.schema.names, batch.columns, strict=True))
    arrays = [own[f.name] if f.name in own else pa.nulls(batch.num_rows, f.type) for f in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _check_written(store: Store, rows_by_key: dict[str, int], rows: CheckpointRows) -> None:
    """Reads the footers of what was written: as many rows as there should be, and every live file among them."""
    adds = 0
    for key, expected in rows_by_key.items():
        with store.open_read(key) as source:
            metadata = pq.ParquetFile(source).metadata
            footer = Footer(metadata, source)
        place = next(n for n in range(metadata.num_columns) if metadata.schema.column(n).path == "add.path")
        adds += sum(rows - (chunks[place].nulls or 0) for rows, chunks in zip(footer.rows, footer.groups, strict=True))
        if metadata.num_rows != expected:
            raise _incomplete(key, f"{metadata.num_rows} rows instead of {expected}")
    if adds != rows.adds.num_rows:
        raise _incomplete(next(iter(rows_by_key)), f"{adds} files instead of {rows.adds.num_rows}")


def _incomplete(key: str, what: str) -> BrokenCheckpoint:
    return BrokenCheckpoint(
        f"The checkpoint that was just written has {what}, so nothing points to it", file=key, hint="Delete it"
    )


def _pointer_may_move(store: Store, version: int) -> bool:
    try:
        current = last_checkpoint.parse(store.get(LAST_CHECKPOINT))
    except ObjectNotFound:
        return True
    if current is None or current.version <= version:
        return True
    # A pointer beyond the end of the log is a left-over of another table, and would send every reader astray.
    return sort_out(store.list_keys(LOG_DIR, after=version_prefix(current.version))).is_empty()


def _pointer(info: CheckpointInfo) -> LastCheckpoint:
    return LastCheckpoint(
        version=info.version, size=info.size, size_in_bytes=info.size_in_bytes, num_of_add_files=info.num_adds
    )
