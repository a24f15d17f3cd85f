"""The rows of a row group, in batches, as Arrow decodes them; texts are known to be UTF-8.

Arrow takes a file's bytes for text unseen, and damaged ones would fail far from here, or be written on.

Texts that are in a dictionary are read as such and put together here: 5M of them took 38 ms of CPU and their check so,
where Arrow's way, value by value, took 105. Two values of a dictionary that are the same would move those behind them
(Arrow counts values that differ), so what is not as long as its page says is read in Arrow's way after all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types

from lakeseal.log.parquet_reader import open_parquet, row_memory


def batches_of(
    parquet: pq.ParquetReader,
    source: pa.NativeFile,
    group: int,
    leaves: Sequence[int],
    *,
    rows: int,
    dictionaries: Mapping[int, int],
    use_threads: bool,
    pre_buffer: bool,
) -> Iterator[pa.RecordBatch]:
    """Of these leaf columns, up to so many rows at a time. `dictionaries`: of columns of texts that have nothing else,
    how many values there are in it."""
    given = 0
    if dictionaries:
        metadata = parquet.metadata
        coded = open_parquet(source, metadata=metadata, pre_buffer=pre_buffer, by_dictionary=dictionaries)
        sizes = {metadata.schema.column(leaf).name: size for leaf, size in dictionaries.items()}
        for batch in coded.iter_batches(rows, [group], column_indices=leaves, use_threads=use_threads):
            if not _has_sizes(batch, sizes):
                break
            check_texts(batch)
            yield _spelled_out(batch)
            given += batch.num_rows
        else:
            return
    for batch in parquet.iter_batches(rows, [group], column_indices=leaves, use_threads=use_threads):
        if given >= batch.num_rows:
            given -= batch.num_rows
            continue
        check_texts(batch)
        yield batch.slice(given)
        given = 0


def check_texts(batch: pa.RecordBatch) -> None:
    """Raises what Arrow raises for texts that are none, and for places that a dictionary has not."""
    for column in batch.columns:
        if _has_text(column.type):
            column.validate(full=True)


def texts_among(leaves: Sequence[int], metadata: pq.FileMetaData, schema: pa.Schema) -> frozenset[int]:
    """Those of the leaf columns that are columns of texts by themselves."""
    names = schema.names
    found = []
    for leaf in leaves:
        column = metadata.schema.column(leaf)
        is_whole = column.name == column.path and not column.max_repetition_level and names.count(column.name) == 1
        if is_whole and types.is_string(schema.field(column.name).type):
            found.append(leaf)
    return frozenset(found)


def _has_sizes(batch: pa.RecordBatch, sizes: Mapping[str, int]) -> bool:
    columns = (batch.column(name) for name in sizes)
    return all(len(column.dictionary) == sizes[name] for name, column in zip(sizes, columns, strict=True))


def _spelled_out(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [
        pc.take(column.dictionary, column.indices, memory_pool=row_memory())
        if types.is_dictionary(column.type)
        else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _has_text(kind: pa.DataType) -> bool:
    if types.is_dictionary(kind):
        return _has_text(kind.value_type)
    if types.is_nested(kind):
        return any(_has_text(kind.field(n).type) for n in range(kind.num_fields))
    return bool(types.is_string(kind) or types.is_large_string(kind))
