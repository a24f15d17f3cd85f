"""The branch store that needs no server: trees in any object store, heads in the ledger.

    store = embedded.create("s3://bucket/repo", ledger="postgresql://host/db")
    store = embedded.open("s3://bucket/repo", ledger="postgresql://host/db")

On local disk the ledger may be left out: then it is an SQLite file in the repository. Below the repository's root,
`_lakeseal/` holds commits with the blocks of their trees, `data/` the objects; nothing there is ever changed in place.
"""

from __future__ import annotations

import builtins
import hashlib
import os
import uuid
from collections.abc import Iterator, Mapping

import pyarrow as pa

from lakeseal.branches import checks as rules
from lakeseal.branches.common_store import CommonBranchStore, MergeRequest, landed
from lakeseal.branches.embedded import collector, config, jobs
from lakeseal.branches.embedded.heads import BRANCH, Head, Heads
from lakeseal.branches.embedded.moves import Moves
from lakeseal.branches.embedded.repository import EmbeddedRepository
from lakeseal.branches.paths import DATA, check_own_name, check_path, directory, end_of
from lakeseal.branches.store import DAY_MS, DEFAULT_BRANCH
from lakeseal.branches.tree import diff
from lakeseal.branches.tree.blocks import Blocks
from lakeseal.branches.tree.history import CommitHistory
from lakeseal.branches.tree.ranges import TreeShape
from lakeseal.branches.tree.tree import TreeFiles
from lakeseal.branches.tree.writer import TreeWriter
from lakeseal.branches.values import (
    Change,
    Changes,
    Commit,
    Entry,
    GcReport,
    HeadMoved,
    Job,
    MergeResult,
    Protection,
    Ref,
    changes_of,
    entries_of,
)
from lakeseal.clock import now_ms
from lakeseal.errors import (
    AlreadyExists,
    BranchProtected,
    Collected,
    InvalidArgument,
    ObjectNotFound,
    RefNotFound,
    RepositoryNotFound,
)
from lakeseal.ledger import Ledger
from lakeseal.storage import Store, StoreSpec
from lakeseal.trust import Trust

_PUTS = f"{DATA}_put"


def create(
    uri: str | os.PathLike[str],
    *,
    ledger: str | Ledger | None = None,
    storage_options: Mapping[str, str] | None = None,
    store: Store | None = None,
    shape: TreeShape | None = None,
    trust: Trust | None = None,
) -> EmbeddedBranchStore:
    """A new repository with an empty branch `main`; `AlreadyExists` if there is one. Continues where an attempt with
    the same ledger was interrupted. `store` is what is at the URI, where that is open already."""
    spec = StoreSpec(uri=os.fspath(uri), storage_options=storage_options or {})
    store = store or spec.open()
    book = config.ledger_for(spec, ledger, create=True)
    try:
        return EmbeddedBranchStore(
            _create(spec, store, book, shape or TreeShape(), trust), book, owns_ledger=book is not ledger
        )
    except BaseException:
        if book is not ledger:
            book.close()
        raise


def _create(spec: StoreSpec, store: Store, book: Ledger, shape: TreeShape, trust: Trust | None) -> EmbeddedRepository:
    made = config.make(store, book, shape)
    heads = Heads(book, made.id)
    if heads.is_known():
        raise AlreadyExists(f"there is a repository at {store.uri}", hint="Open it")
    if made.ledger != book.url.public:
        raise AlreadyExists(
            f"there is a repository at {store.uri}, whose heads are in another ledger",
            hint=f"Open it with {made.ledger}",
        )
    repository = _repository(spec, store, made, heads, trust)
    with TreeWriter(repository.files) as writer:
        first = repository.history.put(
            writer,
            parents=(),
            tree=writer.put_tree(()),
            entries=0,
            message="Repository created",
            metadata={},
            now_ms=now_ms(),
        )
    if not heads.register(DEFAULT_BRANCH, first.id, store.uri):
        raise AlreadyExists(f"there is a repository at {store.uri}", hint="Open it")
    return repository


def open(
    uri: str | os.PathLike[str],
    *,
    ledger: str | Ledger | None = None,
    storage_options: Mapping[str, str] | None = None,
    store: Store | None = None,
    trust: Trust | None = None,
) -> EmbeddedBranchStore:
    """`RepositoryNotFound` if there is none, or if the ledger does not know it."""
    spec = StoreSpec(uri=os.fspath(uri), storage_options=storage_options or {})
    store = store or spec.open()
    found = config.read(store)
    book = config.ledger_for(spec, ledger, create=False)
    heads = Heads(book, found.id)
    if not heads.is_known():
        if book is not ledger:
            book.close()
        raise RepositoryNotFound(
            f"the ledger {book.url} does not know the repository at {store.uri}",
            hint=f"It was made with the ledger {found.ledger}: open it with that one",
        )
    return EmbeddedBranchStore(_repository(spec, store, found, heads, trust), book, owns_ledger=book is not ledger)


def _repository(
    spec: StoreSpec, store: Store, found: config.Config, heads: Heads, trust: Trust | None
) -> EmbeddedRepository:
    blocks = Blocks(store)
    return EmbeddedRepository(
        store=store,
        spec=spec,
        files=TreeFiles(blocks, found.shape),
        history=CommitHistory(blocks),
        heads=heads,
        given_trust=trust,
    )


class EmbeddedBranchStore(CommonBranchStore):
    """`store.BranchStore`. Made by `create` and `open`."""

    def __init__(self, repository: EmbeddedRepository, ledger: Ledger, *, owns_ledger: bool) -> None:
        self._repository = repository
        self._moves = Moves(repository)
        self._owns_ledger = owns_ledger
        self.ledger = ledger

    @property
    def uri(self) -> str:
        return self._repository.store.uri

    @property
    def trust(self) -> Trust:
        return self._repository.trust

    @property
    def objects(self) -> StoreSpec:
        return self._repository.spec

    def close(self) -> None:
        if self._owns_ledger:
            self.ledger.close()

    def __repr__(self) -> str:
        return f"EmbeddedBranchStore({self.uri!r})"

    @property
    def _history(self) -> CommitHistory:
        return self._repository.history

    # Refs

    def resolve(self, ref: str) -> Ref:
        return self._repository.look(ref).ref

    def head(self, ref: str) -> str:
        return self.resolve(ref).commit

    def branches(self, prefix: str = "") -> builtins.list[Ref]:
        found = self._repository.heads.all().heads
        return [head.ref for head in found if head.kind == BRANCH and head.name.startswith(prefix)]

    def tags(self, prefix: str = "") -> builtins.list[Ref]:
        return [tag for tag in self._repository.heads.all().tags if tag.name.startswith(prefix)]

    def create_branch(self, name: str, source: str = DEFAULT_BRANCH) -> Ref:
        check_own_name(name)
        while True:
            looked = self._repository.look(source)
            commit = self._repository.lasting(looked)
            made = self._repository.heads.create_branch(name, commit.id, looked.snapshot.collection)
            if made is not None:
                return made.ref

    def delete_branch(self, name: str, *, if_head: str | None = None) -> None:
        if name == DEFAULT_BRANCH:
            raise InvalidArgument(f"the branch {DEFAULT_BRANCH} stays", hint="Reset it, or delete the repository")
        while True:
            head, _ = self._repository.head_of(name)
            _check_head(head, if_head)
            if head.protection.protected:
                raise BranchProtected(f"the branch {name!r} is protected: one can't delete it")
            if self._repository.heads.delete_branch(head):
                return

    def create_tag(self, name: str, ref: str) -> Ref:
        check_own_name(name, "tag")
        while True:
            looked = self._repository.look(ref)
            commit = self._repository.lasting(looked)
            made = self._repository.heads.create_tag(name, commit.id, looked.snapshot.collection)
            if made is not None:
                return made

    def delete_tag(self, name: str) -> None:
        if not self._repository.heads.look(name).tags:
            raise RefNotFound(f"there is no tag {name!r}", table=self.uri)
        self._repository.heads.delete_tag(name)

    def protect(self, branch: str, protection: Protection) -> Ref:
        rules.rules_from_json(protection.rules)
        return self._repository.heads.protect(branch, protection).ref

    # Files

    def stat(self, ref: str, path: str) -> Entry:
        check_path(path)
        found = diff.lookup(self._repository.files, self._repository.rows_to_read(ref), path)
        if found is None:
            raise ObjectNotFound(f"there is no {path!r} on {ref!r}", file=path)
        return next(entries_of(found))

    def list(self, ref: str, directory: str = "") -> Iterator[Entry]:
        return (entry for table in self.entry_tables(ref, directory) for entry in entries_of(table))

    def entry_tables(self, ref: str, directory: str = "") -> Iterator[pa.Table]:
        low, high = _bounds(directory)
        return diff.listed(self._repository.files, self._repository.rows_to_read(ref), low, high)

    def open_entry(self, entry: Entry) -> pa.NativeFile:
        return self._repository.open(entry)

    def diff(self, a: str, b: str, directory: str = "") -> Iterator[Change]:
        return (change for table in self.diff_tables(a, b, directory) for change in changes_of(table))

    def diff_tables(self, a: str, b: str, directory: str = "") -> Iterator[pa.Table]:
        low, high = _bounds(directory)
        before, after = map(self._repository.rows_to_read, (a, b))
        return diff.diff(self._repository.files, before, after, low, high)

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
        return self._moves.commit(
            branch,
            changes,
            message=message,
            metadata=metadata or {},
            expected_head=expected_head,
            job=job,
            fence=None if fence is None else _number(fence),
        )

    def fence(self) -> str:
        return str(self._repository.heads.look("").collection)

    def put(
        self, branch: str, path: str, data: bytes, *, message: str = "", metadata: Mapping[str, str] | None = None
    ) -> Commit:
        check_path(path)
        checksum = f"sha256:{hashlib.sha256(data).hexdigest()}"
        while True:
            fence = self.fence()
            address = f"{_PUTS}/{uuid.uuid4().hex}"
            self._repository.store.put(address, data)
            entry = Entry(path=path, address=address, size=len(data), checksum=checksum)
            try:
                done = self.commit(
                    branch, Changes(puts=(entry,)), message=message or f"Put {path}", metadata=metadata, fence=fence
                )
            except Collected:
                continue
            assert isinstance(done, Commit)
            return done

    def _merge(self, request: MergeRequest) -> MergeResult | HeadMoved:
        return self._moves.merge(request)

    def revert(self, branch: str, commit: str, *, parent: int = 1, message: str = "") -> Commit:
        return self._moves.revert(branch, commit, parent=parent, message=message)

    def cherry_pick(self, branch: str, commit: str, *, parent: int = 1, message: str = "") -> Commit:
        return self._moves.cherry_pick(branch, commit, parent=parent, message=message)

    def reset(self, branch: str, ref: str, *, if_head: str | None = None) -> Ref:
        return landed(self._moves.reset(branch, ref, if_head=if_head))

    # Jobs

    def begin_job(self, job_id: str, *, dest: str, path: str, who: str = "") -> Job:
        return jobs.begin(self._repository.heads, job_id, dest=dest, path=path, who=who)

    def job(self, job_id: str, path: str) -> Job:
        return jobs.find(self._repository.heads, job_id, path)

    def jobs(self, *, dest: str | None = None, path: str | None = None) -> builtins.list[Job]:
        return jobs.in_flight(self._repository.heads, dest=dest, path=path)

    def end_job(self, job: Job) -> None:
        jobs.end(self._repository.heads, job)

    # Upkeep

    def gc(
        self,
        *,
        job_grace_ms: int = 7 * DAY_MS,
        history_ms: int | None = None,
        dry_run: bool = False,
    ) -> GcReport:
        return collector.collect(self._repository, job_grace_ms=job_grace_ms, history_ms=history_ms, dry_run=dry_run)


def _bounds(name: str) -> tuple[str, str | None]:
    prefix = directory(name)
    return prefix, end_of(prefix)


def _number(fence: str) -> int:
    try:
        return int(fence)
    except ValueError:
        raise InvalidArgument(f"{fence!r} is no fence", hint="Use what fence() gave") from None


def _check_head(head: Head, if_head: str | None) -> None:
    if if_head is not None and head.commit != if_head:
        landed(HeadMoved(branch=head.name, expected=if_head, actual=head.commit))
