"""DeltaLog: the log of one open table, read from its store.

- `snapshot()` is the newest version; what another client acknowledged before the call is in it (B5).
- An open table costs only its new commits: the newest snapshot is kept, and the next one is replayed on top of it.
- A checkpoint, compaction or `_last_checkpoint` that is broken, torn or missing costs time, never the answer.
- A version checksum that does not fit the log is warned of, or raised where the reader's `Trust` insists on it.
- A commit source (an owner's un-backfilled commits) is asked before the log is listed, because a commit may be
  backfilled and forgotten in between, and the other order would miss it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from threading import RLock
from typing import TypeVar

import msgspec

from lakeseal.errors import (
    BrokenCheckpoint,
    BrokenCommit,
    CorruptTable,
    EmptyLog,
    LakesealError,
    LogGap,
    ObjectNotFound,
    TableNotFound,
    UnsupportedFeature,
    VersionNotFound,
    located,
)
from lakeseal.log import last_checkpoint
from lakeseal.log.checkpoint_reader import read_checkpoint
from lakeseal.log.checksum import mismatch, warn
from lakeseal.log.clone_source import CLONE_SOURCES, source_of_clone
from lakeseal.log.ratified_commit import NOTHING_TOLD, CommitSource, Told
from lakeseal.log.replay import LogCommit, TableState, replay
from lakeseal.log.segment import LogListing, LogSegment, Place, choose, sort_out
from lakeseal.log.snapshot import Snapshot
from lakeseal.protocol import codec
from lakeseal.protocol.actions import Action, CommitInfo
from lakeseal.protocol.data_paths import has_absolute
from lakeseal.protocol.features import check_writable, supports
from lakeseal.protocol.paths import (
    LAST_CHECKPOINT,
    LOG_DIR,
    checksum_path,
    commit_path,
    version_prefix,
)
from lakeseal.storage.base import Store
from lakeseal.trust import Trust

T = TypeVar("T")

_COMMITS_AT_ONCE = 64
_IDENTITY_BYTES = 1024
_KEPT_BYTES = 1 << 16
_PROBES = 3


class DeltaLog:
    def __init__(self, store: Store, *, commit_source: CommitSource | None = None, trust: Trust | None = None) -> None:
        self.store = store
        self.trust = trust or Trust()
        self._source = commit_source
        self._has_learned = False
        self._lock = RLock()
        self._latest: Snapshot | None = None
        self._latest_commit: bytes | None = None
        self._newest_commits: dict[int, bytes] = {}
        """Those that the last refresh has read: whoever lost a race asks for them next."""
        self._also: DeltaLog | None = None
        """Is told of newer snapshots."""

    @property
    def is_by_path(self) -> bool:
        """Whether nobody is asked but the log itself."""
        return self._source is None

    @property
    def table(self) -> str:
        return self.store.uri

    def update(self) -> Snapshot | None:
        """The newest snapshot, or None where there is no table."""
        try:
            return self.snapshot()
        except TableNotFound:
            return None

    def asking(self, source: CommitSource) -> DeltaLog:
        """Another log of this table that asks `source`, of the same owner as this one's. It begins with what is known
        here, so that only what came since is read; what it finds is known here then, too."""
        other = DeltaLog(self.store, commit_source=source, trust=self.trust)
        with self._lock:
            other._latest, other._latest_commit = self._latest, self._latest_commit
            other._has_learned = self._has_learned
        other._also = self
        return other

    def _keep(self, snapshot: Snapshot, beginning: bytes | None) -> None:
        self._latest, self._latest_commit = snapshot, beginning
        other = self._also
        if other is not None:
            with other._lock:
                if other._latest is None or other._latest.version < snapshot.version:
                    other._latest, other._latest_commit = snapshot, beginning

    def snapshot(self, version: int | None = None) -> Snapshot:
        with self._lock, located(table=self.table):
            if version is None:
                snapshot = self._refreshed(self._latest) if self._latest is not None else None
                return snapshot or self._load_newest()
            if version < 0:
                raise VersionNotFound(f"Version {version} is not a version", hint="Versions count from 0")
            if self._latest is not None and self._latest.version == version:
                return self._latest
            return self._load(version)

    def with_commit(self, snapshot: Snapshot | None, version: int, data: bytes) -> Snapshot:
        """The snapshot after a commit that this client has just made, without reading it back."""
        commit = LogCommit(version=version, file=commit_path(version), data=data)
        with self._lock, located(table=self.table):
            state = replay(snapshot.state if snapshot is not None else None, [commit])
            after = Snapshot.of(self.table, state, self.trust)
            if self._latest is None or self._latest.version < version:
                self._keep(after, data[:_IDENTITY_BYTES])
            return after

    def commit_bytes(self, version: int) -> bytes:
        with located(table=self.table):
            try:
                return self.store.get(commit_path(version))
            except ObjectNotFound:
                # It may be backfilled and forgotten between the two questions.
                found = self._probe(version, self._told(version))
            if found is None:
                raise VersionNotFound(
                    f"There is no commit {version}",
                    version=version,
                    file=commit_path(version),
                    hint="It has not happened yet, or the log was cleaned up",
                )
            return found.data

    def commit_actions(self, version: int) -> list[Action]:
        with located(table=self.table, version=version, file=commit_path(version)):
            return codec.decode(self._newest_commits.get(version) or self.commit_bytes(version))

    def commits(self, start: int, end: int) -> Iterator[LogCommit]:
        """The commits `start` to `end`, both included, from under their own names in the log."""
        with located(table=self.table):
            yield from self._commits((version, commit_path(version)) for version in range(start, end + 1))

    def commit_info(self, version: int) -> CommitInfo | None:
        """What the writer of a version recorded; of a commit's million files hardly a line is decoded."""
        data = self.commit_bytes(version)
        with located(table=self.table, version=version, file=commit_path(version)):
            return commit_info_in(data)

    def listing(self) -> LogListing:
        """Everything that is there, for history, clean-up and the like."""
        with located(table=self.table):
            told = self._told(0)
            return sort_out(self.store.list_keys(LOG_DIR), told)

    def state(self, version: int, *, with_removes: bool = False, only_keys: bool = False) -> TableState:
        """The state of a version as it is stored, with its tombstones where they are wanted: what a checkpoint holds.

        `only_keys` reads no more of the files in a checkpoint than their keys."""

        def read(listing: LogListing, excluded: set[str]) -> TableState:
            return self._read(listing, version, excluded, with_removes=with_removes, only_keys=only_keys)

        with located(table=self.table):
            return self._read_listed(version, read)

    def in_memory(self, version: int) -> Snapshot | None:
        """The snapshot of that version, if it is the one that is kept."""
        latest = self._latest
        return latest if latest is not None and latest.version == version else None

    def _told(self, start_version: int) -> Told:
        return NOTHING_TOLD if self._source is None else self._source.unbackfilled(start_version)

    def _load_newest(self) -> Snapshot:
        snapshot = self._load(None)
        beginning = self._beginning(snapshot.version, NOTHING_TOLD)
        if beginning is None and self._source is not None:
            beginning = self._beginning(snapshot.version, self._told(snapshot.version))
        self._keep(snapshot, beginning)
        return snapshot

    def _beginning(self, version: int, all_told: Told) -> bytes | None:
        """What tells a commit from that of another table of the same place: ids and times come first in it."""
        told = all_told.commits.get(version)
        if told is not None and told.data is not None:
            return told.data[:_IDENTITY_BYTES]
        for key in (commit_path(version), None if told is None else told.key):
            if key is not None:
                try:
                    return self.store.get_range(key, 0, _IDENTITY_BYTES)
                except ObjectNotFound:
                    continue
        return None

    def _refreshed(self, latest: Snapshot) -> Snapshot | None:
        """`latest` with the commits above it, or None where only reading anew can tell."""
        self._newest_commits = {}
        told = self._told(latest.version)
        if self._latest_commit is not None and self._beginning(latest.version, told) != self._latest_commit:
            return None  # the table was dropped, and perhaps made anew
        commits: list[LogCommit] = []
        while True:
            version = latest.version + len(commits) + 1
            commit = self._probe(version, told)
            if commit is None:
                break
            commits.append(commit)
            if len(commits) >= _PROBES:
                commits += self._listed_above(version, told)
                break
        if not commits:
            hint = self._hint()
            # Below a checkpoint commits may have been cleaned up, so that the next one is missing but not the last.
            newer = hint is not None and latest.version < hint.version and told.goes_to(hint.version)
            return None if newer else latest
        snapshot = Snapshot.of(self.table, replay(latest.state, commits), self.trust)
        self._keep(snapshot, commits[-1].data[:_IDENTITY_BYTES])
        self._newest_commits = {c.version: c.data for c in commits if len(c.data) <= _KEPT_BYTES}
        return snapshot

    def _probe(self, version: int, all_told: Told) -> LogCommit | None:
        if not all_told.goes_to(version):
            return None
        told, name = all_told.commits.get(version), commit_path(version)
        if told is not None and told.data is not None:
            return _commit(version, name, told.read(self.store))
        places: tuple[Place, ...] = (name,)
        if told is not None:
            # Again: it may be published and tidied up between the two.
            places = (name, told, name) if all_told.up_to is None else (told, name)
        for place in places:
            try:
                if isinstance(place, str):
                    return _commit(version, name, self.store.get(name))
                return _commit(version, place.key, place.read(self.store))
            except ObjectNotFound:
                continue
        return None

    def _listed_above(self, version: int, told: Told) -> list[LogCommit]:
        names = self.store.list_keys(LOG_DIR, after=commit_path(version))
        later = {v: commit for v, commit in told.commits.items() if v > version}
        listing = sort_out(names, Told(commits=later, up_to=told.up_to))
        found = []
        while (version + 1) in listing.commits:
            version += 1
            found.append((version, listing.commits[version]))
        return list(self._commits(found))

    def _load(self, version: int | None) -> Snapshot:
        gone, missing = False, None
        while True:
            try:
                return self._load_listed(version)
            except ObjectNotFound:
                # What was listed is gone: the log was cleaned up meanwhile, so another listing tells.
                if gone:
                    raise
                gone = True
            except LogGap as gap:
                # A listing is no snapshot: of two commits that came while it ran, it may hold the later one only.
                # Both were there before the next listing began, so what is missing in that as well is truly missing.
                if gap.missing == missing:
                    raise
                missing = gap.missing

    def _load_listed(self, version: int | None) -> Snapshot:
        return self._read_listed(version, lambda listing, excluded: self._snapshot_of(listing, version, excluded))

    def _read_listed(self, version: int | None, read: Callable[[LogListing, set[str]], T]) -> T:
        """What `read` makes of the part of the log from the last checkpoint on, or of all of it where that won't do."""
        told = self._told(0)
        excluded: set[str] = set()
        broken: BrokenCheckpoint | None = None
        hint = self._hint()
        if hint is not None and (version is None or hint.version <= version):
            names = self.store.list_keys(LOG_DIR, after=version_prefix(hint.version))
            try:
                return read(sort_out(names, told), excluded)
            except BrokenCheckpoint as error:
                broken = error
            except (LogGap, EmptyLog, VersionNotFound):
                pass  # the hint was wrong: look at everything
        names = self.store.list_keys(LOG_DIR)
        if not names and not told.commits:
            raise TableNotFound("There is no table here: it has no _delta_log")
        try:
            return read(sort_out(names, told), excluded)
        except (LogGap, VersionNotFound) as error:
            raise broken or error from None

    def _snapshot_of(self, listing: LogListing, version: int | None, excluded: set[str]) -> Snapshot:
        state = self._read(listing, version, excluded)
        self._learn_source(state)
        snapshot = Snapshot.of(self.table, state, self.trust)
        if snapshot.properties.in_commit_timestamps and state.commit_info is None and state.version in listing.commits:
            info = self.commit_info(state.version)
            snapshot = Snapshot.of(self.table, msgspec.structs.replace(state, commit_info=info), self.trust)
        if state.version in listing.checksums:
            self._verify(snapshot)
        return snapshot

    def _learn_source(self, state: TableState) -> None:
        """Another client's clone says only in its first commit where its files are."""
        if self._has_learned or not has_absolute(state.files["path"]):
            return
        self._has_learned = True
        configuration = {} if state.metadata is None else state.metadata.configuration
        if CLONE_SOURCES not in configuration:
            with suppress(VersionNotFound, ObjectNotFound, CorruptTable):
                source = source_of_clone(self.commit_info(0))
                self.trust = msgspec.structs.replace(self.trust, places=(*self.trust.places, *source))

    def _verify(self, snapshot: Snapshot) -> None:
        try:
            found = mismatch(snapshot, self.store.get(checksum_path(snapshot.version)))
        except ObjectNotFound:
            return
        if found is not None and self.trust.insist_on_checksums:
            raise found
        if found is not None:
            warn(found)

    def _read(
        self,
        listing: LogListing,
        version: int | None,
        excluded: set[str],
        *,
        with_removes: bool = False,
        only_keys: bool = False,
    ) -> TableState:
        first: LakesealError | None = None
        while True:
            try:
                segment = choose(listing, version, excluded=excluded)
            except (LogGap, VersionNotFound) as error:
                # Without the broken file the log does not reach: then that file is the trouble.
                raise first or error from None
            try:
                return self._replay(segment, with_removes=with_removes, only_keys=only_keys)
            except BrokenCheckpoint as error:
                first = first or error
                excluded |= segment.checkpoint_names
            except (BrokenCommit, ObjectNotFound) as error:
                compacted = _compacted(segment, error)
                if compacted is None:
                    raise
                first = first or error
                excluded.add(compacted)

    def _replay(self, segment: LogSegment, *, with_removes: bool, only_keys: bool) -> TableState:
        base = None
        if segment.checkpoint:
            with located(version=segment.checkpoint_version):
                base = read_checkpoint(
                    self.store,
                    segment.checkpoint_version,
                    segment.checkpoint,
                    with_removes=with_removes,
                    only_keys=only_keys,
                    limit=self.trust.max_decoded_bytes,
                )
        return replay(base, self._commits(segment.commits), with_removes=with_removes)

    def _commits(self, places: Iterable[tuple[int, Place]]) -> Iterator[LogCommit]:
        wanted = list(places)
        for start in range(0, len(wanted), _COMMITS_AT_ONCE):
            some = wanted[start : start + _COMMITS_AT_ONCE]
            keys = [place if isinstance(place, str) else place.key for _, place in some if not _is_told_whole(place)]
            read = iter(self.store.get_many(keys))
            for version, place in some:
                if isinstance(place, str):
                    yield _commit(version, place, next(read))
                else:
                    data = next(read) if place.data is None else place.data
                    yield _commit(version, place.key, place.checked(data))

    def _hint(self) -> last_checkpoint.LastCheckpoint | None:
        try:
            return last_checkpoint.parse(self.store.get(LAST_CHECKPOINT))
        except ObjectNotFound:
            return None


def _commit(version: int, key: str, data: bytes) -> LogCommit:
    if not data:
        raise BrokenCommit("The commit file is empty", version=version, file=key)
    return LogCommit(version=version, file=key, data=data)


def _is_told_whole(place: Place) -> bool:
    return not isinstance(place, str) and place.data is not None


def _compacted(segment: LogSegment, error: LakesealError) -> str | None:
    """The name of the compacted file that `error` is about, if it is about one."""
    for _, key in segment.commits:
        if isinstance(key, str) and key.endswith(".compacted.json") and error.file == key:
            return key.removeprefix(LOG_DIR)
    return None


def check_upkeep(log: DeltaLog, snapshot: Snapshot) -> None:
    """Whether what is written beside the commits may be written by this client. What a table of a catalog consists of,
    only the catalog knows, so it has to be asked."""
    check_writable(snapshot.protocol, snapshot.metadata)
    if log.is_by_path and supports(snapshot.protocol, "catalogManaged"):
        raise UnsupportedFeature(
            "The upkeep of a table that needs catalogManaged goes through its catalog, and none was asked",
            hint="Open the table through its catalog",
        )


def commit_info_in(data: bytes) -> CommitInfo | None:
    """Of a whole commit; hardly another line of it is decoded."""
    start, number = 0, 1
    while start < len(data):
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        # A key that is not there as it is, is there with escapes or not at all.
        if data.find(b'"commitInfo"', start, end) >= 0 or data.find(b"\\u", start, end) >= 0:
            action = codec.decode_line(data[start:end], number)[0]
            if isinstance(action, CommitInfo):
                return action
        start, number = end + 1, number + 1
    return None
