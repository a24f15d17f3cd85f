"""An owner's work on the files of a table: publishing ratified commits, looking at the log, tidying up.

`publish` puts a commit's bytes under the version's own name. It is safe to run twice, and by several processes at the
same time. It writes the very bytes that were ratified: of small commits the ledger's row has them, of large ones it
has the SHA-256 that their file is held against, and `TamperedCommit` tells where that is no longer what it was. It
never gives a client's file a second name, and never overwrites but what a client of a catalog left half written: the
beginning of the very commit. Where the name is taken by other bytes it raises `BackfillMismatch`, because then somebody
has written past the owner.
`publish_up_to` does so version by version, for many tables at a time, and tells the ledger once for all of them.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from lakeseal.commit.filesystem_owner import txn_id_of
from lakeseal.errors import (
    BackfillMismatch,
    BrokenCommit,
    CorruptTable,
    LakesealError,
    ObjectNotFound,
    StorageError,
    TableVanished,
    VersionNotFound,
    located,
)
from lakeseal.log.ratified_commit import digest, tampered
from lakeseal.owner.content import Content
from lakeseal.owner.messages import TrackedCommit
from lakeseal.owner.ownership import FoundCommit, Ownership
from lakeseal.protocol.paths import (
    COMMITS_DIR,
    LOG_DIR,
    STAGED_COMMITS_DIR,
    LogFileKind,
    commit_path,
    parse,
    version_prefix,
)
from lakeseal.storage import HasDirectories, KeepsTimes, NewObject, Store, SyncsObjects, put_together

if TYPE_CHECKING:
    from lakeseal.owner.book import Book
    from lakeseal.owner.rows import StoredCommit

_PUBLISHED_AT_ONCE = 1000
_BEING_WRITTEN_S = (0.01, 0.05, 0.2)
"""Clients of a catalog publish too, and not all in one step: the beginning of a commit may soon be all of it. Who has
not come to its end by then has died, or writes what is there then anyway."""


class Each(Protocol):
    def __call__(self, do: Callable[[_Due], bool], dues: Iterable[_Due], /) -> Iterable[bool]: ...


def ratified_bytes(store: Store, commit: TrackedCommit) -> bytes:
    """The content of a ratified commit, from wherever it is: the ledger, the staged file, or the log itself. It is what
    was ratified, byte for byte, as far as the ledger knows that: `TamperedCommit` otherwise."""
    ratified = commit.ratified()
    with located(table=store.uri, version=commit.version):
        if ratified.data is not None:
            return ratified.checked(ratified.data)
        try:
            data = store.get(ratified.key)
        except ObjectNotFound:
            # Whoever published it first may have been allowed to tidy up since.
            data = store.get(commit_path(commit.version))
            if txn_id_of(data) != commit.txn_id:
                raise _mismatch(store, commit.version) from None
        if len(data) != commit.size:
            raise tampered(ratified.key)
        return ratified.checked(data)


def publish(store: Store, commit: TrackedCommit) -> None:
    """Returns when `<version>.json` holds exactly the commit, durably. The versions before it must be published
    already."""
    data = ratified_bytes(store, commit)
    key = commit_path(commit.version)
    try:
        if store.put_if_absent(key, data):
            if isinstance(store, KeepsTimes):
                # Clients that go by the times of files see the commit then, and not now.
                with contextlib.suppress(StorageError, ObjectNotFound):
                    store.set_time(key, commit.in_commit_timestamp)
            return
        there = store.get(key)
    except StorageError as error:
        # The reply may be lost, or we may not write where others have written for us: what is there tells.
        try:
            there = store.get(key)
        except ObjectNotFound:
            raise error from None
    for wait_s in (*_BEING_WRITTEN_S, None):
        if there == data or _same_lines(there, data):
            break
        if not data.startswith(there):
            raise _mismatch(store, commit.version)
        if wait_s is None:
            store.put(key, data)
            break
        time.sleep(wait_s)
        there = store.get(key)
    if isinstance(store, SyncsObjects):
        # Whoever put it may not have come to that.
        store.sync(key)


def _same_lines(there: bytes, data: bytes) -> bool:
    """Clients of a catalog publish by themselves, line by line: the last line may have got an end, or lost it."""
    return there.split() == data.split() and there.splitlines() == data.splitlines()


def publish_up_to(
    book: Book,
    stores: Callable[[str], Store],
    wanted: Mapping[str, int | None],
    *,
    each: Each = map,
) -> dict[str, LakesealError]:
    """Of each table every ratified version up to the wanted one, or up to the latest of now: one after the other, and
    the ledger hears of it when the copies are durable. What kept tables from it, by table; the others are done.

    `each` runs a function for several tables, as `map` does."""
    failed: dict[str, LakesealError] = {}
    left = dict(wanted)
    already: dict[str, int] = {}

    def put(due: _Due) -> bool:
        try:
            with located(table=due.table):
                if not already.get(due.table):
                    check_follows(stores(due.table), due.commits[0].commit.version)
                _publish_all(stores(due.table), due.commits, already.get(due.table, 0))
        except LakesealError as error:
            failed[due.table] = error
        return due.table not in failed

    while left:
        dues: list[_Due] = []
        for table, (row, stored) in book.unpublished(left, limit=_PUBLISHED_AT_ONCE).items():
            version = left.pop(table)
            try:
                with located(table=table):
                    due = _due(table, row, stored, row.latest if version is None else version)
            except LakesealError as error:
                failed[table] = error
            else:
                dues += [] if due is None else [due]
        already = _put_together(stores, dues)
        done = [due for due, is_put in zip(dues, each(put, dues), strict=True) if is_put]
        if done:
            book.mark({due.table: (due.reached, due.epoch) for due in done})
        left |= {due.table: due.wanted for due in done if due.reached < due.wanted}
    return failed


class _Due(Struct, frozen=True, kw_only=True):
    """What of a table comes next."""

    table: str
    epoch: int
    commits: Sequence[StoredCommit]
    wanted: int

    @property
    def reached(self) -> int:
        return self.commits[-1].commit.version


def _due(table: str, row: Ownership, stored: Sequence[StoredCommit], wanted: int) -> _Due | None:
    if wanted > row.latest:
        raise VersionNotFound(f"Version {wanted} is not ratified", version=wanted)
    if row.backfilled >= wanted or not row.is_owned:
        return None
    commits = [one for one in stored if one.commit.version <= wanted]
    first = row.backfilled + 1
    if not commits or [one.commit.version for one in commits] != list(range(first, first + len(commits))):
        raise CorruptTable(
            f"The ledger has no row for version {first}, which is ratified and not backfilled",
            version=first,
            hint="The ledger was damaged or restored from an old backup",
        )
    return _Due(table=table, epoch=row.epoch, commits=commits, wanted=wanted)


def check_follows(store: Store, version: int) -> None:
    """Before `version` is put into the log: the one before it is there, as it stays until a later one is. Otherwise
    this is not the log, or not all of it."""
    try:
        store.head(commit_path(version - 1))
    except ObjectNotFound:
        raise TableVanished(
            f"Version {version - 1} is not in the table's log, which {version} has to follow",
            table=store.uri,
            version=version - 1,
        ) from None


def _publish_all(store: Store, due: Sequence[StoredCommit], done: int) -> None:
    """`done` of them are published already."""
    while done < len(due):
        publish(store, due[done].commit)
        done += 1
        # What was wrong with one is not with those that follow.
        (more,) = put_together([(store, _objects(store, due[done:]))])
        done += more if isinstance(more, int) else 0


def _put_together(stores: Callable[[str], Store], dues: Sequence[_Due]) -> dict[str, int]:
    """How many commits of each table, from the first on, are published already, where it is cheaper to put those of all
    tables together. The next one is not as expected, and left to `publish`."""
    found: dict[str, tuple[Store, Iterable[NewObject]]] = {}
    for due in dues:
        # What is wrong is told when it is tried again by itself.
        with contextlib.suppress(LakesealError):
            store = stores(due.table)
            found[due.table] = (store, _objects(store, due.commits))
    made = put_together(list(found.values()))
    return {table: count for table, count in zip(found, made, strict=True) if isinstance(count, int)}


def _objects(store: Store, stored: Sequence[StoredCommit]) -> Iterator[NewObject]:
    """What to put, up to a commit whose bytes cannot be had; nothing if that would not follow what is there."""
    with contextlib.suppress(LakesealError):
        for number, one in enumerate(stored):
            if not number:
                check_follows(store, one.commit.version)
            data = ratified_bytes(store, one.commit)
            # Clients that go by the times of files see the commit then, and not now.
            since = one.commit.in_commit_timestamp
            yield NewObject(key=commit_path(one.commit.version), data=data, modified_ms=since)


class LoggedCommit(Struct, frozen=True, kw_only=True):
    """What the log holds at a version."""

    found: FoundCommit
    content: Content


def look(store: Store, version: int) -> LoggedCommit | None:
    """None only where `version` can still be taken. A version that was cleaned up was taken by nobody knows whom."""
    sha256 = None
    try:
        data = store.get(commit_path(version))
        sha256 = digest(data)
        content = Content.of(data)
    except ObjectNotFound:
        later = (parse(key) for key in store.list_keys(LOG_DIR, after=version_prefix(version)))
        if not any(file is not None and file.version > version for file in later):
            return None
        content = Content()
    except BrokenCommit:
        content = Content()
    info = content.info
    found = FoundCommit(txn_id=None)
    if info is not None:
        found = FoundCommit(txn_id=info.txn_id, timestamp=info.in_commit_timestamp, sha256=sha256)
    return LoggedCommit(found=found, content=content)


def check_log_is_there(store: Store, *, strictly: bool = False) -> None:
    """Before something is put beside a log: on a disk that is away, or whose table was moved for a moment, directories
    would be made anew, and what is put there would be gone when the table is back. An object store has no such state.

    Not `strictly`, a directory of staged commits that is there is taken as a sign of the log."""
    if not isinstance(store, HasDirectories) or (not strictly and _has_staging(store)):
        return
    if not store.has_files(LOG_DIR):
        raise TableVanished("The table's log is not there", table=store.uri)


def _has_staging(store: HasDirectories) -> bool:
    return store.has_directory(COMMITS_DIR) or store.has_directory(STAGED_COMMITS_DIR)


def is_reachable(store: Store) -> bool:
    """Whether the place itself is there, so that what is absent in it was deleted. On a disk that is the table's root
    and the directory that it is in: a mount that is away takes at least one of them along. An object store that
    answers is there."""
    if isinstance(store, HasDirectories):
        return store.is_there()
    store.list_keys(LOG_DIR)
    return True


def tidy(store: Store, below: int) -> int:
    """Deletes what is staged for versions under `below`, ratified or not; how many files that were."""
    old = [
        key
        for directory in (COMMITS_DIR, STAGED_COMMITS_DIR)
        for key in store.list_keys(directory)
        if (file := parse(key)) is not None and file.kind is LogFileKind.STAGED_COMMIT and file.version < below
    ]
    if old:
        store.delete(old)
    return len(old)


def _mismatch(store: Store, version: int) -> BackfillMismatch:
    return BackfillMismatch(
        f"Version {version} is in the log with other content than the owner ratified",
        table=store.uri,
        version=version,
        file=commit_path(version),
    )
