"""File actions in columns: one Arrow table of adds, one of removes, never one Python object per file.

Column names are the format's own (`path`, `partitionValues`, …), so a checkpoint's `add` struct and these tables are
the same thing. Fields that Lakeseal does not know are kept as JSON text in `unknown`. Rows that came from a checkpoint
without JSON statistics carry them in an extra column `stats_parsed` (`stored_stats` gives them as text).

Tables are in chunks, and a chunk that nothing changed is shared between versions: a version of an open table costs what
its commits touch, not what the table has.

A file is known in the log by its key: its canonical path and, if it has one, its deletion vector's id.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeseal.log.stored_stats import STATS_PARSED, stats_texts
from lakeseal.protocol.actions import AddFile, RemoveFile
from lakeseal.protocol.arrays import array, numbers, truths
from lakeseal.protocol.data_paths import canonical_paths

_CHUNK_ROWS = 65_536
STRING_MAP = pa.map_(pa.string(), pa.string())
DELETION_VECTOR = pa.struct(
    [
        pa.field("storageType", pa.string()),
        pa.field("pathOrInlineDv", pa.string()),
        pa.field("offset", pa.int32()),
        pa.field("sizeInBytes", pa.int32()),
        pa.field("cardinality", pa.int64()),
    ]
)
ADDS = pa.schema(
    [
        pa.field("path", pa.string()),
        pa.field("partitionValues", STRING_MAP),
        pa.field("size", pa.int64()),
        pa.field("modificationTime", pa.int64()),
        pa.field("dataChange", pa.bool_()),
        pa.field("stats", pa.string()),
        pa.field("tags", STRING_MAP),
        pa.field("deletionVector", DELETION_VECTOR),
        pa.field("baseRowId", pa.int64()),
        pa.field("defaultRowCommitVersion", pa.int64()),
        pa.field("clusteringProvider", pa.string()),
        pa.field("unknown", pa.string()),
    ]
)
REMOVES = pa.schema(
    [
        pa.field("path", pa.string()),
        pa.field("dataChange", pa.bool_()),
        pa.field("deletionTimestamp", pa.int64()),
        pa.field("extendedFileMetadata", pa.bool_()),
        pa.field("partitionValues", STRING_MAP),
        pa.field("size", pa.int64()),
        pa.field("stats", pa.string()),
        pa.field("tags", STRING_MAP),
        pa.field("deletionVector", DELETION_VECTOR),
        pa.field("baseRowId", pa.int64()),
        pa.field("defaultRowCommitVersion", pa.int64()),
        pa.field("unknown", pa.string()),
    ]
)
NO_ADDS = pa.Table.from_batches([], ADDS)
NO_REMOVES = pa.Table.from_batches([], REMOVES)


def adds_from_actions(adds: Sequence[Any], unknown: Sequence[str | None] | None = None) -> pa.Table:
    """Columns of `AddFile` values, or of any objects with the same attributes; `unknown` is `unknown_text` of each."""
    columns = [
        array([a.path for a in adds], pa.string()),
        _map_array([a.partition_values for a in adds]),
        array([a.size for a in adds], pa.int64()),
        array([a.modification_time for a in adds], pa.int64()),
        array([a.data_change for a in adds], pa.bool_()),
        array([a.stats for a in adds], pa.string()),
        _map_array([a.tags for a in adds]),
        _deletion_vector_array([a.deletion_vector for a in adds]),
        array([a.base_row_id for a in adds], pa.int64()),
        array([a.default_row_commit_version for a in adds], pa.int64()),
        array([a.clustering_provider for a in adds], pa.string()),
        _unknown_array(adds, unknown),
    ]
    return pa.Table.from_arrays(columns, schema=ADDS)


def removes_from_actions(removes: Sequence[Any], unknown: Sequence[str | None] | None = None) -> pa.Table:
    """Columns of `RemoveFile` values, or of any objects with the same attributes."""
    columns = [
        array([r.path for r in removes], pa.string()),
        array([r.data_change for r in removes], pa.bool_()),
        array([r.deletion_timestamp for r in removes], pa.int64()),
        array([r.extended_file_metadata for r in removes], pa.bool_()),
        _map_array([r.partition_values for r in removes]),
        array([r.size for r in removes], pa.int64()),
        array([r.stats for r in removes], pa.string()),
        _map_array([r.tags for r in removes]),
        _deletion_vector_array([r.deletion_vector for r in removes]),
        array([r.base_row_id for r in removes], pa.int64()),
        array([r.default_row_commit_version for r in removes], pa.int64()),
        _unknown_array(removes, unknown),
    ]
    return pa.Table.from_arrays(columns, schema=REMOVES)


def add_actions(adds: pa.Table) -> Iterable[AddFile]:
    """The way back, row by row: for writers that need a few of them as actions."""
    if STATS_PARSED in adds.column_names:
        adds = adds.set_column(adds.column_names.index("stats"), "stats", stats_texts(adds))
    for batch in adds.select(ADDS.names).to_batches(max_chunksize=1024):
        for row in batch.to_pylist(maps_as_pydicts="lossy"):
            yield AddFile.from_json(_with_unknown(row))


def remove_actions(removes: pa.Table) -> Iterable[RemoveFile]:
    for batch in removes.select(REMOVES.names).to_batches(max_chunksize=1024):
        for row in batch.to_pylist(maps_as_pydicts="lossy"):
            yield RemoveFile.from_json(_with_unknown(row))


def _with_unknown(row: dict[str, Any]) -> dict[str, Any]:
    text = row.pop("unknown")
    unknown = msgspec.json.decode(text) if text else {}
    vector = row.pop("deletionVector")
    if vector is not None:
        known = {name: value for name, value in vector.items() if value is not None}
        row["deletionVector"] = {**unknown.pop("deletionVector", {}), **known}
    return {**unknown, **row}


def unknown_text(action: AddFile | RemoveFile) -> str | None:
    """What the columns have no place for, as JSON: for `unknown`."""
    vector = action.deletion_vector
    extra = {"deletionVector": vector.unknown} if vector is not None and vector.unknown else {}
    return msgspec.json.encode({**action.unknown, **extra}).decode() if action.unknown or extra else None


def keys(files: pa.Table) -> pa.ChunkedArray:
    """The key of each row: canonical path, with the deletion vector's id behind it where there is one."""
    paths = canonical_paths(files["path"])
    vectors = files["deletionVector"]
    if vectors.null_count == len(vectors):
        return paths
    ids = [_vector_ids(chunk) for chunk in vectors.chunks]
    with_ids = pc.binary_join_element_wise(paths, pa.chunked_array(ids, pa.string()), "\0")
    return pc.coalesce(with_ids, paths)


def _vector_ids(vectors: pa.StructArray) -> pa.Array:
    storage, path, offset = (pc.struct_field(vectors, n) for n in ("storageType", "pathOrInlineDv", "offset"))
    base = pc.binary_join_element_wise(storage, path, "")
    return pc.coalesce(pc.binary_join_element_wise(base, offset.cast(pa.string()), "@"), base)


def reconcile(
    adds: pa.Table, add_order: np.ndarray, removes: pa.Table, remove_order: np.ndarray
) -> tuple[pa.Table, pa.Table, pa.ChunkedArray]:
    """The last action per key wins: the adds that are live, the removes that stand, and every key that was named.

    The two orders say at which place of the log each row stood; each is ascending.
    """
    add_keys, remove_keys = keys(adds), keys(removes)
    all_keys = pa.chunked_array([*add_keys.chunks, *remove_keys.chunks], pa.string())
    codes = _codes(all_keys)
    by_order = np.argsort(np.concatenate([add_order, remove_order]), kind="stable")
    last = np.empty(int(codes.max(initial=-1)) + 1, dtype=np.int64)
    last[codes[by_order]] = by_order  # where a code repeats, numpy keeps the last assignment
    stands = last[codes] == np.arange(len(codes))
    split = adds.num_rows
    return filter_rows(adds, stands[:split]), filter_rows(removes, stands[split:]), all_keys


def without_keys(files: pa.Table, gone: pa.ChunkedArray) -> pa.Table:
    if len(gone) == 0 or files.num_rows == 0:
        return files
    are_gone = pc.is_in(keys(files), value_set=gone)
    return filter_rows(files, ~np.concatenate([truths(chunk) for chunk in are_gone.chunks]))


def filter_rows(table: pa.Table, mask: np.ndarray) -> pa.Table:
    if mask.all():
        return table
    kept, at = [], 0
    for batch in table.to_batches():
        here = mask[at : at + batch.num_rows]
        at += batch.num_rows
        if here.all():
            kept.append(batch)
        elif here.any():
            kept.append(batch.filter(array(here, pa.bool_())))
    return pa.Table.from_batches(kept, table.schema)


def concat(tables: Iterable[pa.Table], schema: pa.Schema) -> pa.Table:
    """Tables of file actions one behind the other; only some may have `stats_parsed`."""
    parts = [t for t in tables if t.num_rows]
    if not parts:
        return pa.Table.from_batches([], schema)
    return parts[0] if len(parts) == 1 else pa.concat_tables(parts, promote_options="permissive")


def append(files: pa.Table, more: pa.Table, schema: pa.Schema) -> pa.Table:
    """`more` behind `files`. Small chunks at the end become one, so that their number grows with the logarithm of the
    number of commits."""
    together = concat([files, more], schema)
    batches = together.to_batches()
    rows, start = 0, len(batches)
    while start > 0 and rows < _CHUNK_ROWS and (rows == 0 or batches[start - 1].num_rows <= 2 * rows):
        start -= 1
        rows += batches[start].num_rows
    if len(batches) - start < 2:
        return together
    tail = pa.Table.from_batches(batches[start:]).combine_chunks()
    return pa.Table.from_batches([*batches[:start], *tail.to_batches()], together.schema)


def _codes(values: pa.ChunkedArray) -> np.ndarray:
    encoded = values.dictionary_encode()  # one dictionary for all chunks
    if encoded.num_chunks == 0:
        return np.empty(0, dtype=np.int64)
    return np.concatenate([numbers(chunk.indices) for chunk in encoded.chunks]).astype(np.int64)


def _map_array(values: list[dict[str, str | None] | None]) -> pa.Array:
    if all(v is None for v in values):
        return pa.nulls(len(values), STRING_MAP)
    offsets = [0, *accumulate(len(v) if v else 0 for v in values)]
    keys_ = array([k for v in values if v for k in v], pa.string())
    items = array([i for v in values if v for i in v.values()], pa.string())
    # A place that is null says that its map is.
    slots = [None if v is None else offset for v, offset in zip(values, offsets, strict=False)]
    return pa.MapArray.from_arrays(array([*slots, offsets[-1]], pa.int32()), keys_, items)


def _deletion_vector_array(vectors: list[Any]) -> pa.Array:
    if all(v is None for v in vectors):
        return pa.nulls(len(vectors), DELETION_VECTOR)
    return array([None if v is None else msgspec.to_builtins(v) for v in vectors], DELETION_VECTOR)


def _unknown_array(actions: Sequence[Any], unknown: Sequence[str | None] | None) -> pa.Array:
    return pa.nulls(len(actions), pa.string()) if unknown is None else array(unknown, pa.string())
