"""Commits, and walks through their history.

A commit's record is a few lines of JSON at the end of the file that has the blocks of its tree. Its id is that file's
name, which is random, and the hash of the record: so every commit is a new one, also one that does the same again, and
a record that was damaged is noticed. Walks read commits as they reach them and keep what they read.

When a commit's tree is given up with old history, its file is *shortened* to the record.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Iterator, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from lakeseal import typed_json
from lakeseal.branches.paths import is_commit_id
from lakeseal.branches.tree.blocks import COMMITS, SHORTENED, WHOLE, BlockPlace, Blocks, key_of
from lakeseal.branches.tree.lru_cache import LruCache
from lakeseal.branches.tree.writer import TreeWriter
from lakeseal.branches.values import Commit, Counts
from lakeseal.errors import BrokenTree, InvalidArgument, ObjectNotFound, RefNotFound

_CACHED = 10_000
_SHORTEST_ID = 8
_HALF = 32
"""Of an id, so many characters are the file's name, and as many are the hash."""
_LENGTH_AND_END = 4 + len(WHOLE)


class _Record(Struct, frozen=True, kw_only=True):
    format: int
    parents: tuple[str, ...]
    tree: str
    message: str
    metadata: dict[str, str]
    time_ms: int
    generation: int
    job: str
    directories: tuple[str, ...]
    entries: int
    counts: Counts | None


class _Read(Struct, frozen=True, kw_only=True):
    commit: Commit
    shortest: int
    """Bytes that the file has at least."""


class Divergence(Struct, frozen=True, kw_only=True):
    """How two commits relate."""

    base: Commit | None
    """The common ancestor of the largest generation."""
    left: tuple[Commit, ...]
    """Ancestors of the first alone, itself included, newest first."""
    right: tuple[Commit, ...]


class CommitHistory:
    """May be shared by threads."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._cache: LruCache[str, _Read] = LruCache(_CACHED, lambda _: 1)

    def get(self, commit_id: str) -> Commit:
        return self._read(commit_id).commit

    def put(
        self,
        writer: TreeWriter,
        *,
        parents: Sequence[Commit],
        tree: str,
        entries: int,
        message: str,
        metadata: dict[str, str],
        now_ms: int,
        job: str = "",
        directories: tuple[str, ...] = (),
        counts: Counts | None = None,
    ) -> Commit:
        """A new commit, durable, with all that was written for it."""
        if not all(isinstance(text, str) for text in (message, *metadata, *metadata.values())):
            raise InvalidArgument("message and metadata of a commit are text", hint="Write numbers as text, too")
        record = _Record(
            format=2,
            parents=tuple(parent.id for parent in parents),
            tree=tree,
            message=message,
            metadata=metadata,
            time_ms=max([now_ms, *(parent.time_ms for parent in parents)]),
            generation=1 + max((parent.generation for parent in parents), default=0),
            job=job,
            directories=directories,
            entries=entries,
            counts=counts,
        )
        try:
            data = msgspec.json.encode(record)
        except (TypeError, ValueError, msgspec.MsgspecError) as error:
            raise InvalidArgument(f"message and metadata of a commit are valid Unicode text: {error}") from None
        id_ = writer.file + _hash(data)
        read = _decoded(data, id_)
        writer.finish(_sealed(data))
        self._cache.put(id_, read)
        return read.commit

    def shortest(self, commit_id: str) -> int:
        """The size of a commit's file without its tree."""
        return self._read(commit_id).shortest

    def shorten(self, commit_id: str) -> None:
        """Gives up the tree of a commit, which stays in the log."""
        self._blocks.store.put(file_key(commit_id), _sealed(self._record(_file(commit_id)), SHORTENED))

    def by_short_id(self, text: str) -> str | None:
        """The whole id of the one commit whose id begins so."""
        if len(text) < _SHORTEST_ID or not is_commit_id(text.ljust(64, "0")):
            return None
        if len(text) == 64:
            return text
        found = []
        for meta in self._blocks.store.list(COMMITS, after=f"{COMMITS}{text[:_HALF]}"):
            file = meta.key.removeprefix(COMMITS).removesuffix(".commit")
            if not file.startswith(text[:_HALF]):
                break
            found.append(file + _hash(self._record(file)))
            if len(found) > 1:
                raise RefNotFound(f"several commits begin with {text}", hint="Give more of the id")
        return found[0] if found and found[0].startswith(text) else None

    def _read(self, commit_id: str) -> _Read:
        found = self._cache.get(commit_id)
        if found is None:
            try:
                data = self._record(_file(commit_id))
            except ObjectNotFound as error:
                raise RefNotFound(f"there is no commit {commit_id}") from error
            found = _decoded(data, commit_id)
            self._cache.put(commit_id, found)
        return found

    def _record(self, file: str) -> bytes:
        start, tail = self._blocks.tail(file)
        if not tail.endswith((WHOLE, SHORTENED)):
            raise BrokenTree("a commit's file does not end as it should", file=key_of(file))
        length = int.from_bytes(tail[-_LENGTH_AND_END : -len(WHOLE)], "little")
        begin = start + len(tail) - _LENGTH_AND_END - length
        if begin < 0:
            raise BrokenTree("a commit's file is shorter than it says", file=key_of(file))
        return self._blocks.get([BlockPlace(file=file, start=begin, length=length)])[0]

    def back(self, commit_id: str, steps: int) -> Commit:
        """Along first parents."""
        commit = self.get(commit_id)
        for _ in range(steps):
            if not commit.parents:
                raise RefNotFound(f"{commit_id} has no {steps} generations before it along first parents")
            commit = self.get(commit.parents[0])
        return commit

    def log(self, commit_id: str, *, first_parent: bool = False) -> Iterator[Commit]:
        """Newest first, and children before parents: times never fall from parent to child."""
        yield from self._walk([commit_id], lambda commit: (-commit.time_ms, -commit.generation), first_parent)

    def ancestors(self, commit_ids: Sequence[str]) -> Iterator[Commit]:
        """The commits themselves and all before them, once each, by generation."""
        yield from self._walk(commit_ids, lambda commit: (-commit.generation, 0), False)

    def is_ancestor(self, commit_id: str, of: Sequence[str]) -> bool:
        """Whether one of these is the commit, or descends from it."""
        oldest = self.get(commit_id).generation
        for commit in self.ancestors(of):
            if commit.id == commit_id:
                return True
            if commit.generation < oldest:
                return False
        return False

    def diverge(self, left: str, right: str) -> Divergence:
        sides: dict[str, int] = {}
        queue: list[tuple[int, str]] = []
        open_ones = 0  # in the queue and not known to be common: when there are none, all the rest is common

        def reach(commit: Commit, side: int) -> None:
            nonlocal open_ones
            before = sides.get(commit.id)
            after = side if before is None else before | side
            if before is None:
                heapq.heappush(queue, (-commit.generation, commit.id))
            open_ones += (after != _BOTH) - (before is not None and before != _BOTH)
            sides[commit.id] = after

        reach(self.get(left), _LEFT)
        reach(self.get(right), _RIGHT)
        base: Commit | None = None
        alone: dict[int, list[Commit]] = {_LEFT: [], _RIGHT: []}
        while open_ones:
            commit = self.get(heapq.heappop(queue)[1])
            side = sides[commit.id]
            if side == _BOTH:
                base = base or commit
            else:
                open_ones -= 1
                alone[side].append(commit)
            for parent in commit.parents:
                reach(self.get(parent), side)
        # What is left in the queue is common; the first of it may be the base.
        if base is None and queue:
            base = self.get(heapq.heappop(queue)[1])
        return Divergence(base=base, left=tuple(alone[_LEFT]), right=tuple(alone[_RIGHT]))

    def _walk(
        self, start: Sequence[str], order: Callable[[Commit], tuple[int, int]], first_parent: bool
    ) -> Iterator[Commit]:
        queue = [(*order(commit), commit.id) for commit in map(self.get, set(start))]
        heapq.heapify(queue)
        seen = set(start)
        while queue:
            commit = self.get(heapq.heappop(queue)[-1])
            yield commit
            for parent in commit.parents[:1] if first_parent else commit.parents:
                if parent not in seen:
                    seen.add(parent)
                    heapq.heappush(queue, (*order(self.get(parent)), parent))


_LEFT, _RIGHT, _BOTH = 1, 2, 3


def file_key(commit_id: str) -> str:
    """Of the file that a commit is in."""
    return key_of(_file(commit_id))


def _file(commit_id: str) -> str:
    if not is_commit_id(commit_id):
        raise RefNotFound(f"{commit_id!r} is no commit's id")
    return commit_id[:_HALF]


def _hash(record: bytes) -> str:
    return hashlib.sha256(record).hexdigest()[:_HALF]


def _sealed(record: bytes, end: bytes = WHOLE) -> bytes:
    """As it stands at the end of a file."""
    return record + len(record).to_bytes(4, "little") + end


def _decoded(data: bytes, commit_id: str) -> _Read:
    if _hash(data) != commit_id[_HALF:]:
        raise BrokenTree("a commit does not hold what its name says", file=file_key(commit_id))
    try:
        record = typed_json.decode(data, _Record)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BrokenTree(f"a commit can't be read: {error}", file=file_key(commit_id)) from error
    parts = asdict(record)
    del parts["format"]
    return _Read(commit=Commit(id=commit_id, **parts), shortest=len(_sealed(data)))
