"""Files that are compressed as their names say. A stream that ends too early raises `OSError` without a number."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa

from lakeseal.errors import Unsupported

_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
_OTHERS = (".snappy", ".deflate", ".xz", ".zip")


def inflated(file: pa.NativeFile, name: str) -> Any:
    """The content of a file of this name."""
    suffix = PurePosixPath(name).suffix.lower()
    if suffix in _OTHERS:
        raise Unsupported(f"Files {suffix} cannot be read", file=name, hint=f"Compress them as {', '.join(_CODECS)}")
    codec = _CODECS.get(suffix)
    return file if codec is None else pa.CompressedInputStream(file, codec)
