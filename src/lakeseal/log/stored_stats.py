"""Statistics of live files, wherever the log has them: as JSON text (`stats`) or in a checkpoint's struct.

A checkpoint may hold statistics as a struct alone (`stats_parsed`, under physical names); rows that came from one carry
it in an extra column. Either form gives the other here, so no file loses its statistics when it is written again.

Texts take a microsecond and more per file to parse. `KnownStats` parses those of one table of files once for every
column that conditions ask for, so the next condition of those columns takes a tenth of the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from lakeseal.protocol.decimal_text import recast
from lakeseal.protocol.stats import MAX_VALUES, stated_stats, widen
from lakeseal.protocol.text_values import FIRST_DAY, FIRST_MICROS, LAST_DAY, LAST_MICROS

STATS_PARSED = "stats_parsed"

_ROWS_AT_ONCE = 8192
_encode = msgspec.json.Encoder(decimal_format="number").encode


def stats_structs(files: pa.Table, wanted: pa.StructType) -> pa.StructArray:
    """Statistics of each file as `wanted`, under physical names; what is not known or does not fit is null.

    Maxima of timestamps are as the log states them, cut to milliseconds."""
    stats = stated_stats(files["stats"], wanted)
    if STATS_PARSED not in files.column_names:
        return stats
    stored = _whole(files[STATS_PARSED])
    return pc.if_else(stored.is_valid(), shaped(stored, wanted), stats)


class KnownStats:
    """Statistics of these files to skip them by: typed, with bounds moved apart by what may have been lost of them.

    What was asked for is kept, as far as that takes no more memory than the files' own actions. May be shared by
    threads, which at worst parse the same."""

    def __init__(self, files: pa.Table) -> None:
        self.files = files
        self._kept: dict[_Leaf, pa.Array] = {}

    def of(self, wanted: pa.StructType) -> pa.StructArray:
        """Those that are `wanted`, under physical names; what is not known or does not fit is null, and a struct is
        null only with all that is in it."""
        kept = self._kept
        missing = _without(wanted, kept, ())
        if missing.num_fields:
            kept = {**kept, **_leaves_of(widen(stats_structs(self.files, missing)), ())}
            fits = sum(array.nbytes for array in kept.values()) <= self.files.nbytes
            self._kept = kept if fits else {}
        return _put_together(wanted, kept, (), self.files.num_rows)


_Leaf = tuple[tuple[str, ...], pa.DataType]


def _without(wanted: pa.DataType, kept: Mapping[_Leaf, pa.Array], above: tuple[str, ...]) -> pa.StructType:
    fields = []
    for field in wanted:
        path = (*above, field.name)
        if pa.types.is_struct(field.type):
            inner = _without(field.type, kept, path)
            if inner.num_fields:
                fields.append(pa.field(field.name, inner))
        elif (path, field.type) not in kept:
            fields.append(field)
    return pa.struct(fields)


def _leaves_of(array: pa.StructArray, above: tuple[str, ...]) -> dict[_Leaf, pa.Array]:
    found: dict[_Leaf, pa.Array] = {}
    # Flattened: what is in a struct that is null is null.
    for field, child in zip(array.type, array.flatten(), strict=True):
        path = (*above, field.name)
        found |= _leaves_of(child, path) if pa.types.is_struct(field.type) else {(path, field.type): child}
    return found


def _put_together(
    wanted: pa.StructType, kept: Mapping[_Leaf, pa.Array], above: tuple[str, ...], rows: int
) -> pa.StructArray:
    if not wanted.num_fields:
        return pa.nulls(rows, wanted)
    children = [
        _put_together(field.type, kept, (*above, field.name), rows)
        if pa.types.is_struct(field.type)
        else kept[(*above, field.name), field.type]
        for field in wanted
    ]
    known = reduce(pc.or_, [child.is_valid() for child in children])
    return pa.StructArray.from_arrays(children, fields=list(wanted), mask=pc.invert(known))


def stats_texts(files: pa.Table) -> pa.ChunkedArray:
    """Statistics of each file as the text for `add.stats`."""
    texts = files["stats"]
    if STATS_PARSED not in files.column_names:
        return texts
    parts = []
    for start in range(0, files.num_rows, _ROWS_AT_ONCE):
        some = files.select(["stats", STATS_PARSED]).slice(start, _ROWS_AT_ONCE)
        parts.append(pc.coalesce(_whole(some["stats"]), _to_texts(_whole(some[STATS_PARSED]))))
    return pa.chunked_array(parts, pa.string())


def shaped(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """`array` as `wanted`, with nulls for fields that it does not have or that do not fit."""
    if pa.types.is_struct(wanted):
        if not pa.types.is_struct(array.type):
            return pa.nulls(len(array), wanted)
        places = {field.name: n for n, field in enumerate(array.type)}
        children = [
            shaped(array.field(places[f.name]), f.type) if f.name in places else pa.nulls(len(array), f.type)
            for f in wanted
        ]
        return pa.StructArray.from_arrays(children, fields=list(wanted), mask=array.is_null())
    if array.type == wanted:
        return array
    try:
        return recast(array, wanted)
    except pa.ArrowException:
        return pa.nulls(len(array), wanted)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)


def _to_texts(stats: pa.StructArray) -> pa.Array:
    parts = [_for_json(stats.field(n), upper=f.name == MAX_VALUES) for n, f in enumerate(stats.type)]
    rows = _struct(parts, stats).to_pylist()
    return pa.array([None if row is None else _encode(_without_nulls(row)).decode() for row in rows], pa.string())


def _for_json(array: pa.Array, *, upper: bool) -> pa.Array:
    """Values that JSON can take; bounds that it cannot hold exactly are moved outwards, or left out."""
    kind = array.type
    if pa.types.is_struct(kind):
        return _struct([_for_json(array.field(n), upper=upper) for n in range(kind.num_fields)], array)
    if pa.types.is_timestamp(kind):
        return _timestamp_texts(array, upper=upper)
    if pa.types.is_date(kind):
        days = array.cast(pa.date32()).cast(pa.int32())
        return _between(days, FIRST_DAY, LAST_DAY).cast(pa.date32()).cast(pa.string())
    if pa.types.is_floating(kind):
        return pc.if_else(pc.is_finite(array), array, None)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_nested(kind):
        return pa.nulls(len(array))
    return array


def _struct(children: list[pa.Array], like: pa.StructArray) -> pa.StructArray:
    fields = [pa.field(f.name, child.type) for f, child in zip(like.type, children, strict=True)]
    return pa.StructArray.from_arrays(children, fields=fields, mask=like.is_null())


def _timestamp_texts(array: pa.Array, *, upper: bool) -> pa.Array:
    micros = _between(array.cast(pa.timestamp("us", array.type.tz)).cast(pa.int64()), FIRST_MICROS, LAST_MICROS - 999)
    # Integer division cuts towards zero, and the bounds must go down and up.
    part = pc.subtract(micros, pc.multiply(pc.divide(micros, 1000), 1000))
    floor = pc.subtract(micros, pc.if_else(pc.less(part, 0), pc.add(part, 1000), part))
    cut = pc.if_else(pc.equal(part, 0), micros, pc.add(floor, 1000)) if upper else floor
    texts = pc.divide(cut, 1000).cast(pa.timestamp("ms")).cast(pa.string())
    iso = pc.replace_substring(texts, " ", "T", max_replacements=1)
    return iso if array.type.tz is None else pc.binary_join_element_wise(iso, "Z", "")


def _between(values: pa.Array, least: int, most: int) -> pa.Array:
    return pc.if_else(pc.and_(pc.greater_equal(values, least), pc.less_equal(values, most)), values, None)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(child) for key, child in value.items() if child is not None}
    return value
