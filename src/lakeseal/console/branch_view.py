"""Repositories and their branches as pages show them: a graph of commits, a diff, and what may be done."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from lakeseal.branches.store import Change, Commit
from lakeseal.display import clean, shown, size
from lakeseal.repository import Repository

_COMMITS, _CHANGES, _REFS = 40, 200, 200
_ROW, _LANE, _RADIUS = 44, 16, 5


def repository_view(repository: Repository, branch: str) -> dict[str, Any]:
    branches = repository.branches()[:_REFS]
    names = [one.name for one in branches]
    heads: dict[str, list[str]] = {}
    for ref in (*branches, *repository.tags()[:_REFS]):
        heads.setdefault(ref.commit, []).append(clean(ref.name, 60))
    commits = list(islice(repository.store.log(branch, limit=_COMMITS), _COMMITS)) if branch in names else []
    return {
        "branches": [
            {
                "name": one.name,
                "commit": one.commit,
                "protected": one.protection.protected,
                "updated": one.updated_ms or None,
            }
            for one in branches
        ],
        "branch": branch,
        "graph": graph(commits),
        "commits": [_commit(one, heads.get(one.id, [])) for one in commits],
        "jobs": [
            {"who": clean(job.who), "path": clean(job.path), "since": job.since_ms} for job in repository.jobs()[:50]
        ],
    }


def diff_view(repository: Repository, source: str, dest: str) -> dict[str, Any]:
    """What a merge of `source` would bring to `dest`, as far as files go."""
    found = list(islice(repository.store.diff(dest, source, ""), _CHANGES + 1))
    return {"changes": [_change(one) for one in found[:_CHANGES]], "is_all": len(found) <= _CHANGES}


def _commit(one: Commit, refs: list[str]) -> dict[str, Any]:
    added, changed, removed = one.counts or (None, None, None)
    return {
        "id": one.id,
        "short": one.id[:12],
        "moment": one.time_ms,
        "message": clean(one.message, 300),
        "refs": refs,
        "job": clean(one.job, 60),
        "is_merge": len(one.parents) > 1,
        "is_first": not one.parents,
        "added": added,
        "changed": changed,
        "removed": removed,
    }


def _change(one: Change) -> dict[str, Any]:
    entry = one.after or one.before
    return {"path": clean(one.path, 300), "kind": one.kind.value, "size": "" if entry is None else size(entry.size)}


def graph(commits: Sequence[Commit]) -> str:
    """Dots below each other in the order of `commits`, newest first, each with lines to its parents."""
    rows = {commit.id: number for number, commit in enumerate(commits)}
    lanes: dict[str, int] = {}
    ends: list[str | None] = []
    for commit in commits:
        lane = lanes.get(commit.id)
        if lane is None:
            lane = _free(ends)
            lanes[commit.id] = lane
        ends[lane] = None
        for place, parent in enumerate(p for p in commit.parents if p in rows):
            if parent in lanes:
                continue
            lanes[parent] = lane if place == 0 and ends[lane] is None else _free(ends)
            ends[lanes[parent]] = parent
    wide = (max(lanes.values(), default=0) + 1) * _LANE + _RADIUS
    lines, dots = [], []
    for commit in commits:
        x, y = _place(lanes[commit.id], rows[commit.id])
        dots.append(f'<circle cx="{x}" cy="{y}" r="{_RADIUS}"><title>{shown(commit.id[:12])}</title></circle>')
        for parent in commit.parents:
            if parent in rows:
                px, py = _place(lanes[parent], rows[parent])
                middle = (y + min(py, y + _ROW)) / 2
                lines.append(f'<path d="M{x} {y} C{x} {middle} {px} {middle} {px} {min(py, y + _ROW)} L{px} {py}"/>')
    high = max(1, len(commits)) * _ROW
    return (
        f'<svg class="graph" aria-hidden="true" width="{wide}" height="{high}" viewBox="0 0 {wide} {high}">'
        f"{''.join(lines)}{''.join(dots)}</svg>"
    )


def _free(ends: list[str | None]) -> int:
    for lane, end in enumerate(ends):
        if end is None:
            return lane
    ends.append(None)
    return len(ends) - 1


def _place(lane: int, row: int) -> tuple[int, int]:
    return lane * _LANE + _RADIUS + 2, row * _ROW + _ROW // 2
