"""The rows of a row group, in batches, as Arrow decodes them; texts are known to be UTF-8.

Arrow takes a file's bytes for text unseen, and damaged ones would fail far from here, or be written on.

Texts that are in a dictionary are read as such and put together here: 5M of them took 38 ms of CPU and their check so,
where Arrow's way, value by value, took 105. Two values of a dictionary that are the same would move those behind them
(Arrow counts values that differ), so what is not as long as its page says is read in Arrow's way after all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types

from lakeseal.log.parquet_reader import open_parquet, row_memory
from lakeseal.log.plain_columns import PlainColumn, Unfit
from lakeseal.log.row_ranges import rows_of
from lakeseal.protocol.parquet_footer import Footer


def batches_of(
    parquet: pq.ParquetReader,
    source: pa.NativeFile,
    footer: Footer,
    group: int,
    leaves: Sequence[int],
    *,
    rows: int,
    dictionaries: Mapping[int, int],
    plain: Mapping[int, PlainColumn],
    use_threads: bool,
    is_local: bool,
) -> Iterator[pa.RecordBatch]:
    """Of these leaf columns, up to so many rows at a time. `dictionaries`: of columns of texts that have nothing else,
    how many values there are in it. `plain`: what is known to be read by that."""
    given = 0
    others = _Others.of(parquet, source, [leaf for leaf in leaves if leaf not in plain], dictionaries, is_local)
    if plain or dictionaries:
        try:
            for batch in others.batches(group, rows, footer.rows[group], use_threads=use_threads):
                stretch = range(given, given + batch.num_rows)
                yield _with(batch, {leaf: column.rows(stretch) for leaf, column in plain.items()}, parquet)
                given += batch.num_rows
        except Unfit:
            pass
        else:
            return
    is_second = given > 0
    for batch in parquet.iter_batches(rows, [group], column_indices=leaves, use_threads=use_threads):
        if given >= batch.num_rows:
            given -= batch.num_rows
            continue
        check_texts(batch)
        # Batches of one schema can be joined, and those before had nothing but names.
        yield (_spelled_out(batch) if is_second else batch).slice(given)
        given = 0


def rows_at(
    parquet: pq.ParquetReader,
    source: pa.NativeFile,
    footer: Footer,
    group: int,
    leaves: Sequence[int],
    places: range | npt.NDArray[np.int64],
    *,
    rows: int,
    dictionaries: Mapping[int, int],
    plain: Mapping[int, PlainColumn],
) -> pa.RecordBatch | None:
    """The rows at these places of a row group, ascending, of a file on a local disk; None where it has to be read with
    all its rows, up to so many at a time."""
    left = [leaf for leaf in leaves if leaf not in plain]
    try:
        columns = {
            leaf: column.rows(places) if isinstance(places, range) else column.at(places)
            for leaf, column in plain.items()
        }
        if not left:
            found = _empty(len(places))
        elif isinstance(places, range):
            found = rows_of(parquet, source, footer, group, left, places, most=rows)
            if found is not None:
                check_texts(found)
        else:
            others = _Others.of(parquet, source, left, dictionaries, True)
            found = pa.concat_batches(others.batches(group, rows, footer.rows[group], use_threads=False, places=places))
    except Unfit:
        return None
    return None if found is None or found.num_rows != len(places) else _with(found, columns, parquet)


class _Others(NamedTuple):
    """Columns that Arrow reads, those of texts by their dictionaries where they have nothing else."""

    reader: pq.ParquetReader
    leaves: Sequence[int]
    sizes: Mapping[str, int]

    @classmethod
    def of(
        cls,
        parquet: pq.ParquetReader,
        source: pa.NativeFile,
        leaves: Sequence[int],
        dictionaries: Mapping[int, int],
        is_local: bool,
    ) -> _Others:
        coded = {leaf: size for leaf, size in dictionaries.items() if leaf in leaves}
        metadata = parquet.metadata
        reader = parquet
        if coded:
            reader = open_parquet(source, metadata=metadata, pre_buffer=not is_local, by_dictionary=coded)
        return cls(reader, leaves, {metadata.schema.column(leaf).name: size for leaf, size in coded.items()})

    def batches(
        self,
        group: int,
        rows: int,
        all_rows: int,
        *,
        use_threads: bool,
        places: npt.NDArray[np.int64] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Of a row group, with all its rows or those at these places; `Unfit` where a dictionary is not what its page
        says."""
        if not self.leaves:
            for start in range(0, all_rows, rows):
                yield _empty(min(rows, all_rows - start))
            return
        at = 0
        for batch in self.reader.iter_batches(rows, [group], column_indices=self.leaves, use_threads=use_threads):
            if not _has_sizes(batch, self.sizes):
                raise Unfit
            end = at + batch.num_rows
            some = batch
            if places is not None:
                first, last = np.searchsorted(places, (at, end))
                some = batch.take(pa.array(places[first:last] - at))
            at = end
            check_texts(some)
            yield _spelled_out(some)


def _empty(rows: int) -> pa.RecordBatch:
    """So many rows without columns."""
    return pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(pa.struct([]), rows, [None]))


def _with(batch: pa.RecordBatch, columns: Mapping[int, pa.Array], parquet: pq.ParquetReader) -> pa.RecordBatch:
    """The columns of both, in the order of the file."""
    if not columns:
        return batch
    names, schema = parquet.schema_arrow.names, parquet.metadata.schema
    together = dict(zip(batch.schema.names, batch.columns, strict=True))
    together |= {schema.column(leaf).name: column for leaf, column in columns.items()}
    ordered = sorted(together, key=names.index)
    return pa.RecordBatch.from_arrays([together[name] for name in ordered], names=ordered)


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
