"""Which tables a service works on: names are checked before anything is touched.

A table has one name: the normal form of its URI. Another spelling is refused rather than understood, because two names
would be two tables in the ledger. On local disk the path must be real: a symbolic link on the way could lead out of the
roots, or give a table a second name. With roots, only what is at or below one of them is served, segment by segment.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence

from lakeseal.errors import InvalidUri, LakesealError, NotAllowed
from lakeseal.owner.messages import MOST_NAME_BYTES
from lakeseal.storage import Store, is_below, open_store, prefix_of
from lakeseal.storage.location import Location, parse

KEPT_S = 5.0
_DOTS = (".", "..")
_MOST_KNOWN = 10_000
_LONGEST_KNOWN = 512


class ServedPlaces:
    def __init__(self, roots: Sequence[str], storage_options: Mapping[str, str] | None = None) -> None:
        """`storage_options` are for object stores."""
        self.roots = tuple(_real_root(root) for root in roots)
        self._options = dict(storage_options or {})
        self._known: dict[str, Location] = {}
        self._seen: dict[str, float] = {}
        """When tables were last found to be in their places."""

    def check_name(self, table: str) -> None:
        """By its text alone."""
        self._location(table)

    def check(self, table: str) -> None:
        """And by what is there now."""
        location = self._location(table)
        if location.kind == "file" and not _is_real(location.path):
            raise NotAllowed(
                "The path of the table goes through a symbolic link",
                table=table,
                hint="Name the table by its real path",
            )
        if len(self._seen) >= _MOST_KNOWN:
            self._seen.clear()
        if len(table) <= _LONGEST_KNOWN:
            self._seen[table] = time.monotonic()

    def was_checked(self, table: str) -> bool:
        """Less than `KEPT_S` ago, so that the disk, which may take its time, need not be asked."""
        seen = self._seen.get(table)
        return seen is not None and time.monotonic() - seen < KEPT_S

    def has(self, uri: str) -> bool:
        """Whether something there is to be shown, too."""
        try:
            self.check(uri)
        except LakesealError:
            return False
        return True

    def open(self, table: str) -> Store:
        """For the owner's own work, which may find a table in its ledger that is not to be served here."""
        self.check(table)
        return open_store(table, None if parse(table).kind == "file" else self._options)

    def _location(self, table: str) -> Location:
        found = self._known.get(table)
        if found is None:
            found = self._checked(table)
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            if len(table) <= _LONGEST_KNOWN:
                self._known[table] = found
        return found

    def _checked(self, table: str) -> Location:
        if len(table) > MOST_NAME_BYTES or len(table.encode("utf-8", "replace")) > MOST_NAME_BYTES:
            raise InvalidUri(f"A table's name has at most {MOST_NAME_BYTES:,} bytes")
        location = parse(table)
        if location.kind == "memory":
            raise InvalidUri("A table in the memory of another process cannot be served", table=table)
        if any(segment in _DOTS for segment in table.split("/")) or location.uri != table:
            # What a relative path would mean here is nobody's business.
            hint = f"Name it {location.uri}" if "://" in table else "Name it by an absolute URI, such as file:///data/t"
            raise InvalidUri("The table is not named by the normal form of its URI", table=table, hint=hint)
        if location.path in ("", "/"):
            raise InvalidUri("A whole disk or bucket is not a table", table=table, hint="Name a directory in it")
        if self.roots and not any(is_below(table, root) for root in self.roots):
            raise NotAllowed(
                "The service does not work on tables in this place", table=table, hint="See --root of lakeseal serve"
            )
        return location


def _is_real(path: str) -> bool:
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (OSError, AttributeError):
        return os.path.realpath(path) == path
    try:
        # The kernel knows where the path has led, and tells in one step what would be one for each segment.
        return os.readlink(f"/proc/self/fd/{opened}") == path or os.path.realpath(path) == path
    except OSError:
        return os.path.realpath(path) == path
    finally:
        os.close(opened)


def _real_root(text: str) -> str:
    root = prefix_of(text)
    location = parse(root) if root else None
    if location is not None and location.kind == "file":
        return parse(os.path.realpath(location.path)).uri.rstrip("/")
    return root
