"""One data file on its way to the store, whatever its format: rows go in, and it is there once it is closed.

`EncodedFile` is the one for formats that are written from front to back without a footer to keep; Parquet has its own.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from lakeseal.clock import now_ms
from lakeseal.files import csv_text, json_lines
from lakeseal.files.file_format import FileFormat
from lakeseal.files.orc_stripes import OrcEncoder
from lakeseal.files.uploads import FileSink
from lakeseal.protocol.schema import StructField

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_GZIP = 31


class NewDataFile(Protocol):
    """Ends by `close` or `abort`."""

    key: str
    rows: int
    modified_ms: int

    @property
    def size(self) -> int:
        """Bytes so far; those of the file once it is closed."""

    @property
    def checksum(self) -> str | None: ...

    def takes(self, rows: pa.Table) -> bool:
        """Whether these rows may go into this file; if not, they go into one that is begun with them."""

    def write(self, rows: pa.Table) -> None: ...

    def close(self) -> Any:
        """Gives the footer, if the format has one that statistics are made of."""

    def abort(self) -> None: ...


class _Encoder(Protocol):
    def write(self, rows: pa.Table) -> None: ...

    def close(self) -> None: ...


class EncodedFile:
    def __init__(self, sink: FileSink, columns: Sequence[StructField], format: FileFormat) -> None:
        self.key = sink.key
        self.rows = 0
        self.modified_ms = 0
        self._sink = sink
        self._encoder: _Encoder = (
            OrcEncoder(sink, columns, format.codec) if format.name == "orc" else _TextEncoder(sink, columns, format)
        )

    @property
    def size(self) -> int:
        return self._sink.size

    @property
    def checksum(self) -> str | None:
        return self._sink.checksum

    def takes(self, rows: pa.Table) -> bool:
        return True

    def write(self, rows: pa.Table) -> None:
        self._encoder.write(rows)
        self.rows += rows.num_rows

    def close(self) -> None:
        self._encoder.close()
        self.modified_ms = now_ms()
        self._sink.publish()

    def abort(self) -> None:
        self._sink.abort()


class _TextEncoder:
    def __init__(self, sink: FileSink, columns: Sequence[StructField], format: FileFormat) -> None:
        self._sink = sink
        self._columns = columns
        self._encoded = csv_text.encoded if format.name == "csv" else json_lines.encoded
        # Not the gzip module: its header has the time, and equal rows shall make equal files.
        self._deflate = zlib.compressobj(wbits=_GZIP) if format.codec == "gzip" else None
        if format.header:
            self._put(csv_text.header(columns))

    def write(self, rows: pa.Table) -> None:
        # Each piece costs a call per column, and rows may come in many small ones.
        for lines in self._encoded(rows.combine_chunks(), self._columns):
            self._put(lines)

    def close(self) -> None:
        if self._deflate is not None:
            self._sink.write(self._deflate.flush())

    def _put(self, data: ReadableBuffer) -> None:
        self._sink.write(data if self._deflate is None else self._deflate.compress(data))
