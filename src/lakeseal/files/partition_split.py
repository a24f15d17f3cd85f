"""Rows of one piece of a task's data, grouped by partition, without a loop over rows.

Partition columns are dictionary-encoded, their codes combined into one number per row, and the rows ordered by it
(stable, by radix where it can be); each partition is then a slice. Rows keep their order within a partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeseal.files.file_schema import CDC_PARTITION_FALSE, CDC_PARTITION_TRUE, CHANGE_TYPE
from lakeseal.protocol.partitions import format_partition_values, partition_directory
from lakeseal.protocol.schema import StructField

Codes = np.ndarray[Any, np.dtype[Any]]

_RADIX = 2**16
_TABLE_SIZE = 2**18


class Part(NamedTuple):
    directory: str
    start: int
    length: int


class PartitionSplit:
    """`cdc` puts rows of the change feed apart: those with a `_change_type`."""

    def __init__(self, columns: Sequence[StructField], *, mapped: bool, cdc: bool = False) -> None:
        self._columns = [(f.name, f.physical_name if mapped else f.name, f.type) for f in columns]
        self._cdc = cdc

    def __bool__(self) -> bool:
        return bool(self._columns) or self._cdc

    def split(self, rows: pa.Table) -> tuple[pa.Array | None, list[Part]]:
        """The order to take the rows in (None: as they are), and the parts that they then consist of."""
        codes: Codes | None = None
        directories: list[str] = []
        for segments, column_codes in self._encoded(rows):
            if codes is None:
                codes, directories = column_codes, segments
                continue
            width = len(segments)
            present, codes = _dense(codes * width + column_codes, len(directories) * width)
            directories = [f"{directories[code // width]}/{segments[code % width]}" for code in present]
        assert codes is not None, "rows without partition columns have nothing to be split by"
        counts = np.bincount(codes, minlength=len(directories))
        starts = np.cumsum(counts) - counts
        parts = [Part(*part) for part in zip(directories, starts.tolist(), counts.tolist(), strict=True)]
        return _order(codes, len(directories)), [part for part in parts if part.length]

    def _encoded(self, rows: pa.Table) -> Iterator[tuple[list[str], Codes]]:
        """Per partition column: the directory names that occur, and which of them each row has."""
        if self._cdc:
            is_change = pc.is_valid(_whole(rows.column(CHANGE_TYPE)))
            yield [CDC_PARTITION_FALSE, CDC_PARTITION_TRUE], is_change.cast(pa.int8()).to_numpy().astype(np.int64)
        for name, physical_name, data_type in self._columns:
            encoded = _whole(rows.column(name)).dictionary_encode(null_encoding="encode")
            texts = format_partition_values(encoded.dictionary, data_type).to_pylist()
            segments = [partition_directory(physical_name, text) for text in texts]
            yield segments, encoded.indices.to_numpy().astype(np.int64)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _dense(codes: Codes, limit: int) -> tuple[list[int], Codes]:
    """The codes that occur, and for each row the place of its code among them."""
    if limit <= _TABLE_SIZE:
        occurs = np.bincount(codes, minlength=limit) > 0
        return np.flatnonzero(occurs).tolist(), (np.cumsum(occurs) - 1)[codes]
    encoded = pa.array(codes).dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)


def _order(codes: Codes, limit: int) -> pa.Array | None:
    if limit == 1 or bool(np.all(codes[:-1] <= codes[1:])):
        return None
    if limit <= _RADIX:
        # numpy sorts 16-bit numbers by radix, several times faster than wider ones.
        return pa.array(np.argsort(codes.astype(np.uint16), kind="stable"))
    low = np.argsort((codes % _RADIX).astype(np.uint16), kind="stable")
    high = (codes // _RADIX)[low]
    return pa.array(low[np.argsort(high.astype(np.uint16) if limit <= _RADIX**2 else high, kind="stable")])
