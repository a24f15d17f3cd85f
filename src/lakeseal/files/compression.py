"""Files that are compressed as their names say. One that was cut off is a `BrokenDataFile`, never a shorter one."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa

from lakeseal.errors import BrokenDataFile, Unsupported

_CODECS = {".gz": "gzip", ".gzip": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
_OTHERS = (".snappy", ".deflate", ".xz", ".zip")


def inflated(file: pa.NativeFile, name: str) -> Any:
    """The content of a file of this name."""
    suffix = PurePosixPath(name).suffix.lower()
    if suffix in _OTHERS:
        raise Unsupported(f"Files {suffix} cannot be read", file=name, hint=f"Compress them as {', '.join(_CODECS)}")
    codec = _CODECS.get(suffix)
    return file if codec is None else _Inflated(file, codec, name)


class _Inflated:
    def __init__(self, file: pa.NativeFile, codec: str, name: str) -> None:
        self._stream = pa.CompressedInputStream(file, codec)
        self._codec, self._name = codec, name

    def read(self, size: int) -> bytes:
        try:
            data: bytes = self._stream.read(size)
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise BrokenDataFile(
                f"The file is not whole {self._codec}: {error}", file=self._name, hint="Mend or remove it"
            ) from error
        return data
