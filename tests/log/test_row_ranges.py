"""Some rows of a row group are what they are in the whole of it, whatever pages they are in."""

from __future__ import annotations

import decimal
import io
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeseal.log.row_ranges import rows_of
from lakeseal.protocol.parquet_footer import Footer

ROWS = 5_000
GROUP = 2_600


def rows() -> pa.Table:
    dice = random.Random(7)

    def some(values: list[Any], kind: pa.DataType) -> pa.Array:
        return pa.array([None if dice.random() < 0.1 else value for value in values], kind)

    numbers = list(range(ROWS))
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "holes": some(numbers, pa.int32()),
            "few": some([f"kind {n % 7}" for n in numbers], pa.string()),
            "text": some([f"{n:x}" * (n % 40) for n in numbers], pa.string()),
            "bytes": some([bytes([n % 256]) * (n % 9) for n in numbers], pa.binary()),
            "price": some([decimal.Decimal(n) / 100 for n in numbers], pa.decimal128(20, 2)),
            "at": some([1_700_000_000_000_000 + n for n in numbers], pa.timestamp("us", "UTC")),
            "yes": some([n % 3 == 0 for n in numbers], pa.bool_()),
            "nothing": pa.nulls(ROWS, pa.int64()),
            "wide": some(np.random.default_rng(3).random(ROWS).tolist(), pa.float64()),
        }
    )


WRITTEN: dict[str, dict[str, Any]] = {
    "as we write": {},
    "plain": {"use_dictionary": False},
    "second kind of page": {"data_page_version": "2.0"},
    "without compression": {"compression": "none"},
    "deltas": {
        "use_dictionary": False,
        "column_encoding": {"id": "DELTA_BINARY_PACKED", "text": "DELTA_BYTE_ARRAY", "few": "DELTA_LENGTH_BYTE_ARRAY"},
    },
    "a dictionary that becomes too large": {"dictionary_pagesize_limit": 4_000},
    "old times": {"use_deprecated_int96_timestamps": True},
    "without checksums": {"write_page_checksum": False},
}


@pytest.mark.parametrize("way", WRITTEN)
def test_they_are_those_of_the_whole_group(way: str) -> None:
    out = io.BytesIO()
    options = {"write_page_checksum": True, "compression": "zstd", **WRITTEN[way]}
    pq.write_table(rows(), out, row_group_size=GROUP, data_page_size=900, write_batch_size=64, **options)
    source = pa.BufferReader(out.getvalue())
    parquet = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
    footer = Footer(parquet.metadata, source)
    leaves = range(parquet.metadata.num_columns)
    dice = random.Random(way)
    for group in range(parquet.num_row_groups):
        whole = parquet.read_row_group(group)
        ends = [0, 1, whole.num_rows - 1, whole.num_rows, *(dice.randrange(whole.num_rows) for _ in range(12))]
        for first, last in zip(ends, dice.sample(ends, len(ends)), strict=True):
            asked = range(min(first, last), max(first, last))
            if asked:
                some = dice.sample(leaves, dice.randint(1, len(leaves)))
                found = rows_of(parquet, source, footer, group, some, asked, most=ROWS)
                assert found is not None
                names = [parquet.schema_arrow.names[leaf] for leaf in some]
                wanted = whole.select(names).slice(asked.start, len(asked))
                assert pa.Table.from_batches([found]).equals(wanted), (way, group, asked)


def test_nested_columns_are_left_to_who_reads_the_whole_group() -> None:
    out = io.BytesIO()
    pq.write_table(pa.table({"id": [1, 2], "list": [[1], [2, 3]], "struct": [{"a": 1}, {"a": 2}]}), out)
    source = pa.BufferReader(out.getvalue())
    parquet = pq.ParquetFile(source)
    footer = Footer(parquet.metadata, source)
    assert rows_of(parquet, source, footer, 0, [0], range(1, 2), most=9) is not None
    assert rows_of(parquet, source, footer, 0, [0, 1], range(1, 2), most=9) is None
    assert rows_of(parquet, source, footer, 0, [0, 2], range(1, 2), most=9) is None


def test_no_more_rows_are_decoded_than_may_be() -> None:
    out = io.BytesIO()
    pq.write_table(pa.table({"id": range(100)}), out)
    source = pa.BufferReader(out.getvalue())
    parquet = pq.ParquetFile(source)
    footer = Footer(parquet.metadata, source)
    found = rows_of(parquet, source, footer, 0, [0], range(40, 50), most=50)
    assert found is not None
    assert found.column(0).to_pylist() == list(range(40, 50))
    assert rows_of(parquet, source, footer, 0, [0], range(40, 51), most=50) is None


def test_long_pages_are_read_piece_by_piece() -> None:
    numbers = np.random.default_rng(5).integers(0, 2**60, 400_000)
    table = pa.table({"id": range(400_000), "wide": numbers, "text": pa.array(numbers).cast(pa.string())})
    out = io.BytesIO()
    pq.write_table(table, out, use_dictionary=False, data_page_size=2**18)
    source = pa.BufferReader(out.getvalue())
    parquet = pq.ParquetFile(source)
    footer = Footer(parquet.metadata, source)
    for asked in (range(0, 9), range(130_000, 290_000), range(399_990, 400_000)):
        found = rows_of(parquet, source, footer, 0, [0, 1, 2], asked, most=400_000)
        assert found is not None
        assert pa.Table.from_batches([found]).equals(table.slice(asked.start, len(asked)))


def test_of_a_damaged_file_they_are_what_the_whole_group_has_or_are_refused() -> None:
    out = io.BytesIO()
    pq.write_table(
        rows().slice(0, 500), out, data_page_size=900, write_batch_size=64, write_page_checksum=True, compression="none"
    )
    whole, dice = out.getvalue(), random.Random(21)
    for _ in range(150):
        data = bytearray(whole)
        data[dice.randrange(4, len(data) - 8)] ^= 1 << dice.randrange(8)
        source = pa.BufferReader(bytes(data))
        try:
            parquet = pq.ParquetFile(source, page_checksum_verification=True)
            footer = Footer(parquet.metadata, source)
            names = parquet.schema_arrow.names
            found = rows_of(parquet, source, footer, 0, range(len(names)), range(200, 260), most=500)
            right = parquet.read_row_group(0, columns=names).slice(200, 60)
        except (pa.ArrowException, OSError, UnicodeDecodeError):
            continue
        if found is not None:
            assert pa.Table.from_batches([found]).equals(right)
