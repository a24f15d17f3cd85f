"""The file system as owner: a version belongs to whoever puts `_delta_log/<version>.json` there first.

The store's put-if-absent is the commit point. A name that is taken is always read back before it is called a conflict,
because stores retry on their own: the first try may have landed and the second met it.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from lakeseal import typed_json
from lakeseal.commit.owner import Commits, Committed, Conflict, Outcome, Unresolved
from lakeseal.errors import ObjectNotFound, StorageUnavailable, VersionNotFound
from lakeseal.log.ratified_commit import RatifiedCommit
from lakeseal.protocol.paths import LOG_DIR, LogFileKind, commit_path, parse, version_prefix
from lakeseal.storage.base import Store


class FilesystemOwner:
    def __init__(self, store: Store) -> None:
        self._store = store

    def commit(self, version: int, data: bytes, *, txn_id: str, in_commit_timestamp: int | None = None) -> Outcome:
        if version > 0 and not self._can_follow(version - 1):
            raise VersionNotFound(
                f"Version {version} cannot be committed, because version {version - 1} is not in the log",
                table=self._store.uri,
                version=version - 1,
                hint="The table was dropped or its log was cut while this was being written: open it again",
            )
        try:
            won = self._store.put_if_absent(commit_path(version), data)
        except StorageUnavailable as error:
            return self._read_back(version, txn_id, in_commit_timestamp, reason=str(error))
        if won:
            return _committed(version, txn_id, in_commit_timestamp)
        return self._read_back(version, txn_id, in_commit_timestamp, reason="the version was there and then was not")

    def outcome(self, version: int, txn_id: str) -> Outcome:
        """What came of a commit that was asked for, as the log has it; nothing is asked for."""
        return self._read_back(version, txn_id, None, reason="the version is not there")

    def get_commits(self, start_version: int) -> Commits:
        found = []
        for key in self._store.list_keys(LOG_DIR, after=version_prefix(max(start_version, 0))):
            file = parse(key)
            if file is not None and file.kind is LogFileKind.COMMIT:
                found.append(file.version)
        # Contiguous from the end: what is below a hole has been cleaned up behind a checkpoint.
        first = next((i for i in range(len(found) - 1, 0, -1) if found[i] != found[i - 1] + 1), 0)
        commits = tuple(RatifiedCommit(version=v, key=commit_path(v)) for v in found[first:])
        return Commits(commits=commits, latest=commits[-1].version if commits else self._latest_below(start_version))

    def backfill_to_version(self, version: int) -> None:
        if not self._has(version) and self.get_commits(version).latest < version:
            raise VersionNotFound(f"Version {version} is not committed", table=self._store.uri, version=version)

    def _has(self, version: int) -> bool:
        try:
            self._store.head(commit_path(version))
        except ObjectNotFound:
            return False
        return True

    def _can_follow(self, version: int) -> bool:
        """May the version behind `version` be put? If its file is gone, only a look at all that is later can tell: a
        writer that slept through a clean-up must not fill a place that was taken once."""
        if self._has(version):
            return True
        later = [f for key in self._store.list_keys(LOG_DIR, after=version_prefix(version)) if (f := parse(key))]
        if any(f.kind is LogFileKind.COMMIT and f.version == version + 1 for f in later):
            return True
        return any(f.is_checkpoint for f in later) and all(f.version == version for f in later)

    def _latest_below(self, version: int) -> int:
        if version <= 0:
            return -1
        files = (parse(key) for key in self._store.list_keys(LOG_DIR))
        return max((f.version for f in files if f is not None and f.kind is LogFileKind.COMMIT), default=-1)

    def _read_back(self, version: int, txn_id: str, timestamp: int | None, *, reason: str) -> Outcome:
        try:
            there = self._store.get(commit_path(version))
        except ObjectNotFound:
            return Unresolved(version=version, reason=reason)
        except StorageUnavailable as error:
            return Unresolved(version=version, reason=str(error))
        if txn_id_of(there) == txn_id:
            return _committed(version, txn_id, timestamp)
        return Conflict(version=version)


class _Info(Struct, rename="camel"):
    txn_id: str | None = None


class _Line(Struct, rename="camel"):
    commit_info: _Info | None = None


def txn_id_of(data: bytes) -> str | None:
    """The transaction that wrote a commit file, if the file says so; None also for bytes that are no commit."""
    for line in data.split(b"\n"):
        # A key that is not there as it is, is there with escapes or not at all.
        if b'"commitInfo"' in line or b"\\u" in line:
            try:
                info = typed_json.decode(line, _Line).commit_info
            except (msgspec.DecodeError, UnicodeError, RecursionError):
                continue
            if info is not None:
                return info.txn_id
    return None


def _committed(version: int, txn_id: str, timestamp: int | None) -> Committed:
    return Committed(
        commit=RatifiedCommit(version=version, key=commit_path(version), txn_id=txn_id, in_commit_timestamp=timestamp)
    )
