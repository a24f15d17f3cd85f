"""What a footer says is known without asking Arrow for what would end the process."""

from __future__ import annotations

import io
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeseal.protocol.parquet_footer import Footer, each_page, pages_of

ROWS = {
    "x": list(range(100)),
    "s": [f"t{n}" for n in range(100)],
    "l": [[n, None] for n in range(100)],
    "st": [{"a": n, "b": "x"} for n in range(100)],
    "d": pa.array(range(100)).cast(pa.decimal128(30, 2)),
}


def written(**options: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table(ROWS), out, row_group_size=60, **options)
    return out.getvalue()


def footer_of(data: bytes) -> tuple[Footer, pq.FileMetaData]:
    metadata = pq.ParquetFile(pa.BufferReader(data)).metadata
    return Footer(metadata, pa.BufferReader(data)), metadata


@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "none"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_it_says_what_arrow_says_of_a_file_that_is_whole(codec: str, version: Any) -> None:
    data = written(compression=codec, data_page_version=version)
    footer, metadata = footer_of(data)
    assert footer.rows == [60, 40]
    for number, chunks in enumerate(footer.groups):
        for place, chunk in enumerate(chunks):
            theirs = metadata.row_group(number).column(place)
            assert (chunk.codec, chunk.values) == (theirs.compression, theirs.num_values)
            assert chunk.compressed == theirs.total_compressed_size
            assert chunk.nulls == theirs.statistics.null_count
            starts = [theirs.data_page_offset, theirs.dictionary_page_offset]
            assert chunk.start == min(start for start in starts if start)
            assert chunk.has_whole_bounds
            seen = each_page(chunk, lambda length, at: data[at : at + length])
            assert seen is not None
            pages = pages_of(seen)
            headers = 200
            assert pages.dictionary + pages.plain <= theirs.total_uncompressed_size
            assert pages.dictionary + pages.plain >= theirs.total_uncompressed_size - headers


def test_pages_are_followed_in_small_reads_and_large_ones() -> None:
    out = io.BytesIO()
    texts = [f"{n:08d}" * 40 for n in range(5_000)]
    pq.write_table(pa.table({"x": texts}), out, use_dictionary=False, data_page_size=2_000, compression="none")
    data = out.getvalue()
    footer, _ = footer_of(data)
    asked: list[int] = []

    def read(length: int, at: int) -> bytes:
        asked.append(length)
        return data[at : at + length]

    seen = each_page(footer.groups[0][0], read)
    assert seen is not None
    pages = pages_of(seen)
    assert sum(len(text) + 4 for text in texts) <= pages.plain < len(data)
    assert max(asked) <= 2**16
    assert len(asked) < len(data) // 2**15


DAMAGED = """
import io, random, sys
import pyarrow as pa, pyarrow.parquet as pq
from lakeseal.protocol.parquet_footer import Footer
whole = sys.stdin.buffer.read()
size = int.from_bytes(whole[-8:-4], "little")
dice, refused = random.Random(int(sys.argv[1])), 0
for _ in range(2500):
    data = bytearray(whole)
    for _ in range(dice.choice((1, 1, 2, 3))):
        data[dice.randrange(len(data) - 8 - size, len(data) - 8)] = dice.randrange(256)
    try:
        metadata = pq.ParquetFile(pa.BufferReader(bytes(data))).metadata
        Footer(metadata, pa.BufferReader(bytes(data))).check_bounds()
    except (pa.ArrowException, OSError):
        refused += 1
        continue
    except UnicodeDecodeError:
        continue
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for place in range(group.num_columns):
            chunk = group.column(place)
            try:
                chunk.compression, chunk.physical_type, chunk.path_in_schema, chunk.statistics and chunk.statistics.min
            except (ValueError, ArithmeticError, UnicodeDecodeError, pa.ArrowException, NotImplementedError, OSError):
                pass
print(refused)
"""


@pytest.mark.field_bug("S5")
@pytest.mark.parametrize("seed", range(2))
def test_a_damaged_footer_is_an_error_and_not_the_end_of_the_process(seed: int) -> None:
    """In a process of its own: what it must not do would take the tests with it."""
    ran = subprocess.run([sys.executable, "-c", DAMAGED, str(seed)], input=written(), capture_output=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert int(ran.stdout) > 1_000
