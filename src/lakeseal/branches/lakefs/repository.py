"""What all parts of the lakeFS branch store stand on: the server, its history, its files, and how a ref is looked up.

A ref is looked up once and becomes a commit's id, so that what is staged on a branch and not committed is never seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any, TypeVar

import lakefs_sdk
import msgspec
import pyarrow as pa

from lakeseal.branches.lakefs.server import Server, ServerCommit
from lakeseal.branches.objects import open_object
from lakeseal.branches.tree.history import CommitHistory
from lakeseal.branches.tree.lru_cache import LruCache
from lakeseal.branches.values import CHANGES, ENTRIES, Change, ChangeKind, Entry, Protection, Ref, entry_table
from lakeseal.errors import RefNotFound
from lakeseal.storage import Store, StoreSpec
from lakeseal.trust import Trust

JOB_PREFIX = "lakeseal-job-"
SCRATCH_PREFIX = "lakeseal-scratch-"
GUARD_PATH = "_lakefs_actions/lakeseal-merge-if.yaml"
"""The hook by which a merge happens at the expected head or not at all. Not shown among a branch's files."""

_name = re.compile(r"\w[-\w.]*\Z", re.ASCII)
_commit_id = re.compile(r"[0-9a-f]{8,64}\Z")
_back = re.compile(r"(.+?)~(\d{1,6})\Z", re.DOTALL)
_READ_AHEAD = 100
_CACHED = 20_000
_ROWS = 10_000
_PROTECTION = "lakeseal.protection."

T = TypeVar("T")


class ServerHistory(CommitHistory):
    """Walks over the server's commits, which are read some at a time and kept, for they never change."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._known: LruCache[str, ServerCommit] = LruCache(_CACHED, lambda _: 1)

    def get(self, commit_id: str) -> ServerCommit:
        found = self._known.get(commit_id)
        if found is not None:
            return found
        found = self._server.commit(commit_id)
        for commit in [found, *(self._server.ancestors(commit_id, _READ_AHEAD) if found.parents else [])]:
            self._known.put(commit.id, commit)
        return found

    def by_short_id(self, text: str) -> str | None:
        if _commit_id.match(text) is None:
            return None
        try:
            return self._server.commit(text).id
        except RefNotFound:
            return None


class LakeFSRepository:
    def __init__(self, server: Server, trust: Trust | None) -> None:
        self.server = server
        self._given_trust = trust
        self.history = ServerHistory(server)
        self.place = server.place()
        self.objects: StoreSpec = server.objects(self.place)
        self.store: Store = self.objects.open()

    @property
    def trust(self) -> Trust:
        """As the environment says it now, unless it was given."""
        return self._given_trust or Trust()

    # Refs

    def look(self, ref: str) -> Ref:
        """Without its protection."""
        if not isinstance(ref, str) or not ref:
            raise RefNotFound(f"{ref!r} names no branch, tag or commit", table=self.server.uri)
        back = _back.match(ref)
        if back is not None:
            start = self.look(back[1])
            return Ref(name=ref, kind="commit", commit=self.history.back(start.commit, int(back[2])).id)
        if _name.match(ref) is not None:
            head = self.server.branch(ref)
            if head is not None:
                return Ref(name=ref, kind="job" if ref.startswith(JOB_PREFIX) else "branch", commit=head)
            tagged = self.server.tag(ref)
            if tagged is not None:
                return Ref(name=ref, kind="tag", commit=tagged)
            whole = self.history.by_short_id(ref)
            if whole is not None:
                return Ref(name=ref, kind="commit", commit=whole)
        raise RefNotFound(f"there is no branch, tag or commit {ref!r}", table=self.server.uri)

    def head(self, branch: str) -> str:
        """Of a branch that is to be moved."""
        found = self.server.branch(branch) if isinstance(branch, str) and _name.match(branch) else None
        if found is None:
            raise RefNotFound(f"{branch!r} is no branch", table=self.server.uri)
        return found

    def commit(self, ref: str) -> ServerCommit:
        return self.history.get(self.look(ref).commit)

    def before(self, commit: ServerCommit, parent: int = 1) -> str:
        """The commit's parent; a commit without parents is compared to itself: lakeFS begins with an empty one."""
        return commit.parents[parent - 1] if commit.parents else commit.id

    # Protection: the server's own rules for branches, and Lakeseal's for merges in the repository's metadata

    def is_protected(self, branch: str) -> bool:
        rules = self.server.asked(self.server.api.repositories_api.get_branch_protection_rules)
        return any(fnmatchcase(branch, rule.pattern) for rule in rules)

    def protection(self, branch: str) -> Protection:
        return Protection(protected=self.is_protected(branch), rules=self.rules(branch))

    def rules(self, branch: str) -> tuple[dict[str, Any], ...]:
        noted = self.server.asked(self.server.api.repositories_api.get_repository_metadata)
        return tuple(msgspec.json.decode(noted.get(_PROTECTION + branch, "[]"), type=list[dict[str, Any]]))

    def keep_rules(self, branch: str, rules: Iterable[dict[str, Any]]) -> None:
        noted = {_PROTECTION + branch: msgspec.json.encode(list(rules)).decode()}
        self.server.asked(
            self.server.api.internal_api.set_repository_metadata, lakefs_sdk.RepositoryMetadataSet(metadata=noted)
        )

    # Files

    def entry(self, commit_id: str, path: str) -> Entry | None:
        return None if path == GUARD_PATH else self.server.entry(commit_id, path, self.place)

    def entries(self, commit_id: str, prefix: str = "") -> Iterator[Entry]:
        return (entry for entry in self.server.entries(commit_id, prefix, self.place) if entry.path != GUARD_PATH)

    def is_guarded(self, commit_id: str, checksum: str) -> bool:
        found = self.server.entry(commit_id, GUARD_PATH, self.place)
        return found is not None and found.checksum == checksum

    def differences(self, a: str, b: str, prefix: str = "") -> Iterator[tuple[str, str]]:
        """Paths that differ, by the server's word, for which other metadata are a difference, too."""
        return (found for found in self.server.differences(a, b, prefix) if found[0] != GUARD_PATH)

    def changes(self, a: str, b: str, prefix: str = "") -> Iterator[Change]:
        def one(found: tuple[str, str]) -> Change:
            path, kind = found
            before = None if kind == "added" else self.entry(a, path)
            after = None if kind == "removed" else self.entry(b, path)
            return Change(path=path, kind=ChangeKind(kind), before=before, after=after)

        for some in _batched(self.differences(a, b, prefix), _ROWS):
            for change in self.server.side_by_side(one, some):
                if change.kind is not ChangeKind.CHANGED or not same(change.before, change.after):
                    yield change

    def count(self, a: str, b: str) -> dict[str, int]:
        counts = {"added": 0, "changed": 0, "removed": 0}
        for some in _batched(self.differences(a, b), _ROWS):
            changed = [path for path, kind in some if kind == "changed"]
            counts["added"] += sum(kind == "added" for _, kind in some)
            counts["removed"] += sum(kind == "removed" for _, kind in some)
            pairs = zip(self.side(a, changed), self.side(b, changed), strict=True)
            counts["changed"] += sum(not same(*pair) for pair in pairs)
        return counts

    def side(self, commit_id: str, paths: Iterable[str]) -> list[Entry | None]:
        return self.server.side_by_side(lambda path: self.entry(commit_id, path), paths)

    def open(self, entry: Entry) -> pa.NativeFile:
        return open_object(self.store, self.objects, entry, self.trust)


def _batched(items: Iterable[T], count: int) -> Iterator[list[T]]:
    rest = iter(items)
    while some := [*islice(rest, count)]:
        yield some


def same(a: Entry | None, b: Entry | None) -> bool:
    return (a and a.identity) == (b and b.identity)


def entry_tables(entries: Iterator[Entry]) -> Iterator[pa.Table]:
    return (entry_table(some) for some in _batched(entries, _ROWS))


def change_tables(changes: Iterator[Change]) -> Iterator[pa.Table]:
    for some in _batched(changes, _ROWS):
        paths = pa.array([change.path for change in some], pa.string())
        kinds = pa.array([change.kind.value for change in some], pa.string())
        sides = [_nullable([getattr(change, side) for change in some]) for side in ("before", "after")]
        yield pa.Table.from_arrays([paths, kinds, *sides[0], *sides[1]], schema=CHANGES)


def _nullable(entries: list[Entry | None]) -> list[pa.Array]:
    there = entry_table(entry for entry in entries if entry is not None)
    numbers = iter(range(len(entries)))
    at = pa.array([None if entry is None else next(numbers) for entry in entries], pa.int64())
    return [there[name].take(at).combine_chunks() for name in ENTRIES.names[1:]]
