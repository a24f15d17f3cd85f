"""Z-order: rows near each other in several columns come to lie near each other.

Each column's values become ranks, as fine as there are bits for; the bits of all ranks are interleaved into one number,
and rows are ordered by it. This is done to as many rows as fit in a window of bounded size, one window after the other,
so a bin that is larger than the window is in order piece by piece.
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
    batches: Iterable[pa.RecordBatch], columns: Sequence[str], window_bytes: int = WINDOW_BYTES
) -> Iterator[pa.RecordBatch]:
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size >= window_bytes:
            yield from _window(held, columns)
            held, size = [], 0
    if held:
        yield from _window(held, columns)


def zvalues(columns: Sequence[pa.ChunkedArray | pa.Array]) -> Ranks:
    """One number per row; rows that are near in all columns have near numbers more often than not."""
    bits = max(1, min(_BITS // len(columns), 32))
    interleaved = np.zeros(len(columns[0]), dtype=np.uint64)
    for index, column in enumerate(columns):
        ranks = _ranks(column, bits)
        for bit in range(bits):
            # The highest bits come first, those of the first column before those of the next.
            place = np.uint64((bits - 1 - bit) * len(columns) + (len(columns) - 1 - index))
            interleaved |= ((ranks >> np.uint64(bits - 1 - bit)) & np.uint64(1)) << place
    return interleaved


def _ranks(column: pa.ChunkedArray | pa.Array, bits: int) -> Ranks:
    """Dense ranks, nulls last, spread over the whole range of bits so that every column counts alike."""
    dense = pc.rank(column, sort_keys="ascending", tiebreaker="dense")
    ranks: Ranks = dense.to_numpy(zero_copy_only=False).astype(np.uint64) - np.uint64(1)
    highest = int(ranks.max(initial=0))
    if highest == 0:
        return ranks
    return (ranks.astype(np.float64) / highest * float(2**bits - 1)).astype(np.uint64)


def _window(batches: list[pa.RecordBatch], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    rows = pa.Table.from_batches(batches)
    order = np.argsort(zvalues([rows.column(name) for name in columns]), kind="stable")
    for start in range(0, len(order), _BATCH_ROWS):
        yield from rows.take(pa.array(order[start : start + _BATCH_ROWS])).combine_chunks().to_batches()
