"""The seam of storage: bytes at keys.

A `Store` is rooted at a URI and knows nothing of tables. What a caller may rely on, on every implementation:

- Keys are `/`-separated, relative to the root, and stand for themselves: a key with `%`, `=`, blank, `#`, `?`, `:` or
  any Unicode letter names exactly that object, neither decoded nor encoded a second time. A key that would leave the
  root (`..`, a leading `/`, an empty segment, NUL) raises `UnsafePath`.
- A reader sees an object whole or not at all.
- `put_if_absent` has exactly one winner among any number of threads, processes and machines. When it returns True the
  object is durable (on local disk: file and directory entry are fsynced). When the outcome is not known (a lost reply)
  it raises `StorageUnavailable`; it never guesses.
- `list` is in ascending key order (by UTF-8 bytes), and after a write sees that write.
- `delete` of an absent key is fine.
- What the store reports becomes `ObjectNotFound`, `PermissionDenied`, `OutOfSpace` or `StorageUnavailable`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO, Protocol

import pyarrow as pa
from msgspec import Struct


class ObjectMeta(Struct, frozen=True, kw_only=True):
    key: str
    size: int
    modified_ms: int
    """Milliseconds since the epoch."""


class Store(Protocol):
    @property
    def uri(self) -> str:
        """The root, normalised and without secrets; what errors and logs show."""

    def get(self, key: str) -> bytes: ...

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """`length` bytes from `start`; fewer only at the end of the object."""

    def get_many(self, keys: Sequence[str]) -> list[bytes]:
        """All of them, fetched side by side, in the order asked for."""

    def head(self, key: str) -> ObjectMeta: ...

    def list(self, prefix: str = "", *, after: str | None = None, recursive: bool = False) -> Iterator[ObjectMeta]:
        """Objects directly in the directory `prefix` ("" or ending in "/"), or anywhere below it when `recursive`,
        with keys greater than `after`."""

    def list_keys(self, prefix: str = "", *, after: str | None = None) -> list[str]:
        """As `list` without recursion, but names only: where a store can list without asking for sizes, this is cheap."""

    def put(self, key: str, data: bytes) -> None: ...

    def put_if_absent(self, key: str, data: bytes) -> bool: ...

    def delete(self, keys: Iterable[str]) -> None: ...

    def open_read(self, key: str) -> pa.NativeFile:
        """Random access for Parquet readers."""

    def open_write(self, key: str) -> BinaryIO:
        """A stream for large new objects. The object appears when it is closed without error, durable; leaving its
        `with` block by an exception, or calling `abort()`, leaves no object."""
