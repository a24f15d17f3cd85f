"""Values that are unpacked without Arrow's reader are those that it reads, and it has the word on all that is odd."""

from __future__ import annotations

import datetime
import decimal
import io
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeseal.log.decoded_size import joined
from lakeseal.log.parquet_reader import open_parquet
from lakeseal.log.plain_columns import plain_columns
from lakeseal.log.row_groups import batches_of, rows_at, texts_among
from lakeseal.protocol.parquet_footer import Footer

ROWS = 3_000
GROUP = 1_700


def plain() -> pa.Table:
    dice = np.random.default_rng(3)
    longs = dice.integers(-(2**63), 2**63, ROWS)
    doubles = dice.random(ROWS)
    doubles[::7], doubles[1::7], doubles[2::7] = -0.0, np.nan, -np.inf
    return pa.table(
        {
            "long": longs,
            "int": pa.array(longs % 2**31, pa.int32()),
            "double": doubles,
            "float": pa.array(doubles, pa.float32()),
            "date": pa.array(longs % 90_000, pa.int32()).cast(pa.date32()),
            "at": pa.array(longs, pa.timestamp("us", "UTC")),
            "local": pa.array(longs, pa.timestamp("us")),
            "text": pa.array([f"{n:08d}" for n in range(ROWS)]),
            "letters": pa.array([f"{n % 9}é{n:05d}" for n in range(ROWS)]),
            "never null": pa.array(longs),
        },
    )


def others() -> pa.Table:
    numbers = list(range(ROWS))
    return pa.table(
        {
            "some": pa.array([None if n == 2_345 else n for n in numbers], pa.int64()),
            "short": pa.array([n % 99 for n in numbers], pa.int8()),
            "unsigned": pa.array(numbers, pa.uint32()),
            "price": pa.array([decimal.Decimal(n) for n in numbers], pa.decimal128(9, 0)),
            "millis": pa.array(numbers, pa.timestamp("ms")),
            "nanos": pa.array(numbers, pa.timestamp("ns")),
            "yes": pa.array([n % 2 == 0 for n in numbers]),
            "time": pa.array(numbers, pa.time64("us")),
            "texts": pa.array(["x" * (n % 5) for n in numbers]),
            "bytes": pa.array([b"1234"] * ROWS),
            "struct": pa.array([{"a": n} for n in numbers]),
            "list": pa.array([[n] for n in numbers]),
        }
    )


def written(table: pa.Table, **options: Any) -> bytes:
    out = io.BytesIO()
    schema = pa.schema([f.with_nullable(f.name != "never null") for f in table.schema])
    options = {"use_dictionary": False, "write_page_checksum": True, "data_page_size": 900, **options}
    pq.write_table(table.cast(schema), out, row_group_size=GROUP, write_batch_size=64, **options)
    return out.getvalue()


def opened(data: bytes) -> tuple[pq.ParquetReader, pa.NativeFile, Footer]:
    source = pa.BufferReader(data)
    parquet = open_parquet(source)
    return parquet, source, Footer(parquet.metadata, source)


def read(data: bytes) -> pa.Table:
    """By batches, as a scan reads them."""
    parquet, source, footer = opened(data)
    leaves = range(parquet.metadata.num_columns)
    batches: list[pa.RecordBatch] = []
    for group in range(parquet.num_row_groups):
        found = plain_columns(footer, parquet.schema_arrow, source, group, leaves)
        arguments = {"rows": 777, "dictionaries": {}, "plain": found, "use_threads": False, "is_local": True}
        batches += batches_of(parquet, source, footer, group, leaves, **arguments)
    return pa.Table.from_batches(batches)


def same(found: pa.Table, wanted: pa.Table) -> bool:
    """To the last bit, so that zeros and NaN count."""
    return bits(found).equals(bits(wanted))


def bits(table: pa.Table) -> pa.Table:
    alike = {pa.float64(): pa.int64(), pa.float32(): pa.int32()}
    columns = [column.combine_chunks().view(alike.get(column.type, column.type)) for column in table.columns]
    return pa.table(columns, names=table.column_names)


WRITTEN: dict[str, dict[str, Any]] = {
    "as we write": {"compression": "snappy"},
    "without compression": {"compression": "none"},
    "without checksums": {"write_page_checksum": False},
    "large pages": {"data_page_size": 2**20},
}


@pytest.mark.parametrize("way", WRITTEN)
def test_they_are_what_arrow_reads_in_any_stretch_and_at_any_place(way: str) -> None:
    data = written(plain(), **WRITTEN[way])
    parquet, source, footer = opened(data)
    dice = random.Random(way)
    assert same(read(data), plain())
    for group in range(parquet.num_row_groups):
        whole = pq.ParquetFile(pa.BufferReader(data)).read_row_group(group)
        found = plain_columns(footer, parquet.schema_arrow, source, group, range(whole.num_columns))
        assert len(found) == whole.num_columns
        for _ in range(20):
            first, last = sorted(dice.sample(range(whole.num_rows + 1), 2))
            places = np.array(sorted(dice.sample(range(whole.num_rows), dice.randint(0, 300))), np.int64)
            for wanted, right in ((range(first, last), whole.slice(first, last - first)), (places, whole.take(places))):
                read_so = rows_at(
                    parquet, source, footer, group, list(found), wanted, rows=ROWS, dictionaries={}, plain=found
                )
                assert read_so is not None
                assert same(pa.Table.from_batches([read_so]), right.cast(read_so.schema)), (group, wanted)


def test_whatever_else_there_is_is_left_to_arrow() -> None:
    data = written(others())
    parquet, source, footer = opened(data)
    leaves = range(parquet.metadata.num_columns)
    for group, known in ((0, {"some", "bytes"} - {"bytes"}), (1, set())):
        found = plain_columns(footer, parquet.schema_arrow, source, group, leaves)
        assert {parquet.metadata.schema.column(leaf).name for leaf in found} == known
    assert read(data).equals(others())
    for way in (
        {"use_dictionary": True},
        {"data_page_version": "2.0"},
        {"compression": "gzip"},
        {"compression": "zstd"},
    ):
        parquet, source, footer = opened(written(plain().select(["text", "int"]), **way))
        assert not plain_columns(footer, parquet.schema_arrow, source, 0, [0, 1])


def test_places_are_found_in_columns_of_both_kinds() -> None:
    table = pa.concat_tables([plain().select(["long", "text"])])
    for name in others().column_names:
        table = table.append_column(name, others()[name])
    table = table.append_column("few", pa.array([f"kind {n % 7}" for n in range(ROWS)]))
    data = written(table, use_dictionary=["few"])
    parquet, source, footer = opened(data)
    leaves = range(parquet.metadata.num_columns)
    texts = texts_among(leaves, parquet.metadata, parquet.schema_arrow)
    found = plain_columns(footer, parquet.schema_arrow, source, 0, leaves)
    places = np.array([0, 5, 776, 777, 1_500, 1_699], np.int64)
    for dictionaries in ({}, {max(texts): 7}):
        some = rows_at(parquet, source, footer, 0, leaves, places, rows=777, dictionaries=dictionaries, plain=found)
        assert some is not None
        assert pa.Table.from_batches([some]).equals(table.take(places))


def test_nulls_that_no_statistics_tell_of_are_nulls() -> None:
    numbers = [None if n == 1_500 else n for n in range(ROWS)]
    table = pa.table({"a": numbers, "b": range(ROWS)})
    data = written(table, write_statistics=False)
    parquet, source, footer = opened(data)
    found = plain_columns(footer, parquet.schema_arrow, source, 0, [0, 1])
    assert list(found) == [0, 1] or list(found) == [1]
    assert read(data).equals(table)


def test_texts_that_are_none_are_refused() -> None:
    good = written(pa.table({"s": [f"{n:04d}é" for n in range(100)]}), compression="none", write_page_checksum=False)
    assert read(good)["s"][7].as_py() == "0007é"
    data = bytearray(good)
    data[data.index("0007é".encode()) + 4] = ord("x")
    with pytest.raises(pa.ArrowInvalid):
        read(bytes(data))


def test_a_text_of_another_length_is_read_as_it_is() -> None:
    good = written(pa.table({"s": ["abcd"] * 50}), compression="none", write_page_checksum=False)
    data = bytearray(good)
    at = data.index(b"\4\0\0\0abcd" * 2)
    data[at : at + 16] = b"\1\0\0\0a" + b"\7\0\0\0bcdefgh"
    assert read(bytes(data))["s"].to_pylist() == ["a", "bcdefgh", *["abcd"] * 48]


def test_batches_can_be_joined_where_arrow_takes_over_half_way() -> None:
    texts = ["abcd"] * 1_000 + ["a", "bcdefgh"] + ["abcd"] * 500  # pages are as long as if all texts had one length
    table = pa.table({"s": texts, "never null": range(len(texts))})
    data = written(table)
    parquet, source, footer = opened(data)
    found = plain_columns(footer, parquet.schema_arrow, source, 0, [0])
    arguments = {"rows": 200, "dictionaries": {}, "plain": found, "use_threads": False, "is_local": True}
    batches = joined(batches_of(parquet, source, footer, 0, [0, 1], **arguments), rows=ROWS, limit=2**24)
    assert list(found) == [0]
    assert pa.Table.from_batches(batches).to_pydict() == table.to_pydict()


def test_of_a_damaged_file_they_are_what_arrow_reads_or_are_refused() -> None:
    dice, table = random.Random(9), plain().slice(0, 300).select(["long", "text", "never null"])
    whole, read_right = written(table, compression="none"), 0
    for _ in range(300):
        data = bytearray(whole)
        data[dice.randrange(4, len(data) - 8)] ^= 1 << dice.randrange(8)
        try:
            found = read(bytes(data))
        except (pa.ArrowException, OSError, UnicodeDecodeError, ValueError):
            continue
        right = pq.ParquetFile(pa.BufferReader(bytes(data)), page_checksum_verification=True).read()
        assert found.columns == right.columns
        read_right += 1
    assert 0 < read_right < 300


def test_moments_are_not_taken_for_those_of_another_unit() -> None:
    day = datetime.datetime(2024, 3, 1, 12)
    table = pa.table({"at": pa.array([day] * 9, pa.timestamp("us"))})
    data = written(table, coerce_timestamps="ms")
    assert read(data)["at"].cast(pa.timestamp("us")).to_pylist() == [day] * 9
