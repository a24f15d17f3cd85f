"""Merges on a lakeFS server, with the same outcome as the embedded store's.

What is to come of a merge is worked out here, from the server's diffs; the server's own three-way merge is tried on a
hidden branch and compared with that. Where it is right, the source is merged as it is. Where it is not, the difference
is mended in a commit on top of the trial, and that is merged, which moves the branch forward and merges nothing. The
server's merge knows nothing of directories that a job emptied (and with them what other jobs put there meanwhile), and
loses a file whose content equals that of a file that stood in the base where this one's name would sort.

All of this is worked out for one head of the destination, and counts only if the merge lands there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack

import lakefs_sdk
import pyarrow as pa
from msgspec import Struct

from lakeseal.branches import checks as rules
from lakeseal.branches.common_store import MergeRequest
from lakeseal.branches.embedded.merging import conflict
from lakeseal.branches.lakefs.moves import BACKOFF, LakeFSMoves, check_text, own
from lakeseal.branches.lakefs.repository import LakeFSRepository, change_tables, same
from lakeseal.branches.lakefs.server import ASIDE, JOB
from lakeseal.branches.paths import check_path, directory, outermost
from lakeseal.branches.store import Check
from lakeseal.branches.values import (
    Change,
    Commit,
    ConflictKind,
    Entry,
    HeadMoved,
    MergeResult,
    PathConflict,
    Ref,
    Strategy,
)
from lakeseal.errors import ObjectNotFound


class ServerMergePlan(Struct, kw_only=True):
    expected: dict[str, str] = {}
    """What a merge, in which the source wins unless the strategy says otherwise, has to do to the destination."""
    mended: dict[str, Entry | None] = {}
    """What other paths have to hold, which no such merge can know."""
    conflicts: list[PathConflict] = []
    replaced: int = 0
    decided: int = 0


class LakeFSMerges:
    def __init__(self, repository: LakeFSRepository, moves: LakeFSMoves) -> None:
        self._repository = repository
        self._moves = moves

    def merge(self, request: MergeRequest) -> MergeResult | HeadMoved:
        source, dest, if_head = request.source, request.dest, request.if_head
        message, noted = check_text(request.message) or request.default_message, own(request.metadata)
        for _ in BACKOFF.tries():
            head = self._repository.head(dest)
            if if_head is not None and head != if_head:
                return HeadMoved(branch=dest, expected=if_head, actual=head)
            attempt = _Attempt(
                self._repository, self._moves, self._repository.look(source), dest, head, request.strategy
            )
            outcome = attempt.run(message, noted, request.checks)
            if isinstance(outcome, MergeResult) or if_head is not None:
                return outcome
        raise AssertionError("tries do not end")


class _Attempt:
    """At one head of the destination."""

    def __init__(
        self,
        repository: LakeFSRepository,
        moves: LakeFSMoves,
        source: Ref,
        dest: str,
        head: str,
        strategy: Strategy | None,
    ) -> None:
        self._repository = repository
        self._moves = moves
        self._source = source
        self._top = repository.history.get(source.commit)
        self._dest = dest
        self._head = head
        self._strategy = strategy
        self._apart = repository.history.diverge(self._top.id, head)
        self._job = self._top.job if source.kind == "job" else ""

    def run(self, message: str, metadata: dict[str, str], checks: Sequence[Check]) -> MergeResult | HeadMoved:
        if not self._apart.left:
            return MergeResult(commit=self._head, base=self._top.id, nothing_to_do=True)
        base = self._base()
        plan = self._plan(base) if self._apart.right else ServerMergePlan()
        if plan.conflicts:
            raise conflict(f"the merge of {self._source.name!r} into {self._dest!r}", tuple(plan.conflicts))
        asked = [*rules.rules_from_json(self._repository.rules(self._dest)), *checks]
        noted = {**metadata, JOB: self._job} if self._job else metadata
        with ExitStack() as stack:
            final, after = self._prepared(stack, plan)
            if asked:
                dest = Ref(name=self._dest, kind="branch", commit=self._head)
                rules.run(asked, _Proposal(self._repository, self._source, dest, self._top, metadata, after))
            done = self._moves.move(
                self._dest,
                final,
                self._head,
                message=message,
                metadata=noted,
                squash=False,
                strategy=self._strategy or ("" if self._repository.server.options.unguarded else "source-wins"),
            )
        if isinstance(done, HeadMoved):
            return done
        count = self._repository.count(self._head, done.id)
        return MergeResult(
            commit=done.id,
            base=base,
            added=count["added"],
            changed=count["changed"],
            removed=count["removed"],
            replaced=plan.replaced,
            conflicts_decided=plan.decided,
        )

    def _base(self) -> str:
        """The server's choice, for its merge counts from there."""
        server = self._repository.server
        return str(server.asked(server.api.refs_api.find_merge_base, self._top.id, self._head).base_commit_id)

    def _prepared(self, stack: ExitStack, plan: ServerMergePlan) -> tuple[str, str]:
        """The commit to merge, and one with the tree that will come of it. The first is the source itself where
        possible, so that it is the merge's second parent."""
        top, is_guarded = self._top.id, self._moves.is_guarded(self._top.id)
        if not self._apart.right:
            if is_guarded:
                return top, top
            made = self._moves.set_aside(stack.enter_context(self._moves.scratch(top)))
            return made, made
        scratch = stack.enter_context(self._moves.scratch(self._head))
        trial = self._tried(scratch)
        mended = {**self._wrong(plan, trial), **plan.mended}
        if is_guarded and not mended:
            return top, trial
        server = self._repository.server
        server.unstage(scratch, [path for path, entry in mended.items() if entry is None])
        server.stage(scratch, [entry for entry in mended.values() if entry is not None], self._repository.place)
        made = self._moves.set_aside(scratch)
        return made, made

    def _tried(self, scratch: str) -> str:
        server = self._repository.server
        merge = lakefs_sdk.Merge(
            message="Prepared by Lakeseal",
            metadata={ASIDE: "yes"},
            strategy=self._strategy or "source-wins",
            allow_empty=True,
        )
        return str(server.asked(server.api.refs_api.merge_into_branch, self._top.id, scratch, merge).reference)

    def _wrong(self, plan: ServerMergePlan, trial: str) -> dict[str, Entry | None]:
        """Where the server's merge did something else, and what these paths have to hold."""
        done = dict(self._repository.differences(self._head, trial))
        wrong = sorted(path for path, _ in done.items() ^ plan.expected.items() if path not in plan.mended)
        wanted = [path for path in wrong if path in plan.expected]
        kept = [path for path in wrong if path not in plan.expected]
        return {
            **dict(zip(wanted, self._repository.side(self._top.id, wanted), strict=True)),
            **dict(zip(kept, self._repository.side(self._head, kept), strict=True)),
        }

    def _plan(self, base: str) -> ServerMergePlan:
        repository, plan = self._repository, ServerMergePlan()
        there, came = dict(repository.differences(base, self._head)), dict(repository.differences(base, self._top.id))
        emptied = outermost(directory(name) for commit in self._apart.left for name in commit.directories)
        for name in emptied:
            self._plan_directory(plan, name, there, came)
        plan.expected = {path: kind for path, kind in came.items() if path not in there and path not in plan.mended}
        both = [path for path in came if path in there and not path.startswith(emptied)]
        sides = zip(*(repository.side(commit, both) for commit in (base, self._top.id, self._head)), strict=True)
        for path, (old, source, dest) in zip(both, sides, strict=True):
            if same(source, dest) or same(source, old):
                continue
            if not same(dest, old):
                if self._strategy is None:
                    plan.conflicts.append(_conflict(path, old, source, dest))
                plan.decided += 1
                if self._strategy == "dest-wins":
                    continue
            plan.expected[path] = "removed" if source is None else "added" if dest is None else "changed"
        return plan

    def _plan_directory(self, plan: ServerMergePlan, name: str, there: dict[str, str], came: dict[str, str]) -> None:
        repository = self._repository
        paths = [path for path in there if path.startswith(name)]
        sides = zip(repository.side(self._top.id, paths), repository.side(self._head, paths), strict=True)
        lost = {path: pair for path, pair in zip(paths, sides, strict=True) if not same(*pair)}
        clashes = [*lost]
        if self._job and lost:
            touched = self._touched(name)
            clashes = [path for path in lost if path in touched]
        if clashes and self._strategy == "dest-wins":
            both = sorted({*paths, *(path for path in came if path.startswith(name))})
            plan.mended |= dict(zip(both, repository.side(self._head, both), strict=True))
        else:
            plan.mended |= {path: source for path, (source, _) in lost.items()}
            plan.replaced += len(lost)
        if self._strategy is None:
            plan.conflicts += [PathConflict(path=path, kind="foreign-write", dest=lost[path][1]) for path in clashes]
        else:
            plan.decided += len(clashes)

    def _touched(self, name: str) -> set[str]:
        """Paths in a directory that the destination got otherwise than by a job."""
        commits = [self._repository.history.get(commit.id) for commit in self._apart.right]
        foreign = [commit for commit in commits if not commit.job and not commit.aside]
        return {
            path
            for commit in foreign
            for path, _ in self._repository.differences(self._repository.before(commit), commit.id, name)
        }


class _Proposal:
    """`store.MergeProposal`."""

    def __init__(
        self,
        repository: LakeFSRepository,
        source: Ref,
        dest: Ref,
        source_commit: Commit,
        metadata: Mapping[str, str],
        after: str,
    ) -> None:
        self.source = source
        self.dest = dest
        self.source_commit = source_commit
        self.metadata = metadata
        self._repository = repository
        self._after = after

    def changes(self) -> Iterator[Change]:
        return self._repository.changes(self.dest.commit, self._after)

    def change_tables(self) -> Iterator[pa.Table]:
        return change_tables(self.changes())

    def open(self, path: str) -> pa.NativeFile:
        found = self._repository.entry(self._after, check_path(path))
        if found is None:
            raise ObjectNotFound(f"after the merge there would be no {path!r}", file=path)
        return self._repository.open(found)


def _conflict(path: str, base: Entry | None, source: Entry | None, dest: Entry | None) -> PathConflict:
    kind: ConflictKind = "both-changed"
    if source is None:
        kind = "removed-and-changed"
    elif dest is None:
        kind = "changed-and-removed"
    return PathConflict(path=path, kind=kind, base=base, source=source, dest=dest)
