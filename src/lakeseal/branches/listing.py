"""`Listing`: keys that were listed, from which those that are needed are taken out.

They are in a temporary file of SQLite's, of which a few megabytes are in memory at a time, however many keys there are.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from enum import IntEnum

from lakeseal.branches.paths import end_of

_MEMORY_KB = 8 << 10
_BATCH = 1_000


class Kind(IntEnum):
    """In the order in which they are removed: what is left is never something that leads to what is gone."""

    COMMIT = 0
    PACK = 1
    OBJECT = 2


class Listing(AbstractContextManager["Listing"]):
    def __init__(self) -> None:
        self._file = sqlite3.connect("", isolation_level=None)
        for setting in (f"cache_size = -{_MEMORY_KB}", "journal_mode = OFF", "synchronous = OFF"):
            self._file.execute(f"PRAGMA {setting}")
        self._file.execute(
            "CREATE TABLE keys (kind INTEGER, key TEXT, size INTEGER, PRIMARY KEY (kind, key)) WITHOUT ROWID"
        )
        self._file.execute("BEGIN")

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, kind: Kind, keys: Iterable[tuple[str, int]]) -> None:
        """Keys with the sizes of their objects."""
        self._file.executemany("INSERT OR REPLACE INTO keys VALUES (?, ?, ?)", ((kind, *key) for key in keys))

    def take_out(self, kind: Kind, keys: Iterable[str]) -> None:
        self._file.executemany("DELETE FROM keys WHERE kind = ? AND key = ?", ((kind, key) for key in keys))

    def take_out_below(self, kind: Kind, directory: str) -> int:
        """All keys in a directory, and how many they were."""
        within = (kind, directory, end_of(directory))
        return self._file.execute("DELETE FROM keys WHERE kind = ? AND key >= ? AND key < ?", within).rowcount

    def size(self, kind: Kind, key: str) -> int:
        """0 for what is not there, or was taken out."""
        found = self._file.execute("SELECT size FROM keys WHERE kind = ? AND key = ?", (kind, key)).fetchone()
        return int(found[0]) if found else 0

    def count(self, kind: Kind) -> int:
        return self._total("count(*)", kind)

    def bytes(self, kind: Kind) -> int:
        return self._total("coalesce(sum(size), 0)", kind)

    def some(self, count: int) -> tuple[str, ...]:
        """The first of the commits and objects, for people."""
        found = self._file.execute(
            "SELECT key FROM keys WHERE kind IN (?, ?) ORDER BY key LIMIT ?", (Kind.COMMIT, Kind.OBJECT, count)
        )
        return tuple(key for (key,) in found)

    def batches(self, kind: Kind) -> Iterator[Sequence[str]]:
        last = ""
        while True:
            found = self._file.execute(
                "SELECT key FROM keys WHERE kind = ? AND key > ? ORDER BY key LIMIT ?", (kind, last, _BATCH)
            )
            keys = [key for (key,) in found]
            if not keys:
                return
            yield keys
            last = keys[-1]

    def _total(self, what: str, kind: Kind) -> int:
        (total,) = self._file.execute(f"SELECT {what} FROM keys WHERE kind = ?", (kind,)).fetchone()  # noqa: S608
        return int(total)
