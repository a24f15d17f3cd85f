"""Arrow's readers of Parquet, as data files are read with them: pages are held against their checksums, and rows go
into memory that is taken in small pages.

Arrow's usual allocator, mimalloc, asks Linux for huge pages. The kernel clears those as they are touched, twice as
many as the rows need, and on a virtual machine its host may have to find them first: the first 5M rows of a process
took 1.8 s of CPU so, where they take 0.7 s from jemalloc; those after them took 0.5 s from either. Who has chosen
another allocator for the process, or this one by name (`ARROW_DEFAULT_MEMORY_POOL`), has it here, too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def row_memory() -> pa.MemoryPool:
    """Where rows are put."""
    usual = pa.default_memory_pool()
    is_chosen = usual.backend_name != "mimalloc" or "ARROW_DEFAULT_MEMORY_POOL" in os.environ
    if is_chosen or sys.platform != "linux" or "jemalloc" not in pa.supported_memory_backends():
        return usual
    return pa.jemalloc_memory_pool()


def open_parquet(
    source: Any,
    *,
    metadata: pq.FileMetaData | None = None,
    pre_buffer: bool = False,
    by_dictionary: Collection[int] = (),
    buffer_size: int = 0,
) -> pq.ParquetReader:
    """The rows of a file, or of what stands for it. Leaf columns `by_dictionary` come as dictionary arrays. With a
    `buffer_size`, column chunks are read piece by piece, as rows are asked for, and not whole."""
    reader = pq.ParquetReader(memory_pool=row_memory())
    reader.open(
        source,
        metadata=metadata,
        pre_buffer=pre_buffer,
        buffer_size=buffer_size,
        read_dictionary=list(by_dictionary) or None,
        coerce_int96_timestamp_unit="us",
        page_checksum_verification=True,
        arrow_extensions_enabled=True,
    )
    return reader
