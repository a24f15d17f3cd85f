"""One attempt at a merge: from two commits to a tree that nobody sees yet, and how a check sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa

from lakeseal.branches import diff, merge
from lakeseal.branches.editor import Editor, Tally
from lakeseal.branches.ground import Ground
from lakeseal.branches.merge import Plan, Sides
from lakeseal.branches.paths import check_path
from lakeseal.branches.tree import Row, Rows, TreeWriter, entries_in
from lakeseal.branches.values import Change, Commit, Conflict, MergeResult, Ref, Strategy, changes_of, entries_of
from lakeseal.errors import MergeConflict, ObjectNotFound

_SHOWN_CONFLICTS = 5


class Merging:
    def __init__(
        self, ground: Ground, *, source: Commit, dest: Commit, strategy: Strategy | None, by_job: bool
    ) -> None:
        self._ground = ground
        self._by_job = by_job
        self._strategy = strategy
        self.source = source
        self.dest = dest
        self._apart = ground.history.diverge(source.id, dest.id)
        self._plan = Plan()
        self._tally = Tally()

    @property
    def nothing_to_do(self) -> bool:
        """Whether the destination has the source in its history."""
        return not self._apart.left

    def tree(self, what: str) -> tuple[str, int]:
        """The merged tree's name and its number of entries."""
        ground, base = self._ground, self._apart.base
        sides = Sides(
            base=ground.rows(base) if base is not None else (),
            source=ground.rows(self.source),
            dest=ground.rows(self.dest),
            source_commits=self._apart.left,
            dest_commits=self._apart.right,
            by_job=self._by_job,
        )
        if not self._apart.right:
            # The destination has not moved since: it becomes what the source is.
            known = ground.done.get(self.source.id) if self.source.parents == (self.dest.id,) else None
            self._tally = known or _counted(diff.diff(ground.files, sides.dest, sides.source))
            return self.source.tree, entries_in(sides.source)
        self._plan = merge.plan(ground.files, sides, self._before_and_after, self._strategy)

        def edit(writer: TreeWriter) -> tuple[Iterator[Row], Editor]:
            return merge.merged(ground.files, writer, sides, self._plan, self._strategy)

        there = {self.dest.tree: tuple(sides.dest), self.source.tree: tuple(sides.source)}
        tree, entries, self._tally = write_tree(ground, there, edit)
        conflicts = (*self._plan.conflicts, *merge.conflicts_of(self._tally.conflicts))
        if conflicts:
            raise conflict(what, conflicts)
        return tree, entries

    def result(self, made: Commit) -> MergeResult:
        return MergeResult(
            commit=made.id,
            base=self._apart.base.id if self._apart.base is not None else "",
            added=self._tally.added,
            changed=self._tally.changed,
            removed=self._tally.removed,
            replaced=self._plan.replaced,
            conflicts_decided=self._plan.decided + self._tally.decided,
        )

    def _before_and_after(self, commit: Commit) -> tuple[Rows, Rows]:
        return self._ground.rows_before(commit), self._ground.rows(commit)


class Proposal:
    """`store.MergeProposal`."""

    def __init__(
        self, ground: Ground, source: Ref, dest: Ref, source_commit: Commit, metadata: Mapping[str, str], after: Rows
    ) -> None:
        self.source = source
        self.dest = dest
        self.source_commit = source_commit
        self.metadata = metadata
        self._ground = ground
        self._before = ground.rows(ground.history.get(dest.commit))
        self._after = after

    def changes(self) -> Iterator[Change]:
        for table in self.change_tables():
            yield from changes_of(table)

    def change_tables(self) -> Iterator[pa.Table]:
        return diff.diff(self._ground.files, self._before, self._after)

    def open(self, path: str) -> pa.NativeFile:
        found = diff.lookup(self._ground.files, self._after, check_path(path))
        if found is None:
            raise ObjectNotFound(f"after the merge there would be no {path!r}", file=path)
        return self._ground.open(next(entries_of(found)))


def write_tree(
    ground: Ground, there: Mapping[str, Rows], edit: Callable[[TreeWriter], tuple[Iterator[Row], Editor]]
) -> tuple[str, int, Tally]:
    """The name of the tree that an edit makes, how many entries it has, and what it came to. After a conflict there is
    no tree. Of the trees that are there, nothing is written again."""
    writer = TreeWriter(ground.store, ground.files, there)
    try:
        rows, editor = edit(writer)
        made = list(rows)
        if editor.failed:
            return "", 0, editor.tally
        return writer.put_tree(made), entries_in(made), editor.tally
    finally:
        writer.close()


def conflict(what: str, conflicts: tuple[Conflict, ...]) -> MergeConflict:
    ordered = tuple(sorted(conflicts, key=lambda one: one.path))
    shown = ", ".join(f"{one.path} ({one.kind})" for one in ordered[:_SHOWN_CONFLICTS])
    more = f" and {len(ordered) - _SHOWN_CONFLICTS} more" if len(ordered) > _SHOWN_CONFLICTS else ""
    error = MergeConflict(f"{what} has {len(ordered)} conflicts: {shown}{more}")
    error.conflicts = ordered
    return error


def _counted(changes: Iterator[pa.Table]) -> Tally:
    tally = Tally()
    for table in changes:
        kinds = table["kind"].value_counts().to_pylist()
        count = {row["values"]: row["counts"] for row in kinds}
        tally.added += count.get("added", 0)
        tally.changed += count.get("changed", 0)
        tally.removed += count.get("removed", 0)
    return tally
