"""What all parts of the embedded store stand on: its files, its history, its heads, and how a ref is looked up."""

from __future__ import annotations

import re
from itertools import takewhile

import pyarrow as pa
from msgspec import Struct

from lakeseal.branches.embedded.heads import Head, Heads, HeadsSnapshot
from lakeseal.branches.objects import open_object
from lakeseal.branches.tree.history import CommitHistory
from lakeseal.branches.tree.tree import Rows, TreeFiles
from lakeseal.branches.values import Commit, Entry, Ref
from lakeseal.errors import BrokenTree, HistoryExpired, ObjectNotFound, RefNotFound
from lakeseal.storage import Store, StoreSpec
from lakeseal.trust import Trust

_back = re.compile(r"(.+?)~(\d{1,6})\Z", re.DOTALL)


class ResolvedRef(Struct, frozen=True, kw_only=True):
    """A ref, and the moment in which it stood for its commit."""

    ref: Ref
    snapshot: HeadsSnapshot


class EmbeddedRepository(Struct, frozen=True, kw_only=True):
    store: Store
    spec: StoreSpec
    files: TreeFiles
    history: CommitHistory
    heads: Heads
    given_trust: Trust | None = None

    @property
    def trust(self) -> Trust:
        """As the environment says it now, unless it was given."""
        return self.given_trust or Trust()

    def look(self, ref: str) -> ResolvedRef:
        if not isinstance(ref, str) or not ref:
            raise RefNotFound(f"{ref!r} names no branch, tag or commit")
        snapshot = self.heads.look(ref)
        for head in snapshot.heads:
            return ResolvedRef(ref=head.ref, snapshot=snapshot)
        for tag in snapshot.tags:
            return ResolvedRef(ref=tag, snapshot=snapshot)
        back = _back.match(ref)
        if back is not None:
            start = self.look(back[1])
            steps = int(back[2])
            commit = self.history.back(start.ref.commit, steps)
            return ResolvedRef(ref=Ref(name=ref, kind="commit", commit=commit.id), snapshot=start.snapshot)
        whole = self.history.by_short_id(ref)
        if whole is None:
            raise RefNotFound(f"there is no branch, tag or commit {ref!r}", table=self.store.uri)
        self.history.get(whole)
        return ResolvedRef(ref=Ref(name=ref, kind="commit", commit=whole), snapshot=snapshot)

    def head_of(self, branch: str) -> tuple[Head, HeadsSnapshot]:
        """Of a branch that is to be moved."""
        snapshot = self.heads.look(branch)
        for head in snapshot.heads:
            return head, snapshot
        kind = "a tag, and tags do not move" if snapshot.tags else "no branch"
        raise RefNotFound(f"{branch!r} is {kind}", table=self.store.uri)

    def rows(self, commit: Commit) -> Rows:
        try:
            return self.files.root(commit.tree)
        except BrokenTree as error:
            if isinstance(error.__cause__, ObjectNotFound) and commit.time_ms < self.heads.look("").horizon_ms:
                raise _expired(commit) from error
            raise

    def rows_to_read(self, ref: str) -> Rows:
        """For who wants the files as well: of a commit whose objects were kept. Parts of its tree may be there longer,
        because they lie in one file with what is needed."""
        looked = self.look(ref)
        commit = self.history.get(looked.ref.commit)
        horizon = looked.snapshot.horizon_ms
        if looked.ref.kind == "commit" and commit.time_ms < horizon and not self._is_kept(commit, horizon):
            raise _expired(commit)
        return self.rows(commit)

    def rows_before(self, commit: Commit, parent: int = 1) -> Rows:
        """Of one of the commit's parents; of none, the empty tree."""
        if parent > len(commit.parents):
            return ()
        return self.rows(self.history.get(commit.parents[parent - 1]))

    def open(self, entry: Entry) -> pa.NativeFile:
        return open_object(self.store, self.spec, entry, self.trust)

    def lasting(self, looked: ResolvedRef) -> Commit:
        """The commit, if a new reference to it would last: a branch or tag has it, or it is in the history of one and
        recent enough. Holds for the collection that it was looked up under; a move is fenced off from any other."""
        commit = self.history.get(looked.ref.commit)
        if looked.ref.kind != "commit":
            return commit
        everything = self.heads.all()
        if commit.id in everything.roots:
            return commit
        if not self.history.is_ancestor(commit.id, everything.roots):
            raise RefNotFound(
                f"the commit {commit.id} is in the history of no branch or tag",
                hint="What no branch or tag leads to is being collected, so nothing new may refer to it",
            )
        if commit.time_ms < everything.horizon_ms:
            raise _expired(commit)
        return commit

    def _is_kept(self, commit: Commit, horizon_ms: int) -> bool:
        """Whether it is where a branch or tag stands, or right before a commit that is recent enough."""
        roots = self.heads.all().roots
        later = takewhile(lambda one: one.generation > commit.generation, self.history.ancestors(roots))
        return commit.id in roots or any(one.time_ms >= horizon_ms and commit.id in one.parents for one in later)


def _expired(commit: Commit) -> HistoryExpired:
    return HistoryExpired(f"the commit {commit.id} is older than what was kept of the history")
