"""Garbage collection: what no branch, tag or job in flight needs.

The order makes it safe, whoever works meanwhile and wherever it is interrupted:

1. List everything. What is written later is not touched.
2. In one ledger transaction: remove branches of jobs that are past their grace, begin a new *collection*, read all
   heads and tags. From here on, a commit or merge that began before can't move a head any more: it starts again, with
   new files. And a job whose branch is gone can't commit: its files may go.
3. Mark what heads, tags and their history need, and the objects of jobs in flight. Of history that is too old, only
   the commits themselves, and the trees that a merge between branches compares with.
4. Delete what was listed and is not marked: commits, then trees, ranges and objects, so that what is left after a crash
   is never something that leads to what is gone.

An object's age decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from lakeseal.branches import history, tree
from lakeseal.branches.ground import Ground
from lakeseal.branches.heads import JOB, Head, Standing, now_ms
from lakeseal.branches.jobs import from_head
from lakeseal.branches.paths import DATA
from lakeseal.branches.tree import Row
from lakeseal.branches.values import Commit, GcReport
from lakeseal.errors import InvalidArgument

_BATCH = 1_000
_SHOWN = 20


def collect(ground: Ground, *, job_grace_ms: int, history_ms: int | None, dry_run: bool) -> GcReport:
    if job_grace_ms < 0 or (history_ms is not None and history_ms < 0):
        raise InvalidArgument("times to keep things are not negative")
    listed = _Listed(
        commits=_keys(ground, history.COMMITS),
        trees=_keys(ground, tree.TREES),
        ranges=_keys(ground, tree.RANGES),
        objects={meta.key: meta.size for meta in ground.store.list(DATA, recursive=True)},
    )
    now = now_ms()
    horizon = 0 if history_ms is None else now - history_ms
    stale = [head for head in ground.heads.all().heads if _is_stale(head, now - job_grace_ms)]
    if dry_run:
        before = ground.heads.all()
        gone = {head.name for head in stale}
        standing = Standing(
            collection=before.collection,
            horizon_ms=max(horizon, before.horizon_ms),
            heads=tuple(head for head in before.heads if head.name not in gone),
            tags=before.tags,
        )
    else:
        standing = ground.heads.collect(horizon, stale)
    remaining = {head.name for head in standing.heads}
    removed = tuple(head.name for head in stale if head.name not in remaining)
    return _sweep(ground, listed, standing, removed, dry_run)


class _Listed(Struct, kw_only=True):
    """Keys, from which those that are needed are taken out."""

    commits: set[str]
    trees: set[str]
    ranges: set[str]
    objects: dict[str, int]


def _sweep(
    ground: Ground, listed: _Listed, standing: Standing, removed_jobs: tuple[str, ...], dry_run: bool
) -> GcReport:
    everything = len(listed.objects)
    _unmark_reachable(ground, listed, standing)
    for_jobs = _unmark_jobs(listed, standing)
    report = GcReport(
        dry_run=dry_run,
        objects=len(listed.objects),
        object_bytes=sum(listed.objects.values()),
        ranges=len(listed.ranges),
        trees=len(listed.trees),
        commits=len(listed.commits),
        job_branches=removed_jobs,
        kept_objects=everything - len(listed.objects),
        kept_for_jobs=for_jobs,
        sample=tuple(sorted([*listed.objects, *listed.commits])[:_SHOWN]),
    )
    if not dry_run:
        for keys in (listed.commits, listed.trees, listed.ranges, listed.objects):
            for some in _batches(sorted(keys)):
                ground.store.delete(some)
    return report


def _unmark_reachable(ground: Ground, listed: _Listed, standing: Standing) -> None:
    roots = sorted(set(standing.roots))
    commits = list(ground.history.ancestors(roots))
    listed.commits.difference_update(f"{history.COMMITS}{commit.id}.json" for commit in commits)
    # The parents as well, so that every recent commit can be reverted.
    recent = [commit for commit in commits if commit.time_ms >= standing.horizon_ms]
    whole = {*roots, *(id_ for commit in recent for id_ in (commit.id, *commit.parents))}
    compared = _merge_bases(roots, commits) | _since_jobs_began(ground, standing, commits)
    ranges: dict[str, Row] = {}
    for commit in commits:
        if commit.id in whole or commit.id in compared:
            for row in _ranges_of(ground, commit, listed):
                listed.ranges.discard(row.key)
                if commit.id in whole:
                    ranges.setdefault(row.id, row)
    own = f"{ground.store.uri.rstrip('/')}/"
    for table in ground.files.tables(list(ranges.values())):
        for address in table["address"].to_pylist():
            listed.objects.pop(address.removeprefix(own), None)


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


def _since_jobs_began(ground: Ground, standing: Standing, commits: Sequence[Commit]) -> set[str]:
    """What a job's merge looks through, to tell other jobs' work from that of others."""
    begun = [ground.history.get(from_head(head).base) for head in standing.heads if head.kind == JOB]
    first = min((commit.time_ms for commit in begun), default=None)
    return set() if first is None else {commit.id for commit in commits if commit.time_ms >= first}


def _ranges_of(ground: Ground, commit: Commit, listed: _Listed) -> Iterator[Row]:
    listed.trees.discard(f"{tree.TREES}{commit.tree}.json")
    root = ground.files.root(commit.tree)
    listed.trees.difference_update(row.key for row in root if row.node)
    return ground.files.expand(root)


def _unmark_jobs(listed: _Listed, standing: Standing) -> int:
    prefixes = {f"{from_head(head).data_prefix}/" for head in standing.heads if head.kind == JOB}
    kept = [key for key in listed.objects if _job_of(key) in prefixes]
    for key in kept:
        del listed.objects[key]
    return len(kept)


def _job_of(key: str) -> str:
    return key[: key.find("/", len(DATA)) + 1]


def _is_stale(head: Head, before_ms: int) -> bool:
    return head.kind == JOB and head.created_ms <= before_ms


def _keys(ground: Ground, prefix: str) -> set[str]:
    return set(ground.store.list_keys(prefix))


def _batches(keys: Sequence[str]) -> Iterable[Sequence[str]]:
    return (keys[start : start + _BATCH] for start in range(0, len(keys), _BATCH))
