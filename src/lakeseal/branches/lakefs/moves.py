"""What moves a branch of a lakeFS server: always one guarded merge.

What is to become of the branch is prepared as a commit on a hidden branch of its own, which nobody sees, then merged.
The merge says in its metadata where it expects the branch, and the commit that it brings has a pre-merge hook that
compares this with the parent that the server is about to record. The server runs the hook inside of its own
compare-and-set of the branch: so the merge happens at the expected head, or not at all. A commit is a squashed merge.

A server that runs no hooks is found out before the first move, and refused unless the caller accepted the window
(`lakefs_unguarded`): then the head is looked at right before the merge, and a merge that landed elsewhere is told.
"""

from __future__ import annotations

import hashlib
import logging
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import lakefs_sdk
import msgspec

from lakeseal.backoff import Backoff
from lakeseal.branches.embedded.merging import conflict
from lakeseal.branches.lakefs.repository import GUARD_PATH, SCRATCH_PREFIX, LakeFSRepository, same
from lakeseal.branches.lakefs.server import ASIDE, DIRECTORIES, EXPECTED, JOB, OWN, WRITE, Answered, ServerCommit
from lakeseal.branches.paths import directory, outermost
from lakeseal.branches.tree.edits import prepared
from lakeseal.branches.values import Changes, Entry, HeadMoved, PathConflict, Ref, entries_of
from lakeseal.clock import now_ms
from lakeseal.errors import (
    BranchDirty,
    BranchProtected,
    CheckRefused,
    HeadChanged,
    InvalidArgument,
    InvalidPath,
    LakesealError,
    RefNotFound,
    StorageUnavailable,
    UnknownOutcome,
    Unsupported,
)

logger = logging.getLogger(__name__)

_REFUSAL = "lakeseal: the branch is not where it was expected"
_GUARD = f"""\
name: lakeseal merge-if
description: a merge that says where it expects the branch happens there, or not at all
on:
  pre-merge:
hooks:
  - id: expected_head
    type: lua
    properties:
      script: |
        local expected = action.commit.metadata["{EXPECTED}"]
        if expected and expected ~= action.commit.parents[1] then
          error("{_REFUSAL}")
        end
""".encode()
_GUARD_SUM = hashlib.sha256(_GUARD).hexdigest()
_GUARD_ENTRY = Entry(
    path=GUARD_PATH,
    address=f"data/lakeseal-merge-if-{_GUARD_SUM[:16]}.yaml",
    size=len(_GUARD),
    checksum=f"sha256:{_GUARD_SUM}",
)
_NOWHERE = "nowhere"
BACKOFF = Backoff(first_s=0.01, longest_s=0.5, least=0.1)
_TRIES = 6
_SEARCHED = 1_000


class LakeFSMoves:
    def __init__(self, repository: LakeFSRepository) -> None:
        self._repository = repository
        self._server = repository.server
        self._proved = repository.server.options.unguarded

    def commit(
        self,
        branch: str,
        changes: Changes,
        *,
        message: str,
        metadata: Mapping[str, str],
        expected_head: str | None,
        job: str,
    ) -> ServerCommit | HeadMoved:
        directories = outermost(directory(name) for name in changes.directories)
        edits = prepared(changes).table
        puts = [*entries_of(edits.filter(edits["address"].is_valid()).select(_ENTRY_COLUMNS))]
        deletes = edits.filter(edits["address"].is_null())["path"].to_pylist()
        if any(path == GUARD_PATH for path in (*deletes, *(entry.path for entry in puts))):
            raise InvalidPath(f"{GUARD_PATH} is Lakeseal's own", file=GUARD_PATH)
        noted = {JOB: job} if job else {}
        if directories:
            noted[DIRECTORIES] = msgspec.json.encode(directories).decode()

        def build(head: str, scratch: str) -> None:
            put = {entry.path for entry in puts}
            emptied = {entry.path for name in directories for entry in self._repository.entries(head, name)}
            self._server.unstage(scratch, sorted((emptied | {*deletes}) - put))
            self._server.stage(scratch, puts, self._repository.place)

        return self._rebuilt(branch, build, message or f"Change {branch}", {**own(metadata), **noted}, expected_head)

    def revert(self, branch: str, ref: str, *, parent: int, message: str) -> ServerCommit:
        return self._again(branch, ref, parent, message, "Revert")

    def cherry_pick(self, branch: str, ref: str, *, parent: int, message: str) -> ServerCommit:
        return self._again(branch, ref, parent, message, "Cherry-pick")

    def reset(self, branch: str, ref: str, *, if_head: str | None) -> Ref | HeadMoved:
        """The one move that the server can't make conditional: between the look and the move there is a window."""
        head = self._repository.head(branch)
        self.refuse_protected(branch, "reset")
        if if_head is not None and head != if_head:
            return HeadMoved(branch=branch, expected=if_head, actual=head)
        commit = self._repository.look(ref).commit
        try:
            self._server.call(self._server.api.experimental_api.hard_reset_branch, branch, ref=commit)
        except Answered as answer:
            raise self._refused(branch, answer) from None
        return self._repository.look(branch)

    def refuse_protected(self, branch: str, what: str) -> None:
        if self._repository.is_protected(branch):
            raise BranchProtected(f"the branch {branch!r} is protected: one can't {what} it", table=self._server.uri)

    # One move

    def move(
        self,
        branch: str,
        source: str,
        expected: str,
        *,
        message: str,
        metadata: Mapping[str, str],
        squash: bool,
        strategy: str = "",
    ) -> ServerCommit | HeadMoved:
        """Merges a commit that has the guard, if the branch is at `expected` in the very moment it is moved."""
        self._prove(source, expected)
        write = uuid.uuid4().hex
        merge = lakefs_sdk.Merge(
            message=message,
            metadata={**metadata, EXPECTED: expected, WRITE: write},
            strategy=strategy,
            squash_merge=squash,
            allow_empty=True,
        )
        lost: LakesealError | None = None
        for _ in BACKOFF.tries(most=_TRIES):
            # The guard decides; asking first spares the server the work where it is in vain already.
            head = self._repository.head(branch)
            if head != expected:
                found = self._with_mark(write, head, expected) if lost is not None else None
                return found or HeadMoved(branch=branch, expected=expected, actual=head)
            try:
                done = self._server.call(self._server.api.refs_api.merge_into_branch, source, branch, merge)
                return self._landed(self._server.commit(done.reference), expected)
            except StorageUnavailable as error:
                # It may have happened. To ask again is safe: a merge that happened has moved the head.
                lost = error
            except Answered as answer:
                if answer.status not in (412, 423, 429):
                    raise self._refused(branch, answer) from None
                if answer.status == 412 and _REFUSAL not in answer.message:
                    raise CheckRefused(f"a hook of the server refuses to change {branch!r}: {answer.message}") from None
        head = self._repository.head(branch)
        found = self._with_mark(write, head, expected)
        if found is not None:
            return found
        if lost is not None:
            raise UnknownOutcome(
                f"the lakeFS server did not answer whether {branch!r} was moved",
                table=self._server.uri,
                hint=f"Look for a commit with the metadata {WRITE}={write}, and try again if there is none",
            ) from lost
        return HeadMoved(branch=branch, expected=expected, actual=head)

    @contextmanager
    def scratch(self, start: str) -> Iterator[str]:
        """A hidden branch, gone at the end; one that a crash leaves goes with `gc`."""
        name = f"{SCRATCH_PREFIX}{now_ms()}-{uuid.uuid4().hex[:12]}"
        self._server.make_branch(name, start, hidden=True)
        try:
            yield name
        finally:
            try:
                self._server.drop_branch(name)
            except LakesealError as error:
                logger.warning("The branch %s could not be removed: %s", name, error)

    def set_aside(self, scratch: str) -> str:
        """A commit of what is staged on a scratch branch, with the guard."""
        if not self.is_guarded(scratch):
            self._repository.store.put(_GUARD_ENTRY.address, _GUARD)
            self._server.stage(scratch, [_GUARD_ENTRY], self._repository.place)
        creation = lakefs_sdk.CommitCreation(message="Prepared by Lakeseal", metadata={ASIDE: "yes"}, allow_empty=True)
        return str(self._server.asked(self._server.api.commits_api.commit, scratch, creation).id)

    def is_guarded(self, ref: str) -> bool:
        return self._repository.is_guarded(ref, _GUARD_ENTRY.checksum)

    def _rebuilt(
        self,
        branch: str,
        build: Callable[[str, str], None],
        message: str,
        metadata: Mapping[str, str],
        expected_head: str | None,
    ) -> ServerCommit | HeadMoved:
        for _ in BACKOFF.tries():
            head = self._repository.head(branch)
            self.refuse_protected(branch, "commit to")
            if expected_head is not None and head != expected_head:
                return HeadMoved(branch=branch, expected=expected_head, actual=head)
            with self.scratch(head) as scratch:
                build(head, scratch)
                top = self.set_aside(scratch)
                outcome = self.move(branch, top, head, message=message, metadata=metadata, squash=True)
            if not isinstance(outcome, HeadMoved) or expected_head is not None:
                return outcome
        raise AssertionError("tries do not end")

    def _again(self, branch: str, ref: str, parent: int, message: str, what: str) -> ServerCommit:
        """Not by the server's own revert and cherry-pick, which are three-way merges with its merge's faults."""
        commit = self._repository.commit(ref)
        if not 1 <= parent <= max(1, len(commit.parents)):
            raise InvalidArgument(f"the commit {commit.id} has no parent number {parent}")
        before = self._repository.before(commit, parent)
        fits, brings = (commit.id, before) if what == "Revert" else (before, commit.id)

        def build(head: str, scratch: str) -> None:
            paths = [path for path, _ in self._repository.differences(fits, brings)]
            sides = zip(*(self._repository.side(side, paths) for side in (head, fits, brings)), strict=True)
            found = {path: side for path, side in zip(paths, sides, strict=True) if not same(side[0], side[2])}
            clashes = tuple(
                PathConflict(path=path, kind="both-changed", base=fit, source=new, dest=there)
                for path, (there, fit, new) in found.items()
                if not same(there, fit)
            )
            if clashes:
                raise conflict(f"{what} of {commit.id[:12]} on {branch!r}", clashes)
            self._server.unstage(scratch, [path for path, side in found.items() if side[2] is None])
            self._server.stage(
                scratch, [new for _, _, new in found.values() if new is not None], self._repository.place
            )

        text = message or f"{what} {commit.id[:12]}: {commit.message}".rstrip(": ")
        made = self._rebuilt(branch, build, text, {what.lower(): commit.id}, None)
        assert isinstance(made, ServerCommit)
        return made

    def _prove(self, source: str, expected: str) -> None:
        """That the server runs the guard: a merge that must be refused is."""
        if self._proved:
            return
        with self.scratch(expected) as probe:
            merge = lakefs_sdk.Merge(metadata={EXPECTED: _NOWHERE}, squash_merge=True, allow_empty=True)
            try:
                self._server.call(self._server.api.refs_api.merge_into_branch, source, probe, merge)
            except Answered as answer:
                if answer.status != 412 or _REFUSAL not in answer.message:
                    raise self._refused(probe, answer) from None
                self._proved = True
                return
        raise Unsupported(
            "this lakeFS server runs no hooks, so heads can't be moved by compare-and-set",
            table=self._server.uri,
            hint="Set actions.enabled in its configuration; or, where nobody else writes, open the repository with "
            "the storage option lakefs_unguarded=true",
        )

    def _landed(self, done: ServerCommit, expected: str) -> ServerCommit:
        if done.parents[:1] != (expected,):
            raise HeadChanged(
                f"the merge {done.id} happened, but onto {done.parents[0]} and not onto {expected}",
                table=self._server.uri,
                hint="Look at what the two brought together; a server that runs hooks would have refused it",
            )
        return done

    def _with_mark(self, write: str, head: str, until: str) -> ServerCommit | None:
        for count, commit in enumerate(self._repository.history.log(head, first_parent=True)):
            found = self._repository.history.get(commit.id)
            if found.write == write:
                return found
            if commit.id == until or count > _SEARCHED:
                return None
        return None

    def _refused(self, branch: str, answer: Answered) -> Exception:
        if answer.status == 404:
            return RefNotFound(f"the branch {branch!r} was deleted meanwhile", table=self._server.uri)
        if "uncommitted changes" in answer.message:
            return BranchDirty(f"the branch {branch!r} has changes that are not committed", table=self._server.uri)
        if answer.status == 403 and "protected" in answer.message:
            return BranchProtected(f"the server protects the branch {branch!r}", table=self._server.uri)
        return self._server.wrong(answer)


_ENTRY_COLUMNS = ["path", "address", "size", "checksum", "metadata"]


def own(metadata: Mapping[str, str]) -> dict[str, str]:
    """A user's metadata, checked."""
    for text in (*metadata, *metadata.values()):
        check_text(text)
    if any(name.startswith(OWN) for name in metadata):
        raise InvalidArgument(f"names that begin with {OWN} are Lakeseal's own", hint="Choose another name")
    return dict(metadata)


def check_text(text: Any) -> str:
    if not isinstance(text, str):
        raise InvalidArgument("message and metadata of a commit are text", hint="Write numbers as text, too")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"message and metadata of a commit are valid Unicode text: {error}") from None
    return text
