"""An owner's work on the files of a table: publishing ratified commits, looking at the log, tidying up.

`publish` puts a commit's bytes under the version's own name. It is safe to run twice, and by several processes at the
same time. It never overwrites: where the name is taken by other bytes it raises `BackfillMismatch`, because then
somebody has written past the owner. `publish_up_to` does so version by version, and tells the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from lakeseal.commit.filesystem_owner import txn_id_of
from lakeseal.errors import (
    BackfillMismatch,
    BrokenCommit,
    CorruptTable,
    ObjectNotFound,
    StorageError,
    VersionNotFound,
)
from lakeseal.owner.enablement import Content
from lakeseal.owner.messages import TrackedCommit
from lakeseal.owner.ownership import Found
from lakeseal.protocol.paths import COMMITS_DIR, LOG_DIR, LogFileKind, commit_path, parse, version_prefix
from lakeseal.storage.base import LinksObjects, Store

if TYPE_CHECKING:
    from lakeseal.owner.book import Book
    from lakeseal.owner.rows import StoredCommit

_PUBLISHED_AT_ONCE = 100


def ratified_bytes(store: Store, commit: TrackedCommit, inline: bytes | None) -> bytes:
    """The content of a ratified commit, from wherever it is: the staged file, the ledger or the log itself."""
    data = inline
    if data is None:
        try:
            data = store.get(commit.key)
        except ObjectNotFound:
            # Whoever published it first may have been allowed to tidy up since.
            data = store.get(commit_path(commit.version))
            if txn_id_of(data) != commit.txn_id:
                raise _mismatch(store, commit.version, commit.key) from None
    if len(data) != commit.size:
        raise CorruptTable(
            f"The file of the ratified version {commit.version} has {len(data)} bytes and had {commit.size} when it "
            "was ratified",
            table=store.uri,
            version=commit.version,
            file=commit.key,
            hint="Somebody changed a file in _commits: restore it from a backup",
        )
    return data


def publish(store: Store, commit: TrackedCommit, inline: bytes | None = None) -> None:
    """Returns when `<version>.json` holds exactly the commit. The versions before it must be published already."""
    data = ratified_bytes(store, commit, inline)
    key = commit_path(commit.version)
    try:
        if store.put_if_absent(key, data):
            return
        there = store.get(key)
    except StorageError as error:
        # The reply may be lost, or we may not write where others have written for us: what is there tells.
        try:
            there = store.get(key)
        except ObjectNotFound:
            raise error from None
    if there != data:
        raise _mismatch(store, commit.version, commit.key)


def publish_up_to(book: Book, store: Store, table: str, version: int | None = None) -> None:
    """Every ratified version up to `version`, or up to the latest of now: one after the other, and the ledger hears of
    it when the copies are durable."""
    while True:
        row, stored = book.unpublished(table, limit=_PUBLISHED_AT_ONCE)
        version = row.latest if version is None else version
        if version > row.latest:
            raise VersionNotFound(f"Version {version} is not ratified", version=version)
        if row.backfilled >= version or not row.is_in_office:
            return
        due = [one for one in stored if one.commit.version <= version]
        first = row.backfilled + 1
        if not due or [one.commit.version for one in due] != list(range(first, first + len(due))):
            raise CorruptTable(
                f"The ledger has no row for version {first}, which is ratified and not backfilled",
                version=first,
                hint="The ledger was damaged or restored from an old backup",
            )
        done = 0
        while (done := done + _linked(store, due[done:])) < len(due):
            publish(store, due[done].commit, due[done].inline)
            done += 1
        book.mark(table, due[-1].commit.version, epoch=row.epoch)
        if due[-1].commit.version == version:
            return


def _linked(store: Store, stored: Sequence[StoredCommit]) -> int:
    """How many of the commits, from the first on, are published by giving their staged files a second name: where the
    store can, that costs one sync of the directory for all of them. The next one is not as expected, and left to
    `publish`."""
    if not stored or not isinstance(store, LinksObjects):
        return 0
    try:
        whole = [_is_whole(store, one) for one in stored]
        ready = stored[: (*whole, False).index(False)]
        return store.link([(one.commit.key, commit_path(one.commit.version)) for one in ready])
    except StorageError:
        return 0


def _is_whole(store: Store, stored: StoredCommit) -> bool:
    try:
        if stored.inline is None:
            return store.head(stored.commit.key).size == stored.commit.size
        # It was not synced when it was written, and a power cut may have come since.
        return store.get(stored.commit.key) == stored.inline
    except ObjectNotFound:
        return False


def mend(store: Store, stored: Iterable[StoredCommit]) -> None:
    """Puts back what a power cut took of files in `_commits` whose bytes the ledger has."""
    for one in stored:
        if one.inline is not None and not one.backfilled and not _is_whole(store, one):
            store.put(one.commit.key, one.inline)


class LoggedCommit(Struct, frozen=True, kw_only=True):
    """What the log holds at a version."""

    found: Found
    content: Content


def look(store: Store, version: int) -> LoggedCommit | None:
    """None only where `version` can still be taken. A version that was cleaned up was taken by nobody knows whom."""
    try:
        content = Content.of(store.get(commit_path(version)))
    except ObjectNotFound:
        later = (parse(key) for key in store.list_keys(LOG_DIR, after=version_prefix(version)))
        if not any(file is not None and file.version > version for file in later):
            return None
        content = Content()
    except BrokenCommit:
        content = Content()
    info = content.info
    found = Found(txn_id=None) if info is None else Found(txn_id=info.txn_id, timestamp=info.in_commit_timestamp)
    return LoggedCommit(found=found, content=content)


def tidy(store: Store, below: int) -> int:
    """Deletes what lies in `_commits` for versions under `below`, ratified or not; how many files that were."""
    old = [
        key
        for key in store.list_keys(COMMITS_DIR)
        if (file := parse(key)) is not None and file.kind is LogFileKind.STAGED_COMMIT and file.version < below
    ]
    if old:
        store.delete(old)
    return len(old)


def _mismatch(store: Store, version: int, key: str) -> BackfillMismatch:
    return BackfillMismatch(
        f"Version {version} is in the log with other content than the owner ratified, which is in {key}",
        table=store.uri,
        version=version,
        file=commit_path(version),
    )
