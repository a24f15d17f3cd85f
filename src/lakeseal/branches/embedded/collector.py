"""Garbage collection: what no branch, tag or job in flight needs.

The order makes it safe, whoever works meanwhile and wherever it is interrupted:

1. List everything. What is written later is not touched.
2. In one ledger transaction: remove branches of jobs that are past their grace, begin a new *collection*, read all
   heads and tags. From here on, a commit or merge that began before can't move a head any more: it starts again, with
   new files. And a job whose branch is gone can't commit: its files may go.
3. Mark what heads, tags and their history need, and the objects of jobs in flight. Of history that is too old, only
   the commits themselves, and the trees that a merge between branches compares with.
4. Of what was listed and is not marked, shorten the files of commits that stay in the log to the commit alone, and
   delete the rest: commits, then objects.

A file stays whole as long as anything in it is needed: the root of a tree, a node or a range. An object's age decides
nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from enum import IntEnum

from lakeseal.branches.embedded.heads import JOB, Head, HeadsSnapshot
from lakeseal.branches.embedded.jobs import from_head
from lakeseal.branches.embedded.repository import EmbeddedRepository
from lakeseal.branches.paths import DATA, end_of
from lakeseal.branches.tree.blocks import COMMITS, PACKS, key_of
from lakeseal.branches.tree.history import file_key
from lakeseal.branches.tree.tree import Row, place_of
from lakeseal.branches.values import Commit, GcReport
from lakeseal.clock import now_ms
from lakeseal.errors import InvalidArgument

_MEMORY_KB = 8 << 10
_BATCH = 1_000


class ListedKind(IntEnum):
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

    def add(self, kind: ListedKind, keys: Iterable[tuple[str, int]]) -> None:
        """Keys with the sizes of their objects."""
        self._file.executemany("INSERT OR REPLACE INTO keys VALUES (?, ?, ?)", ((kind, *key) for key in keys))

    def take_out(self, kind: ListedKind, keys: Iterable[str]) -> None:
        self._file.executemany("DELETE FROM keys WHERE kind = ? AND key = ?", ((kind, key) for key in keys))

    def take_out_below(self, kind: ListedKind, directory: str) -> int:
        """All keys in a directory, and how many they were."""
        within = (kind, directory, end_of(directory))
        return self._file.execute("DELETE FROM keys WHERE kind = ? AND key >= ? AND key < ?", within).rowcount

    def size(self, kind: ListedKind, key: str) -> int:
        """0 for what is not there, or was taken out."""
        found = self._file.execute("SELECT size FROM keys WHERE kind = ? AND key = ?", (kind, key)).fetchone()
        return int(found[0]) if found else 0

    def count(self, kind: ListedKind) -> int:
        return self._total("count(*)", kind)

    def bytes(self, kind: ListedKind) -> int:
        return self._total("coalesce(sum(size), 0)", kind)

    def some(self, count: int) -> tuple[str, ...]:
        """The first of the commits and objects, for people."""
        found = self._file.execute(
            "SELECT key FROM keys WHERE kind IN (?, ?) ORDER BY key LIMIT ?",
            (ListedKind.COMMIT, ListedKind.OBJECT, count),
        )
        return tuple(key for (key,) in found)

    def batches(self, kind: ListedKind) -> Iterator[Sequence[str]]:
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

    def _total(self, what: str, kind: ListedKind) -> int:
        (total,) = self._file.execute(f"SELECT {what} FROM keys WHERE kind = ?", (kind,)).fetchone()  # noqa: S608
        return int(total)


_SHOWN = 20
_PLACES = {ListedKind.COMMIT: COMMITS, ListedKind.PACK: PACKS, ListedKind.OBJECT: DATA}


def collect(repository: EmbeddedRepository, *, job_grace_ms: int, history_ms: int | None, dry_run: bool) -> GcReport:
    if job_grace_ms < 0 or (history_ms is not None and history_ms < 0):
        raise InvalidArgument("times to keep things are not negative")
    with Listing() as listing:
        for kind, place in _PLACES.items():
            listing.add(kind, ((meta.key, meta.size) for meta in repository.store.list(place, recursive=True)))
        now = now_ms()
        horizon = 0 if history_ms is None else now - history_ms
        stale = [head for head in repository.heads.all().heads if _is_stale(head, now - job_grace_ms)]
        snapshot = _as_if_collected(repository, horizon, stale) if dry_run else repository.heads.collect(horizon, stale)
        remaining = {head.name for head in snapshot.heads}
        removed = tuple(head.name for head in stale if head.name not in remaining)
        return _sweep(repository, listing, snapshot, removed, dry_run)


def _as_if_collected(repository: EmbeddedRepository, horizon: int, stale: Sequence[Head]) -> HeadsSnapshot:
    before = repository.heads.all()
    gone = {head.name for head in stale}
    return HeadsSnapshot(
        collection=before.collection,
        horizon_ms=max(horizon, before.horizon_ms),
        heads=tuple(head for head in before.heads if head.name not in gone),
        tags=before.tags,
    )


def _sweep(
    repository: EmbeddedRepository,
    listing: Listing,
    snapshot: HeadsSnapshot,
    removed_jobs: tuple[str, ...],
    dry_run: bool,
) -> GcReport:
    everything = listing.count(ListedKind.OBJECT)
    given_up = _take_out_reachable(repository, listing, snapshot)
    jobs = [from_head(head) for head in snapshot.heads if head.kind == JOB]
    for_jobs = sum(listing.take_out_below(ListedKind.OBJECT, f"{job.data_prefix}/") for job in jobs)
    objects = listing.count(ListedKind.OBJECT)
    report = GcReport(
        dry_run=dry_run,
        objects=objects,
        object_bytes=listing.bytes(ListedKind.OBJECT),
        commits=listing.count(ListedKind.COMMIT),
        trees=len(given_up),
        packs=listing.count(ListedKind.PACK),
        job_branches=removed_jobs,
        kept_objects=everything - objects,
        kept_for_jobs=for_jobs,
        sample=listing.some(_SHOWN),
    )
    if not dry_run:
        for commit_id in given_up:
            repository.history.shorten(commit_id)
        for kind in ListedKind:
            for keys in listing.batches(kind):
                repository.store.delete(keys)
        repository.files.forget()
    return report


def _take_out_reachable(repository: EmbeddedRepository, listing: Listing, snapshot: HeadsSnapshot) -> list[str]:
    """Answers with the commits that stay without their trees, and have them still."""
    roots = sorted(set(snapshot.roots))
    commits, shortest = [], []
    for commit in repository.history.ancestors(roots):
        commits.append(commit)
        shortest.append(repository.history.shortest(commit.id))
    # The parents as well, so that every recent commit can be reverted.
    recent = [commit for commit in commits if commit.time_ms >= snapshot.horizon_ms]
    whole = {*roots, *(id_ for commit in recent for id_ in (commit.id, *commit.parents))}
    compared = _merge_bases(roots, commits) | _since_jobs_began(repository, snapshot, commits)
    shown = {commit.tree for commit in commits if commit.id in whole}
    only_compared = {commit.tree for commit in commits if commit.id in compared} - shown
    own = f"{repository.store.uri.rstrip('/')}/"
    marks = _Marks(repository)
    for _, table in repository.files.tables(marks.ranges(sorted(shown))):
        listing.take_out(ListedKind.OBJECT, (address.removeprefix(own) for address in table["address"].to_pylist()))
    for _ in marks.ranges(sorted(only_compared)):
        pass
    for kind in (ListedKind.COMMIT, ListedKind.PACK):
        listing.take_out(kind, map(key_of, marks.files))
    given_up = []
    for commit, least in zip(commits, shortest, strict=True):
        key = file_key(commit.id)
        if listing.size(ListedKind.COMMIT, key) > least:
            given_up.append(commit.id)
        listing.take_out(ListedKind.COMMIT, [key])
    return given_up


class _Marks:
    """The files that trees need."""

    def __init__(self, repository: EmbeddedRepository) -> None:
        self._repository = repository
        self._seen: set[str] = set()
        self.files: set[str] = set()

    def ranges(self, trees: Iterable[str]) -> Iterator[Row]:
        """Of trees, each once."""
        for name in trees:
            self.files.add(place_of(name).file)
            # By place, since equal rows may lie in several files, and each is needed where it is referred to.
            root = self._repository.files.root(name)
            fresh = [row for row in root if not row.node or self._is_new(row)]
            yield from filter(self._is_new, self._repository.files.expand(fresh))

    def _is_new(self, row: Row) -> bool:
        self.files.add(row.file)
        place = f"{row.file} {row.start}"
        if place in self._seen:
            return False
        self._seen.add(place)
        return True


def _merge_bases(roots: Sequence[str], commits: Sequence[Commit]) -> set[str]:
    """The newest common ancestors of any two roots, which merges of them compare with: for all pairs in one walk.
    `commits` are by generation, newest first."""
    reached_by = {root: 1 << number for number, root in enumerate(roots)}
    met = [1 << number for number in range(len(roots))]
    bases = set()
    for commit in commits:
        reach = reached_by[commit.id]
        for parent in commit.parents:
            reached_by[parent] = reached_by.get(parent, 0) | reach
        for number in range(len(roots)):
            if reach >> number & 1 and reach & ~met[number]:
                met[number] |= reach
                bases.add(commit.id)
    return bases


def _since_jobs_began(repository: EmbeddedRepository, snapshot: HeadsSnapshot, commits: Sequence[Commit]) -> set[str]:
    """What a job's merge looks through, to tell other jobs' work from that of others."""
    begun = [repository.history.get(from_head(head).base) for head in snapshot.heads if head.kind == JOB]
    first = min((commit.time_ms for commit in begun), default=None)
    return set() if first is None else {commit.id for commit in commits if commit.time_ms >= first}


def _is_stale(head: Head, before_ms: int) -> bool:
    return head.kind == JOB and head.created_ms <= before_ms
