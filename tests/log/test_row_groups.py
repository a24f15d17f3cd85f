"""Rows of a row group are what Arrow's own reader gives, however their texts are stored."""

from __future__ import annotations

import io
import random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeseal.log.decoded_size import Fitting, fitting_rows
from lakeseal.log.parquet_reader import open_parquet, row_memory
from lakeseal.log.plain_columns import plain_columns
from lakeseal.log.row_groups import batches_of, texts_among
from lakeseal.protocol.parquet_footer import Footer

WRITTEN: dict[str, dict[str, Any]] = {
    "as we write": {"compression": "snappy"},
    "plain": {"use_dictionary": False},
    "second kind of page": {"data_page_version": "2.0"},
    "without compression": {"compression": "none"},
    "a dictionary that becomes too large": {"dictionary_pagesize_limit": 4_000},
    "without Arrow's schema": {"store_schema": False},
}


def rows(count: int = 3_000) -> pa.Table:
    dice = random.Random(11)
    few = [None if dice.random() < 0.1 else f"kind {dice.randrange(7)} é" for _ in range(count)]
    many = [f"{dice.randrange(2_000)}" * dice.randrange(9) for _ in range(count)]
    return pa.table(
        {
            "id": range(count),
            "few": few,
            "many": many,
            "late": [None] * (count - 50) + ["x", "y"] * 25,
            "nothing": pa.nulls(count, pa.string()),
            "never null": pa.array(["a", "bb"] * (count // 2)),
            "large": pa.array(few, pa.large_string()),
            "bytes": pa.array([text.encode() for text in many]),
            "a.b": few,
            "a": [{"b": text, "c": text} for text in few],
            "list": [[text, "z"] for text in few],
        }
    )


def read(data: bytes, group: int = 0, most: int = 1_000) -> tuple[pa.Table, Fitting]:
    source = pa.BufferReader(data)
    parquet = open_parquet(source)
    footer = Footer(parquet.metadata, source)
    leaves = range(parquet.metadata.num_columns)
    limit = 2**16
    fitting = fitting_rows(footer, source, group, leaves, rows=most, limit=limit, page_limit=2**24, is_local=True)
    texts = texts_among(leaves, parquet.metadata, parquet.schema_arrow)
    batches = batches_of(
        parquet,
        source,
        footer,
        group,
        leaves,
        rows=fitting.rows,
        dictionaries={leaf: size for leaf, size in fitting.dictionaries.items() if leaf in texts},
        plain=plain_columns(footer, parquet.schema_arrow, source, group, leaves),
        use_threads=False,
        is_local=True,
    )
    return pa.Table.from_batches(batches), fitting


@pytest.mark.parametrize("way", WRITTEN)
def test_they_are_what_arrow_reads(way: str) -> None:
    out = io.BytesIO()
    table = rows()
    pq.write_table(table, out, row_group_size=1_700, data_page_size=500, write_batch_size=64, **WRITTEN[way])
    whole = pq.ParquetFile(pa.BufferReader(out.getvalue()))
    for group in range(whole.num_row_groups):
        found, fitting = read(out.getvalue(), group)
        assert found.equals(whole.read_row_group(group))
        assert bool(fitting.dictionaries) == (way != "plain")
        assert 0 < fitting.rows < found.num_rows


def test_texts_that_begin_with_nulls_alone_are_read() -> None:
    out = io.BytesIO()
    table = pa.table({"s": [None] * 5_000 + ["x", None, "y"] * 1_000})
    pq.write_table(table, out, write_batch_size=64, data_page_size=64)
    assert read(out.getvalue())[0].equals(table)


THREE = ["aa"] * 64 + ["ab"] * 64 + ["ac"] * 64


def of_three_values() -> bytearray:
    out = io.BytesIO()
    pq.write_table(pa.table({"s": THREE}), out, compression="none", store_schema=False)
    return bytearray(out.getvalue())


def test_a_dictionary_with_a_value_twice_moves_none_behind_it() -> None:
    data = of_three_values()
    assert read(bytes(data))[0]["s"].to_pylist() == THREE
    second = data.index(b"\2\0\0\0ab") + 4
    data[second : second + 2] = b"aa"
    assert read(bytes(data))[0]["s"].to_pylist() == [text.replace("ab", "aa") for text in THREE]


def test_a_place_that_the_dictionary_has_not_is_refused() -> None:
    data = of_three_values()
    run_of_64 = b"\x80\1"
    last = data.index(run_of_64 + b"\2") + 2
    data[last] = 3
    with pytest.raises(pa.ArrowException):
        read(bytes(data))


def test_bytes_in_a_dictionary_that_are_no_text_are_refused() -> None:
    data = of_three_values()
    second = data.index(b"\2\0\0\0ab") + 4
    data[second] = 0xFF
    with pytest.raises(pa.ArrowInvalid):
        read(bytes(data))


def test_whoever_chose_an_allocator_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", pa.default_memory_pool().backend_name)
    assert row_memory().backend_name == pa.default_memory_pool().backend_name


def test_of_a_damaged_file_they_are_what_arrow_reads_or_are_refused() -> None:
    dice, table = random.Random(5), rows(400).select(["few", "late", "never null"])
    for _ in range(200):
        out = io.BytesIO()
        pq.write_table(table, out, data_page_size=300, write_batch_size=64, compression="none")
        data = bytearray(out.getvalue())
        data[dice.randrange(4, len(data) - 8)] ^= 1 << dice.randrange(8)
        try:
            found = read(bytes(data), most=100)[0]
        except (pa.ArrowException, OSError, UnicodeDecodeError, ValueError):
            continue
        assert found.equals(pq.ParquetFile(pa.BufferReader(bytes(data))).read_row_group(0))
