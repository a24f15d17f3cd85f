"""Edits, diffs and merges of trees beside the same on plain dictionaries.

Few paths and fewer contents, so that equal identities turn up under different paths all the time; ranges of a handful
of entries and nodes of a handful of ranges, so that every case has some of each.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakeseal.branches.tree import diff, merge
from lakeseal.branches.tree.blocks import Blocks
from lakeseal.branches.tree.editor import Editor, Tally
from lakeseal.branches.tree.edits import EditStream, prepared
from lakeseal.branches.tree.merge import Sides
from lakeseal.branches.tree.ranges import TreeShape
from lakeseal.branches.tree.tree import Rows, TreeFiles, same
from lakeseal.branches.tree.writer import TreeWriter
from lakeseal.branches.values import Changes, Commit, Entry, changes_of, entries_of
from lakeseal.errors import ObjectNotFound
from support.examples import examples

Files = dict[str, int]

NAMES = ["a", "b", "c", "é", "0"]
DIRECTORIES = ["a", "b", "a/a", "a/b", "b/é", "c"]
PATHS = [f"{head}{tail}" for head in ["", *(f"{name}/" for name in DIRECTORIES)] for tail in NAMES]

files = st.dictionaries(st.sampled_from(PATHS), st.integers(0, 3), max_size=30)
edits = st.tuples(
    st.lists(st.sampled_from(DIRECTORIES), max_size=2),
    st.lists(st.sampled_from(PATHS), max_size=5),
    st.dictionaries(st.sampled_from(PATHS), st.integers(0, 3), max_size=6),
)
shapes = st.sampled_from(
    [
        TreeShape(cut=3, longest=4, node_cut=2, node_longest=2),
        TreeShape(cut=2, longest=50, node_cut=3, node_longest=4),
        TreeShape(cut=10_000, longest=3, node_cut=2, node_longest=3),
        TreeShape(),
    ]
)


@pytest.fixture(params=["few edits, much at once", "many edits, little at once"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to change a range, whatever its size; ranges read one by one or all together; in one file or many."""
    few = request.param.startswith("few")
    monkeypatch.setattr(Editor, "few", 0 if few else 10_000)
    monkeypatch.setattr(TreeFiles, "at_once", 10_000 if few else 4)
    monkeypatch.setattr(TreeWriter, "largest", 1 << 20 if few else 5_000)


class Bytes:
    """As much of a store as trees use."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    def put(self, key: str, data: bytes) -> None:
        assert key not in self.values
        self.values[key] = data

    def get(self, key: str) -> bytes:
        if key not in self.values:
            raise ObjectNotFound(key)
        return self.values[key]

    def open_read(self, key: str) -> pa.NativeFile:
        return pa.BufferReader(self.get(key))

    def get_ranges(self, key: str, spans: Iterable[tuple[int, int]]) -> list[bytes]:
        data = self.get(key)
        return [data[start : start + length] for start, length in spans]


class Trees:
    def __init__(self, shape: TreeShape) -> None:
        self.store: Any = Bytes()
        self.files = TreeFiles(Blocks(self.store), shape)
        self.there: dict[str, Rows] = {}

    def of(self, files: Files) -> Rows:
        return self.edited((), Changes(puts=tuple(entry(*item) for item in files.items())))[0]

    def edited(self, rows: Rows, changes: Changes) -> tuple[Rows, Tally]:
        return self.made(rows, prepared(changes).stream())

    def made(self, rows: Rows, stream: EditStream) -> tuple[Rows, Tally]:
        with TreeWriter(self.files) as writer:
            editor = Editor(self.files, writer, stream)
            name = writer.put_tree(editor.run(rows))
            writer.finish(b"")
        self.files.forget()
        self.there[name] = self.files.root(name)
        return self.there[name], editor.tally

    def read(self, rows: Rows) -> Files:
        found = {one.path: value(one) for table in diff.listed(self.files, rows) for one in entries_of(table)}
        assert list(found) == sorted(found, key=str.encode)
        return found


def entry(path: str, number: int) -> Entry:
    """Neither size nor checksum alone tells contents apart."""
    return Entry(path=path, address=f"data/{path}", size=number // 2, checksum=f"c{number % 2}")


def value(one: Entry) -> int:
    return one.size * 2 + int(one.checksum[1:])


def below(path: str, directories: Iterable[str]) -> bool:
    return any(path.startswith(f"{name}/") for name in directories)


def applied(before: Files, edit: tuple[list[str], list[str], Files]) -> Files:
    directories, deletes, puts = edit
    return {p: v for p, v in before.items() if not below(p, directories) and p not in deletes} | puts


def changes(edit: tuple[list[str], list[str], Files]) -> Changes:
    directories, deletes, puts = edit
    return Changes(
        puts=tuple(entry(*item) for item in puts.items()), deletes=tuple(deletes), directories=tuple(directories)
    )


def kinds(before: Files, after: Files) -> dict[str, str]:
    return {
        path: "added" if path not in before else "removed" if path not in after else "changed"
        for path in {*before, *after}
        if before.get(path) != after.get(path)
    }


def check_edit(shape: TreeShape, start: Files, steps: list[tuple[list[str], list[str], Files]]) -> None:
    trees = Trees(shape)
    model, rows = start, trees.of(start)
    for edit in steps:
        after = applied(model, edit)
        changed, tally = trees.edited(rows, changes(edit))
        assert trees.read(changed) == after
        assert [row.id for row in changed] == [row.id for row in trees.of(after)], "history shows in the tree"
        found = [change for table in diff.diff(trees.files, rows, changed) for change in changes_of(table)]
        assert {change.path: change.kind.value for change in found} == kinds(model, after)
        assert [change.path for change in found] == sorted(kinds(model, after), key=str.encode)
        counted = list(kinds(model, after).values())
        assert (tally.added, tally.changed, tally.removed) == tuple(
            counted.count(kind) for kind in ("added", "changed", "removed")
        )
        model, rows = after, changed


def three_way(base: Files, source: Files, dest: Files, emptied: Iterable[str]) -> tuple[Files, set[str]]:
    """The naive merge: path by path. Under emptied directories, what the source has."""
    merged: dict[str, int | None] = {}
    conflicts = set()
    for path in {*base, *source, *dest}:
        b, s, d = base.get(path), source.get(path), dest.get(path)
        if below(path, emptied) or d == b:
            merged[path] = s
        elif s in (b, d):
            merged[path] = d
        else:
            conflicts.add(path)
            merged[path] = s
    return {path: value for path, value in merged.items() if value is not None}, conflicts


def job_commit(name: str, directories: Iterable[str]) -> Commit:
    return Commit(
        id=name, parents=(), tree="", message="", time_ms=0, generation=1, job=name, directories=tuple(directories)
    )


def check_merge(
    shape: TreeShape,
    base: Files,
    source_edit: tuple[list[str], list[str], Files],
    dest_edit: tuple[list[str], list[str], Files],
    counts_known: bool,
) -> None:
    trees = Trees(shape)
    source, dest = applied(base, source_edit), applied(base, dest_edit)
    base_rows = trees.of(base)
    source_rows, source_tally = trees.edited(base_rows, changes(source_edit))
    sides = Sides(
        base=base_rows,
        source=source_rows,
        dest=trees.edited(base_rows, changes(dest_edit))[0],
        source_commits=(job_commit("source", source_edit[0]),),
        dest_commits=(job_commit("dest", dest_edit[0]),),
        counts=source_tally.counts if counts_known else None,
        by_job=True,
    )
    plan = merge.plan(trees.files, sides, lambda commit: ((), ()), None)
    assert plan.conflicts == ()
    expected, conflicts = three_way(base, source, dest, source_edit[0])
    with TreeWriter(trees.files) as writer:
        rows, editor = merge.merged(trees.files, writer, sides, plan, None)
        made = list(rows)
        assert {conflict.path for conflict in merge.conflicts_of(editor.tally.conflicts)} == conflicts
        if not conflicts:
            assert trees.read(trees.files.root(writer.put_tree(made))) == expected, "before it is written"
    with TreeWriter(trees.files) as writer:
        writer.leans_on(trees.there)
        rows, editor = merge.merged(trees.files, writer, sides, plan, "source-wins")
        result = writer.put_tree(rows)
        writer.finish(b"")
    trees.files.forget()
    assert trees.read(trees.files.root(result)) == expected
    assert editor.tally.decided == len(conflicts)
    with TreeWriter(trees.files) as writer:
        assert same(result, writer.put_tree(trees.of(expected))), "history shows in the tree"
    counted = list(kinds(dest, expected).values())
    tally = editor.tally
    assert (tally.added, tally.changed, tally.removed) == tuple(
        counted.count(kind) for kind in ("added", "changed", "removed")
    )


@examples(25, 300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(shapes, files, st.lists(edits, min_size=1, max_size=3))
def test_edits_and_diffs_equal_those_of_dictionaries_and_trees_do_not_remember_how_they_came_about(
    shape: TreeShape, start: Files, steps: list[tuple[list[str], list[str], Files]]
) -> None:
    check_edit(shape, start, steps)


@examples(40, 500, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(shapes, files, edits, edits, st.booleans())
def test_a_merge_equals_the_naive_one_of_dictionaries(
    shape: TreeShape,
    base: Files,
    source: tuple[list[str], list[str], Files],
    dest: tuple[list[str], list[str], Files],
    counts_known: bool,
) -> None:
    check_merge(shape, base, source, dest, counts_known)


@pytest.mark.stress
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=3_000)
@given(shapes, files, edits, edits, st.booleans())
def test_thousands_of_merges_equal_the_naive_ones_of_dictionaries(
    shape: TreeShape,
    base: Files,
    source: tuple[list[str], list[str], Files],
    dest: tuple[list[str], list[str], Files],
    counts_known: bool,
) -> None:
    check_merge(shape, base, source, dest, counts_known)
