"""The branch store on a lakeFS server: `lakefs://repository`.

    store = lakefs.create("lakefs://repository", storage_options={"lakefs_storage_namespace": "s3://bucket/prefix"})
    store = lakefs.open("lakefs://repository")

The server is found by `LAKESEAL_LAKEFS_ENDPOINT`, `LAKESEAL_LAKEFS_ACCESS_KEY_ID` and
`LAKESEAL_LAKEFS_SECRET_ACCESS_KEY`, by lakectl's own variables, or by storage options `lakefs_endpoint` and so on; all
other storage options are for the store that the objects are in. Tasks read and write objects there themselves, not
through the server, which gets links to them. With a `local` block store, `LAKESEAL_LAKEFS_LOCAL_PATH` is its directory.

It keeps the promises of `BranchStore`, with these differences:

- Names of branches and tags are those that lakeFS allows. `Commit.entries` is None: the server does not count. Times
  are in seconds. The server's identity of a file includes its metadata; diffs and merges here go by size and checksum.
- Whoever writes past Lakeseal (a commit or merge by lakectl) is seen by every guarded move. But `reset` and
  `delete_branch` with `if_head` look first and act then, for the server has no condition for these.
- A merge that has more to do than the server's own (see `merging`) has a commit of Lakeseal's as second parent,
  whose first parent is the source.
- Objects are collected by the server's own garbage collection: `gc` removes branches of old jobs only, and there are no
  fences.
"""

from __future__ import annotations

import builtins
import hashlib
import re
import uuid
from collections.abc import Iterator, Mapping

import lakefs_sdk
import pyarrow as pa

from lakeseal.branches import checks as rules
from lakeseal.branches.common_store import CommonBranchStore, MergeRequest, landed
from lakeseal.branches.lakefs import jobs as lakefs_jobs
from lakeseal.branches.lakefs.merging import LakeFSMerges
from lakeseal.branches.lakefs.moves import LakeFSMoves, check_text
from lakeseal.branches.lakefs.options import Options
from lakeseal.branches.lakefs.repository import (
    JOB_PREFIX,
    SCRATCH_PREFIX,
    LakeFSRepository,
    change_tables,
    entry_tables,
)
from lakeseal.branches.lakefs.server import Answered, Server
from lakeseal.branches.paths import DATA, check_own_name, check_path, directory
from lakeseal.branches.store import DAY_MS, DEFAULT_BRANCH
from lakeseal.branches.tree.history import CommitHistory
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
)
from lakeseal.errors import (
    AlreadyExists,
    InvalidArgument,
    ObjectNotFound,
    RefNotFound,
    Unsupported,
)
from lakeseal.storage import StoreSpec
from lakeseal.trust import Trust

_allowed = re.compile(r"\w[-\w]*\Z", re.ASCII)
_allowed_tag = re.compile(r"\w[-\w.]*\Z", re.ASCII)


def create(
    uri: str, *, storage_options: Mapping[str, str] | None = None, trust: Trust | None = None
) -> LakeFSBranchStore:
    """A new repository with an empty branch `main`; `AlreadyExists` if there is one."""
    server = Server(uri, Options.of(storage_options))
    config = server.storage_config()
    namespace = server.options.storage_namespace
    if not namespace and config.default_namespace_prefix:
        namespace = f"{config.default_namespace_prefix.removesuffix('/')}/{server.repository}"
        namespace = namespace.replace(":///", "://", 1)
    if not namespace:
        raise InvalidArgument(
            f"where shall the objects of {uri} be?",
            hint="Give the storage option lakefs_storage_namespace, such as s3://bucket/prefix",
        )
    server.create_repository(namespace, DEFAULT_BRANCH)
    return LakeFSBranchStore(LakeFSRepository(server, trust))


def open(
    uri: str, *, storage_options: Mapping[str, str] | None = None, trust: Trust | None = None
) -> LakeFSBranchStore:
    """`RepositoryNotFound` if there is none."""
    return LakeFSBranchStore(LakeFSRepository(Server(uri, Options.of(storage_options)), trust))


class LakeFSBranchStore(CommonBranchStore):
    """`store.BranchStore`. Made by `create` and `open`."""

    def __init__(self, repository: LakeFSRepository) -> None:
        self._repository = repository
        self._server = repository.server
        self._moves = LakeFSMoves(repository)
        self._merges = LakeFSMerges(repository, self._moves)

    @property
    def uri(self) -> str:
        return self._server.uri

    @property
    def trust(self) -> Trust:
        return self._repository.trust

    @property
    def objects(self) -> StoreSpec:
        return self._repository.objects

    def close(self) -> None:
        self._server.close()

    def __repr__(self) -> str:
        return f"LakeFSBranchStore({self.uri!r})"

    @property
    def _history(self) -> CommitHistory:
        return self._repository.history

    # Refs

    def resolve(self, ref: str) -> Ref:
        found = self._repository.look(ref)
        return self._with_protection(found) if found.kind == "branch" else found

    def head(self, ref: str) -> str:
        return self._repository.look(ref).commit

    def branches(self, prefix: str = "") -> builtins.list[Ref]:
        found = self._server.branch_names(prefix, hidden=False)
        return [
            self._with_protection(Ref(name=name, kind="branch", commit=head))
            for name, head in found
            if not name.startswith((JOB_PREFIX, SCRATCH_PREFIX))
        ]

    def tags(self, prefix: str = "") -> builtins.list[Ref]:
        return [Ref(name=name, kind="tag", commit=head) for name, head in self._server.tag_names(prefix)]

    def create_branch(self, name: str, source: str = DEFAULT_BRANCH) -> Ref:
        _check_name(name, "branch", _allowed)
        commit = self._repository.look(source).commit
        if self._server.tag(name) is not None or not self._server.make_branch(name, commit, hidden=False):
            raise _taken(name, self.uri)
        return Ref(name=name, kind="branch", commit=commit)

    def delete_branch(self, name: str, *, if_head: str | None = None) -> None:
        if name == DEFAULT_BRANCH:
            raise InvalidArgument(f"the branch {DEFAULT_BRANCH} stays", hint="Reset it, or delete the repository")
        head = self._repository.head(name)
        if if_head is not None and head != if_head:
            landed(HeadMoved(branch=name, expected=if_head, actual=head))
        self._moves.refuse_protected(name, "delete")
        if not self._server.drop_branch(name):
            raise RefNotFound(f"{name!r} is no branch", table=self.uri)

    def create_tag(self, name: str, ref: str) -> Ref:
        _check_name(name, "tag", _allowed_tag)
        commit = self._repository.look(ref).commit
        if self._server.branch(name) is not None:
            raise _taken(name, self.uri)
        try:
            self._server.call(self._server.api.tags_api.create_tag, lakefs_sdk.TagCreation(id=name, ref=commit))
        except Answered as answer:
            raise (_taken(name, self.uri) if answer.status == 409 else self._server.wrong(answer)) from None
        return Ref(name=name, kind="tag", commit=commit)

    def delete_tag(self, name: str) -> None:
        if not _allowed_tag.match(name) or self._server.tag(name) is None:
            raise RefNotFound(f"there is no tag {name!r}", table=self.uri)
        self._server.asked(self._server.api.tags_api.delete_tag, name)

    def protect(self, branch: str, protection: Protection) -> Ref:
        rules.rules_from_json(protection.rules)
        found = Ref(name=branch, kind="branch", commit=self._repository.head(branch))
        self._server.protect(branch, protected=protection.protected)
        self._repository.keep_rules(branch, protection.rules)
        return self._with_protection(found)

    # Files

    def stat(self, ref: str, path: str) -> Entry:
        check_path(path)
        found = self._repository.entry(self.head(ref), path)
        if found is None:
            raise ObjectNotFound(f"there is no {path!r} on {ref!r}", file=path)
        return found

    def list(self, ref: str, directory: str = "") -> Iterator[Entry]:
        prefix = _prefix(directory)
        return self._repository.entries(self.head(ref), prefix)

    def entry_tables(self, ref: str, directory: str = "") -> Iterator[pa.Table]:
        return entry_tables(self.list(ref, directory))

    def open_entry(self, entry: Entry) -> pa.NativeFile:
        return self._repository.open(entry)

    def diff(self, a: str, b: str, directory: str = "") -> Iterator[Change]:
        return self._repository.changes(self.head(a), self.head(b), _prefix(directory))

    def diff_tables(self, a: str, b: str, directory: str = "") -> Iterator[pa.Table]:
        return change_tables(self.diff(a, b, directory))

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
            message=check_text(message),
            metadata=metadata or {},
            expected_head=expected_head,
            job=job,
        )

    def fence(self) -> str:
        """Empty: the server's collection has a grace period of its own, and does not tell when it ran."""
        return ""

    def put(
        self, branch: str, path: str, data: bytes, *, message: str = "", metadata: Mapping[str, str] | None = None
    ) -> Commit:
        check_path(path)
        self._repository.head(branch)
        address = f"{DATA}_put/{uuid.uuid4().hex}"
        self._repository.store.put(address, data)
        checksum = f"sha256:{hashlib.sha256(data).hexdigest()}"
        entry = Entry(path=path, address=address, size=len(data), checksum=checksum)
        done = self.commit(branch, Changes(puts=(entry,)), message=message or f"Put {path}", metadata=metadata)
        assert isinstance(done, Commit)
        return done

    def _merge(self, request: MergeRequest) -> MergeResult | HeadMoved:
        return self._merges.merge(request)

    def revert(self, branch: str, commit: str, *, parent: int = 1, message: str = "") -> Commit:
        return self._moves.revert(branch, commit, parent=parent, message=check_text(message))

    def cherry_pick(self, branch: str, commit: str, *, parent: int = 1, message: str = "") -> Commit:
        return self._moves.cherry_pick(branch, commit, parent=parent, message=check_text(message))

    def reset(self, branch: str, ref: str, *, if_head: str | None = None) -> Ref:
        return landed(self._moves.reset(branch, ref, if_head=if_head))

    # Jobs

    def begin_job(self, job_id: str, *, dest: str, path: str, who: str = "") -> Job:
        return lakefs_jobs.begin(self._repository, job_id, dest=dest, path=path, who=who)

    def job(self, job_id: str, path: str) -> Job:
        return lakefs_jobs.find(self._repository, job_id, path)

    def jobs(self, *, dest: str | None = None, path: str | None = None) -> builtins.list[Job]:
        return lakefs_jobs.in_flight(self._repository, dest=dest, path=path)

    def end_job(self, job: Job) -> None:
        lakefs_jobs.end(self._repository, job.branch)

    # Upkeep

    def gc(
        self,
        *,
        job_grace_ms: int = 7 * DAY_MS,
        history_ms: int | None = None,
        dry_run: bool = False,
    ) -> GcReport:
        """Branches only: which objects go, and when, is decided by the server's garbage collection rules."""
        if history_ms is not None:
            raise Unsupported(
                "a lakeFS server collects its history by rules of its own",
                table=self.uri,
                hint="Set its garbage collection rules, and leave out how long to keep history",
            )
        gone = lakefs_jobs.collect(self._repository, grace_ms=job_grace_ms, dry_run=dry_run)
        return GcReport(dry_run=dry_run, job_branches=tuple(gone))

    def _with_protection(self, ref: Ref) -> Ref:
        return Ref(name=ref.name, kind=ref.kind, commit=ref.commit, protection=self._repository.protection(ref.name))


def _prefix(name: str) -> str:
    return directory(name)


def _check_name(name: str, what: str, allowed: re.Pattern[str]) -> None:
    check_own_name(name, what)
    if allowed.match(name) is None:
        raise InvalidArgument(
            f"{name!r} can't name a {what} on a lakeFS server", hint="Use letters, digits, dashes and underscores"
        )
    if name.startswith((JOB_PREFIX, SCRATCH_PREFIX)):
        raise InvalidArgument(f"names like {name!r} are Lakeseal's own", hint=f"Give the {what} another name")


def _taken(name: str, uri: str) -> AlreadyExists:
    return AlreadyExists(f"there is a branch or tag {name!r}", table=uri)
