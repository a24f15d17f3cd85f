"""Rows near each other in several columns come to lie near each other: along a z-order or a Hilbert curve.

Each column's values become ranks, as fine as there are bits for; the bits of all ranks are interleaved into one number,
and rows are ordered by it. Hilbert's curve turns the ranks first, so that it never jumps: what lies between two of its
points lies near them, and a file that is a piece of it spans less. Its ranks count rows, not values, so that a value
that many rows have takes as much of the curve as its rows do. This is done to as many rows as fit in a window of
bounded size, one window after the other, so a bin that is larger than the window is in order piece by piece.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

WINDOW_BYTES = 512 * 2**20
_BATCH_ROWS = 65_536
_BITS = 63

Ranks = np.ndarray[Any, np.dtype[np.uint64]]


def ordered(
    batches: Iterable[pa.RecordBatch],
    columns: Sequence[str],
    window_bytes: int = WINDOW_BYTES,
    *,
    hilbert: bool = False,
) -> Iterator[pa.RecordBatch]:
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size >= window_bytes:
            yield from _window(held, columns, hilbert)
            held, size = [], 0
    if held:
        yield from _window(held, columns, hilbert)


def zvalues(columns: Sequence[pa.ChunkedArray | pa.Array]) -> Ranks:
    """One number per row; rows that are near in all columns have near numbers more often than not."""
    bits = _bits(columns)
    return _interleaved([_ranks(column, bits, "dense") for column in columns], bits)


def hilbert_values(columns: Sequence[pa.ChunkedArray | pa.Array]) -> Ranks:
    """One number per row, by Skilling's turns (Programming the Hilbert curve, 2004), of all rows at once."""
    bits = _bits(columns)
    axes = [_ranks(column, bits, "min") for column in columns]
    if len(axes) == 1:
        return axes[0]
    for level in range(bits - 1, 0, -1):
        bit, below = np.uint64(1 << level), np.uint64((1 << level) - 1)
        for index, axis in enumerate(axes):
            is_set = (axis & bit) != 0
            swapped = np.where(is_set, np.uint64(0), (axes[0] ^ axis) & below)
            axes[0] = np.where(is_set, axes[0] ^ below, axes[0] ^ swapped)
            if index:
                axes[index] = axis ^ swapped
    for index in range(1, len(axes)):
        axes[index] = axes[index] ^ axes[index - 1]
    turned = np.zeros(len(axes[0]), dtype=np.uint64)
    for level in range(bits - 1, 0, -1):
        is_set = (axes[-1] & np.uint64(1 << level)) != 0
        turned = np.where(is_set, turned ^ np.uint64((1 << level) - 1), turned)
    return _interleaved([axis ^ turned for axis in axes], bits)


def _bits(columns: Sequence[pa.ChunkedArray | pa.Array]) -> int:
    return max(1, min(_BITS // len(columns), 32))


def _interleaved(axes: Sequence[Ranks], bits: int) -> Ranks:
    interleaved = np.zeros(len(axes[0]), dtype=np.uint64)
    for index, ranks in enumerate(axes):
        for bit in range(bits):
            # The highest bits come first, those of the first column before those of the next.
            place = np.uint64((bits - 1 - bit) * len(axes) + (len(axes) - 1 - index))
            interleaved |= ((ranks >> np.uint64(bits - 1 - bit)) & np.uint64(1)) << place
    return interleaved


def _ranks(column: pa.ChunkedArray | pa.Array, bits: int, ties: str) -> Ranks:
    """Ranks, nulls last, spread over the whole range of bits so that every column counts alike."""
    dense = pc.rank(column, sort_keys="ascending", tiebreaker=ties)
    ranks: Ranks = dense.to_numpy(zero_copy_only=False).astype(np.uint64) - np.uint64(1)
    highest = int(ranks.max(initial=0))
    if highest == 0:
        return ranks
    return (ranks.astype(np.float64) / highest * float(2**bits - 1)).astype(np.uint64)


def _window(batches: list[pa.RecordBatch], columns: Sequence[str], hilbert: bool) -> Iterator[pa.RecordBatch]:
    rows = pa.Table.from_batches(batches)
    values = (hilbert_values if hilbert else zvalues)([rows.column(name) for name in columns])
    order = np.argsort(values, kind="stable")
    for start in range(0, len(order), _BATCH_ROWS):
        yield from rows.take(pa.array(order[start : start + _BATCH_ROWS])).combine_chunks().to_batches()
