"""A repository on a lakeFS server, as few calls with Lakeseal's own values and errors.

Every failure of a call becomes an error of Lakeseal's: of the server's answers only the status and its own message are
kept, never headers, so no secret is shown. `Answered` is for callers that expect a refusal and look at its status.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import lakefs_sdk
import msgspec
from lakefs_sdk.client import LakeFSClient
from lakefs_sdk.exceptions import ApiException
from msgspec import Struct
from urllib3.exceptions import HTTPError

from lakeseal.branches.lakefs.options import SCHEME, Options, repository_of
from lakeseal.branches.values import Commit, Entry
from lakeseal.errors import (
    AlreadyExists,
    InvalidArgument,
    NotAllowed,
    NotAuthenticated,
    RefNotFound,
    RepositoryNotFound,
    StorageError,
    StorageUnavailable,
    Unsupported,
)
from lakeseal.storage import StoreSpec

OWN = "::lakeseal::"
"""What begins the names of metadata that Lakeseal keeps in commits for itself."""
JOB, DIRECTORIES, ASIDE, WRITE, EXPECTED = (
    OWN + name for name in ("job", "directories", "aside", "write", "expected-head")
)

_SERVERS_OWN = ".lakefs."
_LOCAL = "local://"
_PAGE = 1000
_SIDE_BY_SIDE = 16
_PATIENCE_S = (10, 300)
"""To connect, and for an answer: a merge of a large tree takes its time."""

T = TypeVar("T")
R = TypeVar("R")


class Answered(Exception):
    """The server refused a call. Never leaves the branch store."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class ObjectPlace(Struct, frozen=True, kw_only=True):
    """What the physical addresses of a repository's own objects begin with."""

    address: str
    shown: str
    """By the server's answers: for objects on its own disk that were linked, the disk's root stands there twice."""


class Server:
    """One repository. May be shared by threads."""

    def __init__(self, uri: str, options: Options) -> None:
        self.repository = repository_of(uri)
        self.uri = f"{SCHEME}{self.repository}"
        self.options = options
        configuration = lakefs_sdk.Configuration(
            host=options.endpoint, username=options.access_key_id, password=options.secret_access_key
        )
        configuration.connection_pool_maxsize = _SIDE_BY_SIDE
        self.api = LakeFSClient(configuration)
        self._workers = ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="lakefs")

    def close(self) -> None:
        self._workers.shutdown()

    def call(self, method: Callable[..., R], *arguments: Any, **named: Any) -> R:
        """`Answered` for refusals that callers know how to take."""
        return self._whole(method, self.repository, *arguments, **named)

    def _whole(self, method: Callable[..., R], *arguments: Any, **named: Any) -> R:
        try:
            return method(*arguments, **named, _request_timeout=_PATIENCE_S)
        except ApiException as error:
            raise self._refusal(error) from None
        except HTTPError as error:
            raise StorageUnavailable(
                f"the lakeFS server did not answer ({type(error).__name__})",
                table=self.uri,
                hint=f"Is a server at {self.options.shown}?",
            ) from None

    def side_by_side(self, work: Callable[[T], R], items: Iterable[T]) -> list[R]:
        return [*self._workers.map(work, items)]

    def _refusal(self, error: ApiException) -> Exception:
        status, message = int(error.status or 0), _words(error)
        match status:
            case 401:
                return NotAuthenticated(
                    "the lakeFS server does not know these keys",
                    table=self.uri,
                    hint="Check LAKESEAL_LAKEFS_ACCESS_KEY_ID and LAKESEAL_LAKEFS_SECRET_ACCESS_KEY",
                )
            case 501:
                return Unsupported(f"this lakeFS server does not do that: {message}", table=self.uri)
            case _ if status >= 500 or not status:
                return StorageUnavailable(f"the lakeFS server failed: {message}", table=self.uri)
        return Answered(status, message)

    def wrong(self, answer: Answered) -> Exception:
        """For refusals that nobody expected."""
        if answer.status == 404:
            return RefNotFound(f"the lakeFS server does not find it any more: {answer.message}", table=self.uri)
        if answer.status == 403:
            return NotAllowed(f"the lakeFS server refuses: {answer.message}", table=self.uri)
        if answer.status in (423, 429):
            return StorageUnavailable(f"the lakeFS server is busy: {answer.message}", table=self.uri)
        if answer.status == 400:
            return InvalidArgument(f"the lakeFS server refuses: {answer.message}", table=self.uri)
        return StorageError(f"the lakeFS server answered {answer.status}: {answer.message}", table=self.uri)

    # Where objects are

    def storage_config(self) -> Any:
        return self._whole(self.api.config_api.get_config).storage_config

    def create_repository(self, namespace: str, branch: str) -> None:
        creation = lakefs_sdk.RepositoryCreation(
            name=self.repository, storage_namespace=namespace, default_branch=branch
        )
        try:
            self._whole(self.api.repositories_api.create_repository, creation)
        except Answered as answer:
            if answer.status == 409:
                raise AlreadyExists(f"there is a repository {self.uri}", hint="Open it") from None
            raise self.wrong(answer) from None

    def place(self) -> ObjectPlace:
        try:
            found = self.call(self.api.repositories_api.get_repository)
        except Answered as answer:
            if answer.status != 404:
                raise self.wrong(answer) from None
            raise RepositoryNotFound(f"the lakeFS server has no repository {self.repository}", table=self.uri) from None
        namespace = str(found.storage_namespace).rstrip("/")
        if not namespace.startswith(_LOCAL):
            return ObjectPlace(address=namespace, shown=namespace)
        # On the server's own disk, addresses are absolute, and only an address tells where that is.
        sample = self.asked(self.api.staging_api.get_physical_address, found.default_branch, "sample").physical_address
        below = f"/{namespace.removeprefix(_LOCAL)}/"
        root = sample[: sample.rindex(f"{below}data/")].removeprefix(_LOCAL)
        address = f"{root}{below}".rstrip("/")
        return ObjectPlace(address=f"{_LOCAL}{address}", shown=f"{_LOCAL}{root}{address}")

    def objects(self, place: ObjectPlace) -> StoreSpec:
        if not place.address.startswith(_LOCAL):
            return StoreSpec(uri=place.address, storage_options=self.options.storage)
        path = place.address.removeprefix(_LOCAL)
        if self.options.local_path:
            path = os.path.join(self.options.local_path, os.path.basename(path))
        if not os.path.isdir(path):
            raise InvalidArgument(
                "the repository's objects are on the lakeFS server's own disk, which is not this machine's",
                table=self.uri,
                hint="Set LAKESEAL_LAKEFS_LOCAL_PATH to the directory of its block store, as seen from here",
            )
        return StoreSpec(uri=path, storage_options=self.options.storage)

    # Refs

    def branch(self, name: str) -> str | None:
        """Its head."""
        return self._ref(self.api.branches_api.get_branch, name)

    def tag(self, name: str) -> str | None:
        return self._ref(self.api.tags_api.get_tag, name)

    def branch_names(self, prefix: str, *, hidden: bool) -> Iterator[tuple[str, str]]:
        """And heads."""
        api = self.api.branches_api.list_branches
        for ref in self._pages(lambda after: self.asked(api, prefix=prefix, after=after, show_hidden=hidden)):
            yield ref.id, ref.commit_id

    def tag_names(self, prefix: str) -> Iterator[tuple[str, str]]:
        for ref in self._pages(lambda after: self.asked(self.api.tags_api.list_tags, prefix=prefix, after=after)):
            yield ref.id, ref.commit_id

    def make_branch(self, name: str, source: str, *, hidden: bool) -> bool:
        """False if there is one."""
        creation = lakefs_sdk.BranchCreation(name=name, source=source, hidden=hidden)
        try:
            self.call(self.api.branches_api.create_branch, creation)
        except Answered as answer:
            if answer.status == 409:
                return False
            raise self.wrong(answer) from None
        return True

    def drop_branch(self, name: str) -> bool:
        """False if there is none."""
        try:
            self.call(self.api.branches_api.delete_branch, name)
        except Answered as answer:
            if answer.status == 404:
                return False
            raise self.wrong(answer) from None
        return True

    def protect(self, branch: str, *, protected: bool) -> None:
        """By the server's rules. One that a pattern protects stays so."""
        api = self.api.repositories_api
        while True:
            answer = self.asked(api.get_branch_protection_rules_with_http_info)
            rules = [rule for rule in answer.data or [] if rule.pattern != branch]
            if protected:
                rules.append(lakefs_sdk.BranchProtectionRule(pattern=branch))
            tag = {name.lower(): value for name, value in (answer.headers or {}).items()}.get("etag")
            try:
                self.call(api.set_branch_protection_rules, rules, **({"if_match": tag} if tag else {}))
            except Answered as refusal:
                if refusal.status != 412:
                    raise self.wrong(refusal) from None
                # Somebody else has changed the rules meanwhile.
                continue
            return

    def _ref(self, method: Callable[..., Any], name: str) -> str | None:
        try:
            return str(self.call(method, name).commit_id)
        except Answered as answer:
            if answer.status in (400, 404):
                return None
            raise self.wrong(answer) from None

    # Commits

    def commit(self, commit_id: str) -> ServerCommit:
        try:
            return commit_of(self.call(self.api.commits_api.get_commit, commit_id))
        except Answered as answer:
            if answer.status in (400, 404):
                raise RefNotFound(f"there is no commit {commit_id}", table=self.uri) from None
            raise self.wrong(answer) from None

    def ancestors(self, commit_id: str, amount: int) -> list[ServerCommit]:
        """Some of them, the commit itself first."""
        found = self.asked(self.api.refs_api.log_commits, commit_id, amount=amount, limit=True)
        return [commit_of(commit) for commit in found.results]

    # Files

    def entry(self, commit_id: str, path: str, place: ObjectPlace) -> Entry | None:
        try:
            found = self.call(self.api.objects_api.stat_object, commit_id, path, user_metadata=True)
        except Answered as answer:
            if answer.status == 404:
                return None
            raise self.wrong(answer) from None
        return entry_of(found, place)

    def entries(self, commit_id: str, prefix: str, place: ObjectPlace) -> Iterator[Entry]:
        api = self.api.objects_api.list_objects
        for found in self._pages(
            lambda after: self.asked(api, commit_id, prefix=prefix, after=after, amount=_PAGE, user_metadata=True)
        ):
            yield entry_of(found, place)

    def differences(self, left: str, right: str, prefix: str = "") -> Iterator[tuple[str, str]]:
        """Paths with "added", "removed" or "changed"; the last also where only metadata differ."""
        if left == right:
            return
        api = self.api.refs_api.diff_refs
        for found in self._pages(
            lambda after: self.asked(api, left, right, prefix=prefix, after=after, amount=_PAGE, type="two_dot")
        ):
            yield found.path, found.type

    def stage(self, branch: str, entries: Iterable[Entry], place: ObjectPlace) -> None:
        """Links: no object is copied."""

        def one(entry: Entry) -> None:
            body = {
                "physical_address": entry.address if "://" in entry.address else f"{place.address}/{entry.address}",
                "checksum": entry.checksum,
                "size_bytes": entry.size,
                "metadata": entry.metadata,
            }
            try:
                self._whole(self._link, branch, entry.path, body)
            except Answered as answer:
                raise self.wrong(answer) from None

        self.side_by_side(one, entries)

    def _link(self, branch: str, path: str, body: dict[str, Any], *, _request_timeout: tuple[int, int]) -> None:
        # The SDK's stage_object warns that the call may go, and there is no other that links an object which tasks
        # have named themselves; get_physical_address and link_physical_address would be two calls for each file.
        self.api.internal_api.api_client.call_api(
            "/repositories/{repository}/branches/{branch}/objects",
            "PUT",
            {"repository": self.repository, "branch": branch},
            [("path", path)],
            {"Accept": "application/json", "Content-Type": "application/json"},
            body=body,
            response_types_map={"201": "ObjectStats"},
            auth_settings=["basic_auth"],
            _return_http_data_only=True,
            _request_timeout=_request_timeout,
        )

    def unstage(self, branch: str, paths: Iterable[str]) -> None:
        rest = [*paths]
        while rest:
            batch, rest = rest[:_PAGE], rest[_PAGE:]
            done = self.asked(self.api.objects_api.delete_objects, branch, lakefs_sdk.PathList(paths=batch))
            for failed in done.errors:
                raise StorageError(
                    f"the lakeFS server could not delete {failed.path}: {failed.message}", table=self.uri
                )

    def asked(self, method: Callable[..., R], *arguments: Any, **named: Any) -> R:
        """As `call`, where no refusal is expected."""
        try:
            return self.call(method, *arguments, **named)
        except Answered as answer:
            raise self.wrong(answer) from None

    def _pages(self, ask: Callable[[str], Any]) -> Iterator[Any]:
        after = ""
        while True:
            page = ask(after)
            yield from page.results
            if not page.pagination.has_more:
                return
            after = page.pagination.next_offset


class ServerCommit(Commit, frozen=True, kw_only=True):
    """A commit, with what Lakeseal noted in it for itself."""

    aside: bool = False
    """Prepared on a branch of Lakeseal's own, for a merge: nobody's work in itself."""
    write: str = ""
    """A mark by which a merge is known whose answer was lost."""


def commit_of(found: Any) -> ServerCommit:
    everything = dict(found.metadata or {})
    return ServerCommit(
        id=found.id,
        parents=tuple(found.parents),
        tree=found.meta_range_id,
        message=found.message,
        metadata={name: value for name, value in everything.items() if not name.startswith((OWN, _SERVERS_OWN))},
        time_ms=found.creation_date * 1000,
        generation=found.generation or 0,
        job=everything.get(JOB, ""),
        directories=tuple(msgspec.json.decode(everything.get(DIRECTORIES, "[]"), type=list[str])),
        aside=ASIDE in everything,
        write=everything.get(WRITE, ""),
    )


def entry_of(found: Any, place: ObjectPlace) -> Entry:
    address = str(found.physical_address)
    return Entry(
        path=found.path,
        address=address.removeprefix(f"{place.shown}/").removeprefix(f"{place.address}/"),
        size=found.size_bytes or 0,
        checksum=found.checksum,
        metadata=dict(found.metadata or {}),
    )


def _words(error: ApiException) -> str:
    try:
        return str(msgspec.json.decode(error.body or b"")["message"])
    except (msgspec.MsgspecError, KeyError, TypeError):
        return str(error.reason or "no reason given")
