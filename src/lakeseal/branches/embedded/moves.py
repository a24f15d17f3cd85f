"""What moves a branch: commit, merge, revert, cherry-pick, reset.

Each is the same loop: look where the branch stands, make a tree and a commit that nobody sees yet, and ask the ledger
to move the head from there to here. Who is refused looks again. The ledger's row is written after everything that it
leads to is durable; what was made in vain is garbage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from lakeseal.backoff import Backoff
from lakeseal.branches import checks as rules
from lakeseal.branches.common_store import MergeRequest
from lakeseal.branches.embedded.heads import Head, HeadsSnapshot, MoveVerdict
from lakeseal.branches.embedded.merging import MadeTree, Merging, ProposedMerge, conflict, write_tree
from lakeseal.branches.embedded.repository import EmbeddedRepository
from lakeseal.branches.paths import directory, outermost
from lakeseal.branches.tree import diff, merge
from lakeseal.branches.tree.editor import Editor
from lakeseal.branches.tree.edits import EditStream, from_diff, prepared, reversed_diff
from lakeseal.branches.tree.writer import TreeWriter
from lakeseal.branches.values import Changes, Commit, HeadMoved, MergeResult, Ref
from lakeseal.clock import now_ms
from lakeseal.errors import (
    BranchProtected,
    Collected,
    InvalidArgument,
    RefNotFound,
    UnknownOutcome,
)

_BACKOFF = Backoff(first_s=0.002, longest_s=0.25, least=0.1)


class Moves:
    def __init__(self, repository: EmbeddedRepository) -> None:
        self._repository = repository

    def commit(
        self,
        branch: str,
        changes: Changes,
        *,
        message: str,
        metadata: Mapping[str, str],
        expected_head: str | None,
        job: str,
        fence: int | None,
    ) -> Commit | HeadMoved:
        directories = outermost(directory(name) for name in changes.directories)
        edits = prepared(changes)

        def build(head: Head, snapshot: HeadsSnapshot, writer: TreeWriter) -> Commit | HeadMoved:
            _refuse_protected(head, "commit to")
            if expected_head is not None and head.commit != expected_head:
                return HeadMoved(branch=branch, expected=expected_head, actual=head.commit)
            if fence is not None and snapshot.collection != fence:
                raise Collected(f"files for the commit to {branch!r} may have been collected")
            parent = self._repository.history.get(head.commit)
            made = self._edited(writer, parent, edits.stream())
            return self._repository.history.put(
                writer,
                parents=[parent],
                tree=made.tree,
                entries=made.entries,
                counts=made.tally.counts,
                message=message,
                metadata=dict(metadata),
                now_ms=now_ms(),
                job=job,
                directories=directories,
            )

        return self._moved(branch, build)

    def merge(self, request: MergeRequest) -> MergeResult | HeadMoved:
        source, dest, if_head = request.source, request.dest, request.if_head
        metadata = dict(request.metadata)
        result: MergeResult | None = None

        def build(head: Head, snapshot: HeadsSnapshot, writer: TreeWriter) -> Commit | HeadMoved:
            nonlocal result
            if if_head is not None and head.commit != if_head:
                return HeadMoved(branch=dest, expected=if_head, actual=head.commit)
            looked = self._repository.look(source)
            top = self._repository.lasting(looked)
            job = top.job if looked.ref.kind == "job" else ""
            onto = self._repository.history.get(head.commit)
            merging = Merging(self._repository, source=top, dest=onto, strategy=request.strategy, by_job=bool(job))
            if merging.nothing_to_do:
                result = MergeResult(commit=head.commit, base=top.id, nothing_to_do=True)
                return merging.dest
            merged = merging.tree(writer, f"the merge of {source!r} into {dest!r}")
            asked = [*rules.rules_from_json(head.protection.rules), *request.checks]
            if asked:
                after = self._repository.files.root(merged.tree)
                rules.run(asked, ProposedMerge(self._repository, looked.ref, head.ref, top, metadata, after))
            made = self._repository.history.put(
                writer,
                parents=[merging.dest, top],
                tree=merged.tree,
                entries=merged.entries,
                counts=merged.tally.counts,
                message=request.message or request.default_message,
                metadata=metadata,
                now_ms=now_ms(),
                job=job,
            )
            result = merging.result(made, merged.tally)
            return made

        outcome = self._moved(dest, build)
        if isinstance(outcome, HeadMoved):
            return outcome
        assert result is not None
        return result

    def revert(self, branch: str, ref: str, *, parent: int, message: str) -> Commit:
        return self._again(branch, ref, parent, message, "Revert", lambda table: from_diff(reversed_diff(table)))

    def cherry_pick(self, branch: str, ref: str, *, parent: int, message: str) -> Commit:
        return self._again(branch, ref, parent, message, "Cherry-pick", from_diff)

    def reset(self, branch: str, ref: str, *, if_head: str | None) -> Ref | HeadMoved:
        def build(head: Head, snapshot: HeadsSnapshot, writer: TreeWriter) -> Commit | HeadMoved:
            _refuse_protected(head, "reset")
            if if_head is not None and head.commit != if_head:
                return HeadMoved(branch=branch, expected=if_head, actual=head.commit)
            return self._repository.lasting(self._repository.look(ref))

        outcome = self._moved(branch, build)
        return outcome if isinstance(outcome, HeadMoved) else self._repository.look(branch).ref

    def _again(
        self, branch: str, ref: str, parent: int, message: str, what: str, edit: Callable[[pa.Table], pa.Table]
    ) -> Commit:
        def build(head: Head, snapshot: HeadsSnapshot, writer: TreeWriter) -> Commit:
            _refuse_protected(head, "commit to")
            commit = self._repository.lasting(self._repository.look(ref))
            if not 1 <= parent <= max(1, len(commit.parents)):
                raise InvalidArgument(f"the commit {commit.id} has no parent number {parent}")
            top = self._repository.history.get(head.commit)
            before = self._repository.rows_before(commit, parent)
            changes = diff.diff(self._repository.files, before, self._repository.rows(commit))
            edits = EditStream(edit(table) for table in changes)
            made = self._edited(writer, top, edits)
            if found := made.tally.conflicts:
                raise conflict(f"{what} of {commit.id[:12]} on {branch!r}", tuple(merge.conflicts_of(found)))
            return self._repository.history.put(
                writer,
                parents=[top],
                tree=made.tree,
                entries=made.entries,
                counts=made.tally.counts,
                message=message or f"{what} {commit.id[:12]}: {commit.message}".rstrip(": "),
                metadata={what.lower(): commit.id},
                now_ms=now_ms(),
            )

        made = self._moved(branch, build)
        assert isinstance(made, Commit)
        return made

    def _edited(self, writer: TreeWriter, parent: Commit, edits: EditStream) -> MadeTree:
        rows = self._repository.rows(parent)
        writer.leans_on({parent.tree: rows})
        editor = Editor(self._repository.files, writer, edits)
        return write_tree(writer, editor.run(rows), editor)

    def _moved(
        self, branch: str, build: Callable[[Head, HeadsSnapshot, TreeWriter], Commit | HeadMoved]
    ) -> Commit | HeadMoved:
        for _ in _BACKOFF.tries():
            head, snapshot = self._repository.head_of(branch)
            # Each attempt has a file of its own: that of another may be garbage by now.
            with TreeWriter(self._repository.files) as writer:
                made = build(head, snapshot, writer)
            if isinstance(made, HeadMoved) or made.id == head.commit:
                return made
            moved = self._repository.heads.move(head, made.id, snapshot.collection)
            if moved.verdict is MoveVerdict.MOVED:
                return made
            if moved.perhaps and moved.actual and self._repository.history.is_ancestor(made.id, [moved.actual]):
                return made
            if moved.verdict is MoveVerdict.GONE:
                if moved.perhaps:
                    raise UnknownOutcome(f"the branch {branch!r} was deleted while it was moved to {made.id}")
                raise RefNotFound(f"the branch {branch!r} was deleted meanwhile")
        raise AssertionError("tries do not end")


def _refuse_protected(head: Head, what: str) -> None:
    if head.protection.protected:
        raise BranchProtected(f"the branch {head.name!r} is protected: one can't {what} it")
