"""Structs out of JSON, safe for threads: `decode`, `convert` and `decoder` as msgspec has them.

msgspec learns a struct when it is first decoded, and two threads that make it learn the same one at the same time crash
the process (every release up to 0.22 that was tried). So a type is learned under a lock, once, before it is used. Types
without structs in them need none of this.
"""

from __future__ import annotations

import os
import threading
from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")

_learned: set[Any] = set()
_lock = threading.Lock()
# A child must neither find the lock held by a thread that it does not have, nor a type that was half learned.
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def learn(kind: Any) -> None:
    """Makes `kind`, and all that is in it, ready for any thread."""
    if kind not in _learned:
        with _lock:
            msgspec.json.Decoder(kind)
            _learned.add(kind)


@overload
def decode(data: bytes | bytearray | memoryview | str, kind: type[T]) -> T: ...
@overload
def decode(data: bytes | bytearray | memoryview | str, kind: Any) -> Any: ...
def decode(data: bytes | bytearray | memoryview | str, kind: Any) -> Any:
    learn(kind)
    return msgspec.json.decode(data, type=kind)


@overload
def convert(value: Any, kind: type[T]) -> T: ...
@overload
def convert(value: Any, kind: Any) -> Any: ...
def convert(value: Any, kind: Any) -> Any:
    learn(kind)
    return msgspec.convert(value, kind)


def decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    learn(kind)
    return msgspec.json.Decoder(kind)
