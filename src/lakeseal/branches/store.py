"""The seam of branch stores: versioned trees of files, whose branches move only by compare-and-set.

`EmbeddedBranchStore` (trees in any object store, heads in the ledger; made by `embedded.create(uri, ledger=url)` and
`embedded.open(uri, ledger=url)`) and `LakeFSBranchStore` implement it, and one contract suite runs over both. What a
caller may rely on:

- *Objects are immutable and never moved.* A commit lists paths and where their objects are; what a commit shows never
  changes.
- *A head moves only by compare-and-set* (G1). What a call reports as done is durable and visible to every reader that
  starts afterwards; a reader sees all of a commit or nothing of it (G2). A lost reply is settled before the call
  answers; `UnknownOutcome` leaves only when the ledger stays away.
- *A ref* is a branch, a tag, a commit's id (whole, or at least 8 of its first characters where no other begins so), or
  one of these followed by `~N`: N steps back along first parents. A method that reads looks its ref up once.
- *Somebody always gets through* (G5): no call holds a lock, and a call that loses a race lost it to one that won.
- An unknown ref raises `RefNotFound`, an unknown path `ObjectNotFound`, a path that leaves the tree `InvalidPath`, a
  bad name `InvalidArgument`. A protected branch raises `BranchProtected`, a check that says no `CheckRefused`, a
  conflicting merge `MergeConflict` with all conflicts. All of these leave everything as it was.

Every method is synchronous and may be called from several threads. Stores do not pickle; tasks on other machines need
only `objects` and a `Job`'s `data_prefix`.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from lakeseal.branches.values import (
    CHANGES,
    ENTRIES,
    Change,
    ChangeKind,
    Changes,
    Commit,
    Entry,
    GcReport,
    HeadMoved,
    Job,
    MergeResult,
    PathConflict,
    Protection,
    Ref,
    Strategy,
    changes_of,
    entries_of,
    entry_table,
    job_branch,
)
from lakeseal.storage import StoreSpec
from lakeseal.trust import Trust

DEFAULT_BRANCH = "main"
DAY_MS = 24 * 60 * 60 * 1000


class MergeProposal(Protocol):
    """What a check sees: the destination before and after the merge, which nobody else can see yet."""

    @property
    def source(self) -> Ref: ...

    @property
    def dest(self) -> Ref: ...

    @property
    def source_commit(self) -> Commit: ...

    @property
    def metadata(self) -> Mapping[str, str]:
        """Of the merge's commit to be."""

    def changes(self) -> Iterator[Change]:
        """What the merge would do to the destination, by path."""

    def change_tables(self) -> Iterator[pa.Table]:
        """The same in tables with the schema `CHANGES`: for large merges."""

    def open(self, path: str) -> pa.NativeFile:
        """A file as it would be after the merge."""


Check = Callable[[MergeProposal], str | None]
"""Looks at a merge: None lets it pass; a reason, or any exception, refuses it. Its `__name__` names it in the error."""


class BranchStore(Protocol):
    @property
    def uri(self) -> str:
        """The repository, without secrets."""

    @property
    def objects(self) -> StoreSpec:
        """The store that addresses of entries are keys of. Travels to tasks."""

    @property
    def trust(self) -> Trust:
        """Which other places entries may name, for whoever opened this."""

    def close(self) -> None:
        """Closes what the store itself opened, such as its ledger; not what it was given."""

    # Refs

    def resolve(self, ref: str) -> Ref: ...

    def head(self, ref: str) -> str:
        """The id of the commit that a ref stands for now."""

    def branches(self, prefix: str = "") -> builtins.list[Ref]:
        """By name; without those of jobs."""

    def tags(self, prefix: str = "") -> builtins.list[Ref]: ...

    def create_branch(self, name: str, source: str = DEFAULT_BRANCH) -> Ref:
        """`AlreadyExists` if a branch or tag has the name. Creating costs one row, whatever the tree's size."""

    def delete_branch(self, name: str, *, if_head: str | None = None) -> None:
        """Also of a job's branch. What only it referred to goes with the next `gc`."""

    def create_tag(self, name: str, ref: str) -> Ref:
        """Tags never move."""

    def delete_tag(self, name: str) -> None: ...

    def protect(self, branch: str, protection: Protection) -> Ref: ...

    # History

    def commit_info(self, ref: str) -> Commit: ...

    def log(self, ref: str, *, limit: int | None = None, first_parent: bool = False) -> Iterator[Commit]:
        """The commit and its ancestors, children before parents, newest first."""

    def merge_base(self, a: str, b: str) -> str | None:
        """The nearest common ancestor. Of several (criss-cross merges) the one of the largest generation."""

    # Files

    def stat(self, ref: str, path: str) -> Entry: ...

    def list(self, ref: str, directory: str = "") -> Iterator[Entry]:
        """All entries below a directory, by path."""

    def entry_tables(self, ref: str, directory: str = "") -> Iterator[pa.Table]:
        """The same in tables with the schema `ENTRIES`, each of some ten thousand rows: for large trees."""

    def read(self, ref: str, path: str) -> bytes: ...

    def open(self, ref: str, path: str) -> pa.NativeFile: ...

    def open_entry(self, entry: Entry) -> pa.NativeFile:
        """The content of an entry that was looked up before; `ObjectNotFound` if it was collected."""

    def diff(self, a: str, b: str, directory: str = "") -> Iterator[Change]:
        """What has to change in `a` to make it `b`, by path."""

    def diff_tables(self, a: str, b: str, directory: str = "") -> Iterator[pa.Table]:
        """The same in tables with the schema `CHANGES`."""

    # Changing a branch

    def commit(
        self,
        branch: str,
        changes: Changes,
        *,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
        expected_head: str | None = None,
        job: str = "",
        fence: str | None = None,
    ) -> Commit | HeadMoved:
        """One commit with all of the changes. With `expected_head`, only if that is the head: `HeadMoved` otherwise.
        Without, it is applied to whatever the head is, and never answers `HeadMoved`.

        Objects must be durable before, and protected from `gc` by their job being in flight, or by a `fence` that was
        asked for before they were written: `Collected` says that a collection came in between and that they must be
        written again. Entries copied from this repository's refs need no protection.
        """

    def fence(self) -> str:
        """A mark of now, for `commit`: for few objects without a job."""

    def put(
        self, branch: str, path: str, data: bytes, *, message: str = "", metadata: Mapping[str, str] | None = None
    ) -> Commit:
        """One file, written and committed."""

    def merge(
        self,
        source: str,
        dest: str,
        *,
        strategy: Strategy | None = None,
        if_head: str | None = None,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
        checks: Sequence[Check] = (),
    ) -> MergeResult:
        """Brings the changes that `source` (any ref) has since the merge base to the branch `dest`, in one commit with
        the parents dest, source; tries again when the head moved, unless `if_head` is given: then `HeadChanged`.

        By path: both sides equal, that; one side as in the base, the other; else a conflict, which `strategy` decides
        or `MergeConflict` tells. Directories that were emptied on the source (`Commit.directories` of commits that the
        destination lacks) are afterwards exactly as on the source, never a mix. If the source is a job's branch, what
        other jobs put there meanwhile goes (G3). Anything else that the destination changed there is a conflict; with
        `dest-wins`, such a directory stays exactly as on the destination.

        Checks and the rules of the branch's `Protection` see the outcome before it counts.
        """

    def merge_if(
        self,
        source: str,
        dest: str,
        expected_head: str,
        *,
        strategy: Strategy | None = None,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
        checks: Sequence[Check] = (),
    ) -> MergeResult | HeadMoved:
        """As `merge`, if the head of `dest` is `expected_head` in the very moment it is moved."""

    def revert(self, branch: str, commit: str, *, parent: int = 1, message: str = "") -> Commit:
        """A new commit that undoes one, which stays in the log. `MergeConflict` where later commits changed the same
        paths. Of a merge, undoes what it brought relative to its parent number `parent`."""

    def cherry_pick(self, branch: str, commit: str, *, parent: int = 1, message: str = "") -> Commit:
        """A new commit that does again what one did relative to its parent."""

    def reset(self, branch: str, ref: str, *, if_head: str | None = None) -> Ref:
        """Points the branch elsewhere."""

    # Jobs

    def begin_job(self, job_id: str, *, dest: str, path: str, who: str = "") -> Job:
        """Makes the job's branch at the head of `dest`; asked again with the same id and path, gives the first answer.
        One row; nothing is written to the store."""

    def job(self, job_id: str, path: str) -> Job:
        """`RefNotFound` if it ended or was collected."""

    def jobs(self, *, dest: str | None = None, path: str | None = None) -> builtins.list[Job]:
        """Jobs in flight, oldest first; with a path, those whose output overlaps it. A hint: safety rests on merges."""

    def end_job(self, job: Job) -> None:
        """Removes the job's branch: after its merge, or when it is given up. Twice is fine."""

    # Upkeep

    def gc(
        self,
        *,
        job_grace_ms: int = 7 * DAY_MS,
        history_ms: int | None = None,
        dry_run: bool = False,
    ) -> GcReport:
        """Removes what no branch, tag or job in flight needs. Branches of jobs that began more than `job_grace_ms` ago
        are removed first, which makes their commits fail. With `history_ms`, what only commits older than that show
        goes as well: such commits keep their place in the log, and asking for their files raises `HistoryExpired`."""


__all__ = [
    "CHANGES",
    "DEFAULT_BRANCH",
    "ENTRIES",
    "BranchStore",
    "Change",
    "ChangeKind",
    "Changes",
    "Check",
    "Commit",
    "Entry",
    "GcReport",
    "HeadMoved",
    "Job",
    "MergeProposal",
    "MergeResult",
    "PathConflict",
    "Protection",
    "Ref",
    "Strategy",
    "changes_of",
    "entries_of",
    "entry_table",
    "job_branch",
]
