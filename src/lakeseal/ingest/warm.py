"""Getting ready for threads.

msgspec learns a type when it first decodes it, and two threads that teach it the same type at once crash the process
(seen with 0.22). So everything of ours that may be decoded is learned by one thread, once, before others start.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress

import msgspec
from msgspec import Struct

_lock = threading.Lock()
_learned: set[type[Struct]] = set()


def warm_up() -> None:
    """For the types of all modules that are loaded now; cheap when it was done before."""
    with _lock:
        for kind in set(_kinds(Struct)) - _learned:
            if kind.__module__.startswith("lakeseal."):
                with suppress(TypeError, NameError):  # types that are never decoded
                    msgspec.json.Decoder(kind)
            _learned.add(kind)


def _kinds(root: type[Struct]) -> Iterator[type[Struct]]:
    for kind in root.__subclasses__():
        yield kind
        yield from _kinds(kind)
