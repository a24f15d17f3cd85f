from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakeseal.branches.tree.blocks import Blocks
from lakeseal.branches.tree.history import CommitHistory
from lakeseal.branches.tree.ranges import TreeShape
from lakeseal.branches.tree.tree import TreeFiles
from lakeseal.branches.tree.writer import TreeWriter
from lakeseal.branches.values import Commit
from support.examples import examples


class Bytes:
    """As much of a store as history uses."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    def put(self, key: str, data: bytes) -> None:
        self.values[key] = data

    def open_read(self, key: str) -> pa.NativeFile:
        return pa.BufferReader(self.values[key])


def grown(shape: list[tuple[int, ...]], times: list[int]) -> tuple[CommitHistory, list[Commit]]:
    """Each commit has parents among those before it, by number counted back."""
    store: Any = Bytes()
    files = TreeFiles(Blocks(store), TreeShape())
    history = CommitHistory(files.blocks)
    commits: list[Commit] = []
    for parents, time in zip(shape, times, strict=False):
        numbers = {len(commits) - 1 - back % len(commits) for back in parents if commits}
        chosen = [commits[number] for number in sorted(numbers)]
        with TreeWriter(files) as writer:
            put = history.put(writer, parents=chosen, tree="t", entries=0, message="", metadata={}, now_ms=time)
        commits.append(put)
    return CommitHistory(Blocks(store)), commits


def ancestors(commits: dict[str, Commit], start: str) -> set[str]:
    found, todo = set(), [start]
    while todo:
        one = todo.pop()
        if one not in found:
            found.add(one)
            todo.extend(commits[one].parents)
    return found


shapes = st.lists(st.lists(st.integers(0, 5), max_size=2).map(tuple), min_size=2, max_size=20)
times = st.lists(st.integers(0, 5), min_size=20, max_size=20)


@examples(50, 500)
@given(shapes, times, st.integers(0, 19), st.integers(0, 19))
def test_two_commits_part_where_sets_of_ancestors_say_so(
    shape: list[tuple[int, ...]], clock: list[int], first: int, second: int
) -> None:
    history, commits = grown(shape, clock)
    by_id = {commit.id: commit for commit in commits}
    left, right = commits[first % len(commits)], commits[second % len(commits)]
    of_left, of_right = ancestors(by_id, left.id), ancestors(by_id, right.id)

    apart = history.diverge(left.id, right.id)

    assert {commit.id for commit in apart.left} == of_left - of_right
    assert {commit.id for commit in apart.right} == of_right - of_left
    common = of_left & of_right
    if not common:
        assert apart.base is None
    else:
        assert apart.base is not None
        assert apart.base.id in common
        assert apart.base.generation == max(by_id[one].generation for one in common)
    assert history.is_ancestor(left.id, [right.id]) == (left.id in of_right)


@examples(50, 500)
@given(shapes, times)
def test_a_log_has_every_ancestor_once_with_children_before_parents_and_times_that_never_rise(
    shape: list[tuple[int, ...]], clock: list[int]
) -> None:
    history, commits = grown(shape, clock)
    by_id = {commit.id: commit for commit in commits}

    log = list(history.log(commits[-1].id))

    assert {commit.id for commit in log} == ancestors(by_id, commits[-1].id)
    assert len(log) == len({commit.id for commit in log})
    place = {commit.id: number for number, commit in enumerate(log)}
    assert all(place[commit.id] < place[parent] for commit in log for parent in commit.parents)
    assert [commit.time_ms for commit in log] == sorted((commit.time_ms for commit in log), reverse=True)
