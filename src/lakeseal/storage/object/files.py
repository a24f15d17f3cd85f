"""Files over objects: what Parquet readers and writers hold while they read and write a bucket.

`ObjectReader` asks for ranges. It starts with the object's tail, where Parquet keeps its footer, so a small file takes
one request; reading on in order fetches ahead. `ObjectWriteStream` uploads parts while more is written.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING

from lakeseal.errors import InvalidArgument, LakesealError
from lakeseal.storage.streams import WriteStream

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from obstore import WritableFile

TAIL = 128 << 10
_AT_LEAST = 64 << 10
_AHEAD = 2 << 20


class ObjectReader(io.RawIOBase):
    def __init__(self, fetch: Callable[[int, int], bytes], size: int, tail: bytes) -> None:
        """`fetch(start, length)` reads a range of one version of the object; `tail` is its end."""
        super().__init__()
        self._fetch = fetch
        self._size = size
        self._tail = tail
        self._tail_start = size - len(tail)
        self._block = b""
        self._block_start = 0
        self._position = 0
        self._read_to = 0

    def read(self, size: int | None = -1, /) -> bytes:
        start = self._position
        end = self._size if size is None or size < 0 else min(start + size, self._size)
        if start >= end:
            return b""
        data = self._range(start, end)
        self._position = self._read_to = end
        return data

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        return self.read()

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise InvalidArgument(f"Cannot seek to {base + offset}")
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def _range(self, start: int, end: int) -> bytes:
        if start >= self._tail_start:
            return self._tail[start - self._tail_start : end - self._tail_start]
        if end > self._tail_start:
            return self._range(start, self._tail_start) + self._tail[: end - self._tail_start]
        offset = start - self._block_start
        if offset < 0 or end > self._block_start + len(self._block):
            wanted = max(end - start, _AHEAD if start == self._read_to else _AT_LEAST)
            self._block = self._fetch(start, min(wanted, self._tail_start - start))
            self._block_start, offset = start, 0
        return self._block[offset : offset + end - start]


class ObjectWriteStream(WriteStream):
    def __init__(self, key: str, writer: WritableFile, translate: Callable[[Exception], LakesealError]) -> None:
        super().__init__(key)
        self._writer = writer
        self._translate = translate

    def _append(self, data: memoryview) -> None:
        try:
            self._writer.write(data)
        except Exception as error:
            raise self._translate(error) from None

    def _publish(self) -> None:
        try:
            self._writer.close()
        except Exception as error:
            raise self._translate(error) from None

    def _discard(self) -> None:
        # The writer has no other way to take back the parts that it has uploaded.
        reason = InterruptedError("aborted")
        self._writer.__exit__(type(reason), reason, None)
