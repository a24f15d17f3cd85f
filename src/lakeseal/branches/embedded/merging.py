"""One attempt at a merge: from two commits to a tree that nobody sees yet, and how a check sees it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
from msgspec import Struct

from lakeseal.branches.embedded.repository import EmbeddedRepository
from lakeseal.branches.paths import check_path
from lakeseal.branches.tree import diff, merge
from lakeseal.branches.tree.editor import Editor, Tally
from lakeseal.branches.tree.merge import Sides, TreeMergePlan
from lakeseal.branches.tree.tree import Row, Rows, entries_in
from lakeseal.branches.tree.writer import TreeWriter
from lakeseal.branches.values import Change, Commit, MergeResult, PathConflict, Ref, Strategy, changes_of, entries_of
from lakeseal.errors import MergeConflict, ObjectNotFound

_SHOWN_CONFLICTS = 5


class Merging:
    def __init__(
        self, repository: EmbeddedRepository, *, source: Commit, dest: Commit, strategy: Strategy | None, by_job: bool
    ) -> None:
        self._repository = repository
        self._by_job = by_job
        self._strategy = strategy
        self.source = source
        self.dest = dest
        # First, since the file with the tree of a merge that got through before mostly has the job's commit, too.
        self._onto = repository.rows(dest)
        self._apart = repository.history.diverge(source.id, dest.id)
        self._plan = TreeMergePlan()

    @property
    def nothing_to_do(self) -> bool:
        """Whether the destination has the source in its history."""
        return not self._apart.left

    def tree(self, writer: TreeWriter, what: str) -> MadeTree:
        repository, base = self._repository, self._apart.base
        is_next = base is not None and self.source.parents[:1] == (base.id,)
        sides = Sides(
            base=repository.rows(base) if base is not None else (),
            source=repository.rows(self.source),
            dest=self._onto,
            source_commits=self._apart.left,
            dest_commits=self._apart.right,
            counts=self.source.counts if is_next else None,
            by_job=self._by_job,
        )
        if not self._apart.right:
            # The destination has not moved since: it becomes what the source is.
            counts = sides.counts or diff.counted(diff.diff(repository.files, sides.dest, sides.source))
            tally = Tally()
            tally.add(counts)
            return MadeTree(tree=self.source.tree, entries=entries_in(sides.source), tally=tally)
        self._plan = merge.plan(repository.files, sides, self._before_and_after, self._strategy)
        writer.leans_on({self.dest.tree: tuple(sides.dest), self.source.tree: tuple(sides.source)})
        made = write_tree(writer, *merge.merged(repository.files, writer, sides, self._plan, self._strategy))
        conflicts = (*self._plan.conflicts, *merge.conflicts_of(made.tally.conflicts))
        if conflicts:
            raise conflict(what, conflicts)
        return made

    def result(self, made: Commit, tally: Tally) -> MergeResult:
        return MergeResult(
            commit=made.id,
            base=self._apart.base.id if self._apart.base is not None else "",
            added=tally.added,
            changed=tally.changed,
            removed=tally.removed,
            replaced=self._plan.replaced,
            conflicts_decided=self._plan.decided + tally.decided,
        )

    def _before_and_after(self, commit: Commit) -> tuple[Rows, Rows]:
        return self._repository.rows_before(commit), self._repository.rows(commit)


class ProposedMerge:
    """`store.MergeProposal`."""

    def __init__(
        self,
        repository: EmbeddedRepository,
        source: Ref,
        dest: Ref,
        source_commit: Commit,
        metadata: Mapping[str, str],
        after: Rows,
    ) -> None:
        self.source = source
        self.dest = dest
        self.source_commit = source_commit
        self.metadata = metadata
        self._repository = repository
        self._before = repository.rows(repository.history.get(dest.commit))
        self._after = after

    def changes(self) -> Iterator[Change]:
        for table in self.change_tables():
            yield from changes_of(table)

    def change_tables(self) -> Iterator[pa.Table]:
        return diff.diff(self._repository.files, self._before, self._after)

    def open(self, path: str) -> pa.NativeFile:
        found = diff.lookup(self._repository.files, self._after, check_path(path))
        if found is None:
            raise ObjectNotFound(f"after the merge there would be no {path!r}", file=path)
        return self._repository.open(next(entries_of(found)))


class MadeTree(Struct, frozen=True, kw_only=True):
    tree: str
    """Its name; after a conflict there is no tree."""
    entries: int
    tally: Tally
    """What was done to what was there before."""


def write_tree(writer: TreeWriter, rows: Iterator[Row], editor: Editor) -> MadeTree:
    """The tree of the rows that an editor makes."""
    made = list(rows)
    if editor.failed:
        return MadeTree(tree="", entries=0, tally=editor.tally)
    return MadeTree(tree=writer.put_tree(made), entries=entries_in(made), tally=editor.tally)


def conflict(what: str, conflicts: tuple[PathConflict, ...]) -> MergeConflict:
    ordered = tuple(sorted(conflicts, key=lambda one: one.path))
    shown = ", ".join(f"{one.path} ({one.kind})" for one in ordered[:_SHOWN_CONFLICTS])
    more = f" and {len(ordered) - _SHOWN_CONFLICTS} more" if len(ordered) > _SHOWN_CONFLICTS else ""
    error = MergeConflict(f"{what} has {len(ordered)} conflicts: {shown}{more}")
    error.conflicts = ordered
    return error
