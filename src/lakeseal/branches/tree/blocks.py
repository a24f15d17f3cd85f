"""Blocks of trees and the files that they lie in.

All that one commit or merge adds to a repository is one file, written once: the ranges it made, the nodes, the root,
and at the end the commit's record (see `history`). Who needs a block asks for that part of the file. A request costs
more than some bytes, so what lies close together is read at once, and what is around a single block, or at the end of
a file, is read along and kept for a while.

A file's name is a random id of the operation that writes it. Nobody else ever writes that name, so garbage that is
being removed is never taken for somebody's new file. Beyond `LARGEST` bytes more files follow, with numbers; they are
there before the commit is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from msgspec import Struct

from lakeseal.branches.paths import META
from lakeseal.branches.tree.lru_cache import LruCache
from lakeseal.errors import BrokenTree, ObjectNotFound
from lakeseal.storage import Store

COMMITS = f"{META}commits/"
PACKS = f"{META}packs/"

WHOLE = b"LSC2"
SHORTENED = b"LSC0"
"""The last bytes of a commit's file: with the blocks of its tree, or without."""

LARGEST = 32 << 20
_TAIL = 128 << 10
_GAP = 128 << 10
"""So many bytes in between are read along."""
_AROUND = 512 << 10
"""So many are read before and after a single block."""
_AT_ONCE = 16 << 20
_KEPT_BYTES = 16 << 20


class BlockPlace(Struct, frozen=True, kw_only=True, gc=False):
    file: str
    start: int
    length: int


def key_of(file: str) -> str:
    return f"{PACKS}{file}" if "." in file else f"{COMMITS}{file}.commit"


class Blocks:
    """May be shared by threads."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._tails: LruCache[str, tuple[int, bytes]] = LruCache(_KEPT_BYTES, lambda tail: len(tail[1]))
        self._windows: LruCache[str, tuple[int, bytes]] = LruCache(_KEPT_BYTES, lambda window: len(window[1]))
        self._unwritten: dict[str, bytearray] = {}

    def root(self, place: BlockPlace) -> bytes:
        """The root of a tree, which is read with the end of its file."""
        if place.file in self._unwritten:
            return self.get([place])[0]
        try:
            _, tail = self.tail(place.file, place)
        except ObjectNotFound as error:
            raise _missing(error) from error
        if tail.endswith(SHORTENED):
            given_up = ObjectNotFound("it was given up with old history", file=key_of(place.file))
            raise _missing(given_up) from given_up
        return self.get([place])[0]

    def tail(self, file: str, near_the_end: BlockPlace | None = None) -> tuple[int, bytes]:
        """The end of a file, and where it begins. Who knows a place near to it gets more."""
        found = self._tails.get(file)
        if found is None and near_the_end is not None:
            start, stop = _around(near_the_end.start, near_the_end.start + near_the_end.length)
            (data,) = self.store.get_ranges(key_of(file), [(start, stop - start)])
            found = (start, data) if len(data) < stop - start else None
        if found is None:
            with self.store.open_read(key_of(file)) as reader:
                start = max(0, reader.size() - _TAIL)
                reader.seek(start)
                found = start, reader.read()
        self._tails.put(file, found)
        return found

    def get(self, places: Sequence[BlockPlace]) -> list[bytes]:
        found: dict[BlockPlace, bytes] = {}
        missing: dict[str, list[BlockPlace]] = defaultdict(list)
        for place in places:
            data = self._at_hand(place)
            if data is None:
                missing[place.file].append(place)
            else:
                found[place] = data
        for file, wanted in missing.items():
            found |= self._read(file, sorted(wanted, key=lambda place: place.start))
        for place, data in found.items():
            if len(data) < place.length:
                error = ObjectNotFound("it ends before what is looked for", file=key_of(place.file))
                raise _missing(error) from error
        return [found[place] for place in places]

    def hold(self, file: str, body: bytearray) -> None:
        """What is being written is read from memory, until it is dropped."""
        self._unwritten[file] = body

    def drop(self, file: str) -> None:
        self._unwritten.pop(file, None)

    def forget(self) -> None:
        self._tails.clear()
        self._windows.clear()

    def _at_hand(self, place: BlockPlace) -> bytes | None:
        body = self._unwritten.get(place.file)
        if body is not None:
            return bytes(memoryview(body)[place.start : place.start + place.length])
        kept = (self._tails.get(place.file), self._windows.get(place.file))
        for start, data in (one for one in kept if one is not None):
            at = place.start - start
            if at >= 0 and at + place.length <= len(data):
                return data[at : at + place.length]
        return None

    def _read(self, file: str, wanted: list[BlockPlace]) -> dict[BlockPlace, bytes]:
        spans = _spans(wanted)
        is_alone = len(spans) == 1 and spans[0][1] - spans[0][0] < _AROUND
        if is_alone:
            spans = [_around(*spans[0])]
        try:
            blobs = self.store.get_ranges(key_of(file), [(start, stop - start) for start, stop in spans])
        except ObjectNotFound as error:
            raise _missing(error) from error
        if is_alone:
            self._windows.replace(file, (spans[0][0], blobs[0]))
        found, number = {}, 0
        for place in wanted:
            if place.start + place.length > spans[number][1]:
                number += 1
            at = place.start - spans[number][0]
            found[place] = blobs[number][at : at + place.length]
        return found


def _around(start: int, stop: int) -> tuple[int, int]:
    return max(0, start - _AROUND), stop + _AROUND


def _spans(wanted: Sequence[BlockPlace]) -> list[tuple[int, int]]:
    """From where to where to read, to have these blocks, which are in order."""
    spans: list[tuple[int, int]] = []
    for place in wanted:
        stop = place.start + place.length
        if spans and place.start - spans[-1][1] <= _GAP and stop - spans[-1][0] <= _AT_ONCE:
            spans[-1] = (spans[-1][0], max(stop, spans[-1][1]))
        else:
            spans.append((place.start, stop))
    return spans


def _missing(error: ObjectNotFound) -> BrokenTree:
    return BrokenTree(f"a file of a tree is missing: {error.message}", file=error.file)
