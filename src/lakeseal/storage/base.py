"""The seam of storage: bytes at keys.

A `Store` is rooted at a URI and knows nothing of tables. What a caller may rely on, on every implementation:

- Keys are `/`-separated, relative to the root, and stand for themselves: a key with `%`, `=`, blank, `#`, `?`, `:` or
  any Unicode letter names exactly that object, neither decoded, encoded a second time nor normalised. A key that would
  leave the root (`.`, `..`, a leading or trailing `/`, an empty segment, NUL) raises `UnsafePath`, and so does one with
  control characters, which not every store could hold.
- A reader sees an object whole or not at all.
- `put_if_absent` has exactly one winner among any number of threads, processes and machines. True means that the
  object is ours and durable (on local disk: file and directory entry are fsynced). False means that an object is there
  and that ours was not written. When the outcome is not known (a lost reply) it raises `StorageUnavailable`; it never
  guesses, and never repeats a request whose first try may have won.
- `put` replaces an object in one step. `put`, `delete` and closing a stream are durable when they return.
- `list` is in ascending key order (by UTF-8 bytes), and after a write sees that write. A directory that is not there is
  empty. Files of others whose names cannot be keys are passed over on local disk; in an object store they are an error.
- `delete` of an absent key is fine.
- What the store reports becomes `ObjectNotFound`, `PermissionDenied`, `OutOfSpace` or `StorageUnavailable`, and
  `StorageError` for the rest. No error, and no `repr`, shows a secret.
- Stores may be shared by threads. They are not pickled: a `StoreSpec` is, and opens them where they are used. A process
  forked after an object store was opened cannot use object stores, and is told so.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, runtime_checkable

import pyarrow as pa
from msgspec import Struct

from lakeseal.storage.streams import WriteStream


class ObjectMeta(Struct, frozen=True, kw_only=True):
    key: str
    size: int
    modified_ms: int
    """Milliseconds since the epoch."""


class NewObject(Struct, frozen=True, kw_only=True):
    key: str
    data: bytes
    modified_ms: int | None = None
    """What clients see as its time, in stores that keep one; None for that of now."""


class Store(Protocol):
    @property
    def uri(self) -> str:
        """The root, normalised and without secrets; what errors and logs show. `open_store` accepts it."""

    def get(self, key: str) -> bytes: ...

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """`length` bytes from `start`; fewer only at the end of the object, and none at or beyond it."""

    def get_ranges(self, key: str, spans: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        """Several (start, length) of one object, each as `get_range`, fetched side by side, in the order asked for."""

    def get_many(self, keys: Sequence[str]) -> builtins.list[bytes]:
        """All of them, fetched side by side, in the order asked for."""

    def head(self, key: str) -> ObjectMeta: ...

    def list(self, prefix: str = "", *, after: str | None = None, recursive: bool = False) -> Iterator[ObjectMeta]:
        """Objects directly in the directory `prefix` ("" or ending in "/"), or anywhere below it when `recursive`,
        with keys greater than `after`."""

    def list_keys(self, prefix: str = "", *, after: str | None = None) -> builtins.list[str]:
        """As `list` without recursion, but names only: cheap where a store can list without asking for sizes."""

    def put(self, key: str, data: bytes) -> None: ...

    def put_if_absent(self, key: str, data: bytes) -> bool: ...

    def delete(self, keys: Iterable[str]) -> None: ...

    def open_read(self, key: str) -> pa.NativeFile:
        """Random access for Parquet readers."""

    def open_write(self, key: str) -> WriteStream:
        """A stream for large new objects. The object appears when it is closed without error, durable; leaving its
        `with` block by an exception, or calling `abort()`, leaves no object."""


@runtime_checkable
class MovesObjects(Protocol):
    """A store that can move objects by itself, without their bytes passing through this process."""

    def move(self, pairs: Sequence[tuple[str, str]], to: Store) -> builtins.list[tuple[str, str]]:
        """Objects from keys here to keys in `to`; answers with the pairs that it can't move by itself.

        Each target is replaced in one step. All targets are durable when it returns, and on object stores before the
        first source is deleted. After an error any part of it may have happened."""


@runtime_checkable
class SyncsObjects(Protocol):
    """A store in which an object that somebody else is putting can be seen before it is durable."""

    def sync(self, key: str) -> None:
        """The object is durable then, whoever put it."""


@runtime_checkable
class KeepsTimes(Protocol):
    """A store that can be told when an object was made."""

    def set_time(self, key: str, modified_ms: int) -> None: ...


@runtime_checkable
class HasDirectories(Protocol):
    """A store in which directories stay when the last object in them is deleted."""

    def is_there(self) -> bool:
        """Whether the root and the directory that it is in are: a mount that is away takes one of them along."""

    def has_directory(self, prefix: str) -> bool: ...

    def has_files(self, prefix: str) -> bool:
        """Whether there is a file in the directory itself."""

    def prune(self, prefix: str) -> None:
        """Removes directories without objects, at and below `prefix`, which nobody writes to any more. When it returns,
        that is durable, and so is whatever was moved out of those that stay."""
