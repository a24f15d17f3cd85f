"""Commits as files, and walks through their history.

A commit is one small JSON file, named by the SHA-256 of its bytes; a random part makes every commit a new one, also one
that does the same again. Walks read commits as they reach them and keep what they read.
"""

from __future__ import annotations

import hashlib
import heapq
import uuid
from collections.abc import Callable, Iterator, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from lakeseal import typed_json
from lakeseal.branches.paths import META, is_commit_id
from lakeseal.branches.tree import Kept
from lakeseal.branches.values import Commit
from lakeseal.errors import BrokenTree, InvalidArgument, ObjectNotFound, RefNotFound
from lakeseal.storage import Store

COMMITS = f"{META}commits/"

_CACHED = 10_000
_SHORTEST_ID = 8


class _File(Struct, frozen=True, kw_only=True):
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
    unique: str


class Divergence(Struct, frozen=True, kw_only=True):
    """How two commits relate."""

    base: Commit | None
    """The common ancestor of the largest generation."""
    left: tuple[Commit, ...]
    """Ancestors of the first alone, itself included, newest first."""
    right: tuple[Commit, ...]


class History:
    """May be shared by threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: Kept[str, Commit] = Kept(_CACHED, lambda _: 1)

    def get(self, commit_id: str) -> Commit:
        found = self._kept.get(commit_id)
        if found is None:
            try:
                data = self._store.get(_key(commit_id))
            except ObjectNotFound as error:
                raise RefNotFound(f"there is no commit {commit_id}") from error
            found = _decode(data, commit_id)
            self._kept.put(commit_id, found)
        return found

    def put(
        self,
        *,
        parents: Sequence[Commit],
        tree: str,
        entries: int,
        message: str,
        metadata: dict[str, str],
        now_ms: int,
        job: str = "",
        directories: tuple[str, ...] = (),
    ) -> Commit:
        """A new commit, durable."""
        if not all(isinstance(text, str) for text in (message, *metadata, *metadata.values())):
            raise InvalidArgument("message and metadata of a commit are text", hint="Write numbers as text, too")
        file = _File(
            format=1,
            parents=tuple(parent.id for parent in parents),
            tree=tree,
            message=message,
            metadata=metadata,
            time_ms=max([now_ms, *(parent.time_ms for parent in parents)]),
            generation=1 + max((parent.generation for parent in parents), default=0),
            job=job,
            directories=directories,
            entries=entries,
            unique=uuid.uuid4().hex,
        )
        try:
            data = msgspec.json.encode(file)
        except (TypeError, ValueError, msgspec.MsgspecError) as error:
            raise InvalidArgument(f"message and metadata of a commit are valid Unicode text: {error}") from None
        commit = _decode(data, hashlib.sha256(data).hexdigest())
        self._store.put(_key(commit.id), data)
        self._kept.put(commit.id, commit)
        return commit

    def by_short_id(self, text: str) -> str | None:
        """The whole id of the one commit whose id begins so."""
        if len(text) < _SHORTEST_ID or not is_commit_id(text.ljust(64, "0")):
            return None
        if len(text) == 64:
            return text
        found = []
        for meta in self._store.list(COMMITS, after=f"{COMMITS}{text}"):
            id_ = id_of(meta.key)
            if not id_.startswith(text):
                break
            found.append(id_)
            if len(found) > 1:
                raise RefNotFound(f"several commits begin with {text}", hint="Give more of the id")
        return found[0] if found else None

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


def id_of(key: str) -> str:
    return key.removeprefix(COMMITS).removesuffix(".json")


def _key(commit_id: str) -> str:
    if not is_commit_id(commit_id):
        raise RefNotFound(f"{commit_id!r} is no commit's id")
    return f"{COMMITS}{commit_id}.json"


def _decode(data: bytes, commit_id: str) -> Commit:
    try:
        file = typed_json.decode(data, _File)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BrokenTree(f"a commit can't be read: {error}", file=_key(commit_id)) from error
    if hashlib.sha256(data).hexdigest() != commit_id:
        raise BrokenTree("a commit does not hold what its name says", file=_key(commit_id))
    parts = asdict(file)
    del parts["format"], parts["unique"]
    return Commit(id=commit_id, **parts)
